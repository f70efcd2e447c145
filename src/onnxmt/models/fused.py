"""The fused dialect: attention and residual norms as ONNX Runtime's com.microsoft operators."""

from __future__ import annotations

from typing import Any, NamedTuple

from .layers import LayerNorm, Linear

OPSET = 18
IR_VERSION = 10
MICROSOFT_OPSET = 1

# Added to the scores of masked positions. ORT's default of -10,000 lets masked positions through where real scores are
# large (measured: an error of 3.3 on a T5); transformers uses the smallest float32.
MASKED = -3.4e38


class Attended(NamedTuple):
    """Attention's output [B, T, heads · head size], and present key and value [B, heads, P + T, head size]."""

    output: Any
    key: Any
    value: Any


def _microsoft(op: Any) -> Any:
    return op.builder.opset("com.microsoft", MICROSOFT_OPSET)


def split(op: Any, x: Any, parts: int) -> Any:
    """Split the last axis into equal parts."""
    return op.Split(x, axis=-1, num_outputs=parts, _outputs=parts)


def self_attention(op: Any, qkv: Any, *, heads: int, mask: Any) -> Any:
    """Encoder self-attention over stacked projections [B, S, 3·d]; `mask` int32 [B, S], 1 = token. → [B, S, d]."""
    query, key, value = split(op, qkv, 3)
    return _microsoft(op).MultiHeadAttention(query, key, value, None, mask, num_heads=heads, mask_filter_value=MASKED)


def cached_attention(op: Any, qkv: Any, past_key: Any, past_value: Any, *, heads: int) -> Attended:
    """Causal decoder self-attention of T new tokens over P cached ones; no mask, since rows have no padding.

    `unidirectional` makes a prefix of several tokens causal; with T = 1 it changes nothing.
    """
    query, key, value = split(op, qkv, 3)
    output, present_key, present_value = _microsoft(op).MultiHeadAttention(
        query, key, value, None, None, None, past_key, past_value,
        num_heads=heads, unidirectional=1, mask_filter_value=MASKED, _outputs=3,
    )  # fmt: skip
    return Attended(output, present_key, present_value)


def cross_attention(op: Any, query: Any, key: Any, value: Any, *, heads: int, mask: Any) -> Any:
    """Attention of [B, T, d] over given keys and values [B, heads, S, head size]; `mask` int32 [B, S]. → [B, T, d]."""
    return _microsoft(op).MultiHeadAttention(query, key, value, None, mask, num_heads=heads, mask_filter_value=MASKED)


def norm(op: Any, x: Any, layer: LayerNorm) -> Any:
    """Layer norm over the last axis."""
    return layer(op, lambda op, weight, bias: op.LayerNormalization(x, weight, bias, axis=-1, epsilon=layer.EPSILON))


def norm_of_sum(op: Any, x: Any, residual: Any, layer: LayerNorm, *, bias: Any | None) -> Any:
    """Layer norm of x + residual + bias in one operator."""
    return layer(
        op,
        lambda op, weight, shift: _microsoft(op).SkipLayerNormalization(
            x, residual, weight, shift, bias, epsilon=layer.EPSILON
        ),
    )


def norm_and_sum(op: Any, x: Any, residual: Any, layer: LayerNorm, *, bias: Any | None) -> tuple[Any, Any]:
    """Layer norm of x + residual + bias, and that sum itself (the next residual of a pre-norm model)."""
    normed, _mean, _inverse, total = layer(
        op,
        lambda op, weight, shift: _microsoft(op).SkipLayerNormalization(
            x, residual, weight, shift, bias, epsilon=layer.EPSILON, _outputs=4
        ),
    )
    return normed, total


def project_deferred(op: Any, x: Any, linear: Linear) -> tuple[Any, Any | None]:
    """Multiply, and hand the bias on for the operator that follows."""
    return linear(op, x, defer_bias=True), linear.bias
