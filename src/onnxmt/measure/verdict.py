"""The result of a verification: rows, categories, the first divergence; as a table, as JSON, and as an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table

from onnxmt import records
from onnxmt.errors import VerificationError
from onnxmt.manifest import Verification, VerificationRow
from onnxmt.measure.expected import JudgeFacts


@dataclass(frozen=True, kw_only=True)
class CategoryVerdict:
    """How one category of sentences fared: sentences verified, largest error of any tensor, identical outputs."""

    category: str
    sentences: int
    max_abs_error: float | None
    greedy_identical: int
    beam_identical: int
    text_identical: int
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The first tensor, step and sentence at which the graphs leave the reference, in the order of computation.

    `layer` is the row's name, `tensor` the graph's output, `step` counts decoder steps from 1, `line` is the line of
    the sentence set; `problem` says what was found and expected there. `near_tie`: a token flipped between two
    candidates whose scores differ by less than the limit, so that the order of floating-point operations decides.
    """

    layer: str
    tensor: str | None
    step: int | None
    line: int
    category: str
    text: str
    problem: str
    near_tie: bool

    def __str__(self) -> str:
        step = f" at step {self.step}" if self.step is not None else ""
        tensor = f" ({self.tensor})" if self.tensor is not None and self.tensor != self.layer else ""
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        tie = (
            "; this is a near tie: the two candidates' scores differ by less than the limit, and rounding decides"
            if self.near_tie
            else ""
        )
        where = "" if self.layer.startswith("logits step") else step
        return f"{self.layer}{tensor}{where}, line {self.line} ({self.category}, {shown!r}): {self.problem}{tie}"


@dataclass(frozen=True, kw_only=True)
class SentenceCounts:
    """The sentence set's name, fingerprint and size; `skipped` ones have more tokens than the model has positions."""

    name: str
    sha256: str
    lines: int
    skipped: int


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """Whether graphs equal their reference, and how far each layer is off.

    Rows count sentences; their errors are absolute, against `limit`, and `expected` is what float32 normally gives.
    Layers are numbered from 0, as in the tensors' names, steps from 1.
    """

    judge: JudgeFacts
    sentences: SentenceCounts
    limit: float
    expected: float
    rows: tuple[VerificationRow, ...]
    categories: tuple[CategoryVerdict, ...]
    first_divergence: Divergence | None
    near_ties: int
    notes: tuple[str, ...]

    @property
    def status(self) -> Literal["live", "recording"]:
        """Whether PyTorch judged now, or a recording of it."""
        return self.judge.kind

    @property
    def passed(self) -> bool:
        """True when nothing diverged."""
        return self.first_divergence is None and all(row.passed for row in self.rows)

    @property
    def judged_by(self) -> str:
        """The judge in words."""
        versions = ", ".join(f"{name} {version}" for name, version in self.judge.versions.items())
        return versions if self.status == "live" else f"a recording of {self.judge.date} ({versions})"

    def raise_if_failed(self) -> None:
        """Raise VerificationError, which names the first divergence, unless everything passed."""
        if self.passed:
            return
        failed = sum(not row.passed for row in self.rows)
        raise VerificationError(
            f"{self.judge.model} failed verification against {self.judged_by}: "
            f"{failed} of {len(self.rows)} layers differ. First divergence: {self.first_divergence}"
        )

    def for_manifest(self) -> Verification:
        """Return what the bundle's manifest keeps."""
        return Verification(status=self.status, judge={**self.judge.versions, "date": self.judge.date}, rows=self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values; `status` and `passed` first."""
        plain: dict[str, Any] = records.to_json(self)
        return {"status": self.status, "passed": self.passed, **plain}

    def print_to(self, console: Console) -> None:
        """Print the tables, the notes and the first divergence; without frames where it is no terminal."""
        console.print(
            f"Verification of {self.judge.model} against {self.judged_by}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        console.print(_layers(self, framed=console.is_terminal))
        console.print()
        console.print(_categories(self, framed=console.is_terminal))
        for note in self.notes:
            console.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)
        if self.first_divergence is not None:
            console.print(f"First divergence: {self.first_divergence}", highlight=False, markup=False, soft_wrap=True)
        failed = sum(not row.passed for row in self.rows)
        verdict = (
            "passed: every layer equals the reference"
            if self.passed
            else f"FAILED: {failed} of {len(self.rows)} layers"
        )
        console.print(f"Verification {verdict}", highlight=False, markup=False, soft_wrap=True)


def _layers(report: VerificationReport, *, framed: bool) -> Table:
    table = _table(framed=framed)
    for heading in ("layer", "lines", "max error", "cosine", "limit", "identical", "verdict"):
        table.add_column(heading, justify="left" if heading in ("layer", "verdict") else "right", no_wrap=True)
    for row in report.rows:
        tensor = row.limit is not None
        table.add_row(
            row.layer,
            str(row.compared),
            "-" if not tensor else "not finite" if row.max_abs_error is None else f"{row.max_abs_error:.1e}",
            "-" if row.cosine is None else f"{row.cosine:.6f}",
            "-" if row.limit is None else f"{row.limit:.2g}",
            "-" if tensor else f"{row.compared - row.different}/{row.compared}",
            _verdict(passed=row.passed),
        )
    return table


def _categories(report: VerificationReport, *, framed: bool) -> Table:
    table = _table(framed=framed)
    for heading in ("category", "lines", "max error", "greedy", "beam 4", "text", "verdict"):
        table.add_column(heading, justify="left" if heading in ("category", "verdict") else "right", no_wrap=True)
    for row in report.categories:
        error = "not finite" if row.max_abs_error is None else f"{row.max_abs_error:.1e}"
        counts = (row.greedy_identical, row.beam_identical, row.text_identical)
        same = [f"{count}/{row.sentences}" for count in counts]
        table.add_row(row.category, str(row.sentences), error, *same, _verdict(passed=row.passed))
    return table


def _table(*, framed: bool) -> Table:
    return Table(box=box.SIMPLE_HEAD if framed else None, pad_edge=False, show_edge=False, collapse_padding=True)


def _verdict(*, passed: bool) -> str:
    return "[green]passed[/]" if passed else "[bold red]FAILED[/]"
