"""Arguments and options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A folder, ORG/NAME[@REVISION] on the hub, or demo.", show_default=False)
]
DEMO_BUNDLE = Path(__file__).parents[1] / "demo" / "bundle"


def bundle_place(folder: Path | None) -> Path | None:
    """`demo`, where a bundle is wanted, is the packaged one; a folder of that name comes first, as everywhere."""
    return DEMO_BUNDLE if folder is not None and str(folder) == "demo" and not folder.exists() else folder


BundleFolder = Annotated[
    Path,
    typer.Argument(
        metavar="BUNDLE",
        help="A folder that migrate or export wrote, or demo.",
        show_default=False,
        callback=bundle_place,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
OutputFolder = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Where the bundle goes.  [default: ./NAME-PRECISION]"),
]
Precision = Annotated[str, typer.Option(metavar="RECIPE", help="Number formats of the weights.")]
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


def bundle_folder(output: Path | None, *, model: str, precision: str) -> Path:
    """Return `output`, or NAME-PRECISION in the current folder.

    NAME is the last part of MODEL without its @REVISION; of a path, the name of the folder that it leads to.
    """
    if output is not None:
        return output
    path = Path(model)
    name = path.resolve().name if path.exists() else model.partition("@")[0].rpartition("/")[2]
    return Path(re.sub(r"[^\w.+-]+", "-", f"{name}-{precision}").strip("-.") or "bundle")
