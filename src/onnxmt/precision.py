"""Precision recipes, and how a linear layer or an embedding table is emitted in each precision."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import UsageError

Array = npt.NDArray[Any]

COMPONENTS = ("encoder", "decoder", "cross_kv", "lm_head", "embedding")
PRECISIONS = ("fp32",)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The precision of each component of a model.

    `encoder` and `decoder` are the linear layers of the two stacks, `cross_kv` the projections of the encoder's output
    to the decoder's cross-attention keys and values, `lm_head` the output projection, `embedding` the token tables.
    `keep_fp32` are fnmatch patterns over weight paths (such as `model.decoder.layers.5.*`) that stay in fp32.
    """

    name: str
    encoder: str = "fp32"
    decoder: str = "fp32"
    cross_kv: str = "fp32"
    lm_head: str = "fp32"
    embedding: str = "fp32"
    keep_fp32: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for component in COMPONENTS:
            found = getattr(self, component)
            if found not in PRECISIONS:
                raise UsageError(f"precision {component}={found!r} is not known; allowed: {', '.join(PRECISIONS)}")

    def precision_of(self, component: str, path: str) -> str:
        """Return the precision of the weight at `path`, which belongs to `component`."""
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in self.keep_fp32):
            return "fp32"
        found: str = getattr(self, component)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain data for the manifest."""
        return {f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v for f in fields(self)}


PRESETS: Mapping[str, Recipe] = {"fp32": Recipe(name="fp32")}


def recipe(name: str) -> Recipe:
    """Return the preset called `name`; raise UsageError naming the presets."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UsageError(f"precision {name!r} is not known; allowed: {', '.join(PRESETS)}") from None


@dataclass(frozen=True, kw_only=True)
class StoredArray:
    """One array of the weights file: made only when it is written.

    Two arrays with the same `key` have the same content, and are stored once however many graphs use them.
    """

    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[], Array]


class MatrixForm(Protocol):
    """How a matrix W [out, in] is stored and multiplied: one implementation for each precision."""

    def arrays(self, key: str, rows: int, columns: int, read: Callable[[], Array]) -> dict[str, StoredArray]:
        """Return the arrays to store, by local name; `read` gives W in float32."""
        ...

    def multiply(self, op: Any, x: Any, stored: Mapping[str, Any]) -> Any:
        """Emit x W^T for x [..., in]; `stored` maps the local names to graph values."""
        ...


class TableForm(Protocol):
    """How a token table E [vocabulary, width] is stored, gathered from, and used as the output projection."""

    def arrays(self, key: str, rows: int, columns: int, read: Callable[[], Array]) -> dict[str, StoredArray]:
        """Return the arrays to store, by local name; `read` gives E in float32."""
        ...

    def gather(self, op: Any, ids: Any, stored: Mapping[str, Any]) -> Any:
        """Emit E[ids], float32 [..., width]."""
        ...

    def project(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit x E^T + bias for x [rows, width] → [rows, vocabulary]."""
        ...


_FLOAT32 = np.dtype(np.float32)


class Fp32Matrix:
    """MatMul with W^T stored, so that ONNX Runtime multiplies without a transpose."""

    def arrays(self, key: str, rows: int, columns: int, read: Callable[[], Array]) -> dict[str, StoredArray]:
        """Store W^T [in, out]."""
        return {
            "weight": StoredArray(
                key=f"{key}|fp32|transposed",
                shape=(columns, rows),
                dtype=_FLOAT32,
                make=lambda: np.ascontiguousarray(read().T),
            )
        }

    def multiply(self, op: Any, x: Any, stored: Mapping[str, Any]) -> Any:
        """Emit one MatMul."""
        return op.MatMul(x, stored["weight"])


class Fp32Table:
    """The table as it is: Gather for the embedding, Gemm with transB for the head; a tied head needs no second copy."""

    def arrays(self, key: str, rows: int, columns: int, read: Callable[[], Array]) -> dict[str, StoredArray]:
        """Store E [vocabulary, width]."""
        return {"weight": StoredArray(key=f"{key}|fp32", shape=(rows, columns), dtype=_FLOAT32, make=read)}

    def gather(self, op: Any, ids: Any, stored: Mapping[str, Any]) -> Any:
        """Emit one Gather."""
        return op.Gather(stored["weight"], ids)

    def project(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit one Gemm."""
        inputs = [x, stored["weight"]] if bias is None else [x, stored["weight"], bias]
        return op.Gemm(*inputs, transB=1)


_MATRIX_FORMS: Mapping[str, MatrixForm] = {"fp32": Fp32Matrix()}
_TABLE_FORMS: Mapping[str, TableForm] = {"fp32": Fp32Table()}


def matrix_form(precision: str) -> MatrixForm:
    """Return how a linear layer is emitted in `precision`."""
    return _MATRIX_FORMS[precision]


def table_form(precision: str) -> TableForm:
    """Return how a token table is emitted in `precision`."""
    return _TABLE_FORMS[precision]
