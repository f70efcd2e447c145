"""The BART-like families as encoder and decoder graphs; what differs between them is a row of TRAITS."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxscript import nn

from onnxmt.precision import Array

from . import fused
from .activations import activation
from .config import ConfigReader, Dimensions, StackConfig, stack
from .graphs import CrossKeyValue, DecoderOutputs
from .layers import Embedding, Head, LayerNorm, Linear, LogitsBias, PositionTable
from .positions import m2m_sinusoids, marian_sinusoids
from .residual import ResidualStream


@dataclass(frozen=True, kw_only=True)
class Traits:
    """How a family differs from the others, with transformers 5's defaults for keys that config.json leaves out."""

    sinusoids: Callable[[int, int, int], Array] | None  # (positions, width, pad id); None: a learned table
    stored_sinusoids: bool  # a table in the checkpoint wins over the computed one
    position_offset: int | None  # rows of the table before position 0; None: the pad id + 1
    norm_first: bool  # pre-norm, with a last norm after the stack
    embedding_norm: bool
    logits_bias: bool
    separate_vocabularies: bool  # encoder and decoder may have embeddings of their own
    refused: Mapping[str, str]
    ignored_weights: tuple[str, ...]
    activation: str
    positions: int
    d_model: int
    layers: int
    heads: int
    ffn_dim: int
    vocab_size: int
    pad_token_id: int
    scale_embedding: bool


_NOT_IN_MARIAN = "which Marian in transformers 5 does not implement, so there is nothing to be equal to"
_OLD_POSITIONS = ("model.*.embed_positions.weights", "model.*.embed_positions._float_tensor", "model.*.version")
TRAITS: Mapping[str, Traits] = {
    "marian": Traits(
        sinusoids=lambda positions, width, _pad: marian_sinusoids(positions, width),
        stored_sinusoids=True,
        position_offset=0,
        norm_first=False,
        embedding_norm=False,
        logits_bias=True,
        separate_vocabularies=True,
        refused={
            "normalize_before": _NOT_IN_MARIAN,
            "add_final_layer_norm": _NOT_IN_MARIAN,
            "normalize_embedding": _NOT_IN_MARIAN,
            "add_bias_logits": _NOT_IN_MARIAN,
        },
        ignored_weights=("model.*.embed_positions._float_tensor", "model.*.version"),
        activation="gelu",
        positions=1024,
        d_model=1024,
        layers=12,
        heads=16,
        ffn_dim=4096,
        vocab_size=58101,
        pad_token_id=58100,
        scale_embedding=False,
    ),
    "bart": Traits(
        sinusoids=None,
        stored_sinusoids=False,
        position_offset=2,
        norm_first=False,
        embedding_norm=True,
        logits_bias=True,
        separate_vocabularies=False,
        refused={},
        ignored_weights=("model.*.version",),
        activation="gelu",
        positions=1024,
        d_model=1024,
        layers=12,
        heads=16,
        ffn_dim=4096,
        vocab_size=50265,
        pad_token_id=1,
        scale_embedding=False,
    ),
    "mbart": Traits(
        sinusoids=None,
        stored_sinusoids=False,
        position_offset=2,
        norm_first=True,
        embedding_norm=True,
        logits_bias=True,
        separate_vocabularies=False,
        refused={},
        ignored_weights=("model.*.version",),
        activation="gelu",
        positions=1024,
        d_model=1024,
        layers=12,
        heads=16,
        ffn_dim=4096,
        vocab_size=50265,
        pad_token_id=1,
        scale_embedding=False,
    ),
    "m2m_100": Traits(
        sinusoids=m2m_sinusoids,
        stored_sinusoids=False,
        position_offset=None,
        norm_first=True,
        embedding_norm=False,
        logits_bias=False,
        separate_vocabularies=False,
        refused={},
        ignored_weights=_OLD_POSITIONS,
        activation="relu",
        positions=1024,
        d_model=1024,
        layers=12,
        heads=16,
        ffn_dim=4096,
        vocab_size=128112,
        pad_token_id=1,
        scale_embedding=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class BartConfig:
    """The settings of a BART-like model that shape its graphs."""

    model_type: str
    dimensions: Dimensions
    activation: str
    embedding_scale: float
    position_offset: int
    pad_token_id: int
    share_embeddings: bool
    tie_embeddings: bool
    traits: Traits

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> BartConfig:
        """Read a config.json mapping; raise UnsupportedModelError naming what is not implemented."""
        model_type = str(config["model_type"])
        traits = TRAITS[model_type]
        reader = ConfigReader(config)
        for key, because in traits.refused.items():
            reader.refuse(key, because=because)
        d_model = reader.positive_int("d_model", traits.d_model)
        source_vocab = reader.positive_int("vocab_size", traits.vocab_size)
        share = True
        target_vocab = source_vocab
        if traits.separate_vocabularies:
            share = reader.flag("share_encoder_decoder_embeddings", True)
            if not share:
                target_vocab = reader.positive_int("decoder_vocab_size", source_vocab)
        positions = reader.positive_int("max_position_embeddings", traits.positions)
        name = reader.text("activation_function", traits.activation)
        activation(name)
        pad = reader.token_id("pad_token_id", traits.pad_token_id)
        return cls(
            model_type=model_type,
            dimensions=Dimensions(
                d_model=d_model,
                encoder=stack(
                    reader, "encoder", d_model=d_model, layers=traits.layers, heads=traits.heads, ffn_dim=traits.ffn_dim
                ),
                decoder=stack(
                    reader, "decoder", d_model=d_model, layers=traits.layers, heads=traits.heads, ffn_dim=traits.ffn_dim
                ),
                source_vocab_size=source_vocab,
                target_vocab_size=target_vocab,
                max_source_positions=positions,
                max_target_positions=positions,
            ),
            activation=name,
            embedding_scale=math.sqrt(d_model) if reader.flag("scale_embedding", traits.scale_embedding) else 1.0,
            position_offset=pad + 1 if traits.position_offset is None else traits.position_offset,
            pad_token_id=pad,
            share_embeddings=share,
            tie_embeddings=reader.flag("tie_word_embeddings", True),
            traits=traits,
        )

    def encoder_graph(self) -> EncoderGraph:
        """Return a fresh encoder module tree."""
        return EncoderGraph(self)

    def decoder_graph(self) -> DecoderGraph:
        """Return a fresh decoder module tree."""
        return DecoderGraph(self)

    def ties(self) -> Mapping[str, tuple[str, ...]]:
        """Return {source: targets}: the weights that transformers 5 makes one when the checkpoint allows it."""
        if not self.tie_embeddings:
            return {}
        if not self.share_embeddings:
            return {"model.decoder.embed_tokens.weight": ("lm_head.weight",)}
        return {
            "model.shared.weight": (
                "lm_head.weight",
                "model.decoder.embed_tokens.weight",
                "model.encoder.embed_tokens.weight",
            )
        }

    def ignored_weights(self) -> tuple[str, ...]:
        """Return fnmatch patterns of weights that old checkpoints carry and transformers does not read."""
        unused = () if self.share_embeddings and self.tie_embeddings else ("model.shared.weight",)
        return (*self.traits.ignored_weights, *unused)


def _position_table(config: BartConfig) -> PositionTable:
    traits, dimensions = config.traits, config.dimensions
    positions = dimensions.max_source_positions
    assert positions is not None  # every BART-like family has a table
    rows, width, pad = positions + config.position_offset, dimensions.d_model, config.pad_token_id
    sinusoids = traits.sinusoids
    return PositionTable(
        rows=rows,
        width=width,
        compute=None if sinusoids is None else lambda: sinusoids(rows, width, pad),
        stored=sinusoids is None or traits.stored_sinusoids,
    )


class Embedded(nn.Module):  # type: ignore[misc]  # onnxscript is untyped
    """What both stacks begin with: token and position embeddings, and a norm where the family has one."""

    def __init__(self, config: BartConfig, *, vocab_size: int) -> None:
        super().__init__()
        d_model = config.dimensions.d_model
        self.embed_tokens = Embedding(rows=vocab_size, width=d_model, scale=config.embedding_scale)
        self.embed_positions = _position_table(config)
        self._offset = config.position_offset
        self.layernorm_embedding = LayerNorm(d_model) if config.traits.embedding_norm else None
        self.layer_norm = LayerNorm(d_model) if config.traits.norm_first else None
        self._norm_first = config.traits.norm_first

    def embed(self, op: Any, input_ids: Any, past_length: Any) -> ResidualStream:
        """Embed int64 [B, T] at positions past_length …, → a residual stream over [B, T, d_model]."""
        length = op.Squeeze(op.Shape(input_ids, start=1, end=2), [0])
        start = op.Add(past_length, self._offset) if self._offset else past_length
        positions = self.embed_positions(op, start, op.Add(start, length))
        x = op.Add(self.embed_tokens(op, input_ids), positions)
        if self.layernorm_embedding is not None:
            x = fused.norm(op, x, self.layernorm_embedding)
        return ResidualStream(x, norm_first=self._norm_first)


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Query, key and value in one product, attention, and the output projection with its bias handed on."""

    def __init__(self, d_model: int, stack: StackConfig, component: str) -> None:
        super().__init__()
        sources = ("q_proj", "k_proj", "v_proj")
        self.qkv_proj = Linear(inputs=d_model, outputs=3 * d_model, component=component, sources=sources)
        self.out_proj = Linear(inputs=d_model, outputs=d_model, component=component)
        self._heads = stack.heads

    def forward(self, op: Any, x: Any, mask: Any) -> tuple[Any, Any]:
        """Encoder self-attention of [B, S, d]; → (output, bias of the output projection)."""
        attended = fused.self_attention(op, self.qkv_proj(op, x), heads=self._heads, mask=mask)
        return fused.project_deferred(op, attended, self.out_proj)


class CachedSelfAttention(SelfAttention):
    """The decoder's: causal, over cached keys and values."""

    def forward(self, op: Any, x: Any, past: CrossKeyValue) -> tuple[Any, Any, CrossKeyValue]:  # type: ignore[override]
        """Attend [B, T, d] over the past and itself; → (output, deferred bias, present)."""
        attended = fused.cached_attention(op, self.qkv_proj(op, x), past.key, past.value, heads=self._heads)
        output, bias = fused.project_deferred(op, attended.output, self.out_proj)
        return output, bias, CrossKeyValue(attended.key, attended.value)


class CrossAttention(nn.Module):  # type: ignore[misc]
    """The decoder's attention over the encoder's keys and values, which the encoder graph has computed."""

    def __init__(self, d_model: int, stack: StackConfig) -> None:
        super().__init__()
        self.q_proj = Linear(inputs=d_model, outputs=d_model, component="decoder")
        self.out_proj = Linear(inputs=d_model, outputs=d_model, component="decoder")
        self._heads = stack.heads

    def forward(self, op: Any, x: Any, cross: CrossKeyValue, mask: Any) -> tuple[Any, Any]:
        """Attend [B, T, d] over [B, heads, S, head size]; → (output, deferred bias)."""
        query = self.q_proj(op, x)
        attended = fused.cross_attention(op, query, cross.key, cross.value, heads=self._heads, mask=mask)
        return fused.project_deferred(op, attended, self.out_proj)


class CrossProjection(nn.Module):  # type: ignore[misc]
    """Keys and values of one decoder layer's cross-attention, from the encoder's output."""

    def __init__(self, d_model: int, stack: StackConfig) -> None:
        super().__init__()
        sources = ("k_proj", "v_proj")
        self.kv_proj = Linear(inputs=d_model, outputs=2 * d_model, component="cross_kv", sources=sources)
        self._stack = stack

    def forward(self, op: Any, states: Any) -> CrossKeyValue:
        """Project [B, S, d] → key and value [B, heads, S, head size]."""
        shape = [0, 0, self._stack.heads, self._stack.head_dim]
        parts = fused.split(op, self.kv_proj(op, states), 2)
        return CrossKeyValue(*(op.Transpose(op.Reshape(part, shape), perm=[0, 2, 1, 3]) for part in parts))


class Layer(nn.Module):  # type: ignore[misc]
    """The feed-forward part that encoder and decoder layers share."""

    def __init__(self, config: BartConfig, stack: StackConfig, component: str) -> None:
        super().__init__()
        d_model = config.dimensions.d_model
        self.fc1 = Linear(inputs=d_model, outputs=stack.ffn_dim, component=component)
        self.fc2 = Linear(inputs=stack.ffn_dim, outputs=d_model, component=component)
        self.final_layer_norm = LayerNorm(d_model)
        self._activation = activation(config.activation)

    def feed_forward(self, op: Any, stream: ResidualStream) -> None:
        """Apply fc1 → activation → fc2 to the stream."""
        x = stream.read(op, self.final_layer_norm)
        y, bias = fused.project_deferred(op, self._activation(op, self.fc1(op, x)), self.fc2)
        stream.write(op, y, bias, self.final_layer_norm)


class EncoderLayer(Layer):
    """Self-attention and feed-forward."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config, config.dimensions.encoder, "encoder")
        d_model = config.dimensions.d_model
        self.self_attn = SelfAttention(d_model, config.dimensions.encoder, "encoder")
        self.self_attn_layer_norm = LayerNorm(d_model)

    def forward(self, op: Any, stream: ResidualStream, mask: Any) -> None:
        """Advance the stream by one layer."""
        y, bias = self.self_attn(op, stream.read(op, self.self_attn_layer_norm), mask)
        stream.write(op, y, bias, self.self_attn_layer_norm)
        self.feed_forward(op, stream)


class DecoderLayer(Layer):
    """Cached self-attention, cross-attention and feed-forward."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config, config.dimensions.decoder, "decoder")
        d_model, stack = config.dimensions.d_model, config.dimensions.decoder
        self.self_attn = CachedSelfAttention(d_model, stack, "decoder")
        self.self_attn_layer_norm = LayerNorm(d_model)
        self.encoder_attn = CrossAttention(d_model, stack)
        self.encoder_attn_layer_norm = LayerNorm(d_model)

    def forward(
        self, op: Any, stream: ResidualStream, past: CrossKeyValue, cross: CrossKeyValue, mask: Any
    ) -> CrossKeyValue:
        """Advance the stream by one layer; → present key and value."""
        y, bias, present = self.self_attn(op, stream.read(op, self.self_attn_layer_norm), past)
        stream.write(op, y, bias, self.self_attn_layer_norm)
        y, bias = self.encoder_attn(op, stream.read(op, self.encoder_attn_layer_norm), cross, mask)
        stream.write(op, y, bias, self.encoder_attn_layer_norm)
        self.feed_forward(op, stream)
        return present


class Encoder(Embedded):
    """The encoder stack."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config, vocab_size=config.dimensions.source_vocab_size)
        self.layers = nn.ModuleList([EncoderLayer(config) for _ in range(config.dimensions.encoder.layers)])

    def forward(self, op: Any, input_ids: Any, mask: Any) -> Any:
        """Encode int64 [B, S] → [B, S, d_model]."""
        stream = self.embed(op, input_ids, op.Constant(value_int=0))
        for layer in self.layers:
            layer(op, stream, mask)
        return stream.finish(op, self.layer_norm)


class Decoder(Embedded):
    """The decoder stack."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config, vocab_size=config.dimensions.target_vocab_size)
        self.layers = nn.ModuleList([DecoderLayer(config) for _ in range(config.dimensions.decoder.layers)])

    def forward(
        self, op: Any, input_ids: Any, mask: Any, cross: list[CrossKeyValue], past: list[CrossKeyValue]
    ) -> tuple[Any, list[CrossKeyValue]]:
        """Advance by T tokens; → hidden states [B, T, d_model], present keys and values."""
        past_length = op.Squeeze(op.Shape(past[0].key, start=2, end=3), [0])
        stream = self.embed(op, input_ids, past_length)
        present = [
            layer(op, stream, layer_past, layer_cross, mask)
            for layer, layer_past, layer_cross in zip(self.layers, past, cross, strict=True)
        ]
        return stream.finish(op, self.layer_norm), present


class CrossProjections(nn.Module):  # type: ignore[misc]
    """The cross-attention projections of every decoder layer, at their places in the checkpoint."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        dimensions = config.dimensions
        layers = []
        for _ in range(dimensions.decoder.layers):
            layer = _Holder()
            layer.encoder_attn = CrossProjection(dimensions.d_model, dimensions.decoder)
            layers.append(layer)
        self.layers = nn.ModuleList(layers)

    def forward(self, op: Any, states: Any) -> list[CrossKeyValue]:
        """Project the encoder's output for every decoder layer."""
        return [layer(op, states) for layer in self.layers]


class _Holder(nn.Module):  # type: ignore[misc]
    """A place in the checkpoint's tree (`model.decoder.layers.N`) of which the encoder graph needs one child."""

    def forward(self, op: Any, states: Any) -> CrossKeyValue:
        return self.encoder_attn(op, states)


class _EncoderModel(nn.Module):  # type: ignore[misc]
    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.decoder = CrossProjections(config)

    def forward(self, op: Any, input_ids: Any, mask: Any) -> list[CrossKeyValue]:
        return self.decoder(op, self.encoder(op, input_ids, mask))


class EncoderGraph(nn.Module):  # type: ignore[misc]
    """Token ids and mask → cross-attention keys and values of every decoder layer."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__("")
        self.model = _EncoderModel(config)

    def forward(self, op: Any, input_ids: Any, mask: Any) -> list[CrossKeyValue]:
        """`input_ids` int64 [B, S], `mask` int32 [B, S] → per decoder layer key and value [B, heads, S, head size]."""
        return self.model(op, input_ids, mask)


class _DecoderModel(nn.Module):  # type: ignore[misc]
    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.decoder = Decoder(config)

    def forward(self, op: Any, *inputs: Any) -> tuple[Any, list[CrossKeyValue]]:
        return self.decoder(op, *inputs)


class DecoderGraph(nn.Module):  # type: ignore[misc]
    """New token ids, mask, cross and past keys and values → logits of the last position and present keys and values."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__("")
        dimensions = config.dimensions
        self.model = _DecoderModel(config)
        self.lm_head = Head(rows=dimensions.target_vocab_size, width=dimensions.d_model)
        self.final_logits_bias = LogitsBias(dimensions.target_vocab_size) if config.traits.logits_bias else None

    def forward(
        self, op: Any, input_ids: Any, mask: Any, cross: list[CrossKeyValue], past: list[CrossKeyValue]
    ) -> DecoderOutputs:
        """`input_ids` int64 [B, T], `mask` int32 [B, S] → logits [B, V], present keys and values."""
        states, present = self.model(op, input_ids, mask, cross, past)
        last = op.Gather(states, -1, axis=1)
        bias = None if self.final_logits_bias is None else self.final_logits_bias(op)
        return DecoderOutputs(self.lm_head(op, last, bias), present)
