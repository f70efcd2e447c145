"""The demo model as single graphs, greedy and with 4 beams, and what the library says of 200 sentences."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxmt.layouts import LayoutOptions
from onnxmt.layouts.single import export_single
from onnxmt.layouts.single_run import Batch
from onnxmt.measure.texts import shipped_texts
from onnxmt.precision import PRESETS
from onnxmt.runtime.search import search
from onnxmt.runtime.translator import Translator

BEAMS = (1, 4)
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A sentence, its ids, and the library's tokens and text, by number of beams."""

    text: str
    ids: list[int]
    tokens: dict[int, tuple[int, ...]]
    translation: dict[int, str]


def texts() -> list[str]:
    """200 sentences from all domains of the shipped evaluation set."""
    sources = list(shipped_texts().sources)
    return sources[:: len(sources) // 200][:200]


@functools.cache
def judged() -> tuple[Judged, ...]:
    """What the library's fp32 bundle gives each sentence alone."""
    found: dict[int, list[tuple[int, ...]]] = {}
    with Translator.load("demo") as translator:
        tokenizer = translator.tokenizer
        encoded = [tokenizer.encode(text) for text in texts()]
        order = sorted(range(len(encoded)), key=lambda index: len(encoded[index]))
        for beams in BEAMS:
            settings = dataclasses.replace(translator.settings, num_beams=beams)
            tokens: dict[int, tuple[int, ...]] = {}
            for some in cut(order, 16):
                batch = Batch.of([encoded[index] for index in some], padding=0)
                step = translator.model.start(batch.input_ids, batch.attention_mask)
                answers = search(step, rows=len(some), settings=settings)
                tokens |= {index: best[0].tokens for index, best in zip(some, answers, strict=True)}
            found[beams] = [tokens[index] for index in range(len(encoded))]
        return tuple(
            Judged(
                text=text,
                ids=ids,
                tokens={beams: found[beams][index] for beams in BEAMS},
                translation={beams: tokenizer.decode(found[beams][index]) for beams in BEAMS},
            )
            for index, (text, ids) in enumerate(zip(texts(), encoded, strict=True))
        )


def cut(items: Sequence[int], size: int) -> list[list[int]]:
    """Runs of so many."""
    return [list(items[first : first + size]) for first in range(0, len(items), size)]


def export_demo(folder: Path, *, beams: int) -> Path:
    """Write the single graph."""
    options = LayoutOptions(precision=PRESETS["fp32"], beams=beams)
    return export_single("demo", folder / f"beams-{beams}", options=options).folder
