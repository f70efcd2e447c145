from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.runtime.batching import plan_batches


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        ([], 100, []),
        ([5], 1, [[0]]),
        ([20, 40, 30], 200, [[1, 2, 0]]),
        ([20, 40, 30], 80, [[1, 2], [0]]),
        ([500, 20, 20], 40, [[0], [1, 2]]),
        ([1] * 5, 64, [[0, 1, 2, 3], [4]]),  # a row counts 16 tokens at least
        ([100] * 8 + [49, 50], 10_000, [[0, 1, 2, 3, 4, 5, 6, 7, 9], [8]]),
    ],
)
def test_batches(lengths: list[int], budget: int, batches: list[list[int]]) -> None:
    assert plan_batches(lengths, budget=budget) == batches


@given(lengths=st.lists(st.integers(1, 600), max_size=200), budget=st.integers(1, 5000))
def test_every_sentence_once_and_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget=budget)

    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(max(lengths[index], 16) for index in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget
