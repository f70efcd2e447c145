"""The bundle on disk: written beside its place and renamed into it, read by its manifest and by nothing else."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onnxmt.errors import (
    BundleError,
    BundleFileAlteredError,
    BundleFileMissingError,
    BundleFormatError,
    ModelNotFoundError,
    OutputError,
)
from onnxmt.folder_writer import (
    PARTIAL_MARK,
    FolderKind,
    FolderWriter,
    check_folder_output,
    file_entry,
    flush,
    sha256_of,
    write_failed,
)
from onnxmt.manifest import MANIFEST_NAME, FileEntry, Manifest
from onnxmt.store.resolving import opened, stored_version

BUNDLE = FolderKind(noun="bundle", marker=MANIFEST_NAME)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle that was read or written: its folder and its manifest."""

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        """Return the path of a file that the manifest lists; any other name raises BundleFileMissingError."""
        if all(entry.path != name for entry in self.manifest.files):
            raise BundleFileMissingError(f"the manifest of {self.folder} does not list {name}")
        return self.folder / name

    @property
    def size(self) -> int:
        """Bytes of all files, the manifest apart."""
        return sum(entry.bytes for entry in self.manifest.files)


class BundleWriter(FolderWriter):
    """Context manager that builds a bundle beside `output` and renames it into place: see FolderWriter.

    Write every file into `folder`, then call `commit`. Raises OutputError.
    """

    def __init__(self, output: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        require_changeable(Path(output))
        super().__init__(output, kind=BUNDLE, overwrite=overwrite)

    def described(self, manifest: Manifest) -> Bundle:
        """Return the bundle as it would be with the files that are there now: what a report of it is made from.

        Raises OutputError.
        """
        return Bundle(folder=self.folder, manifest=manifest.with_files(self.entries()))

    def commit(self, manifest: Manifest) -> Bundle:
        """Hash the files, write the manifest last, flush to the disk, and rename into place.

        `manifest.files` is replaced by what is in the folder. Raises OutputError, and BundleFormatError when a file
        that the manifest needs was not written.
        """
        complete = manifest.with_files(self.entries())
        text = complete.to_text()
        Manifest.from_dict(json.loads(text), where=f"the manifest of {self._shown}")  # what we write, we can read
        return Bundle(folder=self.commit_file(text), manifest=complete)


def check_output(output: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Raise OutputError where a BundleWriter would refuse `output`: call it before long work starts."""
    require_changeable(Path(output))
    check_folder_output(output, kind=BUNDLE, overwrite=overwrite)


def read_bundle(folder: str | os.PathLike[str], *, check: Literal["hash", "size"] = "hash") -> Bundle:
    """Read a bundle and check every file that its manifest lists, by SHA-256 or by size alone.

    Files that the manifest does not list are ignored. NAME:VERSION and NAME:ALIAS are read from the store, where there
    is no path of that name. Raises ModelNotFoundError where there is no such folder,
    BundleFormatError, BundleFileMissingError (all missing files named) or BundleFileAlteredError (all altered files).
    """
    stored = opened(folder, lambda found: read_bundle(found, check=check))
    if stored is not None:
        return stored
    shown, folder = os.fspath(folder), Path(folder).absolute()
    manifest = Manifest.from_dict(_read_json(folder, shown), where=f"{shown}/{MANIFEST_NAME}")
    missing = [entry.path for entry in manifest.files if not (folder / entry.path).is_file()]
    if missing:
        noun = (
            "a file that its manifest lists" if len(missing) == 1 else f"{len(missing)} files that its manifest lists"
        )
        raise BundleFileMissingError(
            f"the bundle {shown} lacks {noun}: {', '.join(missing)}. Copy the whole folder again"
        )
    try:
        altered = [fault for entry in manifest.files if (fault := _altered(folder, entry, check))]
    except OSError as error:
        raise BundleError(f"the bundle {shown} cannot be read: {error.filename}: {error.strerror}") from error
    if altered:
        raise BundleFileAlteredError(
            f"the bundle {shown} was altered: {'; '.join(altered)}. Copy the whole folder again"
        )
    return Bundle(folder=folder, manifest=manifest)


def update_manifest(bundle: Bundle, manifest: Manifest, *, written: Sequence[str] = ()) -> Bundle:
    """Replace a bundle's manifest in one step, for figures that are measured after it was made.

    `written` names files of the bundle that were added or rewritten since: they are hashed anew; every other entry is
    kept as it was read. Raises OutputError.
    """
    require_changeable(bundle.folder)
    temporary = bundle.folder / f".{MANIFEST_NAME}{PARTIAL_MARK}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        kept = [entry for entry in bundle.manifest.files if entry.path not in written]
        fresh = [file_entry(bundle.folder, name) for name in dict.fromkeys(written)]
        complete = manifest.with_files(tuple(sorted([*kept, *fresh], key=lambda entry: entry.path)))
        temporary.write_text(complete.to_text(), encoding="utf-8")
        flush(temporary)
        temporary.replace(bundle.folder / MANIFEST_NAME)
        flush(bundle.folder)
    except OSError as error:
        raise OutputError(write_failed(str(bundle.folder), error, kind=BUNDLE)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return Bundle(folder=bundle.folder, manifest=complete)


def require_changeable(folder: Path) -> None:
    """Raise OutputError for a version in the store, whose name must never mean something else."""
    if (stored := stored_version(folder)) is not None:
        raise OutputError(
            f"{stored} is a version in the store, which never changes: change the bundle that it was made of, and add "
            "that as a new version (onnxmt models add)"
        )


def _read_json(folder: Path, shown: str) -> object:
    if not os.path.exists(folder):  # noqa: PTH110  (Path.exists raises OSError for a string too long for a name)
        raise ModelNotFoundError(
            f"there is no bundle at {shown}: no such folder. Make one with: onnxmt migrate MODEL -o {shown}"
        )
    if not folder.is_dir():
        raise BundleFormatError(f"{shown} is a file; a bundle is a folder that holds {MANIFEST_NAME}")
    path = folder / MANIFEST_NAME
    if not path.is_file():
        fix = "Copy the whole folder again"
        if (folder / "config.json").is_file():
            fix = f"If it is a checkpoint, migrate it first: onnxmt migrate {shown}"
        raise BundleFormatError(f"the folder {shown} is not a bundle: it has no {MANIFEST_NAME}. {fix}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested without end
        raise BundleFormatError(
            f"{shown}/{MANIFEST_NAME} is not valid JSON ({error}). Copy the bundle again"
        ) from error


def _altered(folder: Path, entry: FileEntry, check: Literal["hash", "size"]) -> str | None:
    """What is wrong with one file, or None."""
    path = folder / entry.path
    size = path.stat().st_size
    if size != entry.bytes:
        return f"{entry.path} has {size} bytes, the manifest says {entry.bytes}"
    if check == "hash" and (found := sha256_of(path)) != entry.sha256:
        return f"{entry.path} has SHA-256 {found}, the manifest says {entry.sha256}"
    return None
