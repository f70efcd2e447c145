"""The one weights file that the graphs of a bundle share: written in a stream, each content once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir

from .models.layers import StoredTensor

# A tensor below this size stays inside the graph: ONNX Runtime needs small shapes and scalars there, and a file of
# thousands of tiny ranges helps nobody.
INLINE_BELOW = 1024
# Large tensors start on a page, so that a memory-mapped tensor shares no page with another one.
_PAGE, _SMALL = 4096, 64


@dataclass(frozen=True, kw_only=True)
class _Range:
    offset: int
    length: int


class WeightsFile:
    """Context manager that moves the initializers of graphs into one file.

    Two arrays share a range when they have the same key (a tied embedding, known without reading it) or the same bytes
    (two equal position tables in an old checkpoint), so formats that repeat a weight give the same file as those that
    do not.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._by_key: dict[str, _Range] = {}
        self._by_content: dict[bytes, _Range] = {}

    def __enter__(self) -> WeightsFile:
        self._file = self._path.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._file is not None
        self._file.close()

    def externalise(self, model: ir.Model) -> None:
        """Write the model's large initializers and replace each by a reference into the file."""
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, StoredTensor):
                value.const_value = self._reference(tensor)

    def _reference(self, tensor: StoredTensor) -> Any:
        stored = tensor.array
        size = int(np.prod(stored.shape, dtype=np.int64)) * stored.dtype.itemsize
        if size < INLINE_BELOW:
            return ir.tensor(np.ascontiguousarray(stored.make(), dtype=stored.dtype), name=tensor.name)
        place = self._by_key.get(stored.key)
        if place is None:
            place = self._by_key[stored.key] = self._write(stored.make(), stored.shape, stored.dtype)
        return ir.ExternalTensor(
            self._path.name,
            place.offset,
            place.length,
            ir.DataType.from_numpy(stored.dtype),
            shape=ir.Shape(stored.shape),
            name=tensor.name,
            base_dir=self._path.parent,
        )

    def _write(self, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Range:
        assert self._file is not None
        data = np.ascontiguousarray(array, dtype=dtype)
        assert data.shape == shape, f"a form promised {shape} and made {data.shape}"
        view = memoryview(data.data).cast("B")
        digest = hashlib.sha256(view).digest()
        known = self._by_content.get(digest)
        if known is not None:
            return known
        align = _PAGE if len(view) >= _PAGE else _SMALL
        self._file.write(b"\0" * (-self._file.tell() % align))
        place = _Range(offset=self._file.tell(), length=len(view))
        self._file.write(view)
        self._by_content[digest] = place
        return place
