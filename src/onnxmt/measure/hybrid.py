"""An fp32 graph with the nodes of one layer exchanged for those of the same layer in another precision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from onnxmt.errors import UsageError


def layer_of(node: ir.Node) -> str:
    """Return the path of the module that emitted a node: its name up to the last part, dots between the parts."""
    return (node.name or "").rpartition("/")[0].replace("/", ".")


def write_hybrid(fp32: Path, other: ir.Model, layer: str, output: Path) -> None:
    """Write the graph `fp32` to `output`, with `layer` computed as in `other`.

    The weights of the exchanged layer go into the file itself, all others stay where `fp32` has them. Raises UsageError
    where the two graphs do not have the layer in a form that can be exchanged.
    """
    model = ir.load(fp32)
    graph = model.graph
    old = [node for node in graph if layer_of(node) == layer]
    new = [node for node in other.graph if layer_of(node) == layer]
    if not old or not new:
        raise UsageError(f"the graphs have no layer {layer} in common")
    sources, targets = _inputs(new), _inputs(old)
    if len(sources) != len(targets):
        raise UsageError(
            f"the layer {layer} reads {len(targets)} values in fp32, and {len(sources)} in the other graph"
        )
    made: dict[ir.Value, ir.Value] = dict(zip(sources, targets, strict=True))
    nodes = [_clone(node, made, graph) for node in new]
    graph.insert_before(old[0], nodes)
    before, after = _output(old, graph), made[_output(new, other.graph)]
    name = before.name
    after.type, after.shape = before.type, before.shape
    before.replace_all_uses_with(after, replace_graph_outputs=True)
    before.name, after.name = f"{name}_fp32", name
    graph.remove(old, safe=True)
    _adopt_domains(model, nodes)
    ir.save(model, output)


def _inputs(nodes: Sequence[ir.Node]) -> list[ir.Value]:
    """The values that the nodes read from elsewhere, weights and constants apart, in order."""
    own = {value for node in nodes for value in node.outputs}
    read = (value for node in nodes for value in node.inputs if value is not None)
    return list(dict.fromkeys(value for value in read if value not in own and not value.is_initializer()))


def _output(nodes: Sequence[ir.Node], graph: ir.Graph) -> ir.Value:
    """The one value of the nodes that others read."""
    own, outputs = set(nodes), set(graph.outputs)
    read = [
        value
        for node in nodes
        for value in node.outputs
        if value in outputs or any(use.node not in own for use in value.uses())
    ]
    if len(read) != 1:
        raise UsageError(f"the layer {layer_of(nodes[0])} gives {len(read)} values, not one")
    return read[0]


def _clone(node: ir.Node, made: dict[ir.Value, ir.Value], graph: ir.Graph) -> ir.Node:
    inputs = [None if value is None else _taken(value, made, graph) for value in node.inputs]
    copy = ir.Node(
        node.domain, node.op_type, inputs, list(node.attributes.values()),
        num_outputs=len(node.outputs), name=f"{node.name}_exchanged",
    )  # fmt: skip
    for value, twin in zip(node.outputs, copy.outputs, strict=True):
        twin.name, twin.type, twin.shape = f"{value.name}_exchanged", value.type, value.shape
        made[value] = twin
    return copy


def _taken(value: ir.Value, made: dict[ir.Value, ir.Value], graph: ir.Graph) -> ir.Value:
    """The value's twin; a weight is copied into the graph."""
    if value not in made:
        tensor = value.const_value
        assert tensor is not None
        name = f"{value.name}_exchanged"
        twin = ir.Value(name=name, shape=value.shape, type=value.type)
        twin.const_value = ir.tensor(tensor.numpy().copy(), name=name)
        graph.register_initializer(twin)
        made[value] = twin
    return made[value]


def _adopt_domains(model: ir.Model, nodes: Sequence[ir.Node]) -> None:
    for node in nodes:
        if node.domain and node.domain not in model.graph.opset_imports:
            model.graph.opset_imports[node.domain] = 1
