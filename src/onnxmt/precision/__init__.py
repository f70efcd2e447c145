"""Precision recipes, and how a linear layer or a token table is emitted in each number format."""

from __future__ import annotations

from onnxmt.precision.blocks import BlockFormat, BlockMatrix, BlockTable
from onnxmt.precision.dynamic import DynamicMatrix, DynamicTable
from onnxmt.precision.forms import Array, MatrixForm, StoredArray, TableForm
from onnxmt.precision.fp32 import Fp32Matrix, Fp32Table
from onnxmt.precision.recipe import COMPONENTS, PRECISIONS, PRESETS, Recipe, recipe

__all__ = [
    "COMPONENTS",
    "PRECISIONS",
    "PRESETS",
    "Array",
    "MatrixForm",
    "Recipe",
    "StoredArray",
    "TableForm",
    "matrix_form",
    "recipe",
    "table_form",
]

_BLOCKS = {"int8": BlockFormat(bits=8, block=64), "int4": BlockFormat(bits=4, block=32)}


def matrix_form(precision: str, *, rows: int, columns: int) -> MatrixForm:
    """Return how a linear layer W [rows, columns] is stored and emitted in `precision`."""
    if precision in _BLOCKS:
        return BlockMatrix(rows=rows, columns=columns, layout=_BLOCKS[precision])
    if precision == "int8-dynamic":
        return DynamicMatrix(rows=rows, columns=columns)
    return Fp32Matrix(rows=rows, columns=columns)


def table_form(precision: str, *, rows: int, columns: int) -> TableForm:
    """Return how a token table E [rows, columns] is stored and emitted in `precision`."""
    if precision in _BLOCKS:
        return BlockTable(rows=rows, columns=columns, layout=_BLOCKS[precision])
    if precision == "int8-dynamic":
        return DynamicTable(rows=rows, columns=columns)
    return Fp32Table(rows=rows, columns=columns)
