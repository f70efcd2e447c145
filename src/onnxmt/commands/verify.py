"""`onnxmt verify`: replay the proof of a bundle, or judge it by PyTorch."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxmt.commands._options import AsJson, BundleFolder, Sentences, Source, Target


def verify(
    bundle: BundleFolder,
    reference: Annotated[
        str,
        typer.Option(
            metavar="MODEL|recording",
            help="The checkpoint to run in PyTorch (a folder, a hub id, demo), or the bundle's own recording.",
        ),
    ] = "recording",
    source: Source = None,
    target: Target = None,
    sentences: Sentences = None,
    write: Annotated[bool, typer.Option("--write", help="Write the result into the bundle's manifest.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare BUNDLE with PyTorch, layer by layer.

    By default with the recording in the bundle of what PyTorch said when it was made: that needs no torch. Exit code
    1 when a layer differs; the first tensor and step that diverge are named. Of a bundle that is not fp32 only the
    tokens are compared: the tokenizer's must be equal, the translations' are counted. Languages are those that the
    bundle was made for; others can be verified with --target and --reference MODEL.

    \b
    Examples:
      onnxmt verify ./en-zh
      onnxmt verify ./en-zh --reference Helsinki-NLP/opus-mt-en-zh
    """
    from onnxmt.commands._console import print_json, stdout_console, step_progress, warn
    from onnxmt.verification import VerifyBundleOptions
    from onnxmt.verification import verify as run

    options = VerifyBundleOptions(reference=reference, source=source, target=target, sentences=sentences, write=write)
    with step_progress() as progress:
        done = run(bundle, options=options, progress=progress)
    for warning in done.warnings:
        warn(warning)
    if as_json:
        print_json({"bundle": str(done.bundle.folder), **done.report.to_dict()})
    else:
        done.report.print_to(stdout_console())
    if not done.report.passed:
        raise typer.Exit(1)
