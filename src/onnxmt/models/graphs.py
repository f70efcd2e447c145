"""From a module tree to an ONNX model: graph inputs and outputs in one naming for every family (fused dialect)."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import onnx_ir as ir
from onnxscript import GraphBuilder, nn

from . import fused
from .config import Dimensions, StackConfig


class CrossKeyValue(NamedTuple):
    """A key and a value [B, heads, length, head size]."""

    key: Any
    value: Any


class DecoderOutputs(NamedTuple):
    """Logits [B, V] and the present keys and values of each layer."""

    logits: Any
    present: list[CrossKeyValue]


class FedHead(NamedTuple):
    """Rows of the output projection [K, d_model] and of its bias [K], None where there is none."""

    weight: Any
    bias: Any | None


class Architecture(Protocol):
    """A model's settings, able to build its two module trees."""

    @property
    def model_type(self) -> str:
        """The model_type of config.json."""
        ...

    @property
    def dimensions(self) -> Dimensions:
        """Sizes that the runtime needs."""
        ...

    def encoder_graph(self) -> nn.Module:
        """Return a fresh encoder tree: (op, input_ids, mask) → list[CrossKeyValue]."""
        ...

    def decoder_graph(self) -> nn.Module:
        """Return a fresh decoder tree: (op, input_ids, mask, cross, past) → DecoderOutputs."""
        ...

    def ties(self) -> Any:
        """Return {source: targets} of the weights that transformers ties."""
        ...

    def wide_layers(self) -> tuple[str, ...]:
        """Return fnmatch patterns of linear layers whose outputs can pass 65504, so that fp16 does not hold them."""
        ...

    def ignored_weights(self) -> tuple[str, ...]:
        """Return fnmatch patterns of weights that transformers does not read."""
        ...


def _builder(name: str) -> GraphBuilder:
    graph = ir.Graph(
        [], [], nodes=[], name=name, opset_imports={"": fused.OPSET, "com.microsoft": fused.MICROSOFT_OPSET}
    )
    return GraphBuilder(graph)


def _model(builder: GraphBuilder) -> ir.Model:
    return ir.Model(builder.graph, ir_version=fused.IR_VERSION, producer_name="onnxmt")


def _key_values(builder: GraphBuilder, kind: str, stack: StackConfig, length: str) -> list[CrossKeyValue]:
    shape = ["batch", stack.heads, length, stack.head_dim]
    return [
        CrossKeyValue(*(builder.input(f"{kind}.{i}.{part}", ir.DataType.FLOAT, shape) for part in ("key", "value")))
        for i in range(stack.layers)
    ]


HEAD_WEIGHT, HEAD_BIAS = "head.weight", "head.bias"


def _output(builder: GraphBuilder, value: Any, name: str, shape: list[str | int]) -> None:
    value.shape, value.type = ir.Shape(shape), ir.TensorType(ir.DataType.FLOAT)
    builder.add_output(value, name)


def _add_key_values(
    builder: GraphBuilder, values: list[CrossKeyValue], kind: str, stack: StackConfig, length: str
) -> None:
    for i, pair in enumerate(values):
        for part, value in zip(("key", "value"), pair, strict=True):
            _output(builder, value, f"{kind}.{i}.{part}", ["batch", stack.heads, length, stack.head_dim])


def _fed_input(builder: GraphBuilder, value: Any | None) -> Any | None:
    """An input of the name and shape of another graph's output; None stays None."""
    return None if value is None else builder.input(value.name, ir.DataType.FLOAT, list(value.shape))


def encoder_model(tree: nn.Module, dimensions: Dimensions) -> ir.Model:
    """Emit the encoder graph: input_ids, attention_mask int64 [batch, source] → cross.{i}.key|value."""
    builder = _builder("encoder")
    ids = builder.input("input_ids", ir.DataType.INT64, ["batch", "source"])
    mask = builder.input("attention_mask", ir.DataType.INT64, ["batch", "source"])
    cross = tree(builder.op, ids, builder.op.Cast(mask, to=ir.DataType.INT32))
    _add_key_values(builder, cross, "cross", dimensions.decoder, "source")
    return _model(builder)


def head_model(tree: nn.Module, dimensions: Dimensions) -> ir.Model:
    """Emit the graph of candidates: tokens int64 [candidates] → head.weight [candidates, d_model], head.bias."""
    builder = _builder("head")
    tokens = builder.input("tokens", ir.DataType.INT64, ["candidates"])
    found = tree(builder.op, tokens)
    _output(builder, found.weight, HEAD_WEIGHT, ["candidates", dimensions.d_model])
    if found.bias is not None:
        _output(builder, found.bias, HEAD_BIAS, ["candidates"])
    return _model(builder)


def decoder_model(tree: nn.Module, dimensions: Dimensions, *, fed: FedHead | None = None) -> ir.Model:
    """Emit the decoder graph: input_ids [batch, target], attention_mask, cross.*, past.* → logits, present.*.

    `fed`: outputs of the graph of candidates, which become inputs of the same names; logits are [batch, candidates].
    """
    builder = _builder("decoder")
    ids = builder.input("input_ids", ir.DataType.INT64, ["batch", "target"])
    mask = builder.input("attention_mask", ir.DataType.INT64, ["batch", "source"])
    cross = _key_values(builder, "cross", dimensions.decoder, "source")
    past = _key_values(builder, "past", dimensions.decoder, "past")
    head = None if fed is None else FedHead(*(_fed_input(builder, value) for value in fed))
    outputs = tree(
        builder.op,
        ids,
        builder.op.Cast(mask, to=ir.DataType.INT32),
        cross,
        past,
        *([] if head is None else [head]),
    )
    scored = dimensions.target_vocab_size if head is None else "candidates"
    _output(builder, outputs.logits, "logits", ["batch", scored])
    _add_key_values(builder, outputs.present, "present", dimensions.decoder, "present")
    return _model(builder)
