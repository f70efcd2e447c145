"""`onnxmt migrate`: the main job."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmt.commands._options import AsJson, Model, OutputFolder, Overwrite, Precision

if TYPE_CHECKING:
    from onnxmt.bundle import Bundle
    from onnxmt.migrate import MigrateResult

SAMPLES = ("Good morning.", "Where is the nearest station, and how much does a ticket cost?")


class Judge(StrEnum):
    """The values of --verify; the same as `migrate.VerifyMode`, in the form that every supported typer reads."""

    AUTO = "auto"
    LIVE = "live"
    RECORDING = "recording"
    NONE = "none"


def migrate(
    model: Model,
    output: OutputFolder = None,
    precision: Precision = "fp32",
    verify: Annotated[
        Judge,
        typer.Option(
            help="Judge the graphs by PyTorch (live), by a recording beside the checkpoint, by what there is (auto), "
            "or not at all."
        ),
    ] = Judge.AUTO,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Migrate MODEL to a bundle, and prove that it equals PyTorch.

    Reads the checkpoint, builds the graphs from its weights, compares them layer by layer with PyTorch or with a
    recording of it, and writes a folder that needs nothing else. Prints the verification, two translations, and the
    folder's path as the last line. When anything fails, nothing is left behind.

    \b
    Examples:
      onnxmt migrate demo
      onnxmt migrate Helsinki-NLP/opus-mt-en-zh -o en-zh
      onnxmt migrate ./my-checkpoint --verify none --json
    """
    from onnxmt.commands._console import step_progress
    from onnxmt.commands._options import bundle_folder
    from onnxmt.migrate import MigrateOptions
    from onnxmt.migrate import migrate as run
    from onnxmt.precision import recipe

    options = MigrateOptions(precision=recipe(precision), verify=verify.value, overwrite=overwrite)
    folder = bundle_folder(output, model=model, precision=options.precision.name)
    with step_progress() as progress:
        result = run(model, folder, options=options, progress=progress)
        progress.step("translate two sentences")
        samples = _samples(result.bundle)
    show_result(result, samples, as_json=as_json)


def show_result(result: MigrateResult, samples: list[tuple[str, str]], *, as_json: bool) -> None:
    """Print what was made: warnings, the verification, sample translations, the path."""
    from onnxmt.commands._console import print_json, stdout_console, warn

    bundle, report = result.bundle, result.report
    if as_json:
        print_json(result_json(result, samples))
        return
    for warning in result.warnings:
        warn(warning)
    if report is not None:
        report.print_to(stdout_console())
    if samples:
        print()
    for source, text in samples:
        print(f"{source}\n  → {text}")
    if samples or report is not None:
        print()
    print(bundle.folder)


def result_json(result: MigrateResult, samples: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the result as JSON values."""
    bundle, report = result.bundle, result.report
    return {
        "bundle": str(bundle.folder),
        "name": bundle.manifest.name,
        "precision": bundle.manifest.recipe,
        "bytes": bundle.size,
        "status": bundle.manifest.verification.status,
        "verification": None if report is None else report.to_dict(),
        "samples": [{"source": source, "text": text} for source, text in samples],
        "warnings": list(result.warnings),
    }


def _samples(bundle: Bundle) -> list[tuple[str, str]]:
    """Two English sentences by the new bundle, as a user would translate them; none where it reads another language."""
    from onnxmt.runtime.languages import parse_language
    from onnxmt.runtime.translator import Translator

    languages = [parse_language(code) for code in bundle.manifest.languages.source]
    if languages and not any(language is not None and language.base == "eng" for language in languages):
        return []
    with Translator.load(bundle.folder) as translator:
        return list(zip(SAMPLES, translator.translate(SAMPLES), strict=True))
