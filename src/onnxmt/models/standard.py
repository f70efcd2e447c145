"""The graphs of the standard dialect: plain ONNX operators, with the file and tensor names of Optimum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxmt.errors import UsageError

from .graphs import Architecture, CrossKeyValue
from .layers import WeightBinding, weighted_modules
from .standard_ops import StandardBuilder

# Which ONNX IR version came with each opset that is offered: an older runtime refuses a newer one. Each is run in a
# test. Below 14 there is no Trilu, HardSwish or Reshape as we need it; above 23 nothing is gained.
IR_VERSIONS = {14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}
DEFAULT_OPSET = 18
# Axes, as Optimum names them.
_BATCH, _SOURCE, _TARGET = "batch_size", "encoder_sequence_length", "decoder_sequence_length"
_PAST, _PRESENT = "past_decoder_sequence_length", "present_decoder_sequence_length"


@dataclass(frozen=True, kw_only=True)
class StandardGraph:
    """One graph and the name that Optimum gives its file, without the ending."""

    name: str
    model: ir.Model


def checked_opset(opset: int | None) -> int:
    """Return the opset to write; None is the default. Raises UsageError for one that is not offered."""
    chosen = DEFAULT_OPSET if opset is None else opset
    if chosen not in IR_VERSIONS:
        raise UsageError(
            f"--opset is {chosen}; the standard layout is written in {min(IR_VERSIONS)} to {max(IR_VERSIONS)}"
        )
    return chosen


def standard_graphs(architecture: Architecture, binding: WeightBinding, *, opset: int) -> Iterator[StandardGraph]:
    """Yield encoder_model, decoder_model, decoder_with_past_model and decoder_model_merged, one after another."""
    graphs = _Graphs(architecture, binding, opset)
    yield StandardGraph(name="encoder_model", model=graphs.encoder())
    yield StandardGraph(name="decoder_model", model=graphs.decoder())
    yield StandardGraph(name="decoder_with_past_model", model=graphs.decoder_with_past())
    yield StandardGraph(name="decoder_model_merged", model=graphs.merged())


class _Graphs:
    """Builds each graph from a fresh tree: onnxscript emits a module into one graph only."""

    def __init__(self, architecture: Architecture, binding: WeightBinding, opset: int) -> None:
        self._architecture, self._binding, self._opset = architecture, binding, opset
        self._sizes = architecture.dimensions
        stack = self._sizes.decoder
        # Before the first step Optimum passes a past of d_model/heads, which is not every T5's head size.
        regular = stack.heads * stack.head_dim == self._sizes.d_model
        self._past_head: int | str = stack.head_dim if regular else "past head size"

    def encoder(self) -> ir.Model:
        """input_ids, attention_mask → last_hidden_state."""
        builder = self._builder("encoder_model")
        ids, mask = _ids(builder, "input_ids", _SOURCE), _mask(builder, "attention_mask")
        tree = self._attached(self._architecture.encoder_graph())
        states = tree.stack(builder.op, ids, builder.op.Cast(mask, to=ir.DataType.INT32))
        _output(builder, states, "last_hidden_state", [_BATCH, _SOURCE, self._sizes.d_model])
        return self._model(builder)

    def decoder(self) -> ir.Model:
        """The first step: input_ids, encoder_hidden_states, encoder_attention_mask → logits, present.*."""
        builder = self._builder("decoder_model")
        mask, ids = _mask(builder, "encoder_attention_mask"), _ids(builder, "input_ids", _TARGET)
        cross = self._projected(builder.op, self._states(builder))
        nothing = [CrossKeyValue(None, None)] * self._sizes.decoder.layers
        present = self._step(builder, ids, mask, cross, nothing, length=_TARGET)
        for layer, pair in enumerate(present):
            self._present(builder, layer, "decoder", pair, _TARGET)
            self._present(builder, layer, "encoder", cross[layer], _SOURCE)
        return self._model(builder)

    def decoder_with_past(self) -> ir.Model:
        """A later step: input_ids, encoder_attention_mask, past_key_values.* → logits, present.*.decoder.*."""
        builder = self._builder("decoder_with_past_model")
        mask, ids = _mask(builder, "encoder_attention_mask"), _ids(builder, "input_ids", _TARGET)
        past, cross = self._past(builder, self._sizes.decoder.head_dim)
        present = self._step(builder, ids, mask, cross, past, length=_TARGET)
        for layer, pair in enumerate(present):
            self._present(builder, layer, "decoder", pair, _PRESENT)
        return self._model(builder)

    def merged(self) -> ir.Model:
        """Any step: all inputs and `use_cache_branch` → logits, present.*.

        Only what the branches differ in is inside the If: the past (given, or of length 0 whatever was given) and the
        cross-attention's keys and values (given, or computed). So the weights are there once, and ONNX Runtime
        optimises the whole decoder, which it does not do inside a branch.
        """
        builder = self._builder("decoder_model_merged")
        mask, ids = _mask(builder, "encoder_attention_mask"), _ids(builder, "input_ids", _TARGET)
        states = self._states(builder)
        given = self._past(builder, self._past_head)
        cached = builder.input("use_cache_branch", ir.DataType.BOOL, [1])
        past, cross = self._chosen(builder, cached, ids, states, given)
        present = self._step(builder, ids, mask, cross, past, length=_TARGET)
        for layer, pair in enumerate(present):
            self._present(builder, layer, "decoder", pair, _PRESENT)
            self._present(builder, layer, "encoder", cross[layer], _SOURCE)
        return self._model(builder)

    def _chosen(
        self, builder: StandardBuilder, cached: Any, ids: Any, states: Any, given: tuple[list[Any], list[Any]]
    ) -> tuple[list[CrossKeyValue], list[CrossKeyValue]]:
        """Emit the If; → the past and the cross keys and values that this step works with."""
        stack = self._sizes.decoder

        def with_past(op: Any) -> list[Any]:
            return [op.Identity(value) for pairs in given for pair in pairs for value in pair]

        def first(op: Any) -> list[Any]:
            batch = op.Shape(ids, start=0, end=1)
            nothing = op.Expand(0.0, op.Concat(batch, [stack.heads], [0], [stack.head_dim], axis=0))
            empty = [op.Identity(nothing) for _ in range(2 * stack.layers)]
            return [*empty, *(value for pair in self._projected(op, states) for value in pair)]

        outputs = builder.op.If(
            cached,
            then_branch=builder.branch("with_past", with_past),
            else_branch=builder.branch("first_step", first),
            _outputs=4 * stack.layers,
        )
        half = 2 * stack.layers
        for place, value in enumerate(outputs):
            length = _PAST if place < half else _SOURCE
            _typed(value, [_BATCH, stack.heads, length, stack.head_dim])
        return _pairs(outputs[:half]), _pairs(outputs[half:])

    def _projected(self, op: Any, states: Any) -> list[CrossKeyValue]:
        """The cross-attention's keys and values of every layer."""
        stack = self._sizes.decoder
        tree = self._attached(self._architecture.encoder_graph())
        cross: list[CrossKeyValue] = tree.projections(op, states)
        for pair in cross:
            for value in pair:
                _typed(value, [_BATCH, stack.heads, _SOURCE, stack.head_dim])
        return cross

    def _step(
        self,
        builder: StandardBuilder,
        ids: Any,
        mask: Any,
        cross: list[CrossKeyValue],
        past: list[CrossKeyValue],
        *,
        length: str,
    ) -> list[CrossKeyValue]:
        """Emit the decoder and its logits [B, T, V]; → present keys and values."""
        op, sizes = builder.op, self._sizes
        tree = self._attached(self._architecture.decoder_graph())
        states, present = tree.stack(op, ids, op.Cast(mask, to=ir.DataType.INT32), cross, past)
        # The head is a product of two matrices, so that a tied table is there once, untransposed (case E1).
        flat = tree.scores(op, op.Reshape(states, [-1, sizes.d_model]))
        logits = op.Reshape(flat, op.Concat(op.Shape(ids), [sizes.target_vocab_size], axis=0))
        _output(builder, logits, "logits", [_BATCH, length, sizes.target_vocab_size])
        return present

    def _states(self, builder: StandardBuilder) -> Any:
        axes = [_BATCH, _SOURCE, self._sizes.d_model]
        return builder.input("encoder_hidden_states", ir.DataType.FLOAT, axes)

    def _past(self, builder: StandardBuilder, size: int | str) -> tuple[list[CrossKeyValue], list[CrossKeyValue]]:
        """Inputs for the past, decoder and encoder of a layer after one another, as Optimum lists them."""
        past: list[CrossKeyValue] = []
        cross: list[CrossKeyValue] = []
        for layer in range(self._sizes.decoder.layers):
            for side, pairs, length in (("decoder", past, _PAST), ("encoder", cross, _SOURCE)):
                axes = [_BATCH, self._sizes.decoder.heads, length, size]
                names = (f"past_key_values.{layer}.{side}.{part}" for part in ("key", "value"))
                pairs.append(CrossKeyValue(*(builder.input(name, ir.DataType.FLOAT, axes) for name in names)))
        return past, cross

    def _present(self, builder: StandardBuilder, layer: int, side: str, pair: CrossKeyValue, length: str) -> None:
        axes: list[str | int] = [_BATCH, self._sizes.decoder.heads, length, self._sizes.decoder.head_dim]
        for part, value in zip(("key", "value"), pair, strict=True):
            _output(builder, value, f"present.{layer}.{side}.{part}", axes)

    def _attached(self, tree: Any) -> Any:
        for path, module in weighted_modules(tree):
            module.attach(path, self._binding)
        return tree

    def _builder(self, name: str) -> StandardBuilder:
        return StandardBuilder(ir.Graph([], [], nodes=[], name=name, opset_imports={"": self._opset}))

    def _model(self, builder: StandardBuilder) -> ir.Model:
        return ir.Model(builder.graph, ir_version=IR_VERSIONS[self._opset], producer_name="onnxmt")


def _ids(builder: StandardBuilder, name: str, length: str) -> Any:
    return builder.input(name, ir.DataType.INT64, [_BATCH, length])


def _mask(builder: StandardBuilder, name: str) -> Any:
    return builder.input(name, ir.DataType.INT64, [_BATCH, _SOURCE])


def _typed(value: Any, axes: list[str | int]) -> None:
    value.shape, value.type = ir.Shape(axes), ir.TensorType(ir.DataType.FLOAT)


def _output(builder: StandardBuilder, value: Any, name: str, axes: list[str | int]) -> None:
    _typed(value, axes)
    builder.add_output(value, name)


def _pairs(values: Any) -> list[CrossKeyValue]:
    return [CrossKeyValue(*values[place : place + 2]) for place in range(0, len(values), 2)]
