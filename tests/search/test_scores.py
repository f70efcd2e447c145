"""The numpy kernels: the best tokens of a row, log Σ exp, and a step's Scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onnxmt.runtime.scores import Scores, best_tokens, log_sum_exp


def by_sorting(values: np.ndarray, k: int) -> list[list[int]]:
    """The best k of each row by Python's sort: highest first, then lowest index; listed in ascending order."""
    return [sorted(sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]) for row in values.tolist()]


@hypothesis_settings(max_examples=80, deadline=None)
@given(
    vocabulary=st.sampled_from([1, 2, 7, 600, 1024, 1025, 1536, 2000, 5000]),
    rows=st.integers(1, 5),
    k=st.sampled_from([1, 2, 4, 8, 30, 600]),
    levels=st.sampled_from([2, 30, 0]),
    seed=st.integers(0, 999),
)
def test_best_tokens(vocabulary: int, rows: int, k: int, levels: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, vocabulary)).astype(np.float32)
    if levels:  # many equal values
        values = np.round(values * levels / 4).astype(np.float32)
    best = best_tokens(values, k)
    assert best.tokens.tolist() == by_sorting(values, min(k, vocabulary))
    assert np.array_equal(best.values, np.take_along_axis(values, best.tokens, axis=1))


@pytest.mark.parametrize("vocabulary", [100, 5000])
def test_best_tokens_of_rows_with_few_tokens_left(vocabulary: int) -> None:
    values = np.full((3, vocabulary), -np.inf, np.float32)
    values[0, [70, 3]] = [1.0, 2.0]
    values[1] = np.arange(vocabulary)
    best = best_tokens(values, 4)
    left = [sorted(v for v in row if v > -np.inf) for row in best.values.tolist()]
    assert left == [[1.0, 2.0], [vocabulary - 4.0, vocabulary - 3.0, vocabulary - 2.0, vocabulary - 1.0], []]
    assert {t for t, v in zip(best.tokens[0].tolist(), best.values[0].tolist(), strict=True) if v > -np.inf} == {3, 70}
    assert best.tokens.shape == (3, 4)
    assert best.tokens.max() < vocabulary


@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (5, 70_000), (9, 300)])
def test_log_sum_exp(shape: tuple[int, int]) -> None:
    values = (np.random.default_rng(1).normal(size=shape) * 20).astype(np.float32)
    exact = [math.log(math.fsum(np.exp(row - row.max()))) + row.max() for row in values.astype(np.float64)]
    assert log_sum_exp(values) == pytest.approx(exact, abs=2e-5)
    assert log_sum_exp(values + np.float32(1000)) == pytest.approx([e + 1000 for e in exact], abs=1e-3)


def test_log_sum_exp_of_a_row_is_the_same_whatever_its_neighbours() -> None:
    random = np.random.default_rng(2)
    rows = (random.normal(size=(4, 3000)) * 3 + np.array([[0], [500], [-500], [30]])).astype(np.float32)
    alone = [log_sum_exp(row[None])[0] for row in rows]
    assert log_sum_exp(rows).tolist() == alone
    assert alone == pytest.approx(
        [math.log(math.fsum(np.exp(r - r.max()))) + r.max() for r in rows.astype(float)], abs=1e-4
    )


def test_log_sum_exp_shows_what_is_not_finite() -> None:
    rows = np.zeros((5, 4), np.float32)
    rows[0, 1], rows[1, 2], rows[2], rows[3, 0] = np.nan, np.inf, -np.inf, -np.inf
    assert np.isfinite(log_sum_exp(rows)).tolist() == [False, False, False, True, True]


def test_scores_settle_once_and_ban_before_or_after() -> None:
    values = np.log(np.array([[1.0, 2.0, 5.0]], np.float32)) + 7
    scores = Scores(values.copy(), log_sum_exp(values))
    scores.ban(np.array([1]))
    assert np.exp(scores.settled()).tolist() == [pytest.approx([0.125, 0.0, 0.625])]
    scores.ban_at(np.array([0]), np.array([0]))
    assert np.exp(scores.settled()).tolist() == [pytest.approx([0.0, 0.0, 0.625])]
    assert scores.shift is None


def test_scores_renormalize() -> None:
    values = np.log(np.array([[1.0, 2.0, 5.0], [1.0, 1.0, 1.0]], np.float32))
    scores = Scores(values.copy(), log_sum_exp(values))
    scores.ban_at(np.array([0, 1, 1, 1]), np.array([1, 0, 1, 2]))
    scores.renormalize()
    assert np.exp(scores.settled()).tolist() == [pytest.approx([1 / 6, 0, 5 / 6]), [0, 0, 0]]


def test_scores_force() -> None:
    scores = Scores(np.ones((2, 4), np.float32), np.full(2, 3, np.float32))
    scores.force(np.array([2]))
    assert scores.settled().tolist() == [[-np.inf, -np.inf, 0, -np.inf]] * 2
    assert scores.forced
