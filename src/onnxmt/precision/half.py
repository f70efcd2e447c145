"""fp16: turn a finished fp32 graph into one that computes and caches in half precision, sensitive parts apart.

Half precision has 11 bits and ends at 65504. Products and attention, whose operators sum in float32 inside, are given
it; norms, the residual stream (a T5's grows far beyond 65504), embedding sums and logits stay in float32.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from onnxmt.errors import UsageError
from onnxmt.precision.forms import StoredArray

LARGEST = 65504.0
_FLOAT, _HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
_CACHE = ("cross.", "past.", "present.")
# Operators that move or map values one by one: they take the format of what they read and of what reads them.
_FOLLOWING = {
    "Add", "Mul", "Sub", "Div", "Split", "Reshape", "Transpose", "Slice", "Squeeze", "Unsqueeze", "Gather", "Identity",
    "Relu", "LeakyRelu", "HardSwish", "Sigmoid", "Tanh", "Clip", "Erf", "Sqrt", "Softplus", "Gelu", "FastGelu",
    "QuickGelu",
}  # fmt: skip


class MakeTensor(Protocol):
    """Make the tensor of an initializer whose values are made when the weights file is written."""

    def __call__(self, array: StoredArray, name: str) -> Any:
        """Return the tensor."""
        ...


def half_array(array: StoredArray) -> StoredArray:
    """Return the float16 form of a stored array; making it raises UsageError for values beyond float16."""

    def make() -> Any:
        with np.errstate(over="ignore"):
            values = array.make().astype(np.float16)
        if not np.isfinite(values).all():
            name = array.key.partition("|")[0]
            raise UsageError(
                f"{name} holds values beyond {LARGEST:g}, the largest of fp16: keep it with "
                f"--keep-fp32 '{name.removesuffix('.weight')}', or choose another precision"
            )
        return values

    return StoredArray(key=f"{array.key}|fp16", shape=array.shape, dtype=np.dtype(np.float16), make=make)


def to_half(model: ir.Model, weights: Collection[str], *, stored: MakeTensor) -> None:
    """Change `model` in place: products by the named `weights`, lookups in them, and all attention become fp16.

    Cached keys and values become fp16 on both sides of the graph; ids, masks and logits keep their types.
    """
    _Halving(model.graph, frozenset(weights), stored).run()


class _Halving:
    def __init__(self, graph: ir.Graph, weights: frozenset[str], stored: MakeTensor) -> None:
        self._graph, self._weights, self._stored = graph, weights, stored
        self._casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._halves: dict[ir.Value, ir.Value] = {}

    def run(self) -> None:
        """Take the bias out of half-precision Gemms, choose the nodes, and change them."""
        for node in list(self._graph):
            if node.op_type == "Gemm" and self._has_half_weight(node) and len(node.inputs) == 3:
                self._take_out_bias(node)
        chosen = self._chosen()
        for value in self._graph.inputs:
            if _is_cache(value):
                value.type = ir.TensorType(_HALF)
        for node in list(self._graph):
            self._change(node, half=node in chosen)
        for number, value in enumerate(list(self._graph.outputs)):
            wanted = _HALF if _is_cache(value) else _FLOAT
            if value.dtype != wanted:
                self._graph.outputs[number] = self._cast_output(value, wanted)
        for value in self._halves:
            if not value.uses():
                del self._graph.initializers[value.name]

    def _has_half_weight(self, node: ir.Node) -> bool:
        return any(value is not None and value.name in self._weights for value in node.inputs)

    def _take_out_bias(self, node: ir.Node) -> None:
        """x W + b → x W, and b added in float32: a bias of -1e9 that bans a token must stay a number."""
        product, bias = node.outputs[0], node.inputs[2]
        bare = ir.Node(
            "",
            "Gemm",
            list(node.inputs[:2]),
            list(node.attributes.values()),
            num_outputs=1,
            name=f"{node.name}_product",
        )
        bare.outputs[0].name, bare.outputs[0].type = f"{product.name}_product", ir.TensorType(_FLOAT)
        added = ir.Node("", "Add", [bare.outputs[0], bias], num_outputs=1, name=f"{node.name}_bias")
        final = added.outputs[0]
        final.type, final.shape = product.type, product.shape
        self._graph.insert_before(node, [bare, added])
        product.replace_all_uses_with(final, replace_graph_outputs=True)
        name, product.name = product.name, f"{product.name}_replaced"
        final.name = name
        self._graph.remove(node, safe=True)

    def _chosen(self) -> set[ir.Node]:
        """The nodes to run in fp16: attention and products, and what lies between two of them."""
        found: set[ir.Node] = set()
        for node in self._graph:
            if self._is_core(node) or (node.op_type in _FOLLOWING and self._reads_only_half(node, found)):
                found.add(node)
        for node in reversed(self._graph):
            if node in found and not self._is_core(node) and not self._feeds_half(node, found):
                found.remove(node)
        return found

    def _is_core(self, node: ir.Node) -> bool:
        return node.op_type == "MultiHeadAttention" or self._has_half_weight(node)

    @staticmethod
    def _reads_only_half(node: ir.Node, found: set[ir.Node]) -> bool:
        """True when there are float inputs, and each is a constant or comes from a node in `found`.

        A sum of two computed values is one of embeddings or of the residual stream, which stays in float32.
        """
        floats = [value for value in node.inputs if value is not None and _is_float(value)]
        if node.op_type == "Add" and not any(value.is_initializer() for value in floats):
            return False
        return bool(floats) and all(value.is_initializer() or value.producer() in found for value in floats)

    @staticmethod
    def _feeds_half(node: ir.Node, found: set[ir.Node]) -> bool:
        return any(
            _is_cache(value) or any(use.node in found for use in value.uses())
            for value in node.outputs
        )  # fmt: skip

    def _change(self, node: ir.Node, *, half: bool) -> None:
        wanted = _HALF if half else _FLOAT
        for number, value in enumerate(node.inputs):
            if value is None or not _is_float(value):
                continue
            if value.is_initializer():
                if half:
                    node.replace_input_with(number, self._half_initializer(value))
            elif value.dtype != wanted:
                node.replace_input_with(number, self._cast_before(node, value, wanted))
        if half:
            for value in node.outputs:
                value.type = ir.TensorType(_HALF)
            filler = node.attributes.get("mask_filter_value")
            if filler is not None:  # beyond fp16 it would be infinite
                node.attributes["mask_filter_value"] = ir.AttrFloat32("mask_filter_value", -LARGEST)

    def _half_initializer(self, value: ir.Value) -> ir.Value:
        if value not in self._halves:
            name = f"{value.name}.fp16"
            tensor: Any = value.const_value
            array = getattr(tensor, "array", None)
            if array is not None:
                made = self._stored(half_array(array), name)
            else:
                made = ir.tensor(tensor.numpy().astype(np.float16), name=name)
            half = ir.Value(name=name, shape=value.shape, type=ir.TensorType(_HALF), const_value=made)
            self._graph.register_initializer(half)
            self._halves[value] = half
        return self._halves[value]

    def _cast_before(self, node: ir.Node, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        key = (value, wanted)
        if key not in self._casts:
            cast = _cast(value, wanted, f"{value.name}_{wanted.name.lower()}")
            self._graph.insert_before(node, [cast])
            self._casts[key] = cast.outputs[0]
        return self._casts[key]

    def _cast_output(self, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        """A graph output in another type under the same name."""
        name = value.name
        value.name = f"{name}_{value.dtype.name.lower()}"
        cast = _cast(value, wanted, name)
        self._graph.append(cast)
        return cast.outputs[0]


def _cast(value: ir.Value, wanted: ir.DataType, name: str) -> ir.Node:
    cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", wanted)], num_outputs=1, name=f"{name}_cast")
    cast.outputs[0].name, cast.outputs[0].shape, cast.outputs[0].type = name, value.shape, ir.TensorType(wanted)
    return cast


def _is_cache(value: ir.Value) -> bool:
    return value.name is not None and value.name.startswith(_CACHE)


def _is_float(value: ir.Value) -> bool:
    return value.dtype in (_FLOAT, _HALF)
