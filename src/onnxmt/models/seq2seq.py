"""The two module trees that every family builds: encoder → cross keys and values, decoder → logits."""

from __future__ import annotations

from typing import Any

from onnxscript import nn

from .attention import CrossProjections
from .graphs import CrossKeyValue, DecoderOutputs, FedHead
from .layers import CandidateRows, Head, LogitsBias


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

    def head_graph(self) -> HeadGraph:
        """Return the tree of the graph that gathers candidates for `forward`'s `head`; it is without data."""
        return HeadGraph(self.lm_head.candidates(), logits_bias=self.final_logits_bias)

    def forward(
        self,
        op: Any,
        input_ids: Any,
        mask: Any,
        cross: list[CrossKeyValue],
        past: list[CrossKeyValue],
        head: FedHead | None = None,
    ) -> DecoderOutputs:
        """`input_ids` int64 [B, T], `mask` int32 [B, S] → logits [B, V], present keys and values.

        With `head`, rows that are fed, they take the place of the graph's own: logits [B, K].
        """
        (decoder,) = self._decoder
        states, present = decoder(op, input_ids, mask, cross, past)
        last = op.Gather(states, -1, axis=1)
        if head is None:
            return DecoderOutputs(self.scores(op, last), present)
        scaled = last if self._scale == 1.0 else op.Mul(last, self._scale)
        inputs = [scaled, head.weight, *([] if head.bias is None else [head.bias])]
        return DecoderOutputs(op.Gemm(*inputs, transB=1), present)


class HeadGraph(nn.Module):  # type: ignore[misc]
    """Token ids → their rows of the output projection, and their places of the bias where there is one."""

    def __init__(self, rows: CandidateRows, *, logits_bias: LogitsBias | None) -> None:
        super().__init__("")
        self.lm_head = rows
        self.final_logits_bias = logits_bias

    def forward(self, op: Any, tokens: Any) -> FedHead:
        """`tokens` int64 [K] → weight [K, d_model], bias [K] or None."""
        bias = None if self.final_logits_bias is None else self.final_logits_bias(op)
        return FedHead(self.lm_head(op, tokens), None if bias is None else op.Gather(bias, tokens))


def past_length(op: Any, past: list[CrossKeyValue]) -> Any:
    """Emit the number of cached positions P as an int64 scalar, read from the first layer's past key."""
    return op.Squeeze(op.Shape(past[0].key, start=2, end=3), [0])


def sequence_length(op: Any, input_ids: Any) -> Any:
    """Emit T of int64 [B, T] as an int64 scalar."""
    return op.Squeeze(op.Shape(input_ids, start=1, end=2), [0])
