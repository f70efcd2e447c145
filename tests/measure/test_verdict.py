"""The report as a person and as a program see it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from onnxmt.errors import VerificationError
from onnxmt.manifest import VerificationRow
from onnxmt.measure.expected import JudgeFacts
from onnxmt.measure.verdict import CategoryVerdict, Divergence, SentenceCounts, VerificationReport

DIVERGENCE = Divergence(
    layer="present K/V layer 1", tensor="present.1.key", step=2, line=7, category="names",
    text="Maria Lindqvist moved from Stockholm to Lisbon last [bold]autumn[/bold], as far as we know.",
    problem="off by 0.5 at head 0, position 1, value 3 (1.5 instead of 1; limit 0.001)", near_tie=False,
)  # fmt: skip


def _row(layer: str, *, error: float | None, passed: bool = True, tensor: bool = True) -> VerificationRow:
    return VerificationRow(
        layer=layer, compared=66, different=0 if passed else 2, max_abs_error=error,
        cosine=None if error is None else 0.99999994, limit=1e-3 if tensor else None, passed=passed,
    )  # fmt: skip


def _report(*, first: Divergence | None = None, kind: str = "live") -> VerificationReport:
    passed = first is None
    return VerificationReport(
        judge=JudgeFacts(
            kind=kind, versions={"torch": "2.13.0", "transformers": "5.24.0"}, date="2025-06-30", model="org/name",
            revision=None, identity=None, max_new_tokens=64, positions=512,
        ),
        sentences=SentenceCounts(name="verification.tsv", sha256="a" * 64, lines=66, skipped=0),
        limit=1e-3,
        expected=1e-5,
        rows=(
            _row("cross K/V layer 11", error=1.2e-6),
            _row("logits step 1", error=None, passed=passed),
            _row("batch against single", error=4e-5),
            _row("greedy tokens", error=None, tensor=False, passed=passed),
        ),
        categories=(
            CategoryVerdict(
                category="colloquial", sentences=11, max_abs_error=3e-6, greedy_identical=11, beam_identical=10,
                text_identical=10, passed=passed,
            ),
        ),
        first_divergence=first,
        near_ties=0,
        notes=("both sides stop after 64 new tokens",),
    )  # fmt: skip


def _printed(report: VerificationReport, *, terminal: bool) -> str:
    out = io.StringIO()
    report.print_to(Console(file=out, force_terminal=terminal, width=80, color_system="standard" if terminal else None))
    return out.getvalue()


def test_outside_a_terminal_the_table_is_plain_text_in_80_columns() -> None:
    text = _printed(_report(first=DIVERGENCE), terminal=False)
    assert "\x1b" not in text
    assert not set(text) & set("─│┃━╭")
    assert "…" not in text
    lines = [line.split() for line in text.splitlines()]
    assert ["cross", "K/V", "layer", "11", "66", "1.2e-06", "1.000000", "0.001", "-", "passed"] in lines
    assert ["logits", "step", "1", "66", "not", "finite", "-", "0.001", "-", "FAILED"] in lines
    assert ["greedy", "tokens", "66", "-", "-", "-", "64/66", "FAILED"] in lines
    assert ["colloquial", "11", "3.0e-06", "11/11", "10/11", "10/11", "FAILED"] in lines
    assert text.startswith("Verification of org/name against torch 2.13.0, transformers 5.24.0\n")
    assert "Note: both sides stop after 64 new tokens\n" in text
    assert text.endswith("Verification FAILED: 2 of 4 layers\n")


def test_in_a_terminal_nothing_is_cut_off() -> None:
    text = _printed(_report(), terminal=True)
    assert "\x1b[" in text
    assert "…" not in text
    assert "passed: every layer equals the reference" in text


def test_the_first_divergence_is_printed_in_one_line_without_markup() -> None:
    text = _printed(_report(first=DIVERGENCE), terminal=False)
    line = next(line for line in text.splitlines() if line.startswith("First divergence"))
    assert line == (
        "First divergence: present K/V layer 1 (present.1.key) at step 2, line 7 (names, 'Maria Lindqvist moved from "
        "Stockholm to Lisbon last [bold...'): off by 0.5 at head 0, position 1, value 3 (1.5 instead of 1; limit 0.001)"
    )


def test_a_recording_is_called_one() -> None:
    report = _report(kind="recording")
    assert report.status == "recording"
    assert report.judged_by == "a recording of 2025-06-30 (torch 2.13.0, transformers 5.24.0)"


def test_only_a_failed_report_raises() -> None:
    _report().raise_if_failed()
    with pytest.raises(
        VerificationError, match=r"org/name failed verification against torch 2\.13\.0.*2 of 4 layers differ"
    ):
        _report(first=DIVERGENCE).raise_if_failed()


def test_a_near_tie_is_explained() -> None:
    tie = Divergence(
        layer="greedy tokens", tensor=None, step=None, line=3, category="short", text="Halt!",
        problem="token 4 is 9 and should be 8", near_tie=True,
    )  # fmt: skip
    assert str(tie) == (
        "greedy tokens, line 3 (short, 'Halt!'): token 4 is 9 and should be 8; this is a near tie: the two candidates' "
        "scores differ by less than the limit, and rounding decides"
    )
