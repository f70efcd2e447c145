"""The demo model in the standard layout, and what the library says for 200 sentences: made once a test process."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from onnxmt.graph_export import export_graphs
from onnxmt.hub import resolve
from onnxmt.layouts import LayoutOptions, WrittenLayout
from onnxmt.layouts.standard import export_standard
from onnxmt.plan import Plan, make_plan
from onnxmt.precision import recipe
from onnxmt.runtime.decoder import load_model
from onnxmt.runtime.search import Step, search
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.settings import GenerationSettings
from tests.layouts.plain_loop import padded

SENTENCES = 200
BATCH = 20


@dataclass(frozen=True)
class Wanted:
    """Source ids, and the library's tokens, of one sentence."""

    text: str
    ids: list[int]
    greedy: list[int]
    beam: list[int]


@functools.cache
def plan() -> Plan:
    return make_plan(resolve("demo"))


@functools.cache
def layout(precision: str = "fp32") -> WrittenLayout:
    folder = Path(tempfile.mkdtemp(prefix="onnxmt-test-standard-")) / "demo"
    return export_standard("demo", folder, options=LayoutOptions(precision=recipe(precision)))


def settings(beams: int) -> GenerationSettings:
    return dataclasses.replace(plan().settings, num_beams=beams)


def decode(start: Step, rows: int, *, beams: int) -> list[list[int]]:
    return [list(found[0].tokens) for found in search(start, rows=rows, settings=settings(beams))]


def batches(rows: Sequence[Wanted]) -> list[list[Wanted]]:
    """Neighbours in length together, so that a batch has some padding and not much."""
    ordered = sorted(rows, key=lambda row: len(row.ids))
    return [list(ordered[place : place + BATCH]) for place in range(0, len(ordered), BATCH)]


@functools.cache
def wanted() -> tuple[Wanted, ...]:
    """What our own fp32 graphs and search give."""
    data = resources.files("onnxmt.measure").joinpath("data", "evaluation.tsv").read_text(encoding="utf-8")
    texts = [line.split("\t")[1] for line in data.splitlines() if line.strip()]
    texts = texts[:: len(texts) // SENTENCES][:SENTENCES]
    assert len(set(texts)) == SENTENCES
    folder = Path(tempfile.mkdtemp(prefix="onnxmt-test-own-"))
    export_graphs(plan().checkpoint, folder, precision=recipe("fp32"))
    model = load_model(folder, options=RuntimeOptions(threads=1))
    found = []
    for batch in batches([Wanted(text, plan().tokenizer.encode(text), [], []) for text in texts]):
        ids, mask = padded([row.ids for row in batch], plan().settings.pad_token_id or 0)
        tokens = [decode(model.start(ids, mask), len(batch), beams=beams) for beams in (1, 4)]
        found += [
            dataclasses.replace(row, greedy=one, beam=four) for row, one, four in zip(batch, *tokens, strict=True)
        ]
    model.close()
    assert sum(row.greedy != row.beam for row in found) > 20  # two different searches
    return tuple(found)


def inputs(batch: Sequence[Wanted]) -> tuple[np.ndarray, np.ndarray]:
    return padded([row.ids for row in batch], plan().settings.pad_token_id or 0)
