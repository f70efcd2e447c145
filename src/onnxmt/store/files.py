"""Files that are complete or absent: written beside their place and renamed, copied or linked, locked, flushed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from onnxmt.errors import StoreError

TEMPORARY, TRASH = ".tmp-", ".trash-"
_POLL_SECONDS = 0.01
# linux/fs.h: share the blocks of another file until one of the two is changed.
_FICLONE = 0x40049409


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step that survives a power cut: a reader sees the old text or the new one."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Make a file's bytes, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
            os.fsync(descriptor)  # some network file systems refuse it on a folder
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold the lock of a file while the block runs.

    It is flock(2), which belongs to the open file: the kernel lets go of it when its process ends, however it ends, so
    no lock is ever stale. Raises StoreError after `seconds`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        until = time.monotonic() + seconds
        while not _try_lock(descriptor):
            if time.monotonic() >= until:
                raise StoreError(f"another process has been changing {path.parent} for {seconds:g} s: try again later")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def owned_folder(path: Path) -> Iterator[None]:
    """Make a folder that is visibly in use while the block runs (`abandoned` says no of it); remove it at the end.

    A block that moved the folder elsewhere keeps it.
    """
    path.mkdir()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _try_lock(descriptor)
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def abandoned(path: Path) -> bool:
    """Whether the process that made a folder with `owned_folder` has ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    import fcntl  # POSIX alone; the rest of onnxmt, which imports this module, is not

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's bytes: by reference where the file system can (a reflink), so that it takes no room."""
    with source.open("rb") as read, target.open("xb") as write:
        try:
            import fcntl

            fcntl.ioctl(write.fileno(), _FICLONE, read.fileno())
        except OSError:  # not this file system, or not these two
            shutil.copyfileobj(read, write, 2**20)
        write.flush()
        os.fsync(write.fileno())


def delete_folder(folder: Path) -> None:
    """Delete a folder that readers may look at: it is renamed first, so that they see all of it or nothing."""
    trash = folder.with_name(f"{TRASH}{folder.name.removeprefix(TRASH)[:80]}-{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):  # another process was quicker
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)
