"""A weights file mapped read-only into memory, and where in it one tensor lies."""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxmt.errors import CheckpointError

# Stored number types by name. bfloat16 has no numpy type: its bits are the upper half of a float32's, so it is read as
# uint16 and widened by shifting. The integers never are weights here, but old checkpoints carry a few as leftovers.
NUMPY_TYPES: dict[str, str] = {
    "float32": "f4", "float16": "f2", "bfloat16": "u2", "float64": "f8", "bool": "?",
    "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
    "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8",
}  # fmt: skip
FLOATS = ("float32", "float16", "bfloat16", "float64")
MAX_RANK = 32  # numpy 1.26 allows no more; weights have at most 2
MAX_COUNT = 2**48  # far above any file that fits on a disk, far below where numpy's 64-bit sizes overflow

PIECE = 2**20  # numbers converted at a time where the whole is not needed at once


def item_size(dtype: str) -> int:
    """Bytes of one stored number of type `dtype`."""
    return np.dtype(NUMPY_TYPES[dtype]).itemsize


def shown(text: object) -> str:
    """A name from a file as it may stand in a one-line message: quoted, escaped, and cut where it is endless."""
    quoted = repr(text) if isinstance(text, str) else f"<{type(text).__name__}>"
    return quoted if len(quoted) <= 120 else quoted[:117] + "…'"


class MappedFile:
    """A file of weights, mapped read-only: nothing is read before it is used, and the system may drop it again."""

    def __init__(self, path: Path) -> None:
        """Map `path`; CheckpointError when it is no readable, non-empty regular file."""
        self.path = path
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # asked first: opening a named pipe would wait for ever
                raise CheckpointError(f"{path} is not a regular file")
            with path.open("rb") as handle:
                self.size = os.fstat(handle.fileno()).st_size
                if self.size == 0:
                    raise CheckpointError(f"{path} is empty (0 bytes): copy or download it again")
                self.data = mmap.mmap(handle.fileno(), self.size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
        self._closed = False

    def beginning(self) -> str:
        """What the file starts with, in words, for a message about a file of the wrong kind."""
        head = self.data[:64]
        if head.startswith(b"version https://git-lfs"):
            return "it is a Git LFS pointer, not the weights themselves; fetch them with `git lfs pull`"
        if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
            return "it is a web page, probably of a failed download; download it again"
        return f"it starts with {head[:8]!r}"

    def view(self, *, dtype: np.dtype[Any], start: int, count: int) -> np.ndarray[Any, Any]:
        """`count` numbers from byte `start` on, as a read-only view of the mapping."""
        if self._closed:
            raise CheckpointError(f"{self.path} has been closed")
        return np.frombuffer(self.data, dtype=dtype, count=count, offset=start)

    def release(self) -> None:
        """Let the system take back the memory of pages already read; views stay valid and are read again on demand."""
        if not self._closed and hasattr(mmap, "MADV_DONTNEED"):
            self.data.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the file; where arrays still view it, the mapping goes with the last of them."""
        self._closed = True
        try:
            self.data.close()
        except BufferError:  # raised while an array views the mapping, which keeps it alive until the array goes
            return


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """One tensor in a file: number type, shape, strides (in numbers, not bytes) and the byte at which it starts."""

    file: MappedFile
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    big_endian: bool = False

    @property
    def place(self) -> tuple[object, ...]:
        """Equal for two tensors exactly when they are the same numbers of the same file."""
        return (id(self.file), self.start, self.dtype, self.shape, self.strides)

    def array(self) -> np.ndarray[Any, Any]:
        """The numbers as stored, as a read-only view of the mapping (bfloat16 as uint16)."""
        dtype = np.dtype(NUMPY_TYPES[self.dtype]).newbyteorder(">" if self.big_endian else "<")
        if 0 in self.shape:
            return np.empty(self.shape, dtype)
        count = 1 + sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))
        flat = self.file.view(dtype=dtype, start=self.start, count=count)
        steps = [stride * dtype.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False)

    def float32(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The whole tensor as float32, C-contiguous: the mapping itself where it is stored so, else a copy.

        A copy is made in pieces, and the file's pages are given back after each: a large table in half precision would
        otherwise cost three times its size on disk.
        """
        if self.array().size <= PIECE or self.dtype == "float32":
            return as_float32(self.array(), self.dtype)
        out, filled = np.empty(self.shape, np.float32), 0
        for piece in self.chunks(PIECE):
            out.reshape(-1)[filled : filled + piece.size] = piece
            filled += piece.size
            self.file.release()
        return out

    def chunks(self, limit: int) -> Iterator[np.ndarray[Any, np.dtype[np.float32]]]:
        """The tensor's numbers in row-major order as flat float32 pieces of at most `limit`."""
        for block in _blocks(self.array(), limit):
            yield as_float32(block, self.dtype).reshape(-1)


def as_float32(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """`array` of stored type `dtype` as C-contiguous, aligned float32; the same memory where it is so already."""
    if dtype == "bfloat16":
        out = np.empty(array.shape, np.float32)
        np.left_shift(array, np.uint32(16), out=out.view(np.uint32), dtype=np.uint32)
        return out
    if array.dtype == np.float32 and array.flags.c_contiguous and array.flags.aligned:
        return array
    out = np.empty(array.shape, np.float32)
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite, which the check for finiteness names
        np.copyto(out, array, casting="same_kind")
    return out


def _blocks(array: np.ndarray[Any, Any], limit: int) -> Iterator[np.ndarray[Any, Any]]:
    """Cut `array` into pieces of at most `limit` numbers that follow each other in row-major order."""
    if array.size <= limit:
        yield array
    elif len(array) == 1:
        yield from _blocks(array[0], limit)
    else:
        rows = max(1, limit // (array.size // len(array)))
        for first in range(0, len(array), rows):
            yield from _blocks(array[first : first + rows], limit)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in numbers, of a C-contiguous tensor of `shape`."""
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def sizes(value: object, what: str, where: str) -> tuple[int, ...]:
    """`value` as a tuple of sizes, after checking that it is a short list of plain numbers that numpy can hold."""
    if not isinstance(value, (list, tuple)) or len(value) > MAX_RANK:
        raise CheckpointError(f"{where} has no usable {what}: expected a list of at most {MAX_RANK} whole numbers")
    for number in value:
        if type(number) is not int or not 0 <= number <= MAX_COUNT:
            raise CheckpointError(f"{where} has an impossible {what}: each must be a whole number from 0 to 2^48")
    if math.prod(max(number, 1) for number in value) > MAX_COUNT and what == "shape":
        raise CheckpointError(f"{where} has the impossible shape {tuple(value)}")
    return tuple(value)
