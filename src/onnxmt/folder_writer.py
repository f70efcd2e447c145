"""A folder of files written beside its place and renamed into it: complete, or not there."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from onnxmt.errors import OutputError
from onnxmt.manifest import FileEntry

# A crash (power, kill -9) can leave such a folder; the name says what it is, and that it may be deleted.
PARTIAL_MARK = ".onnxmt-partial-"
REPLACED_MARK = ".onnxmt-replaced-"
# What an OSError says when it was the writing that failed, wherever in the `with` block it came from.
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


@dataclass(frozen=True, kw_only=True)
class FolderKind:
    """What a folder is called in messages, and the file that every folder of this kind holds."""

    noun: str
    marker: str


class FolderWriter:
    """Context manager that builds a folder beside `output` and renames it into place.

    Write every file into `folder`, then call `commit_file`. Leaving the block without it, by any exception or by none,
    removes what was written; `output` is then what it was before. With `overwrite` an earlier folder of this kind at
    `output` is replaced once the new one is complete. Raises OutputError.
    """

    folder: Path

    def __init__(self, output: str | os.PathLike[str], *, kind: FolderKind, overwrite: bool = False) -> None:
        self.kind = kind
        self._shown = os.fspath(output)
        self._output = _resolved(output)
        self._overwrite = overwrite
        self._committed = False
        self._made_parents: list[Path] = []

    def __enter__(self) -> Self:
        _check_output(self._output, kind=self.kind, shown=self._shown, overwrite=self._overwrite)
        parent = self._output.parent
        self.folder = parent / f".{self._output.name}{PARTIAL_MARK}{os.getpid()}-{secrets.token_hex(4)}"
        try:
            for ancestor in [p for p in (parent, *parent.parents) if not p.exists()][::-1]:
                ancestor.mkdir(exist_ok=True)
                self._made_parents.insert(0, ancestor)
            self.folder.mkdir()  # mkdtemp would make it 0700, and the folder unreadable to a service's own user
        except OSError as error:
            self._remove_made_parents()
            raise OutputError(self.write_failed(error)) from error
        return self

    def entries(self) -> tuple[FileEntry, ...]:
        """Path, size and hash of every file that is there now, by path. Raises OutputError."""
        self._refuse_second()
        try:
            return tuple(folder_entries(self.folder, kind=self.kind))
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(self.write_failed(error)) from error

    def commit_file(self, text: str) -> Path:
        """Write the kind's own file last, flush to the disk, and rename into place; → the folder.

        Raises OutputError.
        """
        self._refuse_second()
        try:
            (self.folder / self.kind.marker).write_text(text, encoding="utf-8")
            _flush_folder(self.folder)
            self._move_into_place()
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(self.write_failed(error)) from error
        self._committed = True
        return self._output

    def _refuse_second(self) -> None:
        if self._committed:
            raise OutputError(f"the {self.kind.noun} {self._shown} was already written")

    def write_failed(self, error: OSError) -> str:
        """Say why the folder cannot be written, and what to do."""
        return write_failed(self._shown, error, kind=self.kind)

    def _move_into_place(self) -> None:
        output = self._output
        if not output.exists() or not any(output.iterdir()):
            self.folder.rename(output)  # an empty folder is replaced in the same step
            flush(output.parent)
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
        flush(output.parent)
        # The new folder is in place: a file of the old one that cannot be deleted is not a failure of the work.
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
            raise OutputError(self.write_failed(error)) from error
        return False

    def _remove_made_parents(self) -> None:
        for ancestor in self._made_parents:
            with contextlib.suppress(OSError):  # another program may have put something there
                ancestor.rmdir()


def check_folder_output(output: str | os.PathLike[str], *, kind: FolderKind, overwrite: bool = False) -> None:
    """Raise OutputError where a FolderWriter would refuse `output`: call it before long work starts."""
    _check_output(_resolved(output), kind=kind, shown=os.fspath(output), overwrite=overwrite)


def _resolved(output: str | os.PathLike[str]) -> Path:
    """The real place of the output. A link is followed: it stays, and the folder behind it is replaced."""
    try:
        return Path(output).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, or a NUL in the name
        raise OutputError(f"the output {os.fspath(output)!r} is not a path that can be used: {error}") from error


def _check_output(output: Path, *, kind: FolderKind, shown: str, overwrite: bool) -> None:
    if os.path.lexists(output) and not output.is_dir():
        raise OutputError(f"the output {shown} is a file; a {kind.noun} is a folder: name another one")
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
    if names and kind.marker not in names:  # never delete a folder that we did not write
        raise OutputError(
            f"the output folder {shown} is not a {kind.noun} (no {kind.marker}), so it is not replaced: name another"
        )


def folder_entries(folder: Path, *, kind: FolderKind) -> Iterator[FileEntry]:
    """Path, size and hash of every file in `folder`, by path. Raises OutputError for what is no plain file."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise OutputError(f"{path.name} is not a plain file: a {kind.noun} holds nothing else")
        if path.is_file():
            yield file_entry(folder, path.relative_to(folder).as_posix())


def file_entry(folder: Path, name: str) -> FileEntry:
    """Path, size and hash of one file in `folder`."""
    path = folder / name
    return FileEntry(path=name, bytes=path.stat().st_size, sha256=sha256_of(path))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush_folder(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        flush(path)


def flush(path: Path) -> None:
    """Make a file's bytes, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
            os.fsync(descriptor)  # some network file systems refuse it on a folder
    finally:
        os.close(descriptor)


def write_failed(shown: str, error: OSError, *, kind: FolderKind) -> str:
    """Say why a folder cannot be written, and what to do."""
    fixes = {
        errno.ENOSPC: "free some space or name another disk",
        errno.EDQUOT: "the disk quota is used up: free some space or name another disk",
        errno.EFBIG: "a file is larger than the limit of the file system or of this process (ulimit -f)",
        errno.EROFS: "the file system is read-only: name another place",
        errno.EACCES: "name a place that you may write to",
    }
    fix = fixes.get(error.errno or 0)
    return f"the {kind.noun} {shown} cannot be written: {error.strerror or error}" + (f": {fix}" if fix else "")
