"""`onnxmt quantize`: an fp32 bundle in another precision, without its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmt.commands._options import (
    AsJson,
    BundleFolder,
    CalibrationFile,
    KeepFp32,
    OutputFolder,
    Overwrite,
    TrimHead,
)
from onnxmt.commands.migrate import Gate

if TYPE_CHECKING:
    from onnxmt.quantization import QuantizeOptions, QuantizeResult, Tried


def quantize(
    bundle: BundleFolder,
    output: OutputFolder = None,
    precision: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="As for migrate: a preset or a mixture.  [default: int8]")
    ] = None,
    keep_fp32: KeepFp32 = None,
    trim_head: TrimHead = False,
    search: Annotated[
        bool,
        typer.Option(
            "--search", help="Try int4, int8-static, int8, and int8 with an fp32 encoder; keep the first that passes."
        ),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Rank the layers by the damage they do, and write nothing.")
    ] = False,
    calibration: CalibrationFile = None,
    calibration_method: Annotated[
        str, typer.Option(metavar="METHOD", help="How int8-static chooses a range: percentile, minmax or entropy.")
    ] = "percentile",
    gate: Annotated[
        Gate,
        typer.Option(
            help="A precision that loses more than the limits against fp32 is not written (enforce), is only reported "
            "(report), or nothing is evaluated (off)."
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
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write BUNDLE, which must be in fp32, in another precision.

    Its graphs and weights are the same, byte for byte, as `onnxmt export MODEL --precision` writes; the checkpoint is
    not needed. Compares the result with BUNDLE's own translations and prints the new folder as the last line.

    \b
    Examples:
      onnxmt quantize ./en-zh-fp32 --precision int8
      onnxmt quantize ./en-zh-fp32 --precision int4 --keep-fp32 'decoder.layers.5.*' -o en-zh-small
      onnxmt quantize ./en-zh-fp32 --search --max-bleu-drop 0.3
      onnxmt quantize ./en-zh-fp32 --precision int4 --explain
    """
    from onnxmt.commands._options import chosen_recipe
    from onnxmt.errors import UsageError
    from onnxmt.measure.calibration_options import METHODS, CalibrationOptions, RangeOptions
    from onnxmt.measure.gate_report import GateLimits
    from onnxmt.measure.texts import read_table
    from onnxmt.quantization import QuantizeOptions

    if explain and trim_head:
        raise UsageError("--explain compares layers over all tokens: leave --trim-head out")
    if search and (explain or precision is not None):
        other = "--explain" if explain else "--precision"
        raise UsageError(f"--search chooses the precision and writes a bundle: leave {other} out")
    method = next((known for known in METHODS if known == calibration_method), None)
    if method is None:
        raise UsageError(f"--calibration-method is {calibration_method!r}; allowed: {', '.join(METHODS)}")
    options = QuantizeOptions(
        precision=chosen_recipe(
            precision or "int8", keep_fp32, None if search or explain else calibration, trim_head=trim_head
        ),
        calibration=CalibrationOptions(file=calibration, ranges=RangeOptions(method=method)),
        gate=gate.value,
        limits=GateLimits(max_bleu_drop=max_bleu_drop, max_chrf_drop=max_chrf_drop),
        evaluation=None if evaluation is None else read_table(evaluation),
        overwrite=overwrite,
    )
    if explain:
        _explain(bundle, options, as_json=as_json)
    else:
        write(bundle, output, options, search=search, as_json=as_json)


def _explain(bundle: Path, options: QuantizeOptions, *, as_json: bool) -> None:
    from onnxmt.commands._console import print_json, stdout_console, step_progress
    from onnxmt.quantization import explain_damage

    with step_progress() as progress:
        found = explain_damage(bundle, options=options, progress=progress)
    if as_json:
        print_json(found.to_dict())
        return
    found.print_to(stdout_console())
    print(f"Without the worst: {found.command(str(bundle))}")


def write(bundle: Path, output: Path | None, options: QuantizeOptions, *, search: bool, as_json: bool) -> None:
    """Run `quantize`, or with `search` its search, and show what came of it."""
    from onnxmt.commands._console import stdout_console, step_progress
    from onnxmt.commands._options import bundle_folder
    from onnxmt.errors import QualityGateError
    from onnxmt.measure.gate_report import GateReport
    from onnxmt.quantization import quantize as run
    from onnxmt.quantization import search as run_search

    folder = bundle_folder(output, model=str(bundle), precision="quantized" if search else options.precision.name)
    tried: tuple[Tried, ...] = ()
    try:
        with step_progress() as progress:
            if search:
                found = run_search(bundle, folder, options=options, progress=progress)
                result, tried = found.result, found.tried
            else:
                result = run(bundle, folder, options=options, progress=progress)
    except QualityGateError as error:
        if isinstance(error.report, GateReport) and not as_json:
            error.report.print_to(stdout_console())
        raise
    _show(result, tried, as_json=as_json)


def _show(result: QuantizeResult, tried: tuple[Tried, ...], *, as_json: bool) -> None:
    from onnxmt.commands._console import print_json, stdout_console, warn

    if as_json:
        print_json(_json(result, tried))
        return
    for warning in result.warnings:
        warn(warning)
    for one in tried:
        print(f"{one.recipe.name}: {one.misses[0] if one.misses else 'passed'}")
    if result.quality is not None:
        result.quality.print_to(stdout_console())
    megabytes = [size / 1e6 for size in (result.fp32_bytes, result.bytes)]
    print(f"{megabytes[0]:,.1f} MB in fp32, {megabytes[1]:,.1f} MB in {result.bundle.manifest.recipe}")
    if result.leftovers:
        left = ", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in list(result.leftovers.items())[:5])
        more = f", and {len(result.leftovers) - 5} more" if len(result.leftovers) > 5 else ""
        print(f"still in fp32: {left}{more}")
    print(result.bundle.folder)


def _json(result: QuantizeResult, tried: tuple[Tried, ...]) -> dict[str, Any]:
    return {
        "bundle": str(result.bundle.folder),
        "name": result.bundle.manifest.name,
        "precision": result.bundle.manifest.recipe,
        "fp32_bytes": result.fp32_bytes,
        "bytes": result.bytes,
        "fp32_leftovers": result.leftovers,
        "quality": None if result.quality is None else result.quality.to_dict(),
        "tried": [{"precision": one.recipe.name, "bytes": one.bytes, "misses": list(one.misses)} for one in tried],
        "warnings": list(result.warnings),
    }
