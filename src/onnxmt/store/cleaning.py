"""Removing versions, giving their room back later, and checking that the store is whole."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxmt.bundle import read_bundle
from onnxmt.errors import OnnxmtError, StoreError
from onnxmt.store.files import TEMPORARY, TRASH, abandoned, delete_folder
from onnxmt.store.shelf import OUTPUTS, ROLLOUT, VERSIONS, Change, Shelf, writing
from onnxmt.store.state import Event

GRACE_SECONDS = 3600.0
# A folder of `add` is locked a moment after it was made; younger ones are left alone.
_YOUNG_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What gc deleted: versions, what killed processes had left, and how many bytes that was."""

    versions: tuple[str, ...]
    leftovers: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One version and what is wrong with it; None: nothing."""

    version: str
    bytes: int
    fault: str | None


def remove(shelf: Shelf, version: str, *, reason: str | None = None) -> Event:
    """Take a version's name away; its files stay for readers that have just found it, until gc.

    Raises StoreError where an alias holds it or `version` is an alias, ModelNotFoundError where there is none.
    """
    shelf.require()
    with shelf.changing() as change:
        state = change.state
        found = shelf.version(version, state)
        if found != version:
            raise StoreError(f"{shelf.name}:{version} is an alias of version {found}: name the version itself")
        if held := state.aliases_of(version):
            raise StoreError(
                f"{shelf.name}:{version} is {' and '.join(held)}, so it is not removed: promote another version first, "
                "or clear the alias (onnxmt models rollback --clear)"
            )
        return change.commit(state.without_version(version, at=time.time()), "remove", version=version, reason=reason)


def collect(
    shelf: Shelf, *, grace: float = GRACE_SECONDS, keep: int | None = None, reason: str | None = None
) -> Collected:
    """Delete the files of versions that were removed more than `grace` seconds ago, and what killed processes left.

    With `keep` all but so many of the latest versions are removed first, as far as no alias holds them or can return to
    them. A reader needs its version's files until it has loaded it: `grace` is the time that the slowest one gets; one
    that is slower looks its name up again. Loaded graphs stay whole: the kernel keeps what is mapped.
    """
    shelf.require()
    gone, left, size = [], [], 0
    with shelf.changing() as change:
        if keep is not None:
            _remove_old(change, keep, reason)
        due = [name for name, one in change.state.removed.items() if one.files and time.time() - one.at >= grace]
        for version in due:
            folder = shelf.version_folder(version)
            size += _size(folder)
            delete_folder(folder)
            for kept in (OUTPUTS, ROLLOUT):
                (shelf.folder / kept / f"{version}.json").unlink(missing_ok=True)
            gone.append(version)
        for folder in _leftovers(shelf, change):
            size += _size(folder)
            delete_folder(folder)
            left.append(folder.name)
        if gone:
            marked = {name: dataclasses.replace(change.state.removed[name], files=False) for name in gone}
            state = dataclasses.replace(change.state, removed={**change.state.removed, **marked})
            change.commit(state, "gc", reason=reason, evidence={"versions": gone, "bytes": size})
    with writing(shelf):
        for path in shelf.folder.glob(f"**/{TEMPORARY}*"):
            if path.is_file() and time.time() - path.stat().st_mtime > _YOUNG_SECONDS:
                path.unlink(missing_ok=True)
    return Collected(versions=tuple(gone), leftovers=tuple(left), bytes=size)


def check(shelf: Shelf, versions: Sequence[str] | None = None) -> tuple[Checked, ...]:
    """Hash every file of the versions (None: of all)."""
    found = []
    for version, entry in shelf.require().versions.items():
        if versions is not None and version not in versions:
            continue
        fault, size = None, entry.bytes
        try:
            size = read_bundle(shelf.version_folder(version)).size
        except (OnnxmtError, OSError) as error:
            if version not in shelf.state().versions:  # removed while it was read
                continue
            fault = str(error)
        found.append(Checked(version=version, bytes=size, fault=fault))
    return tuple(found)


def _remove_old(change: Change, keep: int, reason: str | None) -> None:
    state = change.state
    needed = {name for alias in state.aliases.values() for name in (alias.version, *alias.previous)}
    latest = sorted(state.versions, key=lambda name: state.versions[name].revision)[-keep:] if keep else []
    for version in [name for name in state.versions if name not in needed and name not in latest]:
        change.commit(
            change.state.without_version(version, at=time.time()), "remove", version=version, reason=reason or "gc"
        )


def _leftovers(shelf: Shelf, change: Change) -> list[Path]:
    """Folders that no state knows: of an `add` that was killed before its commit, or half deleted."""
    known = {*change.state.versions, *(name for name, one in change.state.removed.items() if one.files)}
    found = []
    for folder in sorted((shelf.folder / VERSIONS).iterdir()):
        if folder.name.startswith(TEMPORARY):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - folder.stat().st_mtime > _YOUNG_SECONDS and abandoned(folder):
                    found.append(folder)
        elif folder.name.startswith(TRASH):
            shutil.rmtree(folder, ignore_errors=True)
        elif folder.name not in known:  # its `add` would hold the lock that is held here
            found.append(folder)
    return found


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
