"""The result of the quality gate: limits, rows, what missed them, the worst lines; as a table, as JSON, as an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.table import Table

from onnxmt import records
from onnxmt.errors import QualityGateError, UsageError
from onnxmt.measure.outputs import MODES, OutputCounts
from onnxmt.measure.scores import Score, Tokenization
from onnxmt.measure.texts import EvaluationSet

if TYPE_CHECKING:
    from rich.console import Console

PART_FACTOR = 2
"""A domain or a third of source length may lose so many times what the whole set may: a part holds fewer lines."""
CHRF_PER_BLEU = 0.7
"""How far chrF2 moves when BLEU moves by 1: over bootstrap samples of the shipped set and the precisions int8,
int8-dynamic and int4 the standard deviation of the chrF2 drop is 0.6 to 0.8 of that of the BLEU drop."""
FP32 = "fp32"
"""The label of fp32 itself, which is measured beside itself and has nothing to miss."""
_CHANCE = 0.05
_NAMED_MISSES, _NAMED_LINES, _SHOWN, _DIGITS = 4, 3, 60, 4


@dataclass(frozen=True, kw_only=True)
class GateLimits:
    """What a precision may lose against fp32, over the whole set; parts may lose twice as much.

    `max_bleu_drop` and `max_chrf_drop` are points (None: 0.7 of the BLEU drop), `max_length_change` a share of fp32's
    output length, `min_identical` the least share of outputs of the whole set that are fp32's own. Without references
    `min_agreement` is the least chrF2 against fp32's output. Repetition loops may become more only as far as
    chance explains it (a sign test over the lines that loop on one side alone, p of 0.05), and never by more than
    `max_new_loops` of the lines: a weak model's loops come and go with any change of its numbers. Raises UsageError.
    """

    max_bleu_drop: float = 0.5
    max_chrf_drop: float | None = None
    max_length_change: float = 0.05
    min_agreement: float = 60.0
    min_identical: float = 0.3
    max_new_loops: float = 0.01

    def __post_init__(self) -> None:
        highest = {"max_length_change": 1.0, "min_identical": 1.0, "max_new_loops": 1.0}
        problems = [
            f"{name} is {value!r}; a number from 0 to {highest.get(name, 100):g} is allowed"
            for name, value in vars(self).items()
            if value is not None
            and (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not math.isfinite(value)
                or not 0 <= value <= highest.get(name, 100)
            )
        ]
        if problems:
            raise UsageError(f"limits of the quality gate: {'; '.join(problems)}")

    @property
    def chrf_drop(self) -> float:
        """Points of chrF2 that the whole set may lose."""
        return CHRF_PER_BLEU * self.max_bleu_drop if self.max_chrf_drop is None else self.max_chrf_drop

    def to_dict(self) -> dict[str, float]:
        """Return the limits as they were applied."""
        return {**records.to_json(self), "max_chrf_drop": round(self.chrf_drop, 6), "part_factor": PART_FACTOR}


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Points that the candidate lost (negative: won), the 95 % interval and the p-value by paired bootstrap."""

    value: float
    lower: float
    upper: float
    p_value: float


@dataclass(frozen=True, kw_only=True)
class GateRow:
    """One part of the set in one mode. Scores and drops are None without references.

    `agreement` is chrF2 of the candidate against fp32's output, `identical` the share of equal outputs, `length_ratio`
    the candidate's characters over fp32's.
    """

    mode: str
    kind: Literal["all", "set", "domain", "third"]
    name: str
    lines: int
    fp32: Score | None
    candidate: Score | None
    bleu_drop: Drop | None
    chrf_drop: Drop | None
    agreement: float
    identical: float
    length_ratio: float

    def misses(self, limits: GateLimits) -> list[str]:
        """Say which limits this part misses, and by what figures."""
        factor = 1 if self.kind == "all" else PART_FACTOR
        found = []
        if self.bleu_drop is not None and self.chrf_drop is not None and self.fp32 and self.candidate:
            bleu, chrf = factor * limits.max_bleu_drop, factor * limits.chrf_drop
            if self.bleu_drop.value > bleu:
                found.append(
                    f"BLEU {self.candidate.bleu:.2f} for {self.fp32.bleu:.2f}, {_dropped(self.bleu_drop, bleu)}"
                )
            if self.chrf_drop.value > chrf:
                found.append(
                    f"chrF {self.candidate.chrf:.2f} for {self.fp32.chrf:.2f}, {_dropped(self.chrf_drop, chrf)}"
                )
        else:
            least = 100 - factor * (100 - limits.min_agreement)
            if self.agreement < least:
                found.append(f"chrF against fp32's output {self.agreement:.1f}, at least {least:g} is allowed")
        # Scores alone can hide damage where fp32 itself scores low: one layer 8 times too large left the demo's BLEU
        # as it was, with 16 % of its outputs.
        if self.kind == "all" and self.identical < limits.min_identical:
            found.append(f"{self.identical:.0%} of the outputs are fp32's, at least {limits.min_identical:.0%}")
        change = factor * limits.max_length_change
        if abs(self.length_ratio - 1) > change:
            found.append(f"outputs of {self.length_ratio:.2f} times fp32's length, within {change:.0%} is allowed")
        return found


def _dropped(drop: Drop, allowed: float) -> str:
    chance = "; the interval holds 0: chance alone can do this, more lines would tell" if drop.lower <= 0 else ""
    return (
        f"a drop of {drop.value:.2f} (95 % interval {drop.lower:.2f} to {drop.upper:.2f}{chance}), at most {allowed:g}"
    )


@dataclass(frozen=True, kw_only=True)
class ModeFaults:
    """Empty, looping and unfinished outputs of both sides in one mode; lines that loop on one side alone."""

    fp32: OutputCounts
    candidate: OutputCounts
    lines: int
    new_loops: int
    ended_loops: int

    @property
    def loops_by_chance(self) -> float:
        """How likely so many of the lines that loop on one side alone loop in the candidate, were both sides alike."""
        alone = self.new_loops + self.ended_loops
        return float(sum(math.comb(alone, count) for count in range(self.new_loops, alone + 1)) / 2**alone)

    def misses_loops(self, limits: GateLimits) -> bool:
        """Whether the candidate loops more than fp32 does, by more than chance or the limit allow."""
        growth = self.new_loops - self.ended_loops
        return growth > 0 and (growth > limits.max_new_loops * self.lines or self.loops_by_chance < _CHANCE)


@dataclass(frozen=True, kw_only=True)
class WorstLine:
    """A line of the set (from 1) that lost much: chrF2 points against the reference, or against fp32's output where
    there is none; `looped`: it runs in circles and fp32's does not."""

    line: int
    mode: str
    domain: str
    source: str
    fp32: str
    candidate: str
    chrf_loss: float
    looped: bool


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """A candidate beside fp32: a row for each part in each mode, faults by mode, and the lines that lost most."""

    label: str
    texts: EvaluationSet
    tokenization: Tokenization
    signatures: Mapping[str, str]
    limits: GateLimits
    rows: tuple[GateRow, ...]
    faults: Mapping[str, ModeFaults]
    worst: tuple[WorstLine, ...]

    @property
    def misses(self) -> tuple[str, ...]:
        """Every limit that was missed, in words; the whole set before its parts."""
        ordered = sorted(self.rows, key=lambda row: row.kind != "all")
        found = [
            f"{row.mode}, {_part_name(row)} ({row.lines} lines): {miss}"
            for row in ordered
            for miss in row.misses(self.limits)
        ]
        loops = [
            f"{mode}: {faults.candidate.repeating} outputs run in circles, {faults.fp32.repeating} of fp32's do"
            for mode, faults in self.faults.items()
            if faults.misses_loops(self.limits)
        ]
        return (*loops, *found)

    @property
    def exact(self) -> bool:
        """Whether this is fp32 itself."""
        return self.label == FP32

    @property
    def passed(self) -> bool:
        """True when no limit was missed."""
        return not self.misses

    @property
    def referenced(self) -> bool:
        """Whether there were references; without them the candidate was compared with fp32's output."""
        return bool(self.texts.references)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures has to know."""
        notes = [] if self.tokenization.note is None or not self.referenced else [self.tokenization.note]
        if not self.referenced:
            notes.append(
                f"the set {self.texts.name} has no references for this model: the outputs were compared with fp32's "
                "own (share identical, chrF2), which says how far they moved and not whether they got worse"
            )
        return tuple(notes)

    def row(self, mode: str) -> GateRow:
        """Return the row of the whole set in `mode`."""
        return next(row for row in self.rows if row.mode == mode and row.kind == "all")

    def raise_if_missed(self, *, model: str, fix: str) -> None:
        """Raise QualityGateError, which names what was missed and the worst lines, unless everything passed."""
        misses = self.misses
        if not misses:
            return
        more = f"; and {len(misses) - _NAMED_MISSES} more" if len(misses) > _NAMED_MISSES else ""
        lines = "; ".join(_described(line, self.label) for line in self.worst[:_NAMED_LINES])
        worst = f" Worst lines: {lines}." if lines else ""
        raise QualityGateError(
            f"{model} in {self.label} misses {len(misses)} quality limit(s) against fp32 on the set {self.texts.name}: "
            f"{'; '.join(misses[:_NAMED_MISSES])}{more}.{worst} {fix}",
            report=self,
        )

    def to_dict(self, *, texts: bool = True) -> dict[str, Any]:
        """Return the report as JSON values; `texts=False` leaves out what quotes the set."""
        worst = [{**records.to_json(line), "chrf_loss": round(line.chrf_loss, _DIGITS)} for line in self.worst]
        if not texts:
            worst = [{key: line[key] for key in ("line", "mode", "domain", "chrf_loss", "looped")} for line in worst]
        return {
            "label": self.label,
            "passed": self.passed,
            "misses": list(self.misses),
            "modes": {mode: self._mode(mode) for mode in self.faults},
            "limits": self.limits.to_dict(),
            "worst": worst,
            "notes": list(self.notes),
        }

    def _mode(self, mode: str) -> dict[str, Any]:
        whole, faults = self.row(mode), self.faults[mode]
        parts = [row for row in self.rows if row.mode == mode and row.kind != "all"]
        return {
            "beams": MODES[mode],
            **_row_json(whole),
            "faults": records.to_json(faults),
            "parts": [{"kind": row.kind, "name": row.name, **_row_json(row)} for row in parts],
        }

    def print_to(self, console: Console) -> None:
        """Print the table, the faults, the notes and the worst lines; without frames where it is no terminal."""
        beside = "" if self.exact else " beside fp32"
        how = "against references" if self.referenced else "without references"
        _say(console, f"Quality of {self.label}{beside} on {self.texts.lines} lines of {self.texts.name}, {how}")
        if self.referenced or not self.exact:
            console.print(self._table(framed=console.is_terminal))
        for mode, faults in self.faults.items():
            _say(console, f"{mode}: {_faults_line(faults, self.label, exact=self.exact)}")
        for name, signature in self.signatures.items():
            _say(console, f"{name}: {signature}")
        for note in self.notes:
            _say(console, f"Note: {note}")
        for line in self.worst[:_NAMED_LINES] if self.misses else ():
            _say(console, f"Worst: {_described(line, self.label)}")
        for miss in self.misses:
            _say(console, f"Missed: {miss}")
        if not self.exact:
            verdict = "passed: no limit was missed" if self.passed else f"FAILED: {len(self.misses)} limit(s) missed"
            _say(console, f"Quality gate {verdict}")

    def _table(self, *, framed: bool) -> Table:
        table = Table(box=box.SIMPLE_HEAD if framed else None, pad_edge=False)
        if self.exact:
            for heading in ("mode", "part", "lines", "BLEU", "chrF"):
                table.add_column(heading, justify="left" if heading in ("mode", "part") else "right", no_wrap=True)
            for row in self.rows:
                if row.candidate is not None:
                    score = row.candidate
                    table.add_row(row.mode, _part_name(row), str(row.lines), f"{score.bleu:.2f}", f"{score.chrf:.2f}")
            return table
        scored = ("BLEU fp32", "BLEU", "drop", "95 % interval", "chrF", "drop") if self.referenced else ()
        for heading in ("mode", "part", "lines", *scored, "chrF to fp32", "identical", "length", "verdict"):
            left = heading in ("mode", "part", "verdict")
            table.add_column(heading, justify="left" if left else "right", no_wrap=True)
        for row in self.rows:
            cells = [row.mode, _part_name(row), str(row.lines)]
            if row.fp32 and row.candidate and row.bleu_drop and row.chrf_drop:
                cells += [
                    f"{row.fp32.bleu:.2f}", f"{row.candidate.bleu:.2f}", f"{row.bleu_drop.value:+.2f}",
                    f"{row.bleu_drop.lower:+.2f} to {row.bleu_drop.upper:+.2f}", f"{row.candidate.chrf:.2f}",
                    f"{row.chrf_drop.value:+.2f}",
                ]  # fmt: skip
            cells += [f"{row.agreement:.1f}", f"{row.identical:.0%}", f"{row.length_ratio:.2f}"]
            passed = not row.misses(self.limits)
            table.add_row(*cells, "[green]passed[/]" if passed else "[bold red]MISSED[/]")
        return table


def _row_json(row: GateRow) -> dict[str, Any]:
    return {
        "lines": row.lines,
        "bleu": row.candidate and round(row.candidate.bleu, _DIGITS),
        "chrf": row.candidate and round(row.candidate.chrf, _DIGITS),
        "fp32_bleu": row.fp32 and round(row.fp32.bleu, _DIGITS),
        "fp32_chrf": row.fp32 and round(row.fp32.chrf, _DIGITS),
        "bleu_drop": row.bleu_drop and _drop_json(row.bleu_drop),
        "chrf_drop": row.chrf_drop and _drop_json(row.chrf_drop),
        "brevity_penalty": row.candidate and round(row.candidate.brevity_penalty, _DIGITS),
        "agreement_chrf": round(row.agreement, _DIGITS),
        "identical": round(row.identical, _DIGITS),
        "length_ratio": round(row.length_ratio, _DIGITS),
    }


def _drop_json(drop: Drop) -> dict[str, float]:
    return {name: round(value, _DIGITS) for name, value in records.to_json(drop).items()}


def _part_name(row: GateRow) -> str:
    return "all" if row.kind == "all" else row.name


def _faults_line(faults: ModeFaults, label: str, *, exact: bool) -> str:
    parts = []
    for name in ("repeating", "unfinished", "empty"):
        before, after = getattr(faults.fp32, name), getattr(faults.candidate, name)
        parts.append(f"{after} {name}" if exact else f"{after} {name} in {label} and {before} in fp32")
    return f"outputs {', '.join(parts)}"


def _described(line: WorstLine, label: str) -> str:
    domain = f" ({line.domain})" if line.domain else ""
    return (
        f"line {line.line}{domain}, {line.mode}, {_short(line.source)}: fp32 {_short(line.fp32)}, "
        f"{label} {_short(line.candidate)}"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
