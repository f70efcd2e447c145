"""The BART-like families as encoder and decoder graphs; what differs between them is a row of TRAITS."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from onnxscript import nn

from onnxmt.errors import UnsupportedModelError
from onnxmt.precision import Array

from . import fused
from .activations import activation
from .attention import AttentionStyle, CachedSelfAttention, CrossAttention, CrossProjections, SelfAttention
from .config import ConfigReader, Dimensions, StackConfig
from .graphs import CrossKeyValue
from .layers import Embedding, Head, LayerNorm, Linear, LogitsBias, PositionTable
from .positions import m2m_sinusoids, marian_sinusoids
from .residual import ResidualStream
from .seq2seq import DecoderGraph, EncoderGraph, past_length, sequence_length


@dataclass(frozen=True, kw_only=True)
class Traits:
    """How a family differs from the others, with transformers 5's defaults for keys that config.json leaves out."""

    sinusoids: Callable[[int, int, int], Array] | None  # (rows, width, pad id); None: a learned table
    stored_sinusoids: bool = False  # a table in the checkpoint wins over the computed one
    position_offset: int = 0  # rows of the table before position 0
    counts_tokens: bool = False  # positions count real tokens from the pad id + 1; a padding token has the pad id's row
    norm_first: bool  # pre-norm, with a last norm after the stack
    embedding_norm: bool
    logits_bias: bool
    separate_vocabularies: bool = False  # encoder and decoder may have embeddings of their own
    refused: tuple[str, ...] = ()  # flags of config.json that transformers does not implement for this family
    ignored_weights: tuple[str, ...]
    activation: str
    scale_embedding: bool
    vocab_size: int
    pad_token_id: int


_VERSIONS = "model.*.version"
TRAITS: Mapping[str, Traits] = {
    "marian": Traits(
        sinusoids=lambda rows, width, _pad: marian_sinusoids(rows, width),
        stored_sinusoids=True,
        norm_first=False,
        embedding_norm=False,
        logits_bias=True,
        separate_vocabularies=True,
        refused=("normalize_before", "add_final_layer_norm", "normalize_embedding", "add_bias_logits"),
        ignored_weights=("model.*.embed_positions._float_tensor", _VERSIONS),
        activation="gelu",
        scale_embedding=False,
        vocab_size=58101,
        pad_token_id=58100,
    ),
    "bart": Traits(
        sinusoids=None,
        position_offset=2,
        norm_first=False,
        embedding_norm=True,
        logits_bias=True,
        refused=("normalize_before", "add_final_layer_norm", "static_position_embeddings"),
        ignored_weights=(_VERSIONS,),
        activation="gelu",
        scale_embedding=False,
        vocab_size=50265,
        pad_token_id=1,
    ),
    "mbart": Traits(
        sinusoids=None,
        position_offset=2,
        norm_first=True,
        embedding_norm=True,
        logits_bias=True,
        ignored_weights=(_VERSIONS,),
        activation="gelu",
        scale_embedding=False,
        vocab_size=50265,
        pad_token_id=1,
    ),
    "m2m_100": Traits(
        sinusoids=m2m_sinusoids,
        counts_tokens=True,
        norm_first=True,
        embedding_norm=False,
        logits_bias=False,
        ignored_weights=("model.*.embed_positions.weights", "model.*.embed_positions._float_tensor", _VERSIONS),
        activation="relu",
        scale_embedding=True,
        vocab_size=128112,
        pad_token_id=1,
    ),
}
# What the configuration classes of the four families have in common.
_ALIASES = {"d_model": "hidden_size", "encoder_layers": "num_hidden_layers"}
_ALIASES |= {"encoder_attention_heads": "num_attention_heads"}
_SIZE, _LAYERS, _HEADS, _FFN, _POSITIONS = 1024, 12, 16, 4096, 1024
_STYLE = AttentionStyle(query="q_proj", key="k_proj", value="v_proj", output="out_proj", bias=True, scale=None)
_PREFIX = "model."
_EPSILON = 1e-5  # torch.nn.LayerNorm's default, which every BART-like model uses


@dataclass(frozen=True, kw_only=True)
class BartConfig:
    """The settings of a BART-like model that shape its graphs."""

    model_type: str
    dimensions: Dimensions
    activation: str
    embedding_scale: float
    pad_token_id: int
    share_embeddings: bool
    tie_embeddings: bool
    traits: Traits

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> BartConfig:
        """Read a config.json mapping; raise UnsupportedModelError naming what is not implemented."""
        model_type = str(config["model_type"])
        traits = TRAITS[model_type]
        reader = ConfigReader(config, aliases=_ALIASES)
        for key in traits.refused:
            reader.refuse(
                key,
                because=f"which {model_type} in transformers 5 does not implement, so there is nothing to be equal to",
            )
        d_model = reader.positive_int("d_model", _SIZE)
        source_vocab = target_vocab = reader.positive_int("vocab_size", traits.vocab_size)
        share = not traits.separate_vocabularies or reader.flag("share_encoder_decoder_embeddings", True)
        if not share:
            target_vocab = reader.positive_int("decoder_vocab_size", source_vocab)
        positions = reader.positive_int("max_position_embeddings", _POSITIONS)
        name = reader.text("activation_function", traits.activation)
        activation(name)
        return cls(
            model_type=model_type,
            dimensions=Dimensions(
                d_model=d_model,
                encoder=_stack(reader, "encoder", d_model),
                decoder=_stack(reader, "decoder", d_model),
                source_vocab_size=source_vocab,
                target_vocab_size=target_vocab,
                max_source_positions=positions,
                max_target_positions=positions,
            ),
            activation=name,
            embedding_scale=math.sqrt(d_model) if reader.flag("scale_embedding", traits.scale_embedding) else 1.0,
            pad_token_id=reader.token_id("pad_token_id", traits.pad_token_id),
            share_embeddings=share,
            tie_embeddings=reader.flag("tie_word_embeddings", True),
            traits=traits,
        )

    def encoder_graph(self) -> EncoderGraph:
        """Return a fresh encoder module tree."""
        projections = CrossProjections(_STYLE, self.dimensions, place="layers.{}.encoder_attn")
        return EncoderGraph(Encoder(self), projections, prefix=_PREFIX)

    def decoder_graph(self) -> DecoderGraph:
        """Return a fresh decoder module tree."""
        rows = self.dimensions.target_vocab_size
        head = Head(rows=rows, width=self.dimensions.d_model)
        bias = LogitsBias(rows) if self.traits.logits_bias else None
        return DecoderGraph(Decoder(self), head, prefix=_PREFIX, logits_bias=bias)

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

    def wide_layers(self) -> tuple[str, ...]:
        """None: the norm before each layer bounds what it gives."""
        return ()

    def ignored_weights(self) -> tuple[str, ...]:
        """Return fnmatch patterns of weights that old checkpoints carry and transformers does not read."""
        unused = () if self.share_embeddings and self.tie_embeddings else ("model.shared.weight",)
        return (*self.traits.ignored_weights, *unused)


def _stack(reader: ConfigReader, side: str, d_model: int) -> StackConfig:
    """Read the `side` ("encoder" or "decoder") keys."""
    heads = reader.positive_int(f"{side}_attention_heads", _HEADS)
    if d_model % heads:
        raise UnsupportedModelError(
            f"config.json: d_model={d_model} cannot be divided among {side}_attention_heads={heads}"
        )
    return StackConfig(
        layers=reader.positive_int(f"{side}_layers", _LAYERS),
        heads=heads,
        head_dim=d_model // heads,
        ffn_dim=reader.positive_int(f"{side}_ffn_dim", _FFN),
    )


class Embedded(nn.Module):  # type: ignore[misc]  # onnxscript is untyped
    """What both stacks begin with: token and position embeddings, and a norm where the family has one."""

    def __init__(self, config: BartConfig, *, vocab_size: int) -> None:
        super().__init__()
        d_model, traits = config.dimensions.d_model, config.traits
        self.embed_tokens = Embedding(rows=vocab_size, width=d_model, scale=config.embedding_scale)
        self.embed_positions = _position_table(config)
        self.layernorm_embedding = LayerNorm(d_model, epsilon=_EPSILON) if traits.embedding_norm else None
        self.layer_norm = LayerNorm(d_model, epsilon=_EPSILON) if traits.norm_first else None
        self._traits, self._pad = traits, config.pad_token_id

    def embed(self, op: Any, input_ids: Any, past: Any | None) -> ResidualStream:
        """Embed int64 [B, T] after `past` positions (an int64 scalar) → a residual stream over [B, T, d_model]."""
        rows = self._counted(op, input_ids, past) if self._traits.counts_tokens else self._placed(op, input_ids, past)
        x = op.Add(self.embed_tokens(op, input_ids), self.embed_positions(op, rows))
        if self.layernorm_embedding is not None:
            x = fused.norm(op, x, self.layernorm_embedding)
        return ResidualStream(x, norm_first=self._traits.norm_first)

    def _placed(self, op: Any, input_ids: Any, past: Any | None) -> Any:
        """Rows by place in the sequence, [T].

        The start is added to a range from 0, because ONNX Runtime turns a Gather of a bare range into a Slice, which
        would clip positions beyond the table where Gather refuses them.
        """
        offset, rows = self._traits.position_offset, op.Range(0, sequence_length(op, input_ids), 1)
        if past is None:
            return op.Add(rows, offset) if offset else rows
        return op.Add(rows, op.Add(past, offset) if offset else past)

    def _counted(self, op: Any, input_ids: Any, past: Any | None) -> Any:
        """Rows by the number of real tokens so far, [B, T], as M2M100's create_position_ids_from_input_ids.

        It differs from the place where a padding token stands among real ones: a generated one, or a written "<pad>".
        """
        real = op.Cast(op.Not(op.Equal(input_ids, self._pad)), to=ir.DataType.INT64)
        count = op.CumSum(real, 1)
        if past is not None:
            count = op.Add(count, past)
        return op.Add(op.Mul(count, real), self._pad)


def _position_table(config: BartConfig) -> PositionTable:
    traits, dimensions, pad = config.traits, config.dimensions, config.pad_token_id
    positions = dimensions.max_source_positions
    assert positions is not None  # every BART-like family has a table
    rows, width = positions + (pad + 1 if traits.counts_tokens else traits.position_offset), dimensions.d_model
    sinusoids = traits.sinusoids
    return PositionTable(
        rows=rows,
        width=width,
        compute=None if sinusoids is None else lambda: sinusoids(rows, width, pad),
        stored=sinusoids is None or traits.stored_sinusoids,
    )


class Layer(nn.Module):  # type: ignore[misc]
    """The feed-forward part that encoder and decoder layers share."""

    def __init__(self, config: BartConfig, stack: StackConfig, component: str) -> None:
        super().__init__()
        d_model = config.dimensions.d_model
        self.fc1 = Linear(inputs=d_model, outputs=stack.ffn_dim, component=component)
        self.fc2 = Linear(inputs=stack.ffn_dim, outputs=d_model, component=component)
        self.final_layer_norm = LayerNorm(d_model, epsilon=_EPSILON)
        self._activation = activation(config.activation)

    def feed_forward(self, op: Any, stream: ResidualStream) -> None:
        """Apply fc1 → activation → fc2 to the stream."""
        x = stream.read(op, self.final_layer_norm)
        y = self.fc2(op, self._activation(op, self.fc1(op, x)))
        stream.write(op, y, self.final_layer_norm)


class EncoderLayer(Layer):
    """Self-attention and feed-forward."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config, config.dimensions.encoder, "encoder")
        d_model = config.dimensions.d_model
        self.self_attn = SelfAttention(_STYLE, d_model, config.dimensions.encoder, "encoder")
        self.self_attn_layer_norm = LayerNorm(d_model, epsilon=_EPSILON)

    def forward(self, op: Any, stream: ResidualStream, mask: Any) -> None:
        """Advance the stream by one layer."""
        y = self.self_attn(op, stream.read(op, self.self_attn_layer_norm), mask)
        stream.write(op, y, self.self_attn_layer_norm)
        self.feed_forward(op, stream)


class DecoderLayer(Layer):
    """Cached self-attention, cross-attention and feed-forward."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config, config.dimensions.decoder, "decoder")
        d_model, stack = config.dimensions.d_model, config.dimensions.decoder
        self.self_attn = CachedSelfAttention(_STYLE, d_model, stack, "decoder")
        self.self_attn_layer_norm = LayerNorm(d_model, epsilon=_EPSILON)
        self.encoder_attn = CrossAttention(_STYLE, d_model, stack)
        self.encoder_attn_layer_norm = LayerNorm(d_model, epsilon=_EPSILON)

    def forward(
        self, op: Any, stream: ResidualStream, past: CrossKeyValue, cross: CrossKeyValue, mask: Any
    ) -> CrossKeyValue:
        """Advance the stream by one layer; → present key and value."""
        y, present = self.self_attn(op, stream.read(op, self.self_attn_layer_norm), past)
        stream.write(op, y, self.self_attn_layer_norm)
        y = self.encoder_attn(op, stream.read(op, self.encoder_attn_layer_norm), cross, mask)
        stream.write(op, y, self.encoder_attn_layer_norm)
        self.feed_forward(op, stream)
        return present


class Encoder(Embedded):
    """The encoder stack."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config, vocab_size=config.dimensions.source_vocab_size)
        self.layers = nn.ModuleList([EncoderLayer(config) for _ in range(config.dimensions.encoder.layers)])

    def forward(self, op: Any, input_ids: Any, mask: Any) -> Any:
        """Encode int64 [B, S] → [B, S, d_model]."""
        stream = self.embed(op, input_ids, None)
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
        stream = self.embed(op, input_ids, past_length(op, past))
        present = [
            layer(op, stream, layer_past, layer_cross, mask)
            for layer, layer_past, layer_cross in zip(self.layers, past, cross, strict=True)
        ]
        return stream.finish(op, self.layer_norm), present
