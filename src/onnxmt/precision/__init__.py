"""Precision recipes, and how a linear layer or a token table is emitted in each number format."""

from __future__ import annotations

from onnxmt.precision.blocks import BlockFormat, BlockMatrix, BlockTable
from onnxmt.precision.dynamic import DynamicMatrix, DynamicTable
from onnxmt.precision.forms import Array, MatrixForm, StoredArray, TableForm
from onnxmt.precision.fp32 import Fp32Matrix, Fp32Table
from onnxmt.precision.recipe import COMPONENTS, PRECISIONS, PRESETS, Recipe, recipe, search_order
from onnxmt.precision.static import ActivationRange, Calibration, StaticMatrix, StaticTable

__all__ = [
    "COMPONENTS",
    "PRECISIONS",
    "PRESETS",
    "ActivationRange",
    "Array",
    "Calibration",
    "MatrixForm",
    "Recipe",
    "StoredArray",
    "TableForm",
    "matrix_form",
    "recipe",
    "search_order",
    "table_form",
]

_BITS_AND_BLOCK = {"int8": (8, 64), "int4": (4, 32)}
_SMALLEST_BLOCK = 16


def _layout(precision: str, columns: int) -> BlockFormat | None:
    """The blocks of a matrix with so many columns; a narrow one gets smaller blocks, not padding."""
    if precision not in _BITS_AND_BLOCK:
        return None
    bits, block = _BITS_AND_BLOCK[precision]
    while block > _SMALLEST_BLOCK and columns <= block // 2:
        block //= 2
    return BlockFormat(bits=bits, block=block)


def matrix_form(precision: str, *, rows: int, columns: int, measured: ActivationRange | None = None) -> MatrixForm:
    """Return how a linear layer W [rows, columns] is stored and emitted in `precision`.

    int8-static needs the `measured` range of the layer's input. fp16 is emitted as fp32: `half.to_half` turns the
    finished graph, since it changes what flows between the layers as well.
    """
    if (layout := _layout(precision, columns)) is not None:
        return BlockMatrix(rows=rows, columns=columns, layout=layout)
    if precision == "int8-dynamic":
        return DynamicMatrix(rows=rows, columns=columns)
    if precision == "int8-static":
        if measured is None:
            raise ValueError("int8-static needs the measured range of the layer's input")
        return StaticMatrix(rows=rows, columns=columns, measured=measured)
    return Fp32Matrix(rows=rows, columns=columns)


def table_form(precision: str, *, rows: int, columns: int, measured: ActivationRange | None = None) -> TableForm:
    """Return how a token table E [rows, columns] is stored and emitted in `precision`; see `matrix_form`."""
    if (layout := _layout(precision, columns)) is not None:
        return BlockTable(rows=rows, columns=columns, layout=layout)
    if precision == "int8-dynamic":
        return DynamicTable(rows=rows, columns=columns)
    if precision == "int8-static":
        return StaticTable(rows=rows, columns=columns, measured=measured)
    return Fp32Table(rows=rows, columns=columns)
