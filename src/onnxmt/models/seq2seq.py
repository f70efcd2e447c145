"""The two module trees that every family builds: encoder → cross keys and values, decoder → logits."""

from __future__ import annotations

from typing import Any

from onnxscript import nn

from .attention import CrossProjections
from .graphs import CrossKeyValue, DecoderOutputs
from .layers import Head, LogitsBias


class EncoderGraph(nn.Module):  # type: ignore[misc]  # onnxscript is untyped
    """Token ids and mask → cross-attention keys and values of every decoder layer."""

    def __init__(self, encoder: nn.Module, projections: CrossProjections, *, prefix: str = "") -> None:
        """`prefix` stands before the names of both stacks in the checkpoint."""
        super().__init__("")
        setattr(self, f"{prefix}encoder", encoder)
        setattr(self, f"{prefix}decoder", projections)
        self._parts = (encoder, projections)

    @property
    def stack(self) -> nn.Module:
        """The encoder alone: (op, input_ids, mask) → hidden states [B, S, d_model]."""
        return self._parts[0]

    @property
    def projections(self) -> CrossProjections:
        """The cross-attention projections alone: (op, hidden states) → list[CrossKeyValue]."""
        return self._parts[1]

    def forward(self, op: Any, input_ids: Any, mask: Any) -> list[CrossKeyValue]:
        """`input_ids` int64 [B, S], `mask` int32 [B, S] → per decoder layer key and value [B, heads, S, head size]."""
        encoder, projections = self._parts
        return projections(op, encoder(op, input_ids, mask))


class DecoderGraph(nn.Module):  # type: ignore[misc]
    """New token ids, mask, cross and past keys and values → logits of the last position and present keys and values."""

    def __init__(
        self,
        decoder: nn.Module,
        head: Head,
        *,
        prefix: str = "",
        logits_bias: LogitsBias | None = None,
        output_scale: float = 1.0,
    ) -> None:
        """`output_scale` multiplies the decoder's output before the projection to the vocabulary."""
        super().__init__("")
        setattr(self, f"{prefix}decoder", decoder)
        self.lm_head = head
        self.final_logits_bias = logits_bias
        self._decoder, self._scale = (decoder,), output_scale

    @property
    def stack(self) -> nn.Module:
        """The decoder alone: (op, input_ids, mask, cross, past) → hidden states [B, T, d_model], present."""
        return self._decoder[0]

    def scores(self, op: Any, states: Any) -> Any:
        """Project decoder states [N, d_model] → logits [N, V]."""
        if self._scale != 1.0:
            states = op.Mul(states, self._scale)
        bias = None if self.final_logits_bias is None else self.final_logits_bias(op)
        return self.lm_head(op, states, bias)

    def forward(
        self, op: Any, input_ids: Any, mask: Any, cross: list[CrossKeyValue], past: list[CrossKeyValue]
    ) -> DecoderOutputs:
        """`input_ids` int64 [B, T], `mask` int32 [B, S] → logits [B, V], present keys and values."""
        (decoder,) = self._decoder
        states, present = decoder(op, input_ids, mask, cross, past)
        return DecoderOutputs(self.scores(op, op.Gather(states, -1, axis=1)), present)


def past_length(op: Any, past: list[CrossKeyValue]) -> Any:
    """Emit the number of cached positions P as an int64 scalar, read from the first layer's past key."""
    return op.Squeeze(op.Shape(past[0].key, start=2, end=3), [0])


def sequence_length(op: Any, input_ids: Any) -> Any:
    """Emit T of int64 [B, T] as an int64 scalar."""
    return op.Squeeze(op.Shape(input_ids, start=1, end=2), [0])
