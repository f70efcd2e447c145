"""From NAME:VERSION or NAME:ALIAS to the folder of a bundle, without a lock, and safely beside removals."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from onnxmt.errors import OnnxmtError, StoreError
from onnxmt.store.names import StoreName, parse_name
from onnxmt.store.shelf import STATE_NAME, VERSIONS, shelf_of

T = TypeVar("T")
# Each try finds the files gone and another version in their place: more than a few in a row cannot be chance.
_TRIES = 20


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a name meant at one moment."""

    name: str
    ref: str
    version: str
    folder: Path


def find(text: str | os.PathLike[str], *, root: Path | None = None) -> Found | None:
    """Look a name up; None for an existing path (a path wins) and for what is not of the form NAME:REF.

    One read of one file that is replaced whole: the answer is never a mixture. Raises ModelNotFoundError, StoreError.
    """
    wanted = parse_name(text)
    if wanted is None or os.path.exists(text):  # noqa: PTH110
        return None
    shelf = shelf_of(wanted.name, root=root)
    version = shelf.version(wanted.ref)
    return Found(name=wanted.name, ref=wanted.ref, version=version, folder=shelf.version_folder(version))


def opened(text: str | os.PathLike[str], use: Callable[[Path], T], *, root: Path | None = None) -> T | None:
    """Return `use(folder)` of what a name means; None where it is no name in the store.

    Where the files go away between the look-up and the end of `use` (removed, and collected by gc), the name is looked
    up again: it then means another version, or none, which is said. Raises as `find` and `use` do.
    """
    found = find(text, root=root)
    if found is None:
        return None
    for _ in range(_TRIES):
        try:
            return use(found.folder)
        except (OnnxmtError, OSError):
            if found.folder.is_dir():
                raise
        found = find(text, root=root) or found
    raise StoreError(
        f"{os.fspath(text)}: the store says version {found.version}, and there is no folder {found.folder}. "
        "Something else than onnxmt has deleted it: restore it, or remove the version (onnxmt models verify shows all)"
    )


def stored_version(folder: str | os.PathLike[str]) -> StoreName | None:
    """Which version of which model a folder is; None where it lies in no store."""
    try:
        path = Path(os.path.realpath(folder))
    except (OSError, ValueError):  # a NUL in the name: no folder has it
        return None
    if path.parent.name != VERSIONS or not (path.parents[1] / STATE_NAME).is_file():
        return None
    return parse_name(f"{path.parents[1].name}:{path.name}")
