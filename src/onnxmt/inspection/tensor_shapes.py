"""Shapes of the tensors inside a graph, for a drawing: ONNX's own inference stops at com.microsoft operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

Axis = int | str | None  # a length, the name of a dynamic one, or unknown
Shape = tuple[Axis, ...]


def tensor_shapes(graph: ir.Graph) -> Mapping[str, Shape]:
    """Return the shape of every tensor whose rank can be told, by name; the nodes stand in topological order."""
    shapes: dict[str, Shape] = {}
    for value in (*graph.inputs, *graph.initializers.values()):
        _note(shapes, value, None)
    for node in graph:
        inferred = _infer(node, shapes)
        for index, output in enumerate(node.outputs):
            # Split's parts are alike; the fourth output of SkipLayerNormalization is the sum, shaped like the norm.
            alike = index == 0 or node.op_type == "Split" or (index == 3 and node.op_type.startswith("Skip"))
            _note(shapes, output, inferred if alike else None)
    return shapes


def _note(shapes: dict[str, Shape], value: ir.Value, inferred: Shape | None) -> None:
    stored = _stored(value)
    if stored is None or (inferred is not None and None in stored):
        stored = inferred if stored is None or inferred is None else _merge(stored, inferred)
    if value.name and stored is not None:
        shapes[value.name] = stored


def _stored(value: ir.Value) -> Shape | None:
    if value.shape is None:
        return None
    return tuple(axis if isinstance(axis, int) else axis.value for axis in value.shape)


def _merge(first: Shape, second: Shape) -> Shape:
    if len(first) != len(second):
        return first
    return tuple(b if a is None else a for a, b in zip(first, second, strict=True))


def _infer(node: ir.Node, shapes: Mapping[str, Shape]) -> Shape | None:
    rule = _RULES.get(node.op_type)
    inputs = [shapes.get(value.name or "") if value is not None else None for value in node.inputs]
    return rule(node, inputs) if rule and inputs else None


def _like_first(_node: ir.Node, inputs: list[Shape | None]) -> Shape | None:
    return inputs[0]


def _broadcast(_node: ir.Node, inputs: list[Shape | None]) -> Shape | None:
    """Numpy's rule; where one side is unknown, the other is what the sum of two equal things can only be."""
    known = [shape for shape in inputs if shape is not None]
    if not known:
        return None
    rank = max(map(len, known))
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    return tuple(_common(axes) for axes in zip(*padded, strict=True))


def _common(axes: tuple[Axis, ...]) -> Axis:
    named = [axis for axis in axes if axis is not None and axis != 1]
    if named:
        return named[0]
    return None if None in axes else 1


def _matmul(_node: ir.Node, inputs: list[Shape | None]) -> Shape | None:
    x, w = inputs[0], inputs[1]
    return (*x[:-1], w[-1]) if x and w else None


def _matmul_bits(node: ir.Node, inputs: list[Shape | None]) -> Shape | None:
    x = inputs[0]
    return (*x[:-1], node.attributes["N"].as_int()) if x else None


def _gemm(node: ir.Node, inputs: list[Shape | None]) -> Shape | None:
    x, w = inputs[0], inputs[1]
    if not x or not w:
        return None
    transposed = "transB" in node.attributes and node.attributes["transB"].as_int()
    return (x[0], w[0] if transposed else w[-1])


def _gather(node: ir.Node, inputs: list[Shape | None]) -> Shape | None:
    data, indices = inputs[0], inputs[1]
    if data is None or indices is None:
        return None
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    return (*data[:axis], *indices, *data[axis + 1 :])


def _split(node: ir.Node, inputs: list[Shape | None]) -> Shape | None:
    x = inputs[0]
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    if not x or axis not in (-1, len(x) - 1) or not isinstance(x[-1], int) or x[-1] % len(node.outputs):
        return None
    return (*x[:-1], x[-1] // len(node.outputs))


_Rule = Callable[["ir.Node", list[Shape | None]], Shape | None]
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where"), _broadcast),
    **dict.fromkeys(
        (
            "Cast", "Relu", "Gelu", "Tanh", "Sigmoid", "Erf", "Sqrt", "Neg", "Softmax", "LayerNormalization",
            "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
            "QuickGelu", "FastGelu", "BiasGelu", "MultiHeadAttention",
        ),
        _like_first,
    ),
    "MatMul": _matmul,
    "DynamicQuantizeMatMul": _matmul,
    "MatMulNBits": _matmul_bits,
    "Gemm": _gemm,
    "Gather": _gather,
    "Split": _split,
}  # fmt: skip
