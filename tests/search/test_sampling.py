"""Sampling: the distribution, reproducibility by seed, and independence of the batch."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest

from onnxmt.runtime.search import search
from onnxmt.runtime.search.sampling import draw, random_streams
from onnxmt.runtime.settings import GenerationSettings
from tests.search.fake import FakeModel
from tests.search.judge import base, decode

PROBABILITIES = np.array([0.30, 0.20, 0.15, 0.12, 0.10, 0.08, 0.04, 0.01])
# Values that chi-square with 1 to 7 degrees of freedom passes once in 10,000 times.
CRITICAL = [15.14, 18.42, 21.11, 23.51, 25.74, 27.86, 29.88]
DRAWS = 20_000


def first_tokens(**settings: Any) -> np.ndarray:
    """How often each token came first in DRAWS outputs of one sentence whose next token has PROBABILITIES."""
    wanted = {
        "decoder_start_token_id": 0, "do_sample": True, "max_new_tokens": 1, "top_k": 0, "num_return_sequences": DRAWS,
    }  # fmt: skip
    parsed = GenerationSettings.from_checkpoint({}, wanted | settings)

    def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        return np.log(np.tile(PROBABILITIES, (len(tokens), 1))).astype(np.float32) + np.float32(3)

    found = Counter(output.tokens[0] for output in search(step, rows=1, settings=parsed, seed=17)[0])
    return np.array([found[token] for token in range(len(PROBABILITIES))])


def kept(*tokens: int) -> np.ndarray:
    chosen = np.zeros_like(PROBABILITIES)
    chosen[list(tokens)] = PROBABILITIES[list(tokens)]
    return chosen / chosen.sum()


def powered(power: float, of: np.ndarray = PROBABILITIES) -> np.ndarray:
    return of**power / (of**power).sum()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, PROBABILITIES),
        ({"temperature": 0.5}, powered(2.0)),
        ({"temperature": 2.0}, powered(0.5)),
        ({"top_k": 3}, kept(0, 1, 2)),
        ({"top_k": 1}, kept(0)),
        ({"top_p": 0.7}, kept(0, 1, 2, 3)),  # 0.65 is not yet 0.7: the token that passes it stays
        ({"top_p": 0.25}, kept(0)),
        ({"min_p": 0.3}, kept(0, 1, 2, 3, 4)),  # 0.3 * 0.3 = 0.09
        ({"temperature": 0.5, "top_k": 4, "top_p": 0.9}, powered(2.0, kept(0, 1, 2, 3)) * [1, 1, 1, 0, 0, 0, 0, 0]),
        ({"bad_words_ids": [[0], [4]]}, kept(1, 2, 3, 5, 6, 7)),
        ({"bad_words_ids": [[7]], "renormalize_logits": True}, kept(0, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_distribution(settings: dict[str, Any], expected: np.ndarray) -> None:
    expected = expected / expected.sum()
    counts = first_tokens(**settings)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert counts.sum() == DRAWS
    chi_square = ((counts - DRAWS * expected)[possible] ** 2 / (DRAWS * expected[possible])).sum()
    assert chi_square < ([0.0001, *CRITICAL])[possible.sum() - 1]


def test_later_tokens_follow_the_models_distribution_too() -> None:
    # Two tokens and EOS, each step depending on the one before: the probability of each whole output is known.
    after = {3: [0.2, 0.5, 0.3], 1: [0.6, 0.1, 0.3], 2: [0.5, 0.4, 0.1]}

    def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        return np.log(np.array([after[int(token)] for token in tokens[:, 0]], np.float32))

    settings = GenerationSettings(
        decoder_start_token_id=3, eos_token_ids=(0,), do_sample=True, max_new_tokens=2, num_return_sequences=DRAWS
    )
    counts = Counter(output.tokens for output in search(step, rows=1, settings=settings, seed=3)[0])
    expected = {(0,): 0.2} | {(a, b): after[3][a] * after[a][b] for a in (1, 2) for b in (0, 1, 2)}
    assert counts.keys() == expected.keys()
    chi_square = sum((counts[tokens] - DRAWS * p) ** 2 / (DRAWS * p) for tokens, p in expected.items())
    assert chi_square < CRITICAL[len(expected) - 2]


def test_scores_are_the_models_own_log_probabilities_whatever_the_temperature() -> None:
    settings = GenerationSettings(
        decoder_start_token_id=0, do_sample=True, max_new_tokens=1, temperature=0.3, top_k=4, num_return_sequences=50
    )

    def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        return np.log(np.tile(PROBABILITIES, (len(tokens), 1))).astype(np.float32)

    for output in search(step, rows=1, settings=settings, seed=0)[0]:
        assert output.score == pytest.approx(np.log(PROBABILITIES[output.tokens[0]]), abs=1e-5)


FAKE = FakeModel(seed=4, ease=1.0)
WANTED = base(FAKE, do_sample=True, top_k=0, num_return_sequences=2)


def test_the_same_seed_gives_the_same_outputs() -> None:
    first, _ = decode(FAKE, 5, WANTED, seed=1)
    assert decode(FAKE, 5, WANTED, seed=1)[0] == first
    assert decode(FAKE, 5, WANTED, seed=2)[0] != first


def test_without_a_seed_outputs_differ() -> None:
    assert decode(FAKE, 5, WANTED)[0] != decode(FAKE, 5, WANTED)[0]


def test_a_sentence_draws_the_same_in_any_batch() -> None:
    together, _ = decode(FAKE, 6, WANTED, seed=9)
    assert [decode(FAKE, [number], WANTED, seed=9, streams=[number])[0][0] for number in range(6)] == together


def test_streams_and_outputs_of_equal_sentences_differ() -> None:
    found, _ = decode(FAKE, [2, 2, 2], WANTED, seed=9)
    assert len({output.tokens for sentence in found for output in sentence}) > 3


def test_streams_do_not_overlap() -> None:
    first = [generator.random() for generator in random_streams(7, range(50), 3)]
    assert len(set(first)) == 150
    assert [generator.random() for generator in random_streams(7, [49], 3)] == first[-3:]
    assert [generator.random() for generator in random_streams(7, range(50), 1)] == first[::3]


def test_tokens_without_a_share_are_never_drawn() -> None:
    class Last(np.random.Generator):
        def random(self) -> float:  # type: ignore[override]
            return 1.0 - 2.0**-53

    class First(np.random.Generator):
        def random(self) -> float:  # type: ignore[override]
            return 0.0

    values = np.array(
        [[-np.inf, -np.inf, 1.0, 0.1, 2.0, -np.inf], [-np.inf, 1.0, -np.inf, -np.inf, -np.inf, -np.inf]], np.float32
    )
    best = values.max(axis=1)
    assert draw(values, best, [Last(np.random.PCG64(0))] * 2).tolist() == [4, 1]
    assert draw(values, best, [First(np.random.PCG64(0))] * 2).tolist() == [2, 1]


def test_rows_leave_the_batch_one_by_one() -> None:
    fake = dataclasses.replace(FAKE, ease=2.0)
    found, step = decode(fake, 20, WANTED, seed=1)
    lengths = [len(output.tokens) for sentence in found for output in sentence]
    assert step.calls == [sum(length >= call for length in lengths) for call in range(1, max(lengths) + 1)]
    assert min(lengths) < max(lengths)
