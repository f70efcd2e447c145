"""The fused dialect: attention and residual norms as ONNX Runtime's com.microsoft operators."""

from __future__ import annotations

from typing import Any, NamedTuple

import onnx_ir as ir

from .layers import Norm, RmsNorm

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


def microsoft(op: Any, operator: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """Emit a com.microsoft operator; → its float32 output, or a list of them.

    onnxscript has no types for this domain, and would insert casts for the Python numbers that the outputs meet.
    """
    emit = getattr(op.builder.opset("com.microsoft", MICROSOFT_OPSET), operator)
    made = emit(*inputs, _outputs=outputs, **attributes)
    for value in made if outputs > 1 else [made]:
        value.type = ir.TensorType(ir.DataType.FLOAT)
    return made


def split(op: Any, x: Any, parts: int) -> Any:
    """Split the last axis into equal parts."""
    return op.Split(x, axis=-1, num_outputs=parts, _outputs=parts)


def _attention(op: Any, *inputs: Any, heads: int, scale: float | None, **attributes: Any) -> Any:
    """Emit MultiHeadAttention; `scale` multiplies the scores, None stands for 1/√(head size)."""
    if scale is not None:
        attributes["scale"] = scale
    return microsoft(op, "MultiHeadAttention", *inputs, num_heads=heads, mask_filter_value=MASKED, **attributes)


def self_attention(
    op: Any, qkv: Any, *, heads: int, mask: Any, scale: float | None = None, position_bias: Any | None = None
) -> Any:
    """Encoder self-attention over stacked projections [B, S, 3·d]; `mask` int32 [B, S], 1 = token. → [B, S, d].

    `position_bias` [1, heads, S, S] is added to the scores.
    """
    query, key, value = split(op, qkv, 3)
    return _attention(op, query, key, value, None, mask, position_bias, heads=heads, scale=scale)


def cached_attention(
    op: Any,
    qkv: Any,
    past_key: Any,
    past_value: Any,
    *,
    heads: int,
    scale: float | None = None,
    position_bias: Any | None = None,
) -> Attended:
    """Causal decoder self-attention of T new tokens over P cached ones; no mask, since rows have no padding.

    `position_bias` [1, heads, T, P + T] is added to the scores. `unidirectional` makes a prefix of several tokens
    causal; with T = 1 it changes nothing.
    """
    query, key, value = split(op, qkv, 3)
    inputs = (query, key, value, None, None, position_bias, past_key, past_value)
    return Attended(*_attention(op, *inputs, heads=heads, scale=scale, unidirectional=1, outputs=3))


def cross_attention(
    op: Any, query: Any, key: Any, value: Any, *, heads: int, mask: Any, scale: float | None = None
) -> Any:
    """Attention of [B, T, d] over given keys and values [B, heads, S, head size]; `mask` int32 [B, S]. → [B, T, d]."""
    return _attention(op, query, key, value, None, mask, heads=heads, scale=scale)


def norm(op: Any, x: Any, layer: Norm) -> Any:
    """Norm over the last axis.

    SimplifiedLayerNormalization is the root-mean-square norm; ONNX Runtime registers it in the default domain.
    """
    operator = op.SimplifiedLayerNormalization if isinstance(layer, RmsNorm) else op.LayerNormalization
    normed = layer(op, lambda _op, *weights: operator(x, *weights, axis=-1, epsilon=layer.epsilon))
    normed.type = ir.TensorType(ir.DataType.FLOAT)  # which onnxscript does not know of the simplified one
    return normed


def _layer_norm(op: Any, total: Any, weights: Any, layer: Norm) -> tuple[Any, Any]:
    return op.LayerNormalization(total, *weights, axis=-1, epsilon=layer.epsilon), total


def norm_and_sum(op: Any, x: Any, residual: Any, layer: Norm) -> tuple[Any, Any]:
    """Norm of x + residual, and that sum itself (the next residual of a pre-norm model).

    A root-mean-square norm takes ONNX Runtime's operator for both. LayerNormalization after an Add does not: on CPU
    SkipLayerNormalization (1.32) takes 4.1 ns a number and the two operators together 0.6, so `Session` also keeps ONNX
    Runtime from fusing them.
    """
    if isinstance(layer, RmsNorm):
        normed, _mean, _inverse, total = layer(
            op,
            lambda op, *weights: microsoft(
                op, "SkipSimplifiedLayerNormalization", x, residual, *weights, epsilon=layer.epsilon, outputs=4
            ),
        )
        return normed, total
    return layer(op, lambda op, *weights: _layer_norm(op, op.Add(x, residual), weights, layer))


def norm_of_sum(op: Any, x: Any, residual: Any, layer: Norm) -> Any:
    """Norm of x + residual."""
    if not isinstance(layer, RmsNorm):
        return norm_and_sum(op, x, residual, layer)[0]
    return layer(
        op,
        lambda op, *weights: microsoft(
            op, "SkipSimplifiedLayerNormalization", x, residual, *weights, epsilon=layer.epsilon
        ),
    )
