"""float32: plain MatMul, Gather and Gemm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxmt.precision.forms import Array, StoredArray

_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Fp32Matrix:
    """MatMul with W^T stored, so that ONNX Runtime multiplies without a transpose."""

    rows: int
    columns: int

    def arrays(self, key: str, read: Callable[[], Array]) -> dict[str, StoredArray]:
        """Store W^T [columns, rows]."""
        return {
            "weight": StoredArray(
                key=f"{key}|fp32|transposed",
                shape=(self.columns, self.rows),
                dtype=_FLOAT32,
                make=lambda: np.ascontiguousarray(read().T),
            )
        }

    def multiply(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit MatMul, and Add where there is a bias."""
        product = op.MatMul(x, stored["weight"])
        return product if bias is None else op.Add(product, bias)


@dataclass(frozen=True, kw_only=True)
class Fp32Table:
    """The table as it is: Gather for the embedding, Gemm with transB for the head; a tied head needs no second copy."""

    rows: int
    columns: int

    def arrays(self, key: str, read: Callable[[], Array], *, use: str) -> dict[str, StoredArray]:  # noqa: ARG002
        """Store E [rows, columns]."""
        return {"weight": StoredArray(key=f"{key}|fp32", shape=(self.rows, self.columns), dtype=_FLOAT32, make=read)}

    def gather(self, op: Any, ids: Any, stored: Mapping[str, Any]) -> Any:
        """Emit one Gather."""
        return op.Gather(stored["weight"], ids)

    def project(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit one Gemm."""
        inputs = [x, stored["weight"]] if bias is None else [x, stored["weight"], bias]
        return op.Gemm(*inputs, transB=1)
