"""An encoder graph and a decoder graph → one graph that translates: the search around them as two nested loops.

The inner loop runs steps for as long as no sentence is decided. The outer one then stores the outputs of those that
are, and goes on with the rest: nothing is computed for a sentence that is done, and nothing is copied while none is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxmt.runtime.settings import GenerationSettings

from .single_emit import BOOL, FLOAT, INT64, Emit, value
from .single_rules import Rules, refuse_inexpressible
from .single_search import Beam, Decode, Given, Greedy, Search, Stepped

INPUT_IDS, ATTENTION_MASK = "input_ids", "attention_mask"
FORCED_BOS, START_TOKEN, MAX_NEW_TOKENS = "forced_bos_token_id", "decoder_start_token_id", "max_new_tokens"
OUTPUT_IDS, OUTPUT_LENGTHS, SCORES = "output_ids", "output_lengths", "scores"
NOT_FINITE, NO_OUTPUT = "scores_are_not_finite_or_all_tokens_are_banned", "beam_search_found_no_output"


@dataclass(frozen=True, kw_only=True)
class SingleOptions:
    """What is built in and what is asked for at each run.

    `told`: how the caller names the target language of each sentence: by its forced first token, by its start token, or
    not at all. `positions`: what the decoder has room for; None: no limit.
    """

    settings: GenerationSettings
    vocabulary: int
    positions: int | None
    told: str | None = None

    @property
    def padding(self) -> int:
        """What fills up the outputs that are shorter than the longest."""
        pad = self.settings.pad_token_id
        return pad if pad is not None else (*self.settings.eos_token_ids, 0)[0]


def single_model(encoder: ir.Model, decoder: ir.Model, options: SingleOptions) -> ir.Model:
    """Take both models apart and build one of them; neither can be used afterwards.

    Inputs: input_ids and attention_mask int64 [batch, source], the language's token int64 [batch] where `told` names
    it, and max_new_tokens int64 [1], which may be left out. Outputs: output_ids int64 [batch, target] (with several
    answers [batch, answers, target]) without the start token, padded; output_lengths int64 and scores float32 [batch].
    Raises GenerationSettingsError for settings that it cannot express.
    """
    refuse_inexpressible(options.settings)
    imports = {**decoder.graph.opset_imports, **encoder.graph.opset_imports}
    graph = ir.Graph([], [], nodes=[], name="translate", opset_imports=imports)
    emit = Emit(graph)
    model = ir.Model(graph, ir_version=decoder.ir_version, producer_name="onnxmt")
    ids, mask = (value(name, INT64, ["batch", "source"]) for name in (INPUT_IDS, ATTENTION_MASK))
    graph.inputs.extend([ids, mask])
    batch = emit.axis_length(ids, 0)
    each = emit.join(batch, [1], axis=0)
    start, forced = _first_tokens(emit, options, each)
    limit = _limit(emit, options)
    search = _search(options)
    cache = [
        value(i.name, _dtype(i), ["rows", i.shape[1], None, i.shape[3]]) for i in decoder.graph.inputs if _is_past(i)
    ]
    empty = [_empty(emit, batch, described) for described in (*encoder.graph.outputs, *cache)]
    loops = _Loops(
        encoder=encoder, decoder=decoder, ids=ids, search=search, cache=cache, cross=list(encoder.graph.outputs),
        limit=limit, forced=forced, batch=batch, padding=options.padding,
    )  # fmt: skip
    outputs = loops.run(emit, start, mask, empty)
    graph.outputs.extend(outputs)
    return model


def _is_past(node: ir.Value) -> bool:
    return str(node.name).startswith("past.")


def _dtype(node: ir.Value) -> ir.DataType:
    assert node.dtype is not None
    return node.dtype


def _search(options: SingleOptions) -> Search:
    rules = Rules(options.settings, vocabulary=options.vocabulary)
    if options.settings.num_beams == 1:
        return Greedy(options.settings, rules)
    return Beam(options.settings, rules, vocabulary=options.vocabulary)


def _first_tokens(emit: Emit, options: SingleOptions, each: Any) -> tuple[Any, Any]:
    """The start tokens [batch, 1], and the forced first ones or None."""
    settings = options.settings
    told = None
    if options.told is not None:
        given = value(options.told, INT64, ["batch"])
        emit.graph.inputs.append(given)
        told = emit("Reshape", given, [-1, 1])
    start = emit("Expand", [settings.decoder_start_token_id], each)
    forced = None if settings.forced_bos_token_id is None else emit("Expand", [settings.forced_bos_token_id], each)
    if options.told == START_TOKEN:
        return told, forced
    return start, told if options.told == FORCED_BOS else forced


def _limit(emit: Emit, options: SingleOptions) -> Any:
    """The most tokens of a sequence, the start token included, int64 [1]."""
    most = np.array([options.settings.length_limit - 1], np.int64)
    asked = ir.Value(
        name=MAX_NEW_TOKENS,
        type=ir.TensorType(INT64),
        shape=ir.Shape([1]),
        const_value=ir.tensor(most, name=MAX_NEW_TOKENS),
    )
    emit.graph.inputs.append(asked)
    emit.graph.register_initializer(asked)
    limit = emit("Add", emit("Max", asked, [1]), [1])
    # The last token is never fed back: a sequence may be one token longer than the position table.
    return limit if options.positions is None else emit("Min", limit, [options.positions + 1])


def _empty(emit: Emit, batch: Any, described: ir.Value) -> Any:
    """A cache without positions."""
    assert described.shape is not None
    _rows, heads, _length, size = described.shape
    shape = emit.join(batch, [int(heads), 0, int(size)], axis=0)
    return emit("Expand", np.zeros((1, 1, 1, 1), described.dtype.numpy()), shape)


class _Weights:
    """The weights of both graphs in the outer loop's body: bytes that both use are there once, whatever their shapes.

    ONNX Runtime 1.32 packs weights ahead for a graph that is one level below them, but not two (measured: a step of a
    MatMulNBits two levels below takes 50 times as long). Encoder and decoder are each one level below the body.
    """

    def __init__(self, body: Emit, models: Sequence[ir.Model]) -> None:
        self._body = body
        self._placed: dict[tuple[str, int, int, str], ir.Value] = {}
        # The output projection's shape has more axes than the embedding's, and packing wants the weight itself.
        for weight in sorted((w for m in models for w in _large(m)), key=lambda w: -len(w.const_value.shape)):
            place = _range(weight)
            if place not in self._placed:
                made = value(f"weights.{weight.name}", _dtype(weight), list(weight.const_value.shape))
                made.const_value = weight.const_value
                body.graph.register_initializer(made)
                self._placed[place] = made

    def of(self, weight: ir.Value) -> ir.Value:
        """What stands for a large weight of one of the graphs."""
        found = self._placed[_range(weight)]
        wanted = [int(axis) for axis in weight.const_value.shape]
        if wanted == [int(axis) for axis in found.const_value.shape]:
            return found
        made: ir.Value = self._body("Reshape", found, wanted)  # which ONNX Runtime folds when it loads
        return made


def _large(model: ir.Model) -> list[Any]:
    return [w for w in model.graph.initializers.values() if isinstance(w.const_value, ir.ExternalTensor)]


def _range(weight: ir.Value) -> tuple[str, int, int, str]:
    tensor = weight.const_value
    assert isinstance(tensor, ir.ExternalTensor)
    return str(tensor.location), int(tensor.offset or 0), int(tensor.length or 0), str(tensor.dtype)


def _inline(emit: Emit, model: ir.Model, given: Mapping[str, Any], weights: _Weights, *, name: str) -> dict[str, Any]:
    """Move the model's nodes into a graph, its inputs replaced by `given`; → its outputs by name.

    Small constants go along.
    """
    graph = model.graph
    for node in graph.inputs:
        ir.convenience.replace_all_uses_with(node, given[str(node.name)])
    for constant in list(graph.initializers.values()):
        if isinstance(constant.const_value, ir.ExternalTensor):
            del graph.initializers[str(constant.name)]
            ir.convenience.replace_all_uses_with(constant, weights.of(constant))
        else:
            assert constant.const_value is not None
            ir.convenience.replace_all_uses_with(constant, emit.constant(constant.const_value.numpy()))
    outputs = {str(output.name): output for output in graph.outputs}
    graph.outputs.clear()
    nodes = list(graph)
    graph.remove(nodes)
    for node in nodes:
        node.name = f"{name}/{node.name}"
        for output in node.outputs:
            output.name = f"{name}.{output.name}"
        emit.graph.append(node)
    return outputs


@dataclass(frozen=True, kw_only=True)
class _Loops:
    """The two loops; `cross` are the encoder's outputs, which are the decoder's inputs of the same names."""

    encoder: ir.Model
    decoder: ir.Model
    ids: Any
    search: Search
    cache: Sequence[ir.Value]
    cross: Sequence[ir.Value]
    limit: Any
    forced: Any | None
    batch: Any
    padding: int

    def run(self, emit: Emit, start: Any, mask: Any, empty: Sequence[Any]) -> list[ir.Value]:
        """Emit the search; → the graph's outputs."""
        answers = self.search.answers
        each = emit.join(self.batch, [answers], axis=0)
        sentences = emit("Range", 0, emit("Squeeze", self.batch, [0]), 1)
        stored = [
            emit("Expand", np.zeros((1, 1, 0), np.int64), emit.join(each, [0], axis=0)),
            emit("Expand", [0], each),
            emit("Expand", np.zeros(1, np.float32), each),
        ]
        state = self.search.initial(emit, start)
        cross, cache = empty[: len(self.cross)], empty[len(self.cross) :]
        tokens, lengths, scores, health = self._phases(emit, [sentences, *stored, mask, *cross, *state, *cache])
        fine = emit("Equal", health, 0.0)  # not a number is not equal
        tokens = emit.require(tokens, emit("Squeeze", fine, [0]), otherwise=NOT_FINITE)
        found = emit("Greater", emit("ReduceMin", emit.cut(lengths, 1, 0, 1), [0], keepdims=0), [0])
        tokens = emit.require(tokens, emit("Squeeze", found, [0]), otherwise=NO_OUTPUT)
        longest = emit("ReduceMax", lengths, keepdims=0)  # beam search may have gone on beyond what it chose
        tokens = emit.cut(tokens, 2, 0, emit("Reshape", longest, [1]))
        places = emit("Range", 0, longest, 1)
        inside = emit("Less", places, emit("Unsqueeze", lengths, [2]))
        tokens = emit("Where", inside, tokens, [self.padding])
        axes: list[str | int | None] = ["batch"] if answers == 1 else ["batch", answers]
        results = []
        for name, dtype, found, shape in (
            (OUTPUT_IDS, INT64, tokens, [*axes, "target"]),
            (OUTPUT_LENGTHS, INT64, lengths, axes),
            (SCORES, FLOAT, scores, axes),
        ):
            output = emit("Squeeze", found, [1]) if answers == 1 else emit("Identity", found)
            output.name, output.type, output.shape = name, ir.TensorType(dtype), ir.Shape(shape)
            results.append(output)
        return results

    def _described(self) -> list[ir.Value]:
        """The outer loop's state by name and type."""
        n = self.search.answers
        return [
            value("sentences", INT64, ["open"]),
            value("stored.tokens", INT64, ["batch", n, None]),
            value("stored.lengths", INT64, ["batch", n]),
            value("stored.scores", FLOAT, ["batch", n]),
            value("mask", INT64, ["rows", "source"]),
            *(value(str(v.name), _dtype(v), ["rows", v.shape[1], None, v.shape[3]]) for v in self.cross),
            *self.search.described(),
            *self.cache,
        ]

    def _phases(self, emit: Emit, initial: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """Emit the outer loop; → tokens, lengths and scores of all sentences, and health."""
        described = self._described()
        inputs = [value(f"phase.{v.name}", _dtype(v), list(v.shape)) for v in described]
        counter = [value("phase.number", INT64, []), value("phase.on", BOOL, [])]
        body = emit.inner("phase", [*counter, *inputs])
        outputs = self._phase(body, inputs)
        goes_on = body("Squeeze", body("Greater", body.axis_length(outputs[0], 0), [0]), [0])
        graph = body.finish(
            [
                (goes_on, value("phase.goes_on", BOOL, [])),
                *(
                    (out, value(f"phase.{v.name}.next", _dtype(v), list(v.shape)))
                    for out, v in zip(outputs, described, strict=True)
                ),
            ]
        )
        found = emit.loop(graph, *initial)
        health = found[5 + len(self.cross) + len(self.search.described()) - 1]
        return found[1], found[2], found[3], health

    def _phase(self, emit: Emit, inputs: Sequence[ir.Value]) -> list[Any]:
        """One phase: steps until a sentence is decided, then its outputs stored and the others closed up."""
        search, begin = self.search, 5 + len(self.cross)
        sentences, tokens, lengths, scores, mask = inputs[:5]
        cross, rest = inputs[5:begin], inputs[begin:]
        count = len(search.described())
        facts = search.phase_facts(emit, rest[:count])
        forced = None
        if self.forced is not None:
            first = emit("Equal", emit.axis_length(rest[0], 1), [1])
            forced = emit.cut(self.forced, 0, 0, emit("Where", first, self.batch, [1]))
        given = Given(limit=self.limit, forced_bos=forced)
        weights = _Weights(emit, (self.encoder, self.decoder))
        cross = self._encoded(emit, rest[0], mask, cross, weights)
        decode = self._decode(mask, cross, weights)
        found = self._steps(emit, rest, decode, given, facts)
        state, cache = found[:count], found[count:]
        decided = state[-2]

        done, stay = (emit("Reshape", emit("NonZero", x), [-1]) for x in (decided, emit("Not", decided)))
        answers = search.outputs(emit, state)
        longer = emit("Sub", emit.axis_length(answers.tokens, 2), emit.axis_length(tokens, 2))
        tokens = emit("Pad", tokens, emit.join([0, 0, 0, 0, 0], longer, axis=0))
        numbers = emit("Unsqueeze", emit.rows(sentences, done), [1])
        stored = [
            emit("ScatterND", old, numbers, emit.rows(new, done))
            for old, new in zip((tokens, lengths, scores), answers, strict=True)
        ]
        rows, former = search.rows_of(emit, stay), search.former_rows(emit, stay, facts)
        return [
            emit.rows(sentences, stay),
            *stored,
            *(emit.rows(x, former) for x in (mask, *cross)),
            *search.keep(emit, state, stay, rows),
            *(emit.rows(x, rows) for x in cache),
        ]

    def _steps(self, emit: Emit, initial: Sequence[Any], decode: Decode, given: Given, facts: Any) -> list[Any]:
        """Emit the inner loop; → its last state and cache."""
        search = self.search
        described = [*search.described(), *self.cache]
        inputs = [value(f"step.{v.name}", _dtype(v), list(v.shape)) for v in described]
        counter = [value("step.number", INT64, []), value("step.on", BOOL, [])]
        body = emit.inner("step", [*counter, *inputs])
        count = len(search.described())
        found = search.advance(body, inputs[:count], inputs[count:], decode, given, facts)
        stops = body.any_of(found.decided, 0)
        if search.first_alone:
            first = body("Squeeze", body("Equal", body.axis_length(inputs[0], 1), [1]), [0])
            stops = body("Or", stops, first)
        outputs = [*found.state, *found.cache]
        graph = body.finish(
            [
                (body("Not", stops), value("step.goes_on", BOOL, [])),
                *(
                    (out, value(f"step.{v.name}.next", _dtype(v), list(v.shape)))
                    for out, v in zip(outputs, described, strict=True)
                ),
            ]
        )
        return emit.loop(graph, *initial)

    def _encoded(
        self, emit: Emit, history: Any, mask: Any, cross: Sequence[ir.Value], weights: _Weights
    ) -> Sequence[Any]:
        """The encoder's outputs: computed in the first phase, handed on from then on."""
        first = emit("Squeeze", emit("Equal", emit.axis_length(history, 1), [1]), [0])
        encode, hand_on = emit.inner("encode", []), emit.inner("hand_on", [])
        found = _inline(encode, self.encoder, {INPUT_IDS: self.ids, ATTENTION_MASK: mask}, weights, name="encoder")
        branches = {}
        for branch, graph, values in (("then", encode, list(found.values())), ("else", hand_on, cross)):
            described = [
                value(f"{branch}.{v.name}", _dtype(v), ["rows", v.shape[1], None, v.shape[3]]) for v in self.cross
            ]
            branches[f"{branch}_branch"] = graph.finish(list(zip(values, described, strict=True)))
        encoded: Sequence[Any] = emit("If", first, outputs=len(cross), **branches)
        return encoded

    def _decode(self, mask: Any, cross: Sequence[Any], weights: _Weights) -> Decode:
        names = [str(v.name) for v in self.decoder.graph.inputs if str(v.name).startswith("cross.")]

        def decode(emit: Emit, tokens: Any, cache: Sequence[Any]) -> Stepped:
            given = {INPUT_IDS: tokens, ATTENTION_MASK: mask, **dict(zip(names, cross, strict=True))}
            given |= {str(v.name): past for v, past in zip(self.cache, cache, strict=True)}
            found = _inline(emit, self.decoder, given, weights, name="decoder")
            logits = found["logits"]
            if logits.dtype != FLOAT:
                logits = emit.cast(logits, FLOAT)
            return Stepped(logits, [found[f"present.{str(v.name).removeprefix('past.')}"] for v in self.cache])

        return decode
