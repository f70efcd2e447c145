"""Comparing tensors and tokens: limits, cosine, what cannot be compared, and which divergence is the first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.measure.comparison import (
    BEAM_TOKENS,
    GREEDY_TOKENS,
    TEXT,
    Tally,
    compare,
    cross_layer,
    describe_tokens,
    logits_layer,
    present_layer,
)
from onnxmt.measure.expected import JudgeFacts, Samples, batches, forced_tokens, pad_batch
from onnxmt.measure.expected import SourceLine as Line
from onnxmt.measure.sentences import parse_sentences
from onnxmt.measure.verdict import SentenceCounts, VerificationReport

LIMITS = {"limit": 1e-3, "usual": 1e-5}


def _samples(
    values: list[float], *, shape: tuple[int, ...] | None = None, positions: list[int] | None = None
) -> Samples:
    array = np.array(values, dtype=np.float32)
    chosen = None if positions is None else np.array(positions, dtype=np.int64)
    return Samples(shape=shape or array.shape, values=array, positions=chosen)


def _found(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_equal_tensors() -> None:
    result = compare(_samples([1, -2, 3]), _found(1, -2, 3), **LIMITS)
    assert (result.error, result.cosine, result.allowed, result.problem) == (0.0, 1.0, 1e-3, None)


def test_an_error_within_the_limit_passes_and_one_above_it_is_placed() -> None:
    assert compare(_samples([1, 2]), _found(1, 2.0009), **LIMITS).problem is None
    result = compare(_samples([1, 2]), _found(1, 2.0011), **LIMITS)
    assert result.error == pytest.approx(0.0011, rel=1e-3)
    assert result.problem == "off by 0.0011 at token 1 (2.0011 instead of 2; limit 0.001)"


def test_the_limit_grows_with_values_above_a_hundred() -> None:
    assert compare(_samples([5000]), _found(5000.04), **LIMITS).problem is None
    assert compare(_samples([5000]), _found(5000.04), **LIMITS).allowed == pytest.approx(0.05)
    assert compare(_samples([99]), _found(99.04), **LIMITS).problem is not None
    assert compare(_samples([1]), _found(5000), **LIMITS).allowed == 1e-3  # the reference's size counts, not ours


def test_a_wrong_direction_fails_though_all_values_are_tiny() -> None:
    result = compare(_samples([5e-4, 0]), _found(0, 5e-4), **LIMITS)
    assert result.error < 1e-3
    assert result.problem is not None
    assert "cosine 0.0000, at least 0.999" in result.problem
    assert compare(_samples([5e-6, 0]), _found(0, 5e-6), **LIMITS).problem is None  # noise around nothing


@pytest.mark.parametrize(("found", "cosine"), [([0, 0], 1.0), ([1e-6, 0], 0.0)])
def test_the_cosine_of_zeros(found: list[float], cosine: float) -> None:
    assert compare(_samples([0, 0]), _found(*found), **LIMITS).cosine == cosine


@pytest.mark.parametrize(
    ("expected", "found", "problem"),
    [
        (_samples([1]), None, "the graph has no such output"),
        (_samples([1, 2]), np.zeros(3, np.float32), "its shape is [3] and should be [2]"),
        (_samples([1, 2]), _found(1, np.nan), "it holds nan"),
        (_samples([1, 2]), _found(-np.inf, 2), "it holds infinite values"),
        (_samples([1, np.nan]), _found(1, np.nan), "the reference itself holds nan"),
    ],
)
def test_what_cannot_be_compared(expected: Samples, found: np.ndarray | None, problem: str) -> None:
    result = compare(expected, found, **LIMITS)
    assert (result.error, result.cosine, result.problem) == (None, None, problem)


def test_nan_beside_the_sampled_positions_is_found() -> None:
    assert compare(_samples([1], shape=(3,), positions=[1]), _found(0, 1, np.nan), **LIMITS).problem == "it holds nan"


def test_samples_are_read_at_their_positions() -> None:
    found = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    result = compare(_samples([5, 23], shape=(2, 3, 4), positions=[5, 22]), found, **LIMITS)
    assert result.problem == "off by 1 at head 1, position 2, value 2 (22 instead of 23; limit 0.001)"


@given(st.data())
def test_until_keeps_exactly_the_first_positions(data: st.DataObject) -> None:
    heads, positions, size = (data.draw(st.integers(1, 4)) for _ in range(3))
    tensor = np.arange(heads * positions * size, dtype=np.float32).reshape(heads, positions, size)
    chosen = data.draw(st.lists(st.integers(0, tensor.size - 1), unique=True))
    length = data.draw(st.integers(1, positions))
    whole = Samples(shape=tensor.shape, values=tensor.reshape(-1)).until(length)
    np.testing.assert_array_equal(whole.values, tensor[:, :length].reshape(-1))
    at = np.array(sorted(chosen), dtype=np.int64)
    some = Samples(shape=tensor.shape, values=tensor.reshape(-1)[at], positions=at).until(length)
    np.testing.assert_array_equal(some.of(tensor[:, :length]), some.values)
    assert sorted(some.values) == sorted(v for v in tensor.reshape(-1)[at] if v in tensor[:, :length])


@pytest.mark.parametrize(
    ("found", "expected", "problem"),
    [
        ([5, 6, 0], [5, 6, 0], None),
        ([5, 7, 0], [5, 6, 0], "token 2 is 7 and should be 6"),
        ([5], [5, 6], "token 2 is nothing and should be 6"),
        ([5, 6, 0], [5, 6], "token 3 is 0 and should be nothing"),
        ([], [0], "token 1 is nothing and should be 0"),
    ],
)
def test_tokens_are_told_apart(found: list[int], expected: list[int], problem: str | None) -> None:
    assert describe_tokens(found, expected) == problem


SET = parse_sentences("short\tOne.\nlong\tTwo two two two.\nshort\tThree.\n", name="three.tsv")
JUDGE = JudgeFacts(
    kind="live", versions={"torch": "2", "transformers": "5"}, date="2025-01-01", model="m", revision=None, identity=None,
    max_new_tokens=64, positions=None,
)  # fmt: skip


def _report(tally: Tally) -> VerificationReport:
    for sentence in SET.sentences:
        for layer in (GREEDY_TOKENS, BEAM_TOKENS, TEXT):
            tally.tokens(layer, sentence.text, None)
    return tally.report(JUDGE, SentenceCounts(name=SET.name, sha256=SET.sha256, lines=3, skipped=0))


def _tally() -> Tally:
    return Tally(SET, limit=1e-3, expected=1e-5)


def _off(tally: Tally, layer: object, text: str, step: int | None = None) -> None:
    tally.tensor(layer, layer.name, text, _samples([1.0]), _found(2.0), step=step)


def test_the_first_divergence_follows_the_computation_and_not_the_order_of_discovery() -> None:
    tally = _tally()
    _off(tally, logits_layer(2), "Three.", 2)
    _off(tally, present_layer(1), "Three.", 2)
    assert _report(tally).first_divergence.layer == "present K/V layer 1"
    _off(tally, logits_layer(1), "Two two two two.", 1)
    assert _report(tally).first_divergence.layer == "logits step 1"
    _off(tally, present_layer(5), "Three.", 1)
    assert _report(tally).first_divergence.layer == "present K/V layer 5"
    _off(tally, cross_layer(3), "Three.")
    _off(tally, cross_layer(2), "Three.")
    assert _report(tally).first_divergence.layer == "cross K/V layer 2"
    assert _report(tally).first_divergence.line == 3
    _off(tally, cross_layer(2), "One.")
    assert _report(tally).first_divergence.line == 1


def test_rows_come_in_the_order_of_the_layers_and_count_sentences_once() -> None:
    tally = _tally()
    for step in (2, 1):
        for half in ("key", "value"):
            tally.tensor(present_layer(0), f"present.0.{half}", "One.", _samples([1.0]), _found(1.00001), step=step)
    tally.tensor(present_layer(0), "present.0.key", "Three.", _samples([1.0]), _found(3.0), step=1)
    tally.tensor(logits_layer(1), "logits", "One.", _samples([1.0, 1.0]), _found(1.0, 1.0), step=1)
    report = _report(tally)
    assert [row.layer for row in report.rows] == [
        "logits step 1", "present K/V layer 0", "greedy tokens", "beam 4 tokens", "text",
    ]  # fmt: skip
    row = report.rows[1]
    assert (row.compared, row.different, row.passed) == (2, 1, False)
    assert row.max_abs_error == 2.0


def test_categories_hold_their_own_sentences() -> None:
    tally = _tally()
    tally.tensor(cross_layer(0), "cross.0.key", "Two two two two.", _samples([1.0]), _found(1.0004))
    tally.tokens(GREEDY_TOKENS, "Three.", "token 1 is 1 and should be 2")
    short, long = _report(tally).categories
    assert (short.category, short.sentences, short.greedy_identical, short.passed) == ("short", 2, 1, False)
    assert (short.max_abs_error, short.beam_identical, short.text_identical) == (0.0, 2, 2)
    assert (long.category, long.sentences, long.passed) == ("long", 1, True)
    assert long.max_abs_error == pytest.approx(4e-4, rel=1e-3)


def test_notes_say_when_errors_are_unusual() -> None:
    tally = _tally()
    tally.tensor(cross_layer(0), "cross.0.key", "One.", _samples([1.0]), _found(1.0004))
    assert any("4.0e-04, is within the limit of 0.001 and above the 1e-05" in note for note in _report(tally).notes)
    tally = _tally()
    tally.tensor(cross_layer(0), "cross.0.key", "One.", _samples([1.0]), _found(1.000001))
    assert _report(tally).notes == ("both sides stop after 64 new tokens",)


def test_batches_are_of_similar_length_and_leave_out_what_does_not_fit() -> None:
    lines = [Line(text=str(n), tokens=tuple(range(n))) for n in (9, 2, 30, 4, 3, 8)]
    grouped = batches(lines, positions=9, rows=2)
    assert [[line.text for line in group] for group in grouped] == [["2", "3"], ["4", "8"], ["9"]]
    assert sum(len(group) for group in batches(lines, positions=None)) == 6


def test_padding_and_forced_tokens() -> None:
    ids, mask = pad_batch([[5, 6, 0], [7, 0]], pad=9)
    assert ids.tolist() == [[5, 6, 0], [7, 0, 9]]
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert forced_tokens(9, [4, 5, 0], steps=2, filler=8) == [9, 4]
    assert forced_tokens(9, [4, 0], steps=5, filler=8) == [9, 4, 0, 8, 8]
