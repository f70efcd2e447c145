"""The residual stream of a transformer stack, so that one layer's code serves post-norm and pre-norm families."""

from __future__ import annotations

from typing import Any

from . import fused
from .layers import Norm


class ResidualStream:
    """Hidden states between sub-layers: `read` gives a sub-layer its input, `write` adds its output.

    Post-norm: x ← norm(x + y). Pre-norm: the sum is left pending until the next norm, which is then emitted together
    with it (ONNX Runtime's SkipLayerNormalization does both in one pass over the states).
    """

    def __init__(self, x: Any, *, norm_first: bool) -> None:
        self._x, self._norm_first = x, norm_first
        self._pending: tuple[Any, Any | None] | None = None

    def read(self, op: Any, norm: Norm) -> Any:
        """Return the sub-layer's input [B, T, d]; `norm` is the sub-layer's own norm."""
        if not self._norm_first:
            return self._x
        if self._pending is None:
            return fused.norm(op, self._x, norm)
        y, bias = self._pending
        normed, self._x = fused.norm_and_sum(op, y, self._x, norm, bias=bias)
        self._pending = None
        return normed

    def write(self, op: Any, y: Any, bias: Any | None, norm: Norm) -> None:
        """Add the sub-layer's output and the bias it handed on."""
        if self._norm_first:
            self._pending = (y, bias)
        else:
            self._x = fused.norm_of_sum(op, y, self._x, norm, bias=bias)

    def finish(self, op: Any, norm: Norm | None) -> Any:
        """Return the stack's output; `norm` is the last norm of a pre-norm stack."""
        if self._pending is None or norm is None:
            return self._x
        y, bias = self._pending
        return fused.norm_of_sum(op, y, self._x, norm, bias=bias)
