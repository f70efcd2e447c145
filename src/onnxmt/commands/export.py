"""`onnxmt export`: a bundle without its proof."""

from __future__ import annotations

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
)


def export(
    model: Model,
    output: OutputFolder = None,
    precision: Precision = "fp32",
    keep_fp32: KeepFp32 = None,
    calibration: CalibrationFile = None,
    source: Source = None,
    target: Target = None,
    prefix: Prefix = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a bundle of MODEL without verifying it.

    Needs neither PyTorch nor a recording; the bundle says `unverified` wherever it is shown, until `onnxmt verify
    BUNDLE --write` has judged it. Prints the folder's path.

    \b
    Example:
      onnxmt export Helsinki-NLP/opus-mt-en-zh -o en-zh
    """
    from onnxmt.commands._console import step_progress
    from onnxmt.commands._options import bundle_folder, chosen_recipe
    from onnxmt.commands.migrate import show_result
    from onnxmt.measure.calibration_options import CalibrationOptions
    from onnxmt.migration import MigrateOptions
    from onnxmt.migration import export as run

    options = MigrateOptions(
        precision=chosen_recipe(precision, keep_fp32, calibration),
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
