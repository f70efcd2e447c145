"""The drawing: well-formed, complete, and with every text inside the box that it belongs to."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onnxmt.inspection.draw import draw_graphs
from onnxmt.inspection.graph_blocks import GraphBlocks
from onnxmt.inspection.page import size_text
from onnxmt.inspection.svg import BODY, CODE, HEADING, NOTE, STRONG, TITLE, Canvas, wrap
from tests.inspection.test_shapes_and_blocks import M2M, MARIAN, T5, build

SVG = "{http://www.w3.org/2000/svg}"
STYLES = {style.name: style for style in (HEADING, TITLE, BODY, STRONG, CODE, NOTE)}
TITLE_TEXT = 'a <model> & "co" 翻译'


@pytest.fixture(scope="module", params=[MARIAN, M2M, T5], ids=lambda config: config["model_type"])
def drawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[GraphBlocks], str]:
    graphs = list(build(tmp_path_factory.mktemp("draw"), request.param).values())
    return graphs, draw_graphs(graphs, title=TITLE_TEXT, facts="facts")


def texts(root: ElementTree.Element) -> list[tuple[float, float, float, str]]:
    """Left edge, right edge, baseline and content of every text."""
    found = []
    for element in root.iter(f"{SVG}text"):
        spans = list(element) or [element]
        width = sum(STYLES[span.attrib["class"]].width(span.text or "") for span in spans)
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        shift = {"middle": width / 2, "end": width, None: 0.0}[element.attrib.get("text-anchor")]
        found.append((x - shift, x - shift + width, y, "".join(span.text or "" for span in spans)))
    return found


def boxes(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    found = []
    for element in root.iter(f"{SVG}rect"):
        if element.find(f"{SVG}title") is not None:
            x, y, width, height = (float(element.attrib[key]) for key in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


def test_it_is_one_document_that_says_what_it_shows(drawn: tuple[list[GraphBlocks], str]) -> None:
    root = ElementTree.fromstring(drawn[1])
    assert root.tag == f"{SVG}svg"
    assert root.attrib["aria-label"] == f"{TITLE_TEXT}: encoder.onnx and decoder.onnx"
    assert any(text == TITLE_TEXT for *_, text in texts(root))


def test_every_block_and_port_is_there(drawn: tuple[list[GraphBlocks], str]) -> None:
    graphs, svg = drawn
    shown = [text for *_, text in texts(ElementTree.fromstring(svg))]
    for graph in graphs:
        for block in graph.blocks:
            assert block.title in shown
            for port in (*block.inputs, *block.outputs):
                assert port.name in shown
    operators = " ".join(text for text in shown if "→" in text or text in ("SkipSimplifiedLayerNormalization",))
    for graph in graphs:
        for operator in {name.rpartition(".")[2] for block in graph.blocks for name in block.operators}:
            assert re.search(rf"\b{operator}\b", operators) or operator in shown


def test_texts_stay_inside_their_boxes(drawn: tuple[list[GraphBlocks], str]) -> None:
    root = ElementTree.fromstring(drawn[1])
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for left, right, y, text in texts(root):
        assert left >= 0, text
        assert right <= width, text
        assert 0 < y < height, text
        inside = [box for box in boxes(root) if box[0] <= left < box[2] and box[1] < y < box[3]]
        for box in inside:
            assert right <= box[2], f"{text!r} runs over the edge of its box"
            assert y <= box[3] - 4, f"{text!r} touches the bottom of its box"


def test_boxes_do_not_overlap(drawn: tuple[list[GraphBlocks], str]) -> None:
    for a, b in itertools.combinations(boxes(ElementTree.fromstring(drawn[1])), 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)


def test_the_cache_goes_round_and_the_graphs_are_joined(drawn: tuple[list[GraphBlocks], str]) -> None:
    graphs, svg = drawn
    root = ElementTree.fromstring(svg)
    kinds = [element.attrib.get("class") for element in root.iter(f"{SVG}path")]
    attentions = [block for block in graphs[1].blocks if any("cross." in port.name for port in block.inputs)]
    assert kinds.count("bridge") == len(attentions)
    assert kinds.count("loop") == len([block for block in graphs[1].blocks if block.title == "Self-attention"])


def test_it_is_the_same_each_time(drawn: tuple[list[GraphBlocks], str]) -> None:
    assert draw_graphs(drawn[0], title=TITLE_TEXT, facts="facts") == drawn[1]


def test_corners_are_rounded_only_as_far_as_the_legs_allow() -> None:
    canvas = Canvas()
    canvas.path([(0, 0), (4, 0), (4, 100)])
    assert 'd="M0,0 L2,0 Q4,0 4,2 L4,100"' in canvas.markup(width=10, height=10, label="x")


def test_wrapping_breaks_between_words_and_never_drops_one() -> None:
    words = [(f"word{n} ", BODY) for n in range(9)] + [("a-word-wider-than-the-line", BODY)]
    lines = wrap(words, 100)
    assert [word for line in lines for word in line] == words
    assert all(len(line) == 1 or sum(style.width(word) for word, style in line) <= 100 for line in lines)
    assert len(lines) > 3


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (28_745_812, "28.7 MB"), (1_500_000_000, "1.5 GB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


def test_graphs_may_stand_alone(tmp_path: Path) -> None:
    decoder = build(tmp_path, MARIAN)["decoder"]
    assert ElementTree.fromstring(draw_graphs([decoder], title="t", facts="f")).tag == f"{SVG}svg"
