"""The result of an evaluation: a row for each part of the set; as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.table import Table

from onnxmt import records
from onnxmt.measure.outputs import OutputCounts
from onnxmt.measure.scores import METRICS, Difference, Score, Tokenization
from onnxmt.measure.texts import EvaluationSet

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One part beside another translation: the share of equal lines, chrF2 of one against the other, the other's
    scores (None without references), and by metric how far this one is above it."""

    identical: float
    agreement: float
    score: Score | None
    differences: Mapping[str, Difference]


@dataclass(frozen=True, kw_only=True)
class EvaluationRow:
    """One part of the set: its score (None without references), and the comparison with the other translation."""

    kind: Literal["all", "set", "domain", "third"]
    name: str
    lines: int
    score: Score | None
    against: Comparison | None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A translation of a set, scored; `rows` begin with the whole set.

    `facts` say how the translation was made, `against` and `against_facts` what it was compared with.
    """

    texts: EvaluationSet
    tokenization: Tokenization
    signatures: Mapping[str, str]
    label: str
    facts: Mapping[str, Any]
    faults: OutputCounts
    against: str | None
    against_facts: Mapping[str, Any] | None
    rows: tuple[EvaluationRow, ...]
    notes: tuple[str, ...]

    @property
    def score(self) -> Score | None:
        """The score of the whole set."""
        return self.rows[0].score

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; the whole set's scores first, then what they are of, then rows."""
        whole = self.rows[0]
        sets = [row for row in self.rows if row.kind == "set"] or [whole]
        beside = whole.against
        return {
            **_scores_json(whole.score),
            "signatures": dict(self.signatures),
            "lines": whole.lines,
            "references": len(self.texts.references),
            "set": self.texts.name,
            "sha256": self.texts.sha256,
            "target_language": self.tokenization.language,
            "tokenizer": self.tokenization.name,
            "outputs": records.to_json(self.faults),
            "sets": [{"set": row.name if row.kind == "set" else self.texts.name, **_row_json(row)} for row in sets],
            "domains": [{"domain": row.name, **_row_json(row)} for row in self.rows if row.kind == "domain"],
            "thirds": [{"third": row.name, **_row_json(row)} for row in self.rows if row.kind == "third"],
            "against": None
            if beside is None
            else {"label": self.against, "system": dict(self.against_facts or {}), **_comparison_json(beside)},
            "label": self.label,
            "system": dict(self.facts),
            "notes": list(self.notes),
        }

    def print_to(self, console: Console) -> None:
        """Print the table, the faults, signatures and notes; without frames where it is no terminal."""
        beside = f" beside {self.against}" if self.against else ""
        _say(console, f"{self.label}{beside} on {self.rows[0].lines:,} lines of {self.texts.name}")
        if self.score is not None:
            console.print(self._score_table(framed=console.is_terminal))
        if self.against is not None:
            console.print(self._comparison_table(framed=console.is_terminal))
        faults = self.faults
        unfinished = "unknown" if faults.unfinished is None else str(faults.unfinished)
        _say(console, f"outputs: {faults.repeating} repeating, {unfinished} unfinished, {faults.empty} empty")
        for name, signature in self.signatures.items():
            _say(console, f"{name}: {signature}")
        for facts, title in ((self.facts, "made by"), (self.against_facts, "compared with")):
            if facts:
                _say(console, f"{title}: {_facts_line(facts)}")
        for note in self.notes:
            _say(console, f"Note: {note}")

    def _score_table(self, *, framed: bool) -> Table:
        table = _table(("part",), ("lines", "BLEU", "chrF2", "TER", "brevity", "length"), framed=framed)
        for row in self.rows:
            if row.score is not None:
                score = row.score
                table.add_row(
                    row.name, f"{row.lines:,}", f"{score.bleu:.2f}", f"{score.chrf:.2f}",
                    "-" if score.ter is None else f"{score.ter:.2f}", f"{score.brevity_penalty:.3f}",
                    f"{score.length_ratio:.3f}",
                )  # fmt: skip
        return table

    def _comparison_table(self, *, framed: bool) -> Table:
        names = [name for name in METRICS if self.rows[0].against and name in self.rows[0].against.differences]
        headings = [h for name in names for h in (f"{name} difference", "95 % interval", "p")]
        table = _table(("part",), ("identical", "chrF to it", *headings), framed=framed)
        for row in self.rows:
            if row.against is not None:
                cells = [f"{row.against.identical:.1%}", f"{row.against.agreement:.1f}"]
                for name in names:
                    found = row.against.differences[name]
                    cells += [
                        f"{found.value:+.2f}",
                        f"{found.lower:+.2f} to {found.upper:+.2f}",
                        f"{found.p_value:.3f}",
                    ]
                table.add_row(row.name, *cells)
        return table


def _scores_json(score: Score | None) -> dict[str, Any]:
    return {
        "bleu": None if score is None else score.bleu,
        "chrf": None if score is None else score.chrf,
        "ter": None if score is None else score.ter,
        "brevity_penalty": None if score is None else score.brevity_penalty,
        "length_ratio": None if score is None else score.length_ratio,
    }


def _comparison_json(found: Comparison) -> dict[str, Any]:
    return {
        "identical": found.identical,
        "agreement_chrf": found.agreement,
        **_scores_json(found.score),
        "differences": records.to_json(found.differences),
    }


def _row_json(row: EvaluationRow) -> dict[str, Any]:
    beside = None if row.against is None else _comparison_json(row.against)
    return {"lines": row.lines, **_scores_json(row.score), "against": beside}


def _facts_line(facts: Mapping[str, Any]) -> str:
    """The facts that are known, in one line; a precision that is the same everywhere is the recipe's."""
    shown = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            same = name == "precision" and len(set(value.values())) == 1
            parts = {key: " ".join(part) if isinstance(part, (list, tuple)) else part for key, part in value.items()}
            shown += [] if same else [f"{key} {part}" for key, part in parts.items() if part is not None]
        elif value is not None and name != "name":
            shown.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(shown)


def _table(left: Sequence[str], right: Sequence[str], *, framed: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD if framed else None, pad_edge=False)
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
