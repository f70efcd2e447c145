"""The side-by-side translations of a report: which sentences, in which order, and where two translations differ."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmt.measure.gate_report import FP32
from onnxmt.measure.quality import RecordedEvaluation

SHOWN = 50
"""Sentences that a report shows; evaluation.json holds all."""
LONGEST = 400
"""Characters of a text that are shown: a loop can fill a page, and finding its differences takes the square of it."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A run of characters; `changed`: the other translation does not have it in this place."""

    text: str
    changed: bool


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One sentence in fp32 and in the bundle's precision, marked where they differ.

    `number` counts the set's lines from 1; `loss` is what the gate found (chrF2 points), None where it named no loss.
    """

    number: int
    mode: str
    domain: str
    loss: float | None
    looped: bool
    source: str
    fp32: tuple[Piece, ...]
    candidate: tuple[Piece, ...]
    references: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """The pairs that differ, worst first, of how many that differ in `mode`, of how many lines in all."""

    pairs: tuple[Pair, ...]
    mode: str
    different: int
    lines: int


def side_by_side(
    evaluation: RecordedEvaluation, *, precision: str, mode: str, worst: Sequence[Mapping[str, Any]]
) -> SideBySide | None:
    """Set the recorded outputs of fp32 and `precision` beside each other; None where they were not recorded.

    First come the gate's `worst` lines in their own mode and order, then what differs in `mode`, the least like fp32
    first.
    """
    before, after = evaluation.of(mode, FP32), evaluation.of(mode, precision)
    if before is None or after is None or precision == FP32:
        return None
    lines = range(min(len(evaluation.lines), len(before), len(after)))
    likeness = {line: _likeness(before[line].text, after[line].text) for line in lines}
    different = [line for line in lines if before[line].text != after[line].text]
    named = {
        entry["line"] - 1: entry
        for entry in worst
        if isinstance(entry.get("line"), int) and 0 < entry["line"] <= len(evaluation.lines)
    }
    rest = sorted((line for line in different if line not in named), key=lambda line: (likeness[line], line))
    pairs = []
    for line in [*named, *rest][:SHOWN]:
        entry = named.get(line, {})
        chosen = str(entry.get("mode", mode))
        sides = [evaluation.of(chosen, name) or () for name in (FP32, precision)]
        if all(line < len(side) for side in sides):
            pairs.append(_pair(evaluation.lines[line], line, chosen, sides[0][line].text, sides[1][line].text, entry))
    return SideBySide(pairs=tuple(pairs), mode=mode, different=len(different), lines=len(lines))


def differences(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return both texts in pieces, character by character: what one has and the other has not is `changed`."""
    sides: tuple[list[Piece], list[Piece]] = ([], [])
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        for side, text in zip(sides, (before[first:last], after[start:end]), strict=True):
            if text:
                side.append(Piece(text=text, changed=kind != "equal"))
    return tuple(sides[0]), tuple(sides[1])


def shortened(text: str) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _likeness(before: str, after: str) -> float:
    if before == after:
        return 1.0
    return difflib.SequenceMatcher(None, shortened(before), shortened(after), autojunk=False).ratio()


def _pair(record: Mapping[str, Any], line: int, mode: str, before: str, after: str, entry: Mapping[str, Any]) -> Pair:
    fp32, candidate = differences(shortened(before), shortened(after))
    loss = entry.get("chrf_loss")
    return Pair(
        number=line + 1,
        mode=mode,
        domain=str(record.get("domain", "")),
        loss=float(loss) if isinstance(loss, int | float) else None,
        looped=entry.get("looped") is True,
        source=shortened(str(record.get("source", ""))),
        fp32=fp32,
        candidate=candidate,
        references=tuple(shortened(str(text)) for text in record.get("references", ())),
    )
