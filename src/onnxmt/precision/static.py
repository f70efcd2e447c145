"""int8-static: activations quantised by one scale for each layer, which calibration has measured on real decoding.

QuantizeLinear and MatMulIntegerToFloat: nothing is computed from the batch, so a sentence's result does not depend on
its neighbours. Weights have 7 bits and a scale for each output, as in `dynamic`, and the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxmt.precision.dynamic import DynamicTable, dynamic_arrays
from onnxmt.precision.forms import Array, StoredArray

_LEVELS = 255


@dataclass(frozen=True, kw_only=True)
class ActivationRange:
    """The smallest and largest value that a layer's input is quantised over; values beyond are clipped."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"an activation range from {self.low} to {self.high} is none")

    @property
    def scale(self) -> np.float32:
        """The width of a step; the range is widened to hold 0, which padding and ReLU need exactly."""
        width = np.float32((max(self.high, 0.0) - min(self.low, 0.0)) / _LEVELS)
        return width if width > 0 else np.float32(1)

    @property
    def zero_point(self) -> np.uint8:
        """The step that stands for 0."""
        return np.uint8(np.clip(np.rint(-min(self.low, 0.0) / self.scale), 0, _LEVELS))


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The input range of each linear layer by its path, and what it was measured on."""

    ranges: Mapping[str, ActivationRange]
    texts: str
    lines: int
    method: str

    def to_dict(self) -> dict[str, Any]:
        """Return what the manifest says of it."""
        return {"texts": self.texts, "lines": self.lines, "method": self.method, "layers": len(self.ranges)}


def _multiply(op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None, measured: ActivationRange) -> Any:
    scale = op.Constant(value=ir.tensor(np.array(measured.scale)))
    zero = op.Constant(value=ir.tensor(np.array(measured.zero_point)))
    quantized = op.QuantizeLinear(x, scale, zero)
    inputs = [quantized, stored["weight_quantized"], scale, stored["weight_scales"], zero]
    if bias is not None:
        inputs += [None, bias]
    product = op.builder.opset("com.microsoft", 1).MatMulIntegerToFloat(*inputs)
    product.type = ir.TensorType(ir.DataType.FLOAT)
    return product


@dataclass(frozen=True, kw_only=True)
class StaticMatrix:
    """W^T in int8 [columns, rows] with a scale for each output, over an input of a measured range."""

    rows: int
    columns: int
    measured: ActivationRange

    def arrays(self, key: str, read: Callable[[], Array]) -> dict[str, StoredArray]:
        """Store values and scales, the same as int8-dynamic does."""
        return dynamic_arrays(key, self.rows, self.columns, read)

    def multiply(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit QuantizeLinear and MatMulIntegerToFloat."""
        return _multiply(op, x, stored, bias, self.measured)


@dataclass(frozen=True, kw_only=True)
class StaticTable(DynamicTable):
    """E^T in int8; the embedding needs no range, the head has the one of the decoder's output."""

    measured: ActivationRange | None

    def project(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit QuantizeLinear and MatMulIntegerToFloat."""
        if self.measured is None:
            raise ValueError("a static head needs the range of its input")
        return _multiply(op, x, stored, bias, self.measured)
