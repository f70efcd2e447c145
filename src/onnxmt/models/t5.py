"""The T5-like families as encoder and decoder graphs; what differs between them is a row of TRAITS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxscript import nn

from onnxmt.errors import UnsupportedModelError

from . import fused
from .activations import activation
from .attention import AttentionStyle, CachedSelfAttention, CrossAttention, CrossProjections, SelfAttention
from .config import ConfigReader, Dimensions, StackConfig
from .graphs import CrossKeyValue
from .layers import Embedding, Head, Linear, RmsNorm
from .relative_positions import Buckets, RelativeBias, table_rows
from .residual import ResidualStream
from .seq2seq import DecoderGraph, EncoderGraph, past_length, sequence_length


@dataclass(frozen=True, kw_only=True)
class Traits:
    """How a family differs from the others, with transformers 5's defaults for keys that config.json leaves out."""

    scales_output: bool  # by d_model ** -0.5 before the head, unless config.json says that the head is not tied
    bias_in_every_layer: bool  # of relative positions; else the first layer's bias serves all
    feed_forward: str
    vocab_size: int
    d_ff: int
    layers: int
    heads: int


_LARGE: Mapping[str, Any] = {"feed_forward": "gated-gelu", "vocab_size": 250112, "d_ff": 1024, "layers": 8, "heads": 6}
TRAITS: Mapping[str, Traits] = {
    "t5": Traits(
        scales_output=True,
        bias_in_every_layer=False,
        feed_forward="relu",
        vocab_size=32128,
        d_ff=2048,
        layers=6,
        heads=8,
    ),
    "mt5": Traits(scales_output=False, bias_in_every_layer=False, **_LARGE),
    "umt5": Traits(scales_output=True, bias_in_every_layer=True, **_LARGE),
}
# What the configuration classes of the three families have in common.
_ALIASES = {"d_model": "hidden_size", "d_kv": "head_dim", "num_layers": "num_hidden_layers"}
_ALIASES |= {"num_heads": "num_attention_heads"}
_SIZE, _HEAD_SIZE, _BUCKETS, _DISTANCE, _EPSILON = 512, 64, 32, 128, 1e-6
_STYLE = AttentionStyle(query="q", key="k", value="v", output="o", bias=False, scale=1.0)


@dataclass(frozen=True, kw_only=True)
class FeedForwardKind:
    """The activation's name, and whether its result is multiplied by a second projection of the input."""

    activation: str
    gated: bool


@dataclass(frozen=True, kw_only=True)
class T5Config:
    """The settings of a T5-like model that shape its graphs."""

    model_type: str
    dimensions: Dimensions
    feed_forward: FeedForwardKind
    buckets: int
    max_distance: int
    epsilon: float
    output_scale: float
    traits: Traits

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> T5Config:
        """Read a config.json mapping; raise UnsupportedModelError naming what is not implemented."""
        model_type = str(config["model_type"])
        traits = TRAITS[model_type]
        reader = ConfigReader(config, aliases=_ALIASES)
        d_model = reader.positive_int("d_model", _SIZE)
        shape = {
            "heads": reader.positive_int("num_heads", traits.heads),
            "head_dim": reader.positive_int("d_kv", _HEAD_SIZE),
            "ffn_dim": reader.positive_int("d_ff", traits.d_ff),
        }
        vocab = reader.positive_int("vocab_size", traits.vocab_size)
        buckets, distance = _relative_positions(reader)
        # transformers copies num_layers to the decoder before it looks at the second name of the key.
        decoder_layers = ConfigReader(config).positive_int("num_layers", traits.layers)
        # Whether to scale is a key of its own only in files that transformers 5 has saved; before, it followed the tie.
        scaled = reader.flag("scale_decoder_outputs", reader.flag("tie_word_embeddings", True)) and traits.scales_output
        return cls(
            model_type=model_type,
            dimensions=Dimensions(
                d_model=d_model,
                encoder=StackConfig(layers=reader.positive_int("num_layers", traits.layers), **shape),
                decoder=StackConfig(layers=reader.positive_int("num_decoder_layers", decoder_layers), **shape),
                source_vocab_size=vocab,
                target_vocab_size=vocab,
                max_source_positions=None,
                max_target_positions=None,
            ),
            feed_forward=_feed_forward(reader, traits),
            buckets=buckets,
            max_distance=distance,
            epsilon=reader.positive_number("layer_norm_epsilon", _EPSILON),
            output_scale=d_model**-0.5 if scaled else 1.0,
            traits=traits,
        )

    def encoder_graph(self) -> EncoderGraph:
        """Return a fresh encoder module tree."""
        return EncoderGraph(
            Encoder(self), CrossProjections(_STYLE, self.dimensions, place="block.{}.layer.1.EncDecAttention")
        )

    def decoder_graph(self) -> DecoderGraph:
        """Return a fresh decoder module tree."""
        head = Head(rows=self.dimensions.target_vocab_size, width=self.dimensions.d_model)
        return DecoderGraph(Decoder(self), head, output_scale=self.output_scale)

    def ties(self) -> Mapping[str, tuple[str, ...]]:
        """Return {source: targets}: transformers 5 ties all of them when they are equal, whatever config.json says."""
        return {"shared.weight": ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")}

    def wide_layers(self) -> tuple[str, ...]:
        """The feed-forward outputs, as in transformers (`_keep_in_fp32_modules`): they do pass 65504 in real models."""
        return ("*.DenseReluDense.wo",)

    def ignored_weights(self) -> tuple[str, ...]:
        """Return fnmatch patterns of weights that old checkpoints carry and transformers does not read."""
        return ("decoder.block.*.layer.1.EncDecAttention.relative_attention_bias.weight",)


def _feed_forward(reader: ConfigReader, traits: Traits) -> FeedForwardKind:
    """Read the kind as T5Config does: from feed_forward_proj, unless dense_act_fn and is_gated_act are there."""
    kind = reader.text("feed_forward_proj", traits.feed_forward)
    first, *rest = kind.split("-")
    if len(rest) > 1 or (rest and first != "gated"):
        raise UnsupportedModelError(
            f"config.json: feed_forward_proj is {kind!r}, and must be an activation, or gated- and an activation"
        )
    name = "gelu_new" if kind == "gated-gelu" else kind.rpartition("-")[2]
    name = reader.text("dense_act_fn", name)
    activation(name)
    return FeedForwardKind(activation=name, gated=reader.flag("is_gated_act", first == "gated"))


def _relative_positions(reader: ConfigReader) -> tuple[int, int]:
    """Return the number of buckets and the distance from which on all share one."""
    buckets = reader.positive_int("relative_attention_num_buckets", _BUCKETS)
    distance = reader.positive_int("relative_attention_max_distance", _DISTANCE)
    if buckets < 4 or distance <= buckets // 2:
        raise UnsupportedModelError(
            f"config.json: relative_attention_num_buckets={buckets} must be at least 4, and "
            f"relative_attention_max_distance={distance} more than half of it"
        )
    return buckets, distance


class PositionBias:
    """The bias of relative positions that a stack's layers share: a layer without a table takes the last one's."""

    def __init__(self, rows: Any) -> None:
        """`rows` are the table rows of every pair of positions, int64 [T, P + T]."""
        self._rows, self._bias = rows, None

    def of(self, op: Any, table: RelativeBias | None) -> Any:
        """Return a layer's bias [1, heads, T, P + T]."""
        if table is not None:
            self._bias = table(op, self._rows)
        return self._bias


def _norm(config: T5Config) -> RmsNorm:
    return RmsNorm(config.dimensions.d_model, epsilon=config.epsilon)


class SelfAttentionLayer(nn.Module):  # type: ignore[misc]  # onnxscript is untyped
    """The first part of a block, with the norm before it and, in some layers, the table of relative positions."""

    def __init__(self, config: T5Config, attention: SelfAttention, table: RelativeBias | None) -> None:
        super().__init__()
        self.SelfAttention = attention
        if table is not None:
            setattr(self, "SelfAttention.relative_attention_bias", table)  # where the checkpoint has it
        self.layer_norm = _norm(config)
        self._table = (table,)

    def forward(self, op: Any, stream: ResidualStream, source: Any, bias: PositionBias) -> Any:
        """Advance the stream; `source` is the mask (encoder) or the past (decoder). → a decoder's present."""
        attended = self.SelfAttention(op, stream.read(op, self.layer_norm), source, bias.of(op, self._table[0]))
        y, present = attended if isinstance(attended, tuple) else (attended, None)
        stream.write(op, y, self.layer_norm)
        return present


class CrossAttentionLayer(nn.Module):  # type: ignore[misc]
    """The part of a decoder block that attends to the encoder's output."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.EncDecAttention = CrossAttention(_STYLE, config.dimensions.d_model, config.dimensions.decoder)
        self.layer_norm = _norm(config)

    def forward(self, op: Any, stream: ResidualStream, cross: CrossKeyValue, mask: Any) -> None:
        """Advance the stream."""
        y = self.EncDecAttention(op, stream.read(op, self.layer_norm), cross, mask)
        stream.write(op, y, self.layer_norm)


class FeedForward(nn.Module):  # type: ignore[misc]
    """Two linear layers with an activation between them, gated or plain."""

    def __init__(self, config: T5Config, stack: StackConfig, component: str) -> None:
        super().__init__()
        d_model, d_ff, gated = config.dimensions.d_model, stack.ffn_dim, config.feed_forward.gated
        sources = ("wi_0", "wi_1") if gated else ()
        outputs = 2 * d_ff if gated else d_ff
        self.wi = Linear(inputs=d_model, outputs=outputs, component=component, sources=sources, bias=False)
        self.wo = Linear(inputs=d_ff, outputs=d_model, component=component, bias=False)
        self._activation, self._gated = activation(config.feed_forward.activation), gated

    def forward(self, op: Any, x: Any) -> Any:
        """Map [B, T, d] → [B, T, d]."""
        hidden = self.wi(op, x)
        if not self._gated:
            return self.wo(op, self._activation(op, hidden))
        gate, linear = fused.split(op, hidden, 2)
        return self.wo(op, op.Mul(self._activation(op, gate), linear))


class FeedForwardLayer(nn.Module):  # type: ignore[misc]
    """The last part of a block."""

    def __init__(self, config: T5Config, stack: StackConfig, component: str) -> None:
        super().__init__()
        self.DenseReluDense = FeedForward(config, stack, component)
        self.layer_norm = _norm(config)

    def forward(self, op: Any, stream: ResidualStream) -> None:
        """Advance the stream."""
        y = self.DenseReluDense(op, stream.read(op, self.layer_norm))
        stream.write(op, y, self.layer_norm)


class EncoderBlock(nn.Module):  # type: ignore[misc]
    """Self-attention and feed-forward."""

    def __init__(self, config: T5Config, table: RelativeBias | None) -> None:
        super().__init__()
        stack = config.dimensions.encoder
        attention = SelfAttention(_STYLE, config.dimensions.d_model, stack, "encoder")
        self.layer = nn.ModuleList(
            [SelfAttentionLayer(config, attention, table), FeedForwardLayer(config, stack, "encoder")]
        )

    def forward(self, op: Any, stream: ResidualStream, mask: Any, bias: PositionBias) -> None:
        """Advance the stream by one block."""
        self_attention, feed_forward = self.layer
        self_attention(op, stream, mask, bias)
        feed_forward(op, stream)


class DecoderBlock(nn.Module):  # type: ignore[misc]
    """Cached self-attention, cross-attention and feed-forward."""

    def __init__(self, config: T5Config, table: RelativeBias | None) -> None:
        super().__init__()
        stack = config.dimensions.decoder
        attention = CachedSelfAttention(_STYLE, config.dimensions.d_model, stack, "decoder")
        self.layer = nn.ModuleList(
            [
                SelfAttentionLayer(config, attention, table),
                CrossAttentionLayer(config),
                FeedForwardLayer(config, stack, "decoder"),
            ]
        )

    def forward(
        self, op: Any, stream: ResidualStream, past: CrossKeyValue, cross: CrossKeyValue, mask: Any, bias: PositionBias
    ) -> CrossKeyValue:
        """Advance the stream by one block; → present key and value."""
        self_attention, cross_attention, feed_forward = self.layer
        present = self_attention(op, stream, past, bias)
        cross_attention(op, stream, cross, mask)
        feed_forward(op, stream)
        return present


class Stack(nn.Module):  # type: ignore[misc]
    """What both stacks hold: the embedding, the blocks and the last norm."""

    def __init__(
        self, config: T5Config, stack: StackConfig, block: type[EncoderBlock | DecoderBlock], *, bidirectional: bool
    ) -> None:
        super().__init__()
        self._buckets = Buckets(count=config.buckets, max_distance=config.max_distance, bidirectional=bidirectional)
        tables = stack.layers if config.traits.bias_in_every_layer else 1
        self.embed_tokens = Embedding(rows=config.dimensions.source_vocab_size, width=config.dimensions.d_model)
        self.block = nn.ModuleList(
            [
                block(config, RelativeBias(self._buckets, heads=stack.heads) if layer < tables else None)
                for layer in range(stack.layers)
            ]
        )
        self.final_layer_norm = _norm(config)

    def embed(self, op: Any, input_ids: Any) -> ResidualStream:
        """Embed int64 [B, T] → a residual stream over [B, T, d_model]."""
        return ResidualStream(self.embed_tokens(op, input_ids), norm_first=True)


class Encoder(Stack):
    """The encoder stack."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config, config.dimensions.encoder, EncoderBlock, bidirectional=True)

    def forward(self, op: Any, input_ids: Any, mask: Any) -> Any:
        """Encode int64 [B, S] → [B, S, d_model]."""
        length = sequence_length(op, input_ids)
        bias = PositionBias(table_rows(op, self._buckets, queries=length, keys=length, past=None))
        stream = self.embed(op, input_ids)
        for block in self.block:
            block(op, stream, mask, bias)
        return stream.finish(op, self.final_layer_norm)


class Decoder(Stack):
    """The decoder stack."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config, config.dimensions.decoder, DecoderBlock, bidirectional=False)

    def forward(
        self, op: Any, input_ids: Any, mask: Any, cross: list[CrossKeyValue], past: list[CrossKeyValue]
    ) -> tuple[Any, list[CrossKeyValue]]:
        """Advance by T tokens; → hidden states [B, T, d_model], present keys and values."""
        length, cached = sequence_length(op, input_ids), past_length(op, past)
        rows = table_rows(op, self._buckets, queries=length, keys=op.Add(cached, length), past=cached)
        bias, stream = PositionBias(rows), self.embed(op, input_ids)
        present = [
            block(op, stream, block_past, block_cross, mask, bias)
            for block, block_past, block_cross in zip(self.block, past, cross, strict=True)
        ]
        return stream.finish(op, self.final_layer_norm), present
