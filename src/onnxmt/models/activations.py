"""The activation functions that transformers knows by name, as ONNX operators (ORT's fused ones where they exist)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnxmt.errors import UnsupportedModelError

from .fused import microsoft

# Values and builders of onnxscript are untyped; `Any` stands for onnx_ir.Value and onnxscript.OpBuilder here.
Emit = Callable[[Any, Any], Any]


def _gelu(op: Any, x: Any) -> Any:
    return microsoft(op, "Gelu", x)


def _gelu_tanh(op: Any, x: Any) -> Any:
    # FastGelu is the tanh approximation 0.5x(1 + tanh(√(2/π)(x + 0.044715x³))), which is NewGELUActivation.
    return microsoft(op, "FastGelu", x)


def _quick_gelu(alpha: float) -> Emit:
    # x·sigmoid(alpha·x); with alpha = 1 this is SiLU, also called swish.
    return lambda op, x: microsoft(op, "QuickGelu", x, alpha=alpha)


def _clipped_gelu(op: Any, x: Any) -> Any:
    return op.Clip(_gelu(op, x), -10.0, 10.0)


def _relu_squared(op: Any, x: Any) -> Any:
    rectified = op.Relu(x)
    return op.Mul(rectified, rectified)


def _mish(op: Any, x: Any) -> Any:
    return op.Mul(x, op.Tanh(op.Softplus(x)))


def _laplace(op: Any, x: Any) -> Any:
    # LaplaceActivation: mu and sigma are the constants of the Mega paper (Ma et al., 2022).
    scaled = op.Div(op.Sub(x, 0.707107), 0.282095 * math.sqrt(2.0))
    return op.Mul(op.Add(op.Erf(scaled), 1.0), 0.5)


ACTIVATIONS: dict[str, Emit] = {
    "gelu": _gelu,
    "gelu_python": _gelu,
    "gelu_10": _clipped_gelu,
    "gelu_new": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "gelu_accurate": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_python_tanh": _gelu_tanh,
    "quick_gelu": _quick_gelu(1.702),
    "silu": _quick_gelu(1.0),
    "swish": _quick_gelu(1.0),
    "relu": lambda op, x: op.Relu(x),
    "relu2": _relu_squared,
    "relu6": lambda op, x: op.Clip(x, 0.0, 6.0),
    "leaky_relu": lambda op, x: op.LeakyRelu(x, alpha=0.01),
    "hardswish": lambda op, x: op.HardSwish(x),
    "laplace": _laplace,
    "sqrtsoftplus": lambda op, x: op.Sqrt(op.Softplus(x)),
    "linear": lambda op, x: op.Identity(x),
    "mish": _mish,
    "sigmoid": lambda op, x: op.Sigmoid(x),
    "tanh": lambda op, x: op.Tanh(x),
}


def activation(name: str) -> Emit:
    """Return the emitter of the activation called `name` in transformers 5's `ACT2FN`; raise UnsupportedModelError."""
    try:
        return ACTIVATIONS[name]
    except KeyError:
        raise UnsupportedModelError(
            f"config.json asks for the activation {name!r}, which is not implemented; "
            f"implemented: {', '.join(sorted(ACTIVATIONS))}"
        ) from None
