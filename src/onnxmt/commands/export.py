"""`onnxmt export`: a bundle without its proof, or a layout for other runtimes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxmt.commands._options import (
    AsJson,
    CalibrationFile,
    KeepFp32,
    Model,
    OutputFolder,
    Overwrite,
    Precision,
    Prefix,
    Source,
    Target,
    TrimHead,
)

if TYPE_CHECKING:
    from onnxmt.layouts import LayoutOptions, WrittenLayout
    from onnxmt.progress import Progress

LayoutWriter = Callable[[str, "Path", "LayoutOptions", "Progress"], "WrittenLayout"]


def _standard(model: str, folder: Path, options: LayoutOptions, progress: Progress) -> WrittenLayout:
    from onnxmt.layouts.standard import export_standard

    return export_standard(model, folder, options=options, progress=progress)


def _single(model: str, folder: Path, options: LayoutOptions, progress: Progress) -> WrittenLayout:
    from onnxmt.layouts.single import export_single

    return export_single(model, folder, options=options, progress=progress)


def _triton(model: str, folder: Path, options: LayoutOptions, progress: Progress) -> WrittenLayout:
    from onnxmt.layouts.triton import export_triton

    return export_triton(model, folder, options=options, progress=progress)


# What --layout may say beside `bundle`, and who writes it.
LAYOUT_WRITERS: dict[str, LayoutWriter] = {"standard": _standard, "single": _single, "triton": _triton}
_BUNDLE = "bundle"

Layout = Annotated[
    str,
    typer.Option(
        "--layout",
        metavar="NAME",
        help="bundle (for onnxmt itself), standard (plain ONNX operators in the files and names that Optimum and "
        "transformers.js read), single (encoder, decoder and search in one graph, for any ONNX Runtime), or "
        "triton (that graph as a model repository); of another than bundle, the folder is ./NAME-LAYOUT-PRECISION.",
    ),
]
Opset = Annotated[
    int | None,
    typer.Option("--opset", metavar="N", help="The ONNX opset of another layout.  [default: the layout's own]"),
]
SelfContained = Annotated[
    bool,
    typer.Option(
        "--self-contained", help="standard: each graph holds its weights, instead of one file for all (browsers)."
    ),
]
Beams = Annotated[
    int | None,
    typer.Option("--beams", metavar="N", help="single, triton: beams of the built-in search.  [default: the model's]"),
]
Text = Annotated[
    bool,
    typer.Option(
        "--text", help="single: text in, text out, by onnxruntime-extensions' tokenizer operators (Marian models)."
    ),
]


def export(
    model: Model,
    output: OutputFolder = None,
    layout: Layout = _BUNDLE,
    opset: Opset = None,
    self_contained: SelfContained = False,
    beams: Beams = None,
    text: Text = False,
    precision: Precision = "fp32",
    keep_fp32: KeepFp32 = None,
    trim_head: TrimHead = False,
    calibration: CalibrationFile = None,
    source: Source = None,
    target: Target = None,
    prefix: Prefix = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write an unverified bundle, or files for other runtimes.

    --layout says which files. A bundle needs neither PyTorch nor a recording for this; it says `unverified` wherever it
    is shown, until `onnxmt verify BUNDLE --reference MODEL
    --write` has judged it. A layout is compared with our own graphs before it
    appears. Prints the folder's path.

    \b
    Examples:
      onnxmt export Helsinki-NLP/opus-mt-en-zh -o en-zh
      onnxmt export Helsinki-NLP/opus-mt-en-zh --layout standard -o en-zh-onnx
      onnxmt export Helsinki-NLP/opus-mt-en-zh --layout single --precision int8 -o en-zh-single
    """
    from onnxmt.commands._console import step_progress
    from onnxmt.commands._options import bundle_folder, chosen_recipe
    from onnxmt.errors import UsageError

    recipe = chosen_recipe(precision, keep_fp32, calibration, trim_head=trim_head)
    if layout != _BUNDLE:
        from onnxmt.layouts import LayoutOptions

        if calibration is not None:
            raise UsageError("--calibration is for a bundle: no other layout holds int8-static")
        if recipe.trim_head:
            raise UsageError("--trim-head is for a bundle: other runtimes take column k of the logits for token k")
        wanted = LayoutOptions(
            precision=recipe,
            opset=opset,
            self_contained=self_contained,
            overwrite=overwrite,
            source=source,
            target=target,
            prefix=prefix,
            beams=beams,
            text=text,
        )
        _export_layout(layout, model, output, wanted, as_json=as_json)
        return
    flags = {
        "--opset": opset is not None,
        "--self-contained": self_contained,
        "--beams": beams is not None,
        "--text": text,
    }
    if flag := next((name for name, given in flags.items() if given), None):
        raise UsageError(f"{flag} is for another --layout; a bundle has one form, and translate has --beams")
    from onnxmt.commands.migrate import show_result
    from onnxmt.measure.calibration_options import CalibrationOptions
    from onnxmt.migration import MigrateOptions
    from onnxmt.migration import export as run

    options = MigrateOptions(
        precision=recipe,
        verify="none",
        calibration=CalibrationOptions(file=calibration, source=source, target=target),
        overwrite=overwrite,
        source=source,
        target=target,
        prefix=prefix,
    )
    folder = bundle_folder(output, model=model, precision=options.precision.name)
    with step_progress() as progress:
        result = run(model, folder, options=options, progress=progress)
    show_result(result, [], as_json=as_json)


def _export_layout(layout: str, model: str, output: Path | None, options: LayoutOptions, *, as_json: bool) -> None:
    """Write one of LAYOUT_WRITERS and show it."""
    from onnxmt.commands._console import print_json, step_progress, warn
    from onnxmt.commands._options import bundle_folder
    from onnxmt.errors import UsageError

    if layout not in LAYOUT_WRITERS:
        raise UsageError(f"--layout is {layout!r}; allowed: {', '.join((_BUNDLE, *LAYOUT_WRITERS))}")
    folder = bundle_folder(output, model=model, precision=f"{layout}-{options.precision.name}")
    with step_progress() as progress:
        written = LAYOUT_WRITERS[layout](model, folder, options, progress)
    if as_json:
        print_json({"folder": str(written.folder), **written.provenance, "warnings": list(written.warnings)})
        return
    for warning in written.warnings:
        warn(warning)
    print(written.folder)
