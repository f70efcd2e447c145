"""An ONNX file → the blocks a person thinks in (embeddings, attention, …), read off the nodes' module scopes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxmt.errors import BundleError, MissingExtraError
from onnxmt.inspection.tensor_shapes import Axis, Shape, tensor_shapes

if TYPE_CHECKING:
    import onnx_ir as ir

Kind = Literal["embedding", "attention", "cross_kv", "feed_forward", "norm", "head", "other"]
# `model.decoder.layers.3.self_attn` (BART-like), `decoder.block.3.layer.0.SelfAttention` (T5): the first such part of a
# scope counts the layers.
_LAYER = re.compile(r"(?:^|\.)(layers?|blocks?)\.(\d+|\{\d+…\d+\})(?=\.|$)")
_KEY_VALUE = re.compile(r"(\w+)\.(\d+|\{i\})\.(key|value)")


@dataclass(frozen=True, kw_only=True)
class Port:
    """A graph input that a block reads, or a graph output that it makes; `{i}` stands for the layer's number."""

    name: str
    dtype: str
    axes: tuple[Axis, ...]
    only_length: bool = False  # the block reads the tensor's shape and nothing else


@dataclass(frozen=True, kw_only=True)
class BlockWeight:
    """A stored array that a block uses; two with the same `place` are one array on the disk."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    place: tuple[str, int, int]


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A tensor that goes from one block to another; both are positions in `GraphBlocks.blocks`."""

    start: int
    end: int
    shape: Shape | None
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Block:
    """Nodes that a person calls one thing.

    `layers` are the first and last layer that it stands for, None outside layers; `chained` says that each of them
    reads what the one before made.
    """

    title: str
    kind: Kind
    scope: str
    layers: tuple[int, int] | None
    operators: tuple[str, ...]
    weights: tuple[BlockWeight, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    chained: bool = False

    @property
    def stack(self) -> str:
        """The path of the stack that a layer's block is in; outside layers, the whole scope."""
        return _LAYER.split(self.scope, maxsplit=1)[0]


@dataclass(frozen=True, kw_only=True)
class GraphBlocks:
    """One graph as blocks in the order of execution; equal layers that follow each other are one set of blocks."""

    file: str
    opset: int
    nodes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    blocks: tuple[Block, ...]
    edges: tuple[Edge, ...]


def read_graph_blocks(path: Path) -> GraphBlocks:
    """Read an ONNX file; its external data is not touched. Raises MissingExtraError and BundleError."""
    try:
        import onnx_ir as ir
    except ImportError as error:
        raise MissingExtraError(needed_for="drawing graphs", extra="export", module=error.name or "onnx_ir") from error
    try:
        model = ir.load(path)
    except OSError as error:
        raise BundleError(f"the graph {path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf's DecodeError has no stable home, and onnx_ir adds ValueError and TypeError
        raise BundleError(f"the graph {path} is not an ONNX file: {error}") from error
    return graph_blocks(model.graph, file=path.name)


def graph_blocks(graph: ir.Graph, *, file: str) -> GraphBlocks:
    """Group the nodes of `graph`."""
    groups = _Grouping(graph).groups
    order = {key: index for index, key in enumerate(groups)}
    shapes = tensor_shapes(graph)
    read = [_block(key, nodes, graph, shapes) for key, nodes in groups.items()]
    edges = list(_edges(groups, order, shapes))
    blocks, places = _merge_layers(read)
    merged = {
        (places[edge.start], places[edge.end]): replace(edge, start=places[edge.start], end=places[edge.end])
        for edge in reversed(edges)  # of the edges that become one, the first layer's is kept
        if places[edge.start] < places[edge.end]
    }
    chained = {places[edge.end] for edge in edges if places[edge.start] >= places[edge.end]}
    return GraphBlocks(
        file=file,
        opset=graph.opset_imports.get("", 0),
        nodes=len(graph),
        inputs=merge_ports(_port(value) for value in graph.inputs),
        outputs=merge_ports(_port(value) for value in graph.outputs),
        blocks=tuple(replace(block, chained=index in chained) for index, block in enumerate(blocks)),
        edges=tuple(sorted(merged.values(), key=lambda edge: (edge.start, edge.end))),
    )


@dataclass(frozen=True)
class _Key:
    """Where a node belongs: the stack and layer it is scoped in, or `phase`, the number of layered blocks before it."""

    stack: str
    layer: int | None
    part: str
    phase: int = 0


class _Grouping:
    """Nodes by block, in the order in which the blocks begin; a Cast of a graph input belongs to the input."""

    def __init__(self, graph: ir.Graph) -> None:
        self.groups: dict[_Key, list[ir.Node]] = {}
        inputs = {value.name for value in graph.inputs}
        parts = _parts(graph)
        for node in graph:
            if node.op_type == "Cast" and node.inputs[0] is not None and node.inputs[0].name in inputs:
                continue
            self.groups.setdefault(self._key(node, parts), []).append(node)

    def _key(self, node: ir.Node, parts: Mapping[tuple[str, int], set[str]]) -> _Key:
        stack, layer, inner = _place(node)
        if layer is None:
            return _Key("", None, "", phase=sum(key.layer is not None for key in self.groups))
        return _Key(stack, layer, _part(inner, parts[stack, layer]))


def _parts(graph: ir.Graph) -> dict[tuple[str, int], set[str]]:
    """The modules directly inside each layer."""
    found: dict[tuple[str, int], set[str]] = {}
    for node in graph:
        stack, layer, inner = _place(node)
        if layer is not None:
            found.setdefault((stack, layer), set()).add(_first(inner))
    return found


def _scope(node: ir.Node) -> str:
    """The path of the module that emitted a node, as weights are named: `model.encoder.layers.0.fc1`."""
    return (node.name or "").rpartition("/")[0].replace("/", ".")


def _place(node: ir.Node) -> tuple[str, int | None, str]:
    """The stack's path, the layer's number and the path inside the layer; no number outside layers."""
    scope = _scope(node)
    match = _LAYER.search(scope)
    if match is None:
        return scope, None, ""
    return scope[: match.start()], int(match[2]), scope[match.end() :].lstrip(".")


def _first(inner: str) -> str:
    """The module directly inside a layer; T5 numbers those too (`layer.0`)."""
    match = _LAYER.match(inner)
    return match[0] if match else inner.partition(".")[0]


def _part(inner: str, siblings: set[str]) -> str:
    """The block inside a layer; a norm goes with the sub-layer it is named after."""
    first = _first(inner)
    if "attn" in first or _LAYER.match(first):
        stem = first.removesuffix("_layer_norm")
        return stem if stem in siblings else first
    return "feed_forward"


def _block(key: _Key, nodes: Sequence[ir.Node], graph: ir.Graph, shapes: Mapping[str, Shape]) -> Block:
    scopes = [_scope(node) for node in nodes]
    kind, title = _kind(key, nodes, scopes)
    made = {value.name for node in nodes for value in node.outputs}
    prefix = _common_scope(scopes)
    return Block(
        title=title,
        kind=kind,
        scope=prefix,
        layers=None if key.layer is None else (key.layer, key.layer),
        operators=tuple(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes),
        weights=_weights(nodes, prefix),
        inputs=merge_ports(_pattern(port, key.layer) for port in _inputs(nodes, graph)),
        outputs=merge_ports(
            _pattern(replace(_port(value), axes=shapes.get(value.name or "", ())), key.layer)
            for value in graph.outputs
            if value.name in made
        ),
    )


def _kind(key: _Key, nodes: Sequence[ir.Node], scopes: Sequence[str]) -> tuple[Kind, str]:
    text, operators = " ".join(scopes), {node.op_type for node in nodes}
    if key.layer is not None:
        if "encoder_attn" in text or "EncDecAttention" in text:
            if any("Attention" in name or name == "Softmax" for name in operators):
                return "attention", "Cross-attention"
            return "cross_kv", "Keys and values for cross-attention"
        if "attn" in text or "SelfAttention" in text:
            return "attention", "Self-attention"
        return "feed_forward", "Feed-forward"
    if "lm_head" in text:
        return "head", "Output projection"
    if "embed" in text or "shared" in text:
        return "embedding", "Embeddings"
    if any("Normalization" in name for name in operators):
        return "norm", "Final norm"
    return "other", "Other operators"


def _common_scope(scopes: Sequence[str]) -> str:
    """The longest path that all scopes begin with."""
    parts = [scope.split(".") for scope in scopes if scope]
    if not parts:
        return ""
    levels = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))
    return ".".join(level[0] for level in levels)


def _weights(nodes: Sequence[ir.Node], scope: str) -> tuple[BlockWeight, ...]:
    """Initializers that come from the checkpoint; `const_…` are the numbers of the graph's own arithmetic."""
    found: dict[str, BlockWeight] = {}
    for value in (value for node in nodes for value in node.inputs):
        tensor = None if value is None else value.const_value
        if value is None or tensor is None or not value.name or value.name.startswith("const_"):
            continue
        outside = getattr(tensor, "location", None)  # small ones are kept inside the graph's own file
        found[value.name] = BlockWeight(
            name=value.name.removeprefix(f"{scope}."),
            shape=tuple(int(axis) for axis in tensor.shape.numpy()),
            dtype=str(tensor.dtype).lower(),
            bytes=int(tensor.nbytes),
            place=(str(outside), int(tensor.offset or 0), int(tensor.nbytes)) if outside else (value.name, 0, 0),
        )
    return tuple(found.values())


def _inputs(nodes: Sequence[ir.Node], graph: ir.Graph) -> list[Port]:
    """Graph inputs that the nodes read, straight or through the Cast that belongs to the input."""
    inputs = {value.name: value for value in graph.inputs}
    used: dict[str, bool] = {}
    for node in nodes:
        for value in node.inputs:
            name = None if value is None else value.name
            producer = None if value is None else value.producer()
            if producer is not None and producer.op_type == "Cast" and producer.inputs[0] is not None:
                name = producer.inputs[0].name
            if name is not None and name in inputs:
                used[name] = used.get(name, True) and node.op_type == "Shape"
    # An input that is named for its length alone beside one that is read adds nothing.
    return [replace(_port(inputs[name]), only_length=length) for name, length in used.items()]


def _port(value: ir.Value) -> Port:
    axes = tuple(axis if isinstance(axis, int) else axis.value for axis in value.shape or ())
    return Port(name=value.name or "", dtype=str(value.dtype).lower(), axes=axes)


def _pattern(port: Port, layer: int | None) -> Port:
    if layer is None:
        return port
    return replace(port, name=".".join("{i}" if part == str(layer) else part for part in port.name.split(".")))


def merge_ports(ports: Iterable[Port]) -> tuple[Port, ...]:
    """Fold `past.0.key`, `past.0.value`, `past.1.key`, … into one `past.0…5.key|value`."""
    folded: dict[tuple[str, Port], tuple[dict[str, None], dict[str, None]]] = {}
    for port in ports:
        match = _KEY_VALUE.fullmatch(port.name)
        head, number, part = match.groups() if match else (port.name, "", "")
        numbers, parts = folded.setdefault((head, replace(port, name="")), ({}, {}))
        numbers[number], parts[part] = None, None
    return tuple(
        replace(port, name=f"{head}.{_span(list(numbers))}.{'|'.join(parts)}" if any(parts) else head)
        for (head, port), (numbers, parts) in folded.items()
    )


def _span(numbers: Sequence[str]) -> str:
    return numbers[0] if len(numbers) == 1 else f"{numbers[0]}…{numbers[-1]}"


def _edges(
    groups: Mapping[_Key, Sequence[ir.Node]], order: Mapping[_Key, int], shapes: Mapping[str, Shape]
) -> Iterable[Edge]:
    maker = {value.name: order[key] for key, nodes in groups.items() for node in nodes for value in node.outputs}
    for key, nodes in groups.items():
        seen: set[int] = set()
        for value in (value for node in nodes for value in node.inputs if value is not None):
            start = maker.get(value.name)
            if start is None or start == order[key] or start in seen:
                continue
            seen.add(start)
            yield Edge(
                start=start,
                end=order[key],
                shape=shapes.get(value.name or ""),
                dtype=str(value.dtype).lower() if value.dtype is not None else "float",
            )


def _merge_layers(blocks: Sequence[Block]) -> tuple[list[Block], list[int]]:
    """Fold layers that equal the one before into it; also return where each block went."""
    layers: list[list[int]] = []
    for index, block in enumerate(blocks):
        follows = layers and block.layers is not None and blocks[layers[-1][0]].layers == block.layers
        if follows and blocks[layers[-1][0]].stack == block.stack:
            layers[-1].append(index)
        else:
            layers.append([index])
    merged: list[Block] = []
    places = [0] * len(blocks)
    previous: list[int] = []
    for indices in layers:
        same = previous and blocks[indices[0]].layers is not None
        same = same and [_signature(blocks[i]) for i in indices] == [_signature(blocks[i]) for i in previous]
        if same:
            count = len(indices)
            for offset, index in enumerate(indices):
                target = len(merged) - count + offset
                first, last = merged[target].layers, blocks[index].layers
                assert first is not None
                assert last is not None
                merged[target] = replace(merged[target], layers=(first[0], last[1]))
                places[index] = target
        else:
            for index in indices:
                places[index] = len(merged)
                merged.append(blocks[index])
        previous = indices
    return [replace(block, scope=_shown_scope(block)) for block in merged], places


def _shown_scope(block: Block) -> str:
    if block.layers is None:
        return block.scope
    first, last = block.layers
    numbers = str(first) if first == last else f"{{{first}…{last}}}"
    return _renumbered(block.scope, numbers)


def _signature(block: Block) -> object:
    weights = tuple((_renumbered(w.name, "{i}"), w.shape, w.dtype) for w in block.weights)
    return (block.title, block.stack, block.operators, weights, block.inputs, block.outputs)


def _renumbered(path: str, number: str) -> str:
    """`path` with another layer number."""
    match = _LAYER.search(path)
    return path if match is None else f"{path[: match.start(2)]}{number}{path[match.end(2) :]}"
