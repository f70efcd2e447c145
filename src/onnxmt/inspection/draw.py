"""Graphs as one SVG drawing: a column for each graph, a box for each block, tensor shapes on the arrows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnxmt.inspection.graph_blocks import Block, BlockWeight, Edge, GraphBlocks, Kind, Port
from onnxmt.inspection.page import shape_text, size_text, type_name
from onnxmt.inspection.svg import BODY, CODE, HEADING, NOTE, STRONG, TITLE, Canvas, Style, wrap

_COLOURS: Mapping[Kind, tuple[str, str]] = {
    "embedding": ("#e8f0fe", "#4a76c9"),
    "attention": ("#fdefdf", "#d9822b"),
    "cross_kv": ("#fce6ed", "#c2456b"),
    "feed_forward": ("#e6f5e9", "#3d9a50"),
    "norm": ("#eef1f4", "#7b8696"),
    "head": ("#f0e8fb", "#7b4fc0"),
    "other": ("#eef1f4", "#7b8696"),
}
_FRAME, _PAPER, _PORT = "#aeb7c4", "#fafbfc", "#8a94a6"
_MARGIN, _BOX, _CHIP, _CHIP_HEIGHT, _PAD = 28.0, 336.0, 186.0, 38.0, 12.0
_GUTTER = _CHIP + 40.0  # beside the boxes: a chip and the arrow to it
_STEP, _FRAME_PAD, _BETWEEN = 36.0, 16.0, 36.0
_TOP = 96.0


@dataclass
class _Placed:
    """A block with its place; the height follows from its text."""

    block: Block
    x: float
    y: float
    lines: list[list[tuple[str, Style]]]
    weights: list[str]
    height: float

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.x + _BOX / 2


@dataclass
class _Chip:
    """A graph input or output beside a block."""

    port: Port
    x: float
    y: float
    output: bool

    @property
    def centre(self) -> float:
        return self.y + _CHIP_HEIGHT / 2


@dataclass
class _Column:
    """One graph: where its boxes and chips went."""

    graph: GraphBlocks
    x: float
    box_x: float
    right: float
    boxes: list[_Placed] = field(default_factory=list)
    chips: list[_Chip] = field(default_factory=list)
    bottom: float = 0.0


def draw_graphs(graphs: Sequence[GraphBlocks], *, title: str, facts: str) -> str:
    """Return the SVG text; graphs stand side by side, and an output feeds the input of the same name to its right."""
    canvas = Canvas()
    shared = _shared_places(graphs)
    columns: list[_Column] = []
    x = _MARGIN
    for graph in graphs:
        columns.append(_draw_column(canvas, graph, x, shared))
        x = columns[-1].right + _BETWEEN
    for left, right in itertools.pairwise(columns):
        _draw_bridges(canvas, left, right)
    width, bottom = x - _BETWEEN + _MARGIN, max(column.bottom for column in columns)
    canvas.text(_MARGIN, 42, title, HEADING)
    canvas.text(_MARGIN, 64, facts, BODY)
    height = _draw_legend(canvas, graphs, bottom + 40)
    names = " and ".join(graph.file for graph in graphs)
    return canvas.markup(width=width, height=height, label=f"{title}: {names}")


def _shared_places(graphs: Sequence[GraphBlocks]) -> set[tuple[str, int, int]]:
    """Stored arrays that more than one block uses: tied weights."""
    seen: dict[tuple[str, int, int], int] = {}
    for graph in graphs:
        for block in graph.blocks:
            for place in {weight.place for weight in block.weights}:
                seen[place] = seen.get(place, 0) + 1
    return {place for place, count in seen.items() if count > 1}


def _draw_column(canvas: Canvas, graph: GraphBlocks, x: float, shared: set[tuple[str, int, int]]) -> _Column:
    sides = [_sides(block) for block in graph.blocks]
    left = _GUTTER if any(side[0] for side in sides) else _FRAME_PAD
    right = _GUTTER if any(side[1] for side in sides) else _FRAME_PAD
    box_x = x + left
    column = _Column(graph=graph, x=x, box_x=box_x, right=box_x + _BOX + right)
    middle = box_x + _BOX / 2
    canvas.text(middle, _TOP + 8, graph.file, TITLE, anchor="middle")
    canvas.text(middle, _TOP + 24, f"{graph.nodes} nodes, opset {graph.opset}", NOTE, anchor="middle")
    y = _TOP + 40
    first = [port for port in graph.inputs if port.name == "input_ids"]
    for port in first:
        _draw_chip(canvas, _Chip(port=port, x=middle - _CHIP / 2, y=y, output=False))
        y += _CHIP_HEIGHT
    _layout(column, y, shared)
    for frame in _frames(column.boxes):
        _draw_frame(canvas, frame)
    if column.boxes and first:
        canvas.path([(middle, y), (middle, column.boxes[0].y)])
    for index, box in enumerate(column.boxes):
        _draw_box(canvas, box)
        _draw_side_chips(canvas, column, box, *sides[index])
    _draw_edges(canvas, column)
    column.bottom = _draw_result(canvas, column, middle)
    return column


def _sides(block: Block) -> tuple[list[Port], list[tuple[Port, bool]]]:
    """Ports to draw on the left (inputs) and on the right (the cache: past and present, and other outputs)."""
    inputs = [port for port in block.inputs if port.name != "input_ids"]
    left = [port for port in inputs if not port.name.startswith("past.")]
    right = [(port, False) for port in inputs if port.name.startswith("past.")]
    return left, right + [(port, True) for port in block.outputs if port.name != "logits"]


def _layout(column: _Column, y: float, shared: set[tuple[str, int, int]]) -> None:
    """Place the boxes from `y` downwards."""
    previous: Block | None = None
    for block in column.graph.blocks:
        inside = previous is not None and _same_layers(previous, block)
        enters = block.layers is not None and not inside
        leaves = previous is not None and previous.layers is not None and not inside
        y += _STEP + (_FRAME_PAD + 14 if enters else 0) + (_FRAME_PAD if leaves else 0)
        operators = _operator_words(block.operators)
        lines = wrap(operators, _BOX - 2 * _PAD)
        weights = _weight_lines(block.weights, shared)
        chips = _sides(block)
        text = (
            TITLE.line
            + (CODE.line if block.scope else 0)
            + len(lines) * BODY.line
            + len(weights) * CODE.line
            + (6 if weights else 0)
        )
        beside = max(len(chips[0]), len(chips[1])) * (_CHIP_HEIGHT + 8) - 8
        box = _Placed(block, column.box_x, y, lines, weights, max(text + 2 * _PAD, beside + 8))
        column.boxes.append(box)
        y, previous = box.bottom, block


def _operator_words(operators: Sequence[str]) -> list[tuple[str, Style]]:
    """The operators in order, ONNX Runtime's own set in bold."""
    last = len(operators) - 1
    return [
        (name.rpartition(".")[2] + ("" if index == last else " → "), STRONG if "." in name else BODY)
        for index, name in enumerate(operators)
    ]


def _weight_lines(weights: Sequence[BlockWeight], shared: set[tuple[str, int, int]]) -> list[str]:
    """Matrices with their sizes, vectors counted."""
    matrices = [weight for weight in weights if len(weight.shape) > 1]
    lines = [line for weight in matrices for line in _weight_text(weight, shared=weight.place in shared)]
    vectors = len(weights) - len(matrices)
    return lines + ([f"+ {vectors} {'vector' if vectors == 1 else 'vectors'}"] if vectors else [])


def _weight_text(weight: BlockWeight, *, shared: bool) -> list[str]:
    """One line, or two where the name is long; a name that is too long for a line loses its front."""
    room = int((_BOX - 2 * _PAD) / CODE.width("0"))
    facts = f"{' × '.join(map(str, weight.shape))} {type_name(weight.dtype)}{' (shared)' if shared else ''}"
    name = weight.name if len(weight.name) <= room else f"…{weight.name[1 - room :]}"
    return [f"{name} {facts}"] if len(name) + len(facts) < room else [name, f"  {facts}"]


def _draw_box(canvas: Canvas, box: _Placed) -> None:
    fill, stroke = _COLOURS[box.block.kind]
    size = sum({weight.place: weight.bytes for weight in box.block.weights}.values())
    tip = "\n".join(
        [box.block.title, box.block.scope, ", ".join(box.block.operators)]
        + [f"{w.name} {list(w.shape)} {type_name(w.dtype)}" for w in box.block.weights]
    )
    canvas.rect(box.x, box.y, _BOX, box.height, fill=fill, stroke=stroke, tip=tip)
    x, y = box.x + _PAD, box.y + _PAD + TITLE.size
    canvas.text(x, y, box.block.title, TITLE)
    if size:
        canvas.text(box.x + _BOX - _PAD, y, size_text(size), NOTE, anchor="end")
    if box.block.scope:
        y += CODE.line
        canvas.text(x, y, box.block.scope, NOTE)
    for line in box.lines:
        y += BODY.line
        canvas.spans(x, y, line)
    y += 6
    for text in box.weights:
        y += CODE.line
        canvas.text(x, y, text, CODE)


def _draw_side_chips(
    canvas: Canvas, column: _Column, box: _Placed, left: Sequence[Port], right: Sequence[tuple[Port, bool]]
) -> None:
    for port, y in zip(left, _spread(box, len(left)), strict=True):
        chip = _Chip(port=port, x=box.x - _GUTTER, y=y, output=False)
        _draw_chip(canvas, chip)
        canvas.path([(chip.x + _CHIP, chip.centre), (box.x, chip.centre)])
        column.chips.append(chip)
    placed: list[_Chip] = []
    for (port, output), y in zip(right, _spread(box, len(right)), strict=True):
        chip = _Chip(port=port, x=box.x + _BOX + _GUTTER - _CHIP, y=y, output=output)
        _draw_chip(canvas, chip)
        ends = [(box.x + _BOX, chip.centre), (chip.x, chip.centre)]
        canvas.path(ends if output else ends[::-1])
        placed.append(chip)
    column.chips += placed
    _draw_cache_loop(canvas, placed)


def _spread(box: _Placed, count: int) -> list[float]:
    """Tops of `count` chips, centred on the box."""
    total = count * (_CHIP_HEIGHT + 8) - 8
    start = box.y + (box.height - total) / 2
    return [start + index * (_CHIP_HEIGHT + 8) for index in range(count)]


def _draw_cache_loop(canvas: Canvas, chips: Sequence[_Chip]) -> None:
    """What a step leaves behind is what the next one begins with."""
    past = next((chip for chip in chips if chip.port.name.startswith("past.") and not chip.port.only_length), None)
    present = next((chip for chip in chips if chip.port.name.startswith("present.")), None)
    if past is None or present is None:
        return
    x = past.x + _CHIP
    canvas.path([(x, present.centre), (x + 18, present.centre), (x + 18, past.centre), (x, past.centre)], kind="loop")
    canvas.text(x + 14, present.y + _CHIP_HEIGHT + 14, "the next step's past", NOTE, anchor="end")


def _draw_chip(canvas: Canvas, chip: _Chip) -> None:
    port = chip.port
    kind = "output" if chip.output else "input"
    shape = "its length" if port.only_length else f"{type_name(port.dtype)} {shape_text(port.axes)}"
    tip = f"{kind} {port.name}: {type_name(port.dtype)} {shape_text(port.axes)}"
    canvas.rect(chip.x, chip.y, _CHIP, _CHIP_HEIGHT, fill="#ffffff", stroke=_PORT, radius=_CHIP_HEIGHT / 2, tip=tip)
    canvas.text(chip.x + _CHIP / 2, chip.y + 16, port.name, CODE, anchor="middle")
    canvas.text(chip.x + _CHIP / 2, chip.y + 29, shape, NOTE, anchor="middle")


def _frames(boxes: Sequence[_Placed]) -> list[list[_Placed]]:
    """Boxes of the same layers, in order."""
    frames: list[list[_Placed]] = []
    for box in boxes:
        if box.block.layers is None:
            continue
        if frames and _same_layers(frames[-1][-1].block, box.block):
            frames[-1].append(box)
        else:
            frames.append([box])
    return frames


def _same_layers(first: Block, second: Block) -> bool:
    """Whether both are parts of the same layers of the same stack."""
    if first.layers is None or first.layers != second.layers:
        return False
    return first.stack == second.stack


def _draw_frame(canvas: Canvas, boxes: Sequence[_Placed]) -> None:
    layers = boxes[0].block.layers
    assert layers is not None
    count = layers[1] - layers[0] + 1
    x, y = boxes[0].x - _FRAME_PAD, boxes[0].y - _FRAME_PAD - 14
    width, height = _BOX + 2 * _FRAME_PAD, boxes[-1].bottom - y + _FRAME_PAD
    for offset in (8, 4, 0) if count > 1 else (0,):  # a pile of cards says at a glance that the layer repeats
        canvas.rect(x + offset, y + offset, width, height, fill=_PAPER, stroke=_FRAME, radius=9)
    chained = any(box.block.chained for box in boxes)
    how = "in a row" if chained else "side by side"
    label = f"layer {layers[0]}" if count == 1 else f"{count} layers {how}"
    canvas.text(x + 12, y + 17, label, STRONG)
    size = sum(weight.bytes for box in boxes for weight in box.block.weights)
    if size:
        canvas.text(
            x + width - 12, y + 17, f"{count} × {size_text(size)}" if count > 1 else size_text(size), NOTE, anchor="end"
        )


def _draw_edges(canvas: Canvas, column: _Column) -> None:
    lanes = 0
    for edge in column.graph.edges:
        start, end = column.boxes[edge.start], column.boxes[edge.end]
        if edge.end == edge.start + 1:
            canvas.path([(start.middle, start.bottom), (end.middle, end.y)])
            if edge.shape is not None:
                canvas.text(start.middle + 8, _label_y(start, end), _edge_text(edge), NOTE)
            continue
        # A tensor that passes over a box: in a lane of its own on the left, between the boxes and the chips.
        lanes += 1
        x = start.x - 5 - 5 * lanes
        ys = start.bottom - 10 - 4 * lanes, end.y + 10 + 4 * lanes
        canvas.path([(start.x, ys[0]), (x, ys[0]), (x, ys[1]), (end.x, ys[1])], kind="lane")


def _label_y(start: _Placed, end: _Placed) -> float:
    """The baseline of the label on an arrow: clear of the edges of frames."""
    if end.block.layers is None:
        return end.y - 9
    if _same_layers(start.block, end.block):
        return (start.bottom + end.y) / 2 + 4
    return start.bottom + (17 if start.block.layers is None else 11)


def _edge_text(edge: Edge) -> str:
    return f"{type_name(edge.dtype)} {shape_text(edge.shape or ())}"


def _draw_result(canvas: Canvas, column: _Column, middle: float) -> float:
    """Logits below the last box; return the column's lower edge."""
    last = column.boxes[-1]
    bottom = last.bottom + (_FRAME_PAD + 8 if last.block.layers is not None else 0)
    for port in (port for port in last.block.outputs if port.name == "logits"):
        y = bottom + _STEP
        canvas.path([(middle, last.bottom), (middle, y)])
        _draw_chip(canvas, _Chip(port=port, x=middle - _CHIP / 2, y=y, output=True))
        bottom = y + _CHIP_HEIGHT
    return bottom


def _draw_bridges(canvas: Canvas, left: _Column, right: _Column) -> None:
    """From an output of one graph to every input of the same name of the next."""
    sources = [chip for chip in left.chips if chip.output]
    for index, source in enumerate(sources):
        x = left.right + _BETWEEN / 2 + 6 * index
        for target in (chip for chip in right.chips if not chip.output and chip.port.name == source.port.name):
            canvas.path(
                [(source.x + _CHIP, source.centre), (x, source.centre), (x, target.centre), (target.x, target.centre)],
                kind="bridge",
            )


def _draw_legend(canvas: Canvas, graphs: Sequence[GraphBlocks], y: float) -> float:
    """What the marks mean; return the drawing's height."""
    notes = ["Bold operators are ONNX Runtime's own (com.microsoft); the others are ONNX's. {i} is the layer's number."]
    if _shared_places(graphs):
        notes.append("(shared): one array on the disk and in memory, used by more than one block.")
    for note in notes:
        canvas.text(_MARGIN, y, note, NOTE)
        y += NOTE.line
    return y + 14
