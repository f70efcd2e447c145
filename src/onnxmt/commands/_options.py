"""Arguments and options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from onnxmt.precision import Recipe

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A folder, ORG/NAME[@REVISION] on the hub, or demo.", show_default=False)
]
DEMO_BUNDLE = Path(__file__).parents[1] / "demo" / "bundle"


def bundle_place(folder: Path | None) -> Path | None:
    """`demo`, where a bundle is wanted, is the packaged one, NAME:VERSION and NAME:ALIAS are in the store.

    A path of that name comes first, as everywhere.
    """
    if folder is None or os.path.lexists(folder):
        return folder
    if str(folder) == "demo":
        return DEMO_BUNDLE
    from onnxmt.store.resolving import find

    found = find(folder)
    return folder if found is None else found.folder


BundleFolder = Annotated[
    Path,
    typer.Argument(
        metavar="BUNDLE",
        help="A folder that migrate or export wrote, NAME:VERSION|ALIAS in the store, or demo.",
        show_default=False,
        callback=bundle_place,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
OutputFolder = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Where the bundle goes.  [default: ./NAME-PRECISION]"),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="RECIPE",
        help="fp32, fp16, int8, int8-dynamic, int8-static, int4, or a mixture such as int8,encoder=fp32.",
    ),
]
KeepFp32 = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Keep these layers in fp32, such as 'decoder.layers.5.*'. May be repeated."),
]
TrimHead = Annotated[
    bool,
    typer.Option(
        "--trim-head",
        help="Score only the tokens that the target side can produce (opus-mt: half of them): faster; scores change "
        "a little.",
    ),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration", metavar="FILE", help="Calibrate int8-static on these lines instead of the shipped ones."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a bundle that is already there.")]

Source = Annotated[
    str | None, typer.Option(metavar="LANG", help="Source language, such as en.  [default: the model's own]")
]
Target = Annotated[
    str | None, typer.Option(metavar="LANG", help="Target language, such as zh.  [default: the model's own]")
]
Prefix = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="What a T5 or BART model is told in front of a text.  [default: its config's]"),
]
Sentences = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Verify on these lines (CATEGORY, tab, TEXT) instead of the shipped ones."),
]


def chosen_recipe(
    precision: str, keep_fp32: list[str] | None, calibration: Path | None, *, trim_head: bool = False
) -> Recipe:
    """Return the recipe of --precision, --keep-fp32 and --trim-head; raises UsageError for --calibration where nothing
    is static."""
    from onnxmt.errors import UsageError
    from onnxmt.precision import recipe

    found = recipe(precision, keep_fp32=keep_fp32 or (), trim_head=trim_head)
    if calibration is not None and not found.calibrated:
        raise UsageError(f"--calibration has no effect on {found.name}: only int8-static is calibrated")
    return found


def bundle_folder(output: Path | None, *, model: str, precision: str) -> Path:
    """Return `output`, or NAME-PRECISION in the current folder.

    NAME is the last part of MODEL without its @REVISION; of a path, the name of the folder that it leads to.
    """
    if output is not None:
        return output
    from onnxmt.store.resolving import stored_version

    path, stored = Path(model), stored_version(model)
    name = path.resolve().name if path.exists() else model.partition("@")[0].rpartition("/")[2]
    name = name if stored is None else f"{stored.name}-{stored.ref}"
    return Path(re.sub(r"[^\w.+-]+", "-", f"{name}-{precision}").strip("-.") or "bundle")


Provider = Annotated[
    str,
    typer.Option(
        "--provider",
        metavar="NAME",
        help="Where ONNX Runtime computes: cpu, cuda, … One that is not there is an error, never another one.",
    ),
]
