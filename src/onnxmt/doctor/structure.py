"""Mistakes that a folder's graphs show without being run: parts, axes, masks, and what is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from onnxmt.doctor.findings import Finding
from onnxmt.doctor.folder import Model, ModelFolder
from onnxmt.doctor.graph_file import GraphFile, Stored, is_quantized
from onnxmt.inspection.page import counted, size_text

_ENOUGH_QUANTIZED = 0.5  # the share of the bytes; embeddings and norms of a quantised file may stay as they are
_WORTH_SAYING = 1 << 20


def structure_findings(read: ModelFolder) -> Iterator[Finding]:
    """Every mistake of this kind, file by file."""
    for model in read.models:
        yield from _parts(read, model)
        for graph in model.graphs:
            yield from _axes(graph)
            yield from _masks(graph)
            yield from _order(graph)
    stored = {graph.path: tuple(graph.stored()) for model in read.models for graph in model.graphs}
    for model in read.models:
        for graph in model.graphs:
            yield from _encoder_inside(graph)
            yield from _duplicates(graph, stored[graph.path])
        if model.claims_quantized or _says_quantized(read):
            yield from _quantized(model, [tensor for graph in model.graphs for tensor in stored[graph.path]])


def storage_notes(read: ModelFolder) -> Iterator[str]:
    """What several files store once each: a common and unavoidable cost, not a mistake."""
    for model in read.models:
        places: dict[str, set[tuple[str, int]]] = defaultdict(set)
        size: dict[str, int] = {}
        for graph in model.graphs:
            for tensor in graph.stored():
                places[tensor.content].add(tensor.place)
                size[tensor.content] = tensor.bytes
        extra = sum(size[content] * (len(found) - 1) for content, found in places.items())
        if extra > _WORTH_SAYING:
            yield (
                f"the graphs{model.mark and f' ({model.mark})'} store {size_text(extra)} more than once, each file its "
                "own copy: one merged decoder, or one external data file for all, avoids that"
            )


def _parts(read: ModelFolder, model: Model) -> Iterator[Finding]:
    if model.part("single", "whole") is not None:
        return
    lacking = [
        what
        for what, parts in (
            ("an encoder (input_ids, attention_mask → hidden states)", ("encoder",)),
            ("a decoder for the first step (encoder_hidden_states, input_ids → logits)", ("first", "merged", "cached")),
        )
        if model.part(*parts) is None
    ]
    if not lacking:
        return
    names = ", ".join(graph.path.name for graph in model.graphs)
    yield Finding(
        kind="missing_graph",
        where=names or str(read.folder.name),
        found=f"these graphs lack {' and '.join(lacking)}",
        mend="export the model again with all its parts (onnxmt export MODEL --layout standard)",
    )


def _axes(graph: GraphFile) -> Iterator[Finding]:
    fixed = []
    for name, node in graph.inputs.items():
        moving = [0, 2] if name in (*graph.past, *graph.cross) else [0, 1][: len(node.axes)]
        if "use_cache" in name or len(node.axes) < 2:
            continue
        fixed += [f"{name} {list(node.axes)}" for axis in moving if isinstance(node.axes[axis], int)][:1]
    if fixed:
        yield Finding(
            kind="static_axes",
            where=graph.path.name,
            found=f"inputs have fixed lengths where batch and sentence length should be free: {', '.join(fixed[:4])}",
            mend="export again with dynamic axes for batch and lengths (dynamic_axes or dynamic_shapes of torch.onnx)",
        )


def _masks(graph: GraphFile) -> Iterator[Finding]:
    if graph.part == "encoder" and not graph.masks:
        found, mend = "has no attention mask", "attention_mask"
    elif graph.part in ("first", "later", "merged", "cached") and not graph.masks:
        found, mend = "has no mask of the source, so that it attends to padding", "encoder_attention_mask"
    else:
        return
    yield Finding(
        kind="missing_mask",
        where=graph.path.name,
        found=f"the {'encoder' if graph.part == 'encoder' else 'decoder'} {found}: batched sentences change each other",
        mend=f"export again with {mend} among its inputs, and feed it",
    )


def _order(graph: GraphFile) -> Iterator[Finding]:
    """Callers that pair outputs with inputs by order go wrong where the two differ."""
    carried = graph.carried()
    if not graph.past or not graph.present:
        return
    lacking = [name for name in graph.past if name not in carried and "encoder" not in name]
    if lacking and len(graph.past) != len(graph.present):
        yield Finding(
            kind="past_wiring",
            where=graph.path.name,
            found=f"no output gives {', '.join(lacking[:3])} for the next step",
            mend="export again with a present… output for each past… input",
        )
        return
    order = [carried[name] for name in graph.past if name in carried]
    if order != [name for name in graph.present if name in set(order)]:
        yield Finding(
            kind="past_wiring",
            where=graph.path.name,
            found="the present outputs stand in another order than the past inputs: whoever pairs them by order mixes "
            f"layers up (first inputs {', '.join(graph.past[:3])}; first outputs {', '.join(graph.present[:3])})",
            mend="export again with outputs in the order of the inputs, or pair them by name",
        )


def _encoder_inside(graph: GraphFile) -> Iterator[Finding]:
    if graph.part in ("encoder", "single", "unknown"):
        return
    names = [name for name in graph.stored_in_nodes() if "encoder.layers" in name or "encoder.block" in name]
    inside = [name for name in names if "decoder" not in name and "encoder_attn" not in name]
    if graph.part == "whole":
        found = f"takes the source's tokens beside the decoder's ({', '.join(list(graph.inputs)[:4])})"
    elif inside:
        found = f"stores {counted(len(inside), 'tensor')} of the encoder, such as {min(inside)}"
    else:
        return
    yield Finding(
        kind="encoder_in_decoder",
        where=graph.path.name,
        found=f"the decoder {found}: the encoder runs again for each token",
        mend="export encoder and decoder apart; the decoder takes encoder_hidden_states",
    )


def _duplicates(graph: GraphFile, stored: tuple[Stored, ...]) -> Iterator[Finding]:
    copies: dict[str, dict[tuple[str, int], Stored]] = defaultdict(dict)
    for tensor in stored:
        copies[tensor.content].setdefault(tensor.place, tensor)
    doubled = [list(group.values()) for group in copies.values() if len(group) > 1]
    wasted = sum(tensor.bytes for group in doubled for tensor in group[1:])
    if not doubled or wasted < 0.05 * sum(tensor.bytes for tensor in stored):
        return
    largest = max(doubled, key=lambda group: group[0].bytes)
    yield Finding(
        kind="duplicated_weights",
        where=graph.path.name,
        found=f"{size_text(wasted)} are stored a second time, the largest "
        f"{' and '.join(tensor.name for tensor in largest[:3])} (the same numbers, or the same matrix transposed)",
        mend="tie them again: embedding and output projection are one matrix (constant folding had transposed a copy)",
    )


def _says_quantized(read: ModelFolder) -> bool:
    """Whether a bundle or an exported folder says so of itself."""
    return any(str(read.precision.get(part, "")).startswith("int") for part in ("encoder", "decoder", "name"))


def _quantized(model: Model, stored: list[Stored]) -> Iterator[Finding]:
    total = sum(tensor.bytes for tensor in stored)
    small = sum(tensor.bytes for tensor in stored if is_quantized(tensor.dtype))
    if total == 0 or small >= _ENOUGH_QUANTIZED * total:
        return
    names = ", ".join(graph.path.name for graph in model.graphs)
    yield Finding(
        kind="not_quantized",
        where=names,
        found=f"said to be quantised, and {size_text(total - small)} of {size_text(total)} of weights are not "
        f"({', '.join(sorted({tensor.dtype for tensor in stored if not is_quantized(tensor.dtype)}))})",
        mend="quantise again, and check that embedding and output projection were taken too (onnxmt quantize)",
    )
