"""The attention modules that every family uses; what differs is an `AttentionStyle`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnxscript import nn

from . import fused
from .config import Dimensions, StackConfig
from .graphs import CrossKeyValue
from .layers import Linear


@dataclass(frozen=True, kw_only=True)
class AttentionStyle:
    """How a family names its projections in the checkpoint, and scales its scores."""

    query: str
    key: str
    value: str
    output: str
    bias: bool
    scale: float | None  # of the scores; None: 1/√(head size)


class SelfAttention(nn.Module):  # type: ignore[misc]  # onnxscript is untyped
    """Query, key and value in one product, attention, and the output projection."""

    def __init__(self, style: AttentionStyle, d_model: int, stack: StackConfig, component: str) -> None:
        super().__init__()
        inner = stack.heads * stack.head_dim
        sources = (style.query, style.key, style.value)
        self.qkv = Linear(inputs=d_model, outputs=3 * inner, component=component, sources=sources, bias=style.bias)
        setattr(self, style.output, Linear(inputs=inner, outputs=d_model, component=component, bias=style.bias))
        self._style, self._heads = style, stack.heads

    def forward(self, op: Any, x: Any, mask: Any, position_bias: Any | None = None) -> Any:
        """Encoder self-attention of [B, S, d]."""
        attended = fused.self_attention(
            op, self.qkv(op, x), heads=self._heads, mask=mask, scale=self._style.scale, position_bias=position_bias
        )
        return getattr(self, self._style.output)(op, attended)


class CachedSelfAttention(SelfAttention):
    """The decoder's: causal, over cached keys and values."""

    def forward(
        self, op: Any, x: Any, past: CrossKeyValue, position_bias: Any | None = None
    ) -> tuple[Any, CrossKeyValue]:
        """Attend [B, T, d] over the past and itself; → (output, present)."""
        attended = fused.cached_attention(
            op, self.qkv(op, x), past.key, past.value,
            heads=self._heads, scale=self._style.scale, position_bias=position_bias,
        )  # fmt: skip
        output = getattr(self, self._style.output)(op, attended.output)
        return output, CrossKeyValue(attended.key, attended.value)


class CrossAttention(nn.Module):  # type: ignore[misc]
    """The decoder's attention over the encoder's keys and values, which the encoder graph has computed."""

    def __init__(self, style: AttentionStyle, d_model: int, stack: StackConfig) -> None:
        super().__init__()
        inner = stack.heads * stack.head_dim
        setattr(self, style.query, Linear(inputs=d_model, outputs=inner, component="decoder", bias=style.bias))
        setattr(self, style.output, Linear(inputs=inner, outputs=d_model, component="decoder", bias=style.bias))
        self._style, self._heads = style, stack.heads

    def forward(self, op: Any, x: Any, cross: CrossKeyValue, mask: Any) -> Any:
        """Attend [B, T, d] over [B, heads, S, head size]."""
        query = getattr(self, self._style.query)(op, x)
        attended = fused.cross_attention(
            op, query, cross.key, cross.value, heads=self._heads, mask=mask, scale=self._style.scale
        )
        return getattr(self, self._style.output)(op, attended)


class CrossProjection(nn.Module):  # type: ignore[misc]
    """Keys and values of one decoder layer's cross-attention, from the encoder's output."""

    def __init__(self, style: AttentionStyle, d_model: int, stack: StackConfig) -> None:
        super().__init__()
        outputs = 2 * stack.heads * stack.head_dim
        sources = (style.key, style.value)
        self.kv = Linear(inputs=d_model, outputs=outputs, component="cross_kv", sources=sources, bias=style.bias)
        self._stack = stack

    def forward(self, op: Any, states: Any) -> CrossKeyValue:
        """Project [B, S, d] → key and value [B, heads, S, head size]."""
        shape = [0, 0, self._stack.heads, self._stack.head_dim]
        parts = fused.split(op, self.kv(op, states), 2)
        return CrossKeyValue(*(op.Transpose(op.Reshape(part, shape), perm=[0, 2, 1, 3]) for part in parts))


class CrossProjections(nn.Module):  # type: ignore[misc]
    """The cross-attention projections of every decoder layer."""

    def __init__(self, style: AttentionStyle, dimensions: Dimensions, *, place: str) -> None:
        """`place` is the path of a layer's cross-attention below the decoder, with {} for the layer's number."""
        super().__init__()
        projections = [
            CrossProjection(style, dimensions.d_model, dimensions.decoder) for _ in range(dimensions.decoder.layers)
        ]
        for layer, projection in enumerate(projections):
            # A child under a dotted name stands where the checkpoint has it, without the modules in between.
            setattr(self, place.format(layer), projection)
        self._projections = tuple(projections)

    def forward(self, op: Any, states: Any) -> list[CrossKeyValue]:
        """Project the encoder's output [B, S, d] for every decoder layer."""
        return [projection(op, states) for projection in self._projections]
