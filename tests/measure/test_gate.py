"""The gate's rules, on texts made for them: what passes, what each limit catches, and what is said about it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from onnxmt.errors import QualityGateError, UsageError
from onnxmt.measure.gate import Outputs, QualityGate
from onnxmt.measure.gate_report import GateLimits, GateReport, ModeFaults
from onnxmt.measure.outputs import Output, OutputCounts
from onnxmt.measure.texts import EvaluationSet, shipped_texts

MODES = ("greedy", "beam 4")
WHOLE = shipped_texts()
# Every twelfth line: enough for the rules, and a twelfth of the counting.
CHOSEN = range(0, WHOLE.lines, 12)
TEXTS = EvaluationSet(
    name="some",
    sources=tuple((WHOLE.sources or ())[i] for i in CHOSEN),
    references=(tuple(WHOLE.references[0][i] for i in CHOSEN),),
    domains=tuple(WHOLE.domains[i] for i in CHOSEN),
)


def worsened(text: str) -> str:
    """The text without its last third: worse by every measure."""
    return text[: -len(text) // 3]


def outputs(change: Callable[[int, str], str] = lambda _, text: text, *, modes: tuple[str, ...] = MODES) -> Outputs:
    """The references as outputs, changed in some modes."""
    reference = TEXTS.references[0]
    return {
        mode: [Output(text=change(i, t) if mode in modes else t, finished=True) for i, t in enumerate(reference)]
        for mode in MODES
    }


def judged(candidate: Outputs, texts: EvaluationSet = TEXTS, **limits: Any) -> GateReport:
    gate = QualityGate(texts, outputs(), target_language="zh", limits=GateLimits(**limits))
    return gate.judge(candidate, label="int8")


def places(report: GateReport) -> set[tuple[str, str]]:
    """Mode and part of each row that misses something."""
    return {(row.mode, row.name) for row in report.rows if row.misses(report.limits)}


def test_equal_outputs_pass_with_every_part_measured() -> None:
    report = judged(outputs())
    assert report.passed
    assert report.misses == report.worst == ()
    domains = len(set(TEXTS.domains))
    assert [row.kind for row in report.rows] == (["all"] + ["domain"] * domains + ["third"] * 3) * 2
    for row in report.rows:
        assert row.bleu_drop is not None
        assert (row.bleu_drop.value, row.agreement, row.identical, row.length_ratio) == (0, pytest.approx(100), 1, 1)
    report.raise_if_missed(model="m", fix="")


def test_a_loss_everywhere_is_caught_in_every_part_of_every_mode() -> None:
    report = judged(outputs(lambda _, text: worsened(text)))
    assert places(report) == {(row.mode, row.name) for row in report.rows}
    assert report.row("greedy").bleu_drop.value > 30  # type: ignore[union-attr]


def test_a_loss_in_one_mode_is_caught_there() -> None:
    report = judged(outputs(lambda _, text: worsened(text), modes=("beam 4",)))
    assert {mode for mode, _ in places(report)} == {"beam 4"}


def test_a_loss_in_one_domain_is_caught_where_the_whole_hides_it() -> None:
    report = judged(outputs(lambda i, text: worsened(text) if TEXTS.domains[i] == "names" else text), max_bleu_drop=15)
    assert ("greedy", "all") not in places(report)
    assert {("greedy", "names"), ("beam 4", "names")} <= places(report)
    assert {name for _, name in places(report)} <= {"names", "short sources", "middle sources"}
    assert any(miss.startswith("greedy, names (7 lines): BLEU") for miss in report.misses)


def test_a_loss_on_long_sentences_is_caught_as_such() -> None:
    lengths = sorted(len(source) for source in TEXTS.sources or ())
    bound = lengths[2 * len(lengths) // 3]

    def change(i: int, text: str) -> str:
        return text[:-2] + text[-1] if len((TEXTS.sources or ())[i]) >= bound else text

    report = judged(outputs(change), max_bleu_drop=3)
    assert ("greedy", "long sources") in places(report)
    assert not {("greedy", "short sources"), ("greedy", "middle sources")} & places(report)


def test_parts_may_lose_twice_what_the_whole_may() -> None:
    report = judged(outputs(lambda i, text: worsened(text) if i % 9 == 0 else text))
    whole, part = report.rows[0], next(row for row in report.rows if row.kind == "domain" and row.identical < 1)
    for row, factor in ((whole, 1), (part, 2)):
        assert row.bleu_drop is not None
        assert row.chrf_drop is not None
        allowed = GateLimits(max_bleu_drop=row.bleu_drop.value / factor + 1e-9, max_chrf_drop=100, max_length_change=1)
        assert row.misses(allowed) == []
        short = dataclasses.replace(allowed, max_bleu_drop=row.bleu_drop.value / factor - 1e-6)
        assert [miss.split()[0] for miss in row.misses(short)] == ["BLEU"]
        chrf = dataclasses.replace(allowed, max_bleu_drop=100, max_chrf_drop=row.chrf_drop.value / factor - 1e-6)
        assert [miss.split()[0] for miss in row.misses(chrf)] == ["chrF"]


def test_one_more_loop_is_a_miss_and_one_that_fp32_has_too_is_none() -> None:
    loop = "我想知道" * 10
    report = judged(outputs(lambda i, text: loop if i == 5 else text, modes=("beam 4",)), max_bleu_drop=100)
    assert report.misses[0] == "beam 4: 1 outputs run in circles, 0 of fp32's do"
    assert (report.worst[0].line, report.worst[0].mode, report.worst[0].looped) == (6, "beam 4", True)
    both = outputs(lambda i, text: loop if i == 5 else text)
    assert QualityGate(TEXTS, both, target_language="zh").judge(both, label="int8").passed


def test_outputs_that_are_hardly_ever_fp32s_are_a_miss_though_no_score_fell() -> None:
    """A layer 8 times too large once left BLEU as it was, with 16 % of the outputs: fp32 itself scored low there."""
    changed = outputs(lambda i, text: text if i % 4 == 0 else text + "的")  # 14 of 54
    report = judged(changed, max_bleu_drop=100, max_chrf_drop=100, max_length_change=1)
    assert [miss.split(": ")[1] for miss in report.misses] == ["26% of the outputs are fp32's, at least 30%"] * 2


@pytest.mark.parametrize(
    ("lines", "new", "ended", "missed"),
    [
        (640, 0, 0, False),
        (640, 4, 0, False),  # chance: 1 in 16
        (640, 5, 0, True),  # 1 in 32
        (640, 8, 5, False),  # a weak model's loops come and go: 0.29
        (640, 3, 9, False),  # fewer than before
        (640, 30, 23, True),  # chance could (0.21), but it is more than 1 % of the lines
        (50, 1, 0, True),  # 2 % of a small set
    ],
)
def test_loops_may_grow_by_chance_alone(lines: int, new: int, ended: int, missed: bool) -> None:
    none = OutputCounts(empty=0, repeating=0, unfinished=0)
    faults = ModeFaults(fp32=none, candidate=none, lines=lines, new_loops=new, ended_loops=ended)
    assert faults.misses_loops(GateLimits()) is missed


def test_outputs_that_grow_are_a_miss_however_well_they_score() -> None:
    report = judged(outputs(lambda _, text: text + text[:2]), max_bleu_drop=100, max_chrf_drop=100)
    assert any("times fp32's length, within 5% is allowed" in miss for miss in report.misses)


def test_a_drop_that_chance_can_explain_is_said_to_be_one() -> None:
    """One line of a domain lost all, another won as much: a miss by the rule, and nothing that the figures prove."""
    names = [i for i, domain in enumerate(TEXTS.domains) if domain == "names"]

    def before(i: int, text: str) -> str:
        return worsened(text) if i == names[0] else text

    def after(i: int, text: str) -> str:
        return worsened(text) if i == names[-1] else text

    gate = QualityGate(TEXTS, outputs(before), target_language="zh", limits=GateLimits(max_bleu_drop=0.001))
    rows = [row for row in gate.judge(outputs(after), label="int8").rows if row.name == "names"]
    drop = rows[0].bleu_drop
    assert drop is not None
    assert drop.lower < 0 < drop.upper
    if drop.value <= 0.002:  # the other way round then
        rows = [row for row in QualityGate(TEXTS, outputs(after), target_language="zh", limits=gate.limits)
                .judge(outputs(before), label="int8").rows if row.name == "names"]  # fmt: skip
    assert any("chance alone can do this" in miss for miss in rows[0].misses(gate.limits))


def test_without_references_the_outputs_are_compared_with_fp32s_and_that_is_said() -> None:
    bare = EvaluationSet(name="bare", sources=TEXTS.sources, domains=TEXTS.domains)
    same = judged(outputs(lambda i, text: worsened(text) if i % 10 == 0 else text), texts=bare)
    assert same.passed
    assert list(same.signatures) == ["chrf"]
    assert "no references" in same.notes[0]
    assert same.rows[0].fp32 is same.rows[0].bleu_drop is None
    assert 85 < same.rows[0].agreement < 100
    other = judged(outputs(lambda i, _: TEXTS.references[0][i - 1]), texts=bare)
    assert "chrF against fp32's output" in other.misses[0]
    assert other.misses[1] == "greedy, all (54 lines): 0% of the outputs are fp32's, at least 30%"
    assert other.worst[0].chrf_loss > 90


def test_the_error_names_figures_worst_lines_and_the_fix() -> None:
    report = judged(outputs(lambda i, text: "不" if i == 1 else worsened(text) if i % 2 else text))
    assert report.worst[0].line == 2
    assert report.worst[0].candidate == "不"
    assert [line.chrf_loss for line in report.worst] == sorted((line.chrf_loss for line in report.worst), reverse=True)
    assert len({line.line for line in report.worst}) == len(report.worst) == 10
    with pytest.raises(QualityGateError) as caught:
        report.raise_if_missed(model="demo", fix="Take another.")
    message = str(caught.value)
    assert caught.value.report is report
    assert caught.value.exit_code == 1
    assert "\n" not in message
    assert message.startswith("demo in int8 misses ")
    assert "greedy, all (54 lines): BLEU " in message
    assert "a drop of" in message
    assert "at most 0.5" in message
    worst = report.worst[0]
    assert f"line 2 ({worst.domain}), greedy, {worst.source!r}: fp32 {worst.fp32!r}, int8 '不'" in message
    assert message.endswith("Take another.")


def test_a_users_texts_stay_out_of_what_is_handed_on() -> None:
    report = judged(outputs(lambda _, text: worsened(text)))
    whole, bare = report.to_dict(), report.to_dict(texts=False)
    assert TEXTS.references[0][report.worst[0].line - 1] in json.dumps(whole, ensure_ascii=False)
    shown = json.dumps(bare, ensure_ascii=False)
    assert not [text for text in (*(TEXTS.sources or ()), *TEXTS.references[0]) if text in shown]
    assert whole["modes"]["greedy"]["bleu_drop"]["value"] == bare["modes"]["greedy"]["bleu_drop"]["value"] > 0
    assert whole["modes"]["beam 4"]["beams"] == 4
    assert {part["kind"] for part in whole["modes"]["greedy"]["parts"]} == {"domain", "third"}


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"max_bleu_drop": -1}, "max_bleu_drop is -1; a number from 0 to 100 is allowed"),
        ({"max_bleu_drop": float("nan")}, "max_bleu_drop is nan"),
        ({"max_chrf_drop": True, "min_identical": 1.5}, "max_chrf_drop is True; .*; min_identical is 1.5; a number from 0 to 1 "),
    ],
)  # fmt: skip
def test_limits_out_of_range_are_refused(limits: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        GateLimits(**limits)


def test_the_chrf_limit_follows_the_bleu_limit_unless_it_is_given() -> None:
    assert GateLimits().chrf_drop == pytest.approx(0.35)
    assert GateLimits(max_bleu_drop=1).chrf_drop == pytest.approx(0.7)
    assert GateLimits(max_bleu_drop=1, max_chrf_drop=0.2).chrf_drop == 0.2
    assert GateLimits().to_dict()["max_chrf_drop"] == 0.35


def test_outputs_that_do_not_fit_the_set_are_refused() -> None:
    gate = QualityGate(TEXTS, outputs(), target_language="zh")
    with pytest.raises(UsageError, match=r"some has 54 lines, and there are 53 outputs \(greedy\)"):
        gate.judge({mode: list(found)[:-1] for mode, found in outputs().items()}, label="int8")
    with pytest.raises(UsageError, match="the candidate has outputs in greedy; fp32 in greedy, beam 4"):
        gate.judge({"greedy": outputs()["greedy"]}, label="int8")
