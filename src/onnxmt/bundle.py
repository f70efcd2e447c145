"""The bundle on disk: written beside its place and renamed into it, read by its manifest and by nothing else."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from onnxmt.errors import (
    BundleError,
    BundleFileAlteredError,
    BundleFileMissingError,
    BundleFormatError,
    ModelNotFoundError,
    OutputError,
)
from onnxmt.manifest import MANIFEST_NAME, FileEntry, Manifest

# A crash (power, kill -9) can leave such a folder; the name says what it is, and that it may be deleted.
PARTIAL_MARK = ".onnxmt-partial-"
REPLACED_MARK = ".onnxmt-replaced-"
# What an OSError says when it was the writing that failed, wherever in the `with` block it came from.
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


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


class BundleWriter:
    """Context manager that builds a bundle beside `output` and renames it into place.

    Write every file into `folder`, then call `commit`. Leaving the block without it, by any exception or by none,
    removes what was written; `output` is then what it was before. With `overwrite` an earlier bundle at `output` is
    replaced once the new one is complete. Raises OutputError.
    """

    folder: Path

    def __init__(self, output: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self._shown = os.fspath(output)
        self._output = _resolved(output)
        self._overwrite = overwrite
        self._committed = False
        self._made_parents: list[Path] = []

    def __enter__(self) -> BundleWriter:
        _check_output(self._output, shown=self._shown, overwrite=self._overwrite)
        parent = self._output.parent
        self.folder = parent / f".{self._output.name}{PARTIAL_MARK}{os.getpid()}-{secrets.token_hex(4)}"
        try:
            for ancestor in [p for p in (parent, *parent.parents) if not p.exists()][::-1]:
                ancestor.mkdir(exist_ok=True)
                self._made_parents.insert(0, ancestor)
            self.folder.mkdir()  # mkdtemp would make it 0700, and the bundle unreadable to a service's own user
        except OSError as error:
            self._remove_made_parents()
            raise OutputError(_write_failed(self._shown, error)) from error
        return self

    def described(self, manifest: Manifest) -> Bundle:
        """Return the bundle as it would be with the files that are there now: what a report of it is made from.

        Raises OutputError.
        """
        try:
            return Bundle(folder=self.folder, manifest=manifest.with_files(tuple(_entries(self.folder))))
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(_write_failed(self._shown, error)) from error

    def commit(self, manifest: Manifest) -> Bundle:
        """Hash the files, write the manifest last, flush to the disk, and rename into place.

        `manifest.files` is replaced by what is in the folder. Raises OutputError, and BundleFormatError when a file
        that the manifest needs was not written.
        """
        if self._committed:
            raise OutputError(f"the bundle {self._shown} was already written")
        try:
            complete = manifest.with_files(tuple(_entries(self.folder)))
            text = complete.to_text()
            Manifest.from_dict(json.loads(text), where=f"the manifest of {self._shown}")  # what we write, we can read
            (self.folder / MANIFEST_NAME).write_text(text, encoding="utf-8")
            _flush_folder(self.folder)
            self._move_into_place()
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(_write_failed(self._shown, error)) from error
        self._committed = True
        return Bundle(folder=self._output, manifest=complete)

    def _move_into_place(self) -> None:
        output = self._output
        if not output.exists() or not any(output.iterdir()):
            self.folder.rename(output)  # an empty folder is replaced in the same step
            _flush(output.parent)
            return
        if not self._overwrite:
            raise OutputError(f"the output folder {self._shown} was filled by another program meanwhile")
        replaced = output.parent / f".{output.name}{REPLACED_MARK}{os.getpid()}-{secrets.token_hex(4)}"
        output.rename(replaced)
        try:
            self.folder.rename(output)
        except BaseException:
            replaced.rename(output)
            raise
        _flush(output.parent)
        # The new bundle is in place: a file of the old one that cannot be deleted is not a failure of the work.
        shutil.rmtree(replaced, ignore_errors=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._committed:
            return False
        try:
            shutil.rmtree(self.folder)
        except OSError as left:
            if error is not None:
                error.add_note(f"{self.folder} could not be removed ({left.strerror}): delete it by hand")
        self._remove_made_parents()
        if isinstance(error, OSError) and not isinstance(error, OutputError) and error.errno in _WRITE_ERRORS:
            raise OutputError(_write_failed(self._shown, error)) from error
        return False

    def _remove_made_parents(self) -> None:
        for ancestor in self._made_parents:
            with contextlib.suppress(OSError):  # another program may have put something there
                ancestor.rmdir()


def check_output(output: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Raise OutputError where a BundleWriter would refuse `output`: call it before long work starts."""
    _check_output(_resolved(output), shown=os.fspath(output), overwrite=overwrite)


def read_bundle(folder: str | os.PathLike[str], *, check: Literal["hash", "size"] = "hash") -> Bundle:
    """Read a bundle and check every file that its manifest lists, by SHA-256 or by size alone.

    Files that the manifest does not list are ignored. Raises ModelNotFoundError where there is no such folder,
    BundleFormatError, BundleFileMissingError (all missing files named) or BundleFileAlteredError (all altered files).
    """
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
    temporary = bundle.folder / f".{MANIFEST_NAME}{PARTIAL_MARK}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        kept = [entry for entry in bundle.manifest.files if entry.path not in written]
        fresh = [_entry(bundle.folder, name) for name in dict.fromkeys(written)]
        complete = manifest.with_files(tuple(sorted([*kept, *fresh], key=lambda entry: entry.path)))
        temporary.write_text(complete.to_text(), encoding="utf-8")
        _flush(temporary)
        temporary.replace(bundle.folder / MANIFEST_NAME)
        _flush(bundle.folder)
    except OSError as error:
        raise OutputError(_write_failed(str(bundle.folder), error)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return Bundle(folder=bundle.folder, manifest=complete)


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
    if check == "hash" and (found := _sha256(path)) != entry.sha256:
        return f"{entry.path} has SHA-256 {found}, the manifest says {entry.sha256}"
    return None


def _resolved(output: str | os.PathLike[str]) -> Path:
    """The real place of the output. A link is followed: it stays, and the folder behind it is replaced."""
    try:
        return Path(output).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, or a NUL in the name
        raise OutputError(f"the output {os.fspath(output)!r} is not a path that can be used: {error}") from error


def _check_output(output: Path, *, shown: str, overwrite: bool) -> None:
    if os.path.lexists(output) and not output.is_dir():
        raise OutputError(f"the output {shown} is a file; a bundle is a folder: name another one")
    for ancestor in output.parents:
        if ancestor.is_dir():
            if not os.access(ancestor, os.W_OK | os.X_OK):
                raise OutputError(f"the output {shown} cannot be made: no permission to write in {ancestor}")
            break
        if os.path.lexists(ancestor):
            raise OutputError(f"the output {shown} cannot be made: {ancestor} is not a folder")
    if not output.exists():
        return
    if output.is_mount() or output == Path.cwd():
        place = "a mount point" if output.is_mount() else "the current folder"
        raise OutputError(f"the output {shown} is {place}, which cannot be replaced: name a new folder inside it")
    try:
        names = {path.name for path in output.iterdir()}
    except OSError as error:
        raise OutputError(f"the output {shown} cannot be read: {error.strerror}") from error
    if names and not overwrite:
        raise OutputError(f"the output folder {shown} exists and is not empty: name another one, or pass --overwrite")
    if names and MANIFEST_NAME not in names:  # never delete a folder that we did not write
        raise OutputError(
            f"the output folder {shown} is not a bundle (no {MANIFEST_NAME}), so it is not replaced: name another"
        )


def _entries(folder: Path) -> Iterator[FileEntry]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise OutputError(f"{path.name} is not a plain file: a bundle holds nothing else")
        if path.is_file():
            yield _entry(folder, path.relative_to(folder).as_posix())


def _entry(folder: Path, name: str) -> FileEntry:
    path = folder / name
    return FileEntry(path=name, bytes=path.stat().st_size, sha256=_sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush_folder(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        _flush(path)


def _flush(path: Path) -> None:
    """Make a file's bytes, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
            os.fsync(descriptor)  # some network file systems refuse it on a folder
    finally:
        os.close(descriptor)


def _write_failed(shown: str, error: OSError) -> str:
    fixes = {
        errno.ENOSPC: "free some space or name another disk",
        errno.EDQUOT: "the disk quota is used up: free some space or name another disk",
        errno.EFBIG: "a file is larger than the limit of the file system or of this process (ulimit -f)",
        errno.EROFS: "the file system is read-only: name another place",
        errno.EACCES: "name a place that you may write to",
    }
    fix = fixes.get(error.errno or 0)
    return f"the bundle {shown} cannot be written: {error.strerror or error}" + (f": {fix}" if fix else "")
