"""int8-dynamic: DynamicQuantizeMatMul, the fastest form for large batches.

The operator takes one activation scale for the whole tensor, so a sentence's result depends on its neighbours in the
batch (measured: 0.75 absolute on outputs of order 1 beside a row 30 times larger). That is why it is a choice and not
the default.

Weights use 7 of their 8 bits: without VNNI, x86 multiplies unsigned by signed bytes into 16-bit sums of two products,
and 255 · 127 · 2 does not fit where 255 · 63 · 2 does (onnxruntime issue 6004). The file is then right on every CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxmt.precision.forms import Array, StoredArray

LARGEST = 63
_INT8, _FLOAT32 = np.dtype(np.int8), np.dtype(np.float32)
_CHUNK_ROWS = 4096


def _row_scales(weight: Array) -> Array:
    scales: Array = np.abs(weight).max(axis=1) / np.float32(LARGEST)
    scales[scales == 0] = 1
    return scales


def _transposed_values(weight: Array) -> Array:
    rows, columns = weight.shape
    values = np.empty((columns, rows), dtype=np.int8)
    for first in range(0, rows, _CHUNK_ROWS):
        part = weight[first : first + _CHUNK_ROWS]
        values[:, first : first + _CHUNK_ROWS] = np.rint(part / _row_scales(part)[:, None]).T
    return values


def dynamic_arrays(key: str, rows: int, columns: int, read: Callable[[], Array]) -> dict[str, StoredArray]:
    """Return the arrays of W [rows, columns], which int8-static shares: W^T in 7 bits, a scale for each row of W."""
    tag = f"{key}|int8|rows"
    return {
        "weight_quantized": StoredArray(
            key=f"{tag}|values", shape=(columns, rows), dtype=_INT8, make=lambda: _transposed_values(read())
        ),
        "weight_scales": StoredArray(
            key=f"{tag}|scales", shape=(rows,), dtype=_FLOAT32, make=lambda: _row_scales(read())
        ),
    }


def _multiply(op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
    inputs = [x, stored["weight_quantized"], stored["weight_scales"]]
    if bias is not None:
        inputs += [None, bias]
    return op.builder.opset("com.microsoft", 1).DynamicQuantizeMatMul(*inputs)


@dataclass(frozen=True, kw_only=True)
class DynamicMatrix:
    """W^T in int8 [columns, rows] with a scale for each output."""

    rows: int
    columns: int

    def arrays(self, key: str, read: Callable[[], Array]) -> dict[str, StoredArray]:
        """Store values and scales."""
        return dynamic_arrays(key, self.rows, self.columns, read)

    def multiply(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit one DynamicQuantizeMatMul."""
        return _multiply(op, x, stored, bias)


@dataclass(frozen=True, kw_only=True)
class DynamicTable:
    """E^T in int8, shared by embedding and head: the embedding gathers columns, which is cheap for few tokens."""

    rows: int
    columns: int

    def arrays(self, key: str, read: Callable[[], Array], *, use: str) -> dict[str, StoredArray]:  # noqa: ARG002
        """Store values and scales."""
        return dynamic_arrays(key, self.rows, self.columns, read)

    def gather(self, op: Any, ids: Any, stored: Mapping[str, Any]) -> Any:
        """Emit Gather of columns [columns, B, T] and scales, and their product [B, T, columns]."""
        values = op.Transpose(op.Gather(stored["weight_quantized"], ids, axis=1), perm=[1, 2, 0])
        scales = op.Unsqueeze(op.Gather(stored["weight_scales"], ids), [-1])
        return op.Mul(op.Cast(values, to=ir.DataType.FLOAT), scales)

    def project(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit one DynamicQuantizeMatMul."""
        return _multiply(op, x, stored, bias)
