"""The residual stream of a transformer stack, so that one layer's code serves post-norm and pre-norm families."""

from __future__ import annotations

from typing import Any

from . import fused
from .layers import Norm


class ResidualStream:
    """Hidden states between sub-layers: `read` gives a sub-layer its input, `write` adds its output.

    Post-norm: x ← norm(x + y). Pre-norm: the sum is left pending until the next norm, which is then emitted together
    with it (for root-mean-square norms ONNX Runtime has one operator for both).
    """

    def __init__(self, x: Any, *, norm_first: bool) -> None:
        self._x, self._norm_first = x, norm_first
        self._pending: Any | None = None

    def read(self, op: Any, norm: Norm) -> Any:
        """Return the sub-layer's input [B, T, d]; `norm` is the sub-layer's own norm."""
        if not self._norm_first:
            return self._x
        if self._pending is None:
            return fused.norm(op, self._x, norm)
        normed, self._x = fused.norm_and_sum(op, self._pending, self._x, norm)
        self._pending = None
        return normed

    def write(self, op: Any, y: Any, norm: Norm) -> None:
        """Add the sub-layer's output."""
        if self._norm_first:
            self._pending = y
        else:
            self._x = fused.norm_of_sum(op, y, self._x, norm)

    def finish(self, op: Any, norm: Norm | None) -> Any:
        """Return the stack's output; `norm` is the last norm of a pre-norm stack."""
        if self._pending is None or norm is None:
            return self._x
        return fused.norm_of_sum(op, self._pending, self._x, norm)
