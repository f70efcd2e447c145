"""Comparing one tensor or one token sequence with what is expected, and adding the results up to a report."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxmt.manifest import VerificationRow
from onnxmt.measure.expected import Floats, JudgeFacts, Samples
from onnxmt.measure.sentences import SentenceSet
from onnxmt.measure.verdict import CategoryVerdict, Divergence, SentenceCounts, VerificationReport

ORDINARY = 100.0
"""Up to values of this size the limit is absolute; above, float32's 24 bits make it proportional (mT5: 10,000)."""
LOWEST_COSINE = 0.999
"""Catches a wrong tensor whose values are all smaller than the limit; asked only of errors above the expected one."""


@dataclass(frozen=True, kw_only=True, order=True)
class Layer:
    """A row of the report. `order` places it in the table; `cause` places a divergence in the order of computation."""

    order: tuple[int, int]
    name: str


SOURCE_TOKENS = Layer(order=(0, 0), name="source tokens")
START_TOKEN = Layer(order=(1, 0), name="start token")
GREEDY_TOKENS = Layer(order=(5, 0), name="greedy tokens")
BEAM_TOKENS = Layer(order=(6, 0), name="beam 4 tokens")
TEXT = Layer(order=(7, 0), name="text")
MIXED = Layer(order=(8, 0), name="batch against single")


def cross_layer(index: int) -> Layer:
    """The row of one decoder layer's cross-attention keys and values."""
    return Layer(order=(2, index), name=f"cross K/V layer {index}")


def logits_layer(step: int) -> Layer:
    """The row of one decoder step's logits; steps count from 1."""
    return Layer(order=(3, step), name=f"logits step {step}")


def present_layer(index: int) -> Layer:
    """The row of one decoder layer's self-attention keys and values."""
    return Layer(order=(4, index), name=f"present K/V layer {index}")


def cause(layer: Layer, step: int | None) -> tuple[int, ...]:
    """Return the place of `layer` in the order of computation: in a step, keys and values come before the logits."""
    kind, index = layer.order
    if kind in (3, 4):
        return (3, step or 0, 0 if kind == 4 else 1, index)
    return (kind, index)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How far a tensor is off: largest absolute error and cosine (None: cannot be computed), and what is wrong."""

    error: float | None
    cosine: float | None
    allowed: float
    problem: str | None


def compare(expected: Samples, found: Floats | None, *, limit: float, usual: float) -> Comparison:
    """Compare a tensor with the expected samples; every value of `found` must be finite, sampled or not."""
    reference = expected.values.astype(np.float64)
    largest = float(np.max(np.abs(reference), initial=0.0)) if np.isfinite(reference).all() else 0.0
    allowed = limit * max(1.0, largest / ORDINARY)

    def hopeless(problem: str) -> Comparison:
        return Comparison(error=None, cosine=None, allowed=allowed, problem=problem)

    if found is None:
        return hopeless("the graph has no such output")
    if found.shape != expected.shape:
        return hopeless(f"its shape is {list(found.shape)} and should be {list(expected.shape)}")
    if bad := _not_finite(reference):
        return hopeless(f"the reference itself holds {bad}")
    if bad := _not_finite(found):
        return hopeless(f"it holds {bad}")
    values = expected.of(found).astype(np.float64)
    errors = np.abs(values - reference)
    worst = int(errors.argmax())
    error, cosine = float(errors[worst]), _cosine(values, reference)
    problem = None
    if error > allowed or (cosine < LOWEST_COSINE and error > usual):
        flat = worst if expected.positions is None else int(expected.positions[worst])
        problem = (
            f"off by {error:.3g} at {_place(flat, expected.shape)} "
            f"({values[worst]:.6g} instead of {reference[worst]:.6g}; "
            + (f"limit {allowed:g})" if error > allowed else f"cosine {cosine:.4f}, at least {LOWEST_COSINE})")
        )
    return Comparison(error=error, cosine=cosine, allowed=allowed, problem=problem)


def describe_tokens(found: Sequence[int], expected: Sequence[int]) -> str | None:
    """Say where two token sequences part, None where they are equal; tokens count from 1."""
    for number, (have, want) in enumerate(itertools.zip_longest(found, expected), 1):
        if have != want:
            shown = "nothing" if have is None else str(have)
            return f"token {number} is {shown} and should be {'nothing' if want is None else want}"
    return None


@dataclass(kw_only=True)
class _Row:
    """The running state of one row; sentences are kept by index, so that none is counted twice."""

    tensor: bool
    compared: set[int] = field(default_factory=set)
    different: set[int] = field(default_factory=set)
    error: float = 0.0
    cosine: float = 1.0
    limit: float = 0.0
    measurable: bool = True

    def finished(self, name: str) -> VerificationRow:
        known = self.tensor and self.measurable
        return VerificationRow(
            layer=name,
            compared=len(self.compared),
            different=len(self.different),
            max_abs_error=self.error if known else None,
            cosine=self.cosine if known else None,
            limit=self.limit if self.tensor else None,
            passed=not self.different,
        )


class Tally:
    """Adds comparisons up: a row a layer, figures a category, and the divergence that comes first."""

    def __init__(self, sentences: SentenceSet, *, limit: float, expected: float) -> None:
        self._sentences = sentences
        self._index = {sentence.text: index for index, sentence in enumerate(sentences.sentences)}
        self.limit, self._usual = limit, expected
        self._rows: dict[Layer, _Row] = {}
        self._errors: dict[int, float | None] = {}
        self._first: tuple[tuple[int, ...], int, Divergence] | None = None
        self._near_ties: set[tuple[int, int]] = set()
        self._scaled = False

    def tensor(
        self, layer: Layer, tensor: str, text: str, expected: Samples, found: Floats | None, *, step: int | None = None
    ) -> None:
        """Add one tensor of one sentence."""
        if not expected.values.size and found is not None:  # no sampled position lies in it
            return
        result = compare(expected, found, limit=self.limit, usual=self._usual)
        index, row = self._index[text], self._rows.setdefault(layer, _Row(tensor=True))
        row.compared.add(index)
        row.limit = max(row.limit, result.allowed)
        self._scaled = self._scaled or result.allowed > self.limit
        if result.error is None or result.cosine is None:
            row.measurable, self._errors[index] = False, None
        else:
            row.error, row.cosine = max(row.error, result.error), min(row.cosine, result.cosine)
            known = self._errors.get(index, 0.0)
            self._errors[index] = None if known is None else max(known, result.error)
        if result.problem is not None:
            self._diverged(layer, text, result.problem, tensor=tensor, step=step)

    def tokens(
        self, layer: Layer, text: str, problem: str | None, *, step: int | None = None, near_tie: bool = False
    ) -> None:
        """Add one sentence's tokens or text; `problem` is None where they are identical."""
        self._rows.setdefault(layer, _Row(tensor=layer is MIXED)).compared.add(self._index[text])
        if problem is not None:
            self._diverged(layer, text, problem, step=step, near_tie=near_tie)

    def near_tie(self, text: str, step: int) -> None:
        """Note that the judge's two best logits differ by less than the limit at this step."""
        self._near_ties.add((self._index[text], step))

    def clean(self, text: str) -> bool:
        """True while no tensor or token of this sentence has diverged."""
        return all(self._index[text] not in row.different for row in self._rows.values())

    def report(self, judge: JudgeFacts, counts: SentenceCounts, *, notes: Sequence[str] = ()) -> VerificationReport:
        """Return the report over everything added so far, with `notes` in front of its own."""
        rows = tuple(row.finished(layer.name) for layer, row in sorted(self._rows.items(), key=lambda item: item[0]))
        return VerificationReport(
            judge=judge,
            sentences=counts,
            limit=self.limit,
            expected=self._usual,
            rows=rows,
            categories=self._categories(),
            first_divergence=self._first[2] if self._first else None,
            near_ties=len(self._near_ties),
            notes=(*notes, *self._notes(judge, counts, rows)),
        )

    def _diverged(
        self, layer: Layer, text: str, problem: str, *, tensor: str | None = None, step: int | None = None,
        near_tie: bool = False,
    ) -> None:  # fmt: skip
        index = self._index[text]
        self._rows[layer].different.add(index)
        place = cause(layer, step)
        if self._first is None or (place, index) < self._first[:2]:
            sentence = self._sentences.sentences[index]
            self._first = (place, index, Divergence(
                layer=layer.name, tensor=tensor, step=step, line=sentence.line, category=sentence.category, text=text,
                problem=problem, near_tie=near_tie,
            ))  # fmt: skip

    def _categories(self) -> tuple[CategoryVerdict, ...]:
        judged = self._rows[GREEDY_TOKENS].compared
        failed = set().union(*(row.different for row in self._rows.values()))
        verdicts = []
        for category in self._sentences.categories:
            members = {i for i in judged if self._sentences.sentences[i].category == category}
            if not members:
                continue
            errors = [self._errors.get(index, 0.0) for index in members]
            known = [error for error in errors if error is not None]
            verdicts.append(
                CategoryVerdict(
                    category=category,
                    sentences=len(members),
                    max_abs_error=max(known) if len(known) == len(errors) else None,
                    greedy_identical=len(members - self._rows[GREEDY_TOKENS].different),
                    beam_identical=len(members - self._rows[BEAM_TOKENS].different),
                    text_identical=len(members - self._rows[TEXT].different),
                    passed=not members & failed,
                )
            )
        return tuple(verdicts)

    def _notes(self, judge: JudgeFacts, counts: SentenceCounts, rows: Sequence[VerificationRow]) -> tuple[str, ...]:
        notes = []
        if told := " → ".join(code for code in (judge.source, judge.target) if code is not None):
            notes.append(f"languages: {told}")
        if judge.own_tokens is not None:
            notes.append(f"source tokens are onnxmt's own and were not compared: {judge.own_tokens}")
        if counts.skipped:
            notes.append(
                f"{counts.skipped} of {counts.lines} sentences have more tokens than the model's {judge.positions} "
                "positions and were skipped"
            )
        errors = [row.max_abs_error for row in rows if row.passed and row.max_abs_error is not None]
        if errors and self._usual < max(errors):
            notes.append(
                f"the largest error, {max(errors):.1e}, is within the limit of {self.limit:g} and above the "
                f"{self._usual:g} that float32 normally gives"
            )
        if self._scaled:
            notes.append(
                f"values above {ORDINARY:g} occur: there the limit is {self.limit / ORDINARY:g} of the largest value"
            )
        if self._near_ties:
            notes.append(
                f"{len(self._near_ties)} decoder step(s) are near ties (the best two logits differ by less than "
                f"{self.limit:g}): another machine or thread count may choose the other token there"
            )
        notes.append(f"both sides stop after {judge.max_new_tokens} new tokens")
        return tuple(notes)


def _not_finite(values: np.ndarray) -> str | None:
    if np.isfinite(values).all():
        return None
    return "nan" if np.isnan(values).any() else "infinite values"


def _cosine(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the cosine of the angle between two vectors: 1 when both are zero, 0 when one is."""
    lengths = float(np.linalg.norm(found)), float(np.linalg.norm(expected))
    if not all(lengths):
        return 1.0 if lengths[0] == lengths[1] else 0.0
    return min(1.0, float(found @ expected) / (lengths[0] * lengths[1]))


def _place(flat: int, shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"token {flat}"
    head, position, offset = np.unravel_index(flat, shape)
    return f"head {head}, position {position}, value {offset}"
