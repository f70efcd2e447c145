"""`onnxmt migrate`: the main job."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    Sentences,
    Source,
    Target,
    TrimHead,
)

if TYPE_CHECKING:
    from onnxmt.bundle import Bundle
    from onnxmt.measure.gate_report import GateReport
    from onnxmt.migration import MigrateResult

SAMPLES = ("Good morning.", "Where is the nearest station, and how much does a ticket cost?")


class Judge(StrEnum):
    """The values of --verify; the same as `migrate.VerifyMode`, in the form that every supported typer reads."""

    AUTO = "auto"
    LIVE = "live"
    RECORDING = "recording"
    NONE = "none"


class Gate(StrEnum):
    """The values of --gate; the same as `migrate.GateMode`."""

    ENFORCE = "enforce"
    REPORT = "report"
    OFF = "off"


def migrate(
    model: Model,
    output: OutputFolder = None,
    precision: Precision = "int8",
    keep_fp32: KeepFp32 = None,
    trim_head: TrimHead = False,
    calibration: CalibrationFile = None,
    source: Source = None,
    target: Target = None,
    prefix: Prefix = None,
    verify: Annotated[
        Judge,
        typer.Option(
            help="Judge the graphs by PyTorch (live), by a recording beside the checkpoint, by what there is (auto), "
            "or not at all."
        ),
    ] = Judge.AUTO,
    sentences: Sentences = None,
    gate: Annotated[
        Gate,
        typer.Option(
            help="A precision that loses more than the limits against fp32 stops the migration (enforce), is only "
            "reported (report), or nothing is evaluated (off)."
        ),
    ] = Gate.ENFORCE,
    max_bleu_drop: Annotated[
        float, typer.Option(metavar="X", help="BLEU points that may be lost; a domain or length may lose twice that.")
    ] = 0.5,
    max_chrf_drop: Annotated[
        float | None, typer.Option(metavar="X", help="The same for chrF.  [default: 0.7 of the BLEU points]")
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Evaluate on these lines (DOMAIN, SOURCE, REFERENCE between tabs) instead of the shipped ones.",
        ),
    ] = None,
    bench: Annotated[
        bool,
        typer.Option(
            "--bench/--no-bench",
            help="Measure the speed of single sentences, beside PyTorch where it is installed (up to a minute).",
        ),
    ] = True,
    max_p50_ms: Annotated[
        float | None,
        typer.Option("--max-p50-ms", metavar="X", help="The median of single sentences at the default beams, at most."),
    ] = None,
    max_p99_ms: Annotated[
        float | None, typer.Option("--max-p99-ms", metavar="X", help="The slowest hundredth of them, at most.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Migrate MODEL to a bundle, and prove that it equals PyTorch.

    Reads the checkpoint, builds the graphs in fp32, compares them layer by layer with PyTorch or with a recording of
    it, then builds them in the precision wanted and compares translations (BLEU, chrF; greedy and beam 4; by domain and
    length), and times single sentences. Writes a folder that needs nothing else, and prints its path as the last line.
    When anything fails, or a limit is missed (exit code 1), nothing is left behind.

    A model of many languages (NLLB, M2M100, mBART-50) needs --target; that language, and --source, are what the bundle
    translates between where `onnxmt translate` names none. `onnxmt inspect MODEL` says what a model needs.

    \b
    Examples:
      onnxmt migrate demo
      onnxmt migrate Helsinki-NLP/opus-mt-en-zh -o en-zh --max-bleu-drop 0.3 --max-p99-ms 250
      onnxmt migrate facebook/m2m100_418M --source en --target zh
      onnxmt migrate ./my-checkpoint --precision fp32
      onnxmt migrate ./my-checkpoint --verify none --json
    """
    from onnxmt.commands._console import step_progress
    from onnxmt.commands._options import bundle_folder, chosen_recipe
    from onnxmt.errors import QualityGateError
    from onnxmt.measure.bench.migration import SpeedLimits
    from onnxmt.measure.calibration_options import CalibrationOptions
    from onnxmt.measure.gate_report import GateLimits
    from onnxmt.measure.texts import read_table
    from onnxmt.migration import MigrateOptions
    from onnxmt.migration import migrate as run

    options = MigrateOptions(
        precision=chosen_recipe(precision, keep_fp32, calibration, trim_head=trim_head),
        verify=verify.value,
        gate=gate.value,
        limits=GateLimits(max_bleu_drop=max_bleu_drop, max_chrf_drop=max_chrf_drop),
        evaluation=None if evaluation is None else read_table(evaluation),
        calibration=CalibrationOptions(file=calibration, source=source, target=target),
        overwrite=overwrite,
        source=source,
        target=target,
        prefix=prefix,
        sentences=sentences,
        bench=bench,
        speed=SpeedLimits(max_p50_ms=max_p50_ms, max_p99_ms=max_p99_ms),
    )
    folder = bundle_folder(output, model=model, precision=options.precision.name)
    try:
        with step_progress() as progress:
            result = run(model, folder, options=options, progress=progress)
            progress.step("translate two sentences")
            samples = _samples(result.bundle)
    except QualityGateError as error:
        if not as_json:
            _print_report(error.report)
        raise
    show_result(result, samples, as_json=as_json)


def _print_report(report: GateReport | None) -> None:
    """Show all figures of a migration that the gate stopped; the error that follows is one line."""
    from onnxmt.commands._console import stdout_console

    if report is not None:
        report.print_to(stdout_console())


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
    if result.quality is not None:
        if report is not None:
            print()
        result.quality.print_to(stdout_console())
    if result.speed is not None:
        print()
        result.speed.print_to(stdout_console())
    if samples:
        print()
    for source, text in samples:
        print(f"{source}\n  → {text}")
    if samples or report is not None or result.quality is not None or result.speed is not None:
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
        "quality": bundle.manifest.quality,
        "speed": bundle.manifest.speed,
        "samples": [{"source": source, "text": text} for source, text in samples],
        "warnings": list(result.warnings),
    }


def _samples(bundle: Bundle) -> list[tuple[str, str]]:
    """Two English sentences by the new bundle, as a user would translate them; none where it reads another language."""
    from onnxmt.runtime.languages import parse_language
    from onnxmt.runtime.translator import Translator

    codes = bundle.manifest.languages
    languages = [parse_language(code) for code in ((codes.default_source,) if codes.default_source else codes.source)]
    if languages and not any(language is not None and language.base == "eng" for language in languages):
        return []
    with Translator.load(bundle.folder) as translator:
        return list(zip(SAMPLES, translator.translate(SAMPLES), strict=True))
