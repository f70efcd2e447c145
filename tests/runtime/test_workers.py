"""Batches decoded side by side, and rows that keep their place in the cache."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.errors import DecodingError
from onnxmt.runtime.batching import padding_waste, plan_batches
from onnxmt.runtime.decoder import Seq2SeqModel, _taken
from onnxmt.runtime.search.rows import closed_up
from onnxmt.runtime.session import RuntimeOptions, options_for
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from tests.runtime.conftest import FORMAT1

BUNDLE = FORMAT1 / "bundle"


@pytest.mark.parametrize(
    ("stay", "order"),
    [
        ([1, 1, 1], [0, 1, 2]),
        ([0, 0], []),
        ([0, 1, 1, 1], [3, 1, 2]),
        ([1, 1, 0], [0, 1]),
        ([0, 1, 0, 1, 0, 1], [3, 1, 5]),
    ],
)
def test_the_last_rows_fill_the_holes(stay: list[int], order: list[int]) -> None:
    assert closed_up(np.array(stay, np.bool_)).tolist() == order


@given(st.lists(st.booleans(), max_size=40))
def test_closing_up_keeps_every_row_that_stays_and_moves_no_more_than_left(stay: list[bool]) -> None:
    order = closed_up(np.array(stay, np.bool_)).tolist()

    assert sorted(order) == [row for row, stays in enumerate(stay) if stays]
    assert sum(row != place for place, row in enumerate(order)) <= stay.count(False)


@given(data=st.data(), rows=st.integers(1, 12))
def test_taken_rows_are_those_asked_for(data: st.DataObject, rows: int) -> None:
    parents = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=20))
    values = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    wanted = values[parents]

    assert np.array_equal(_taken(values.copy(), np.array(parents)), wanted)
    values.flags.writeable = False
    assert np.array_equal(_taken(values, np.array(parents)), wanted)


def test_rows_that_stay_in_place_are_not_copied() -> None:
    values = np.arange(40.0).reshape(10, 4)

    kept = _taken(values, np.array([0, 1, 9, 3, 4, 5, 6, 7, 8]))

    assert np.shares_memory(kept, values)
    assert kept[:, 0].tolist() == [0, 4, 36, 12, 16, 20, 24, 28, 32]


@given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=200), workers=st.integers(1, 8))
def test_each_worker_gets_a_batch_where_there_is_enough(lengths: list[int], workers: int) -> None:
    batches = plan_batches(lengths, budget=4096, workers=workers)

    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    if len(lengths) >= workers and len(set(lengths)) == 1:
        assert len(batches) >= min(workers, len(lengths))


def test_little_padding_among_sentences_as_long_as_the_news() -> None:
    """Lengths like newstest2019's (log-normal around 34 tokens): at most a tenth of the work is padding."""
    lengths = np.clip(np.random.default_rng(3).lognormal(3.5, 0.5, 1024), 3, 200).astype(int).tolist()

    assert padding_waste(lengths, plan_batches(lengths, budget=1024)) < 0.1
    assert padding_waste([4, 2], [[0, 1]]) == 0.25
    assert padding_waste([], []) == 0.0


def texts_of(expected: list[dict[str, Any]]) -> list[str]:
    return [row["source"] for row in expected] * 5


@pytest.mark.parametrize("beams", [1, 4])
def test_workers_give_the_same_translations_in_the_same_order(expected: list[dict[str, Any]], beams: int) -> None:
    texts, options = texts_of(expected), TranslateOptions(beams=beams, batch_tokens=64 * beams)
    with (
        Translator.load(BUNDLE) as alone,
        Translator.load(BUNDLE, options=options_for("throughput", threads=3)) as many,
    ):
        one, other = (t.translate_detailed(texts, options=options) for t in (alone, many))
        streamed = list(many.translate_stream(iter(texts), options=options))

    assert [t.tokens for t in other] == [t.tokens for t in one] == [t.tokens for t in streamed]
    assert [t.source for t in other] == texts


def test_sampling_draws_the_same_whatever_the_workers(expected: list[dict[str, Any]]) -> None:
    texts, options = texts_of(expected), TranslateOptions(sample=True, seed=5, batch_tokens=64)
    with (
        Translator.load(BUNDLE) as alone,
        Translator.load(BUNDLE, options=options_for("throughput", threads=2)) as many,
    ):
        assert many.translate(texts, options=options) == alone.translate(texts, options=options)


def test_workers_really_run_side_by_side(expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both batches have to be inside the encoder at once, or the barrier breaks."""
    together, encode = threading.Barrier(2, timeout=60), Seq2SeqModel.encode

    def waiting(self: Seq2SeqModel, *arrays: Any) -> Any:
        together.wait()
        return encode(self, *arrays)

    monkeypatch.setattr(Seq2SeqModel, "encode", waiting)
    with Translator.load(BUNDLE, options=RuntimeOptions(threads=1, workers=2)) as many:
        assert len(many.translate([expected[0]["source"], expected[1]["source"]])) == 2


def test_an_error_in_a_worker_is_the_callers(expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Seq2SeqModel, *arrays: Any) -> Callable[..., Any]:
        raise DecodingError("no token can be chosen")

    monkeypatch.setattr(Seq2SeqModel, "start", broken)
    with (
        Translator.load(BUNDLE, options=RuntimeOptions(threads=1, workers=2)) as many,
        pytest.raises(DecodingError, match="no token can be chosen"),
    ):
        many.translate(texts_of(expected))


def test_without_scores_the_texts_are_the_same(expected: list[dict[str, Any]]) -> None:
    texts = texts_of(expected)
    with Translator.load(BUNDLE) as translator:
        scored = translator.translate_detailed(texts, options=TranslateOptions(beams=1))
        unscored = translator.translate_detailed(texts, options=TranslateOptions(beams=1, scores=False))
        beams = translator.translate_detailed(texts[:3], options=TranslateOptions(beams=2, scores=False))
    assert [one.tokens for one in unscored] == [one.tokens for one in scored]
    assert {one.score for one in unscored} == {None}
    assert {segment.score for one in unscored for segment in one.segments} == {None}
    assert all(one.score is not None for one in (*scored, *beams))
    assert all(one.to_dict()["score"] is None for one in unscored)
