"""What search promises of itself: literal small cases, rows that leave, order, limits, and errors."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onnxmt.errors import DecodingError, GenerationSettingsError, UsageError
from onnxmt.runtime.scores import Scores
from onnxmt.runtime.search import Hypothesis, Step, search
from onnxmt.runtime.settings import GenerationSettings
from tests.search.fake import FakeModel
from tests.search.judge import base, decode

START = 3
SETTINGS = GenerationSettings(decoder_start_token_id=START, eos_token_ids=(0,), max_length=10)


def chain(table: dict[tuple[int, ...], list[float]], rest: list[float]) -> Step:
    """A step for one sentence: probabilities of tokens 0, 1, 2 after a history (without the start token)."""
    held: list[list[tuple[int, ...]]] = []

    def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        before = held[-1] if held else [()] * len(tokens)
        order = range(len(tokens)) if parents is None or not held else parents.tolist()
        now = [before[parent] + tuple(new) for parent, new in zip(order, tokens.tolist(), strict=True)]
        held.append(now)
        with np.errstate(divide="ignore"):
            return np.log(np.array([table.get(row[1:], rest) for row in now], np.float32))

    return step


# EOS is token 0. Greedy takes 1 (0.5), then 2 (0.4), then EOS. The likeliest output is 2, EOS: 0.4 * 0.9 = 0.36.
TABLE = {(): [0.1, 0.5, 0.4], (1,): [0.3, 0.3, 0.4], (2,): [0.9, 0.05, 0.05], (1, 2): [1.0, 0.0, 0.0]}
REST = [0.8, 0.1, 0.1]


def test_greedy_by_hand() -> None:
    assert search(chain(TABLE, REST), rows=1, settings=SETTINGS) == [
        [Hypothesis(tokens=(1, 2, 0), score=pytest.approx((math.log(0.5) + math.log(0.4) + 0) / 3), finished=True)]
    ]


def test_beam_by_hand() -> None:
    settings = dataclasses.replace(SETTINGS, num_beams=2, num_return_sequences=2, length_penalty=0.0)
    # Step 1: 1 (0.5) and 2 (0.4) go on, EOS (0.1) is third. Step 2: 2 EOS 0.36 ends; 1 2 (0.2), then 1 1 (0.15; equal to
    # 1 EOS up to order) go on. Step 3: 1 2 EOS 0.2 ends, and the best that is left, 1 1 EOS with 0.12, cannot pass it.
    found = search(chain(TABLE, REST), rows=1, settings=settings)[0]
    assert [output.tokens for output in found] == [(2, 0), (1, 2, 0)]
    assert [output.score for output in found] == pytest.approx([math.log(0.36), math.log(0.2)])


def test_beam_length_penalty_by_hand() -> None:
    settings = dataclasses.replace(SETTINGS, num_beams=2, num_return_sequences=2, length_penalty=2.0)
    best = search(chain(TABLE, REST), rows=1, settings=settings)[0][0]
    # log 0.36 / 2² = -0.255 against log 0.2 / 3² = -0.179: now the longer one wins.
    assert best.tokens == (1, 2, 0)
    assert best.score == pytest.approx(math.log(0.2) / 9)


def test_beam_ties_go_to_the_lowest_beam_and_token() -> None:
    settings = dataclasses.replace(SETTINGS, num_beams=2, num_return_sequences=2, max_length=3)
    found = search(chain({(): [0.2, 0.4, 0.4]}, [0.0, 0.5, 0.5]), rows=1, settings=settings)[0]
    assert [output.tokens for output in found] == [(1, 1), (1, 2)]
    assert not any(output.finished for output in found)


def test_no_sentences() -> None:
    for settings in (
        SETTINGS,
        dataclasses.replace(SETTINGS, num_beams=3),
        dataclasses.replace(SETTINGS, do_sample=True),
    ):
        assert search(FakeModel().start(0), rows=0, settings=settings) == []


@pytest.mark.parametrize("beams", [1, 3])
def test_rows_leave_when_they_are_done(beams: int) -> None:  # case B2
    # Sentence i may end only after 2 + i tokens, and then must.
    lengths = [2, 5, 3, 9]

    def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        state["sentence"] = state["sentence"] if parents is None else state["sentence"][parents]
        state["calls"].append(len(tokens))
        logits = np.zeros((len(tokens), 8), np.float32) + np.arange(8, dtype=np.float32) / 8
        over = np.array([lengths[s] for s in state["sentence"]]) <= len(state["calls"])
        logits[:, 0] = np.where(over, 50, -50)
        return logits

    state: dict = {"sentence": np.arange(4), "calls": []}
    settings = dataclasses.replace(
        SETTINGS, num_beams=beams, max_length=30, decoder_start_token_id=7, early_stopping=True
    )
    found = search(step, rows=4, settings=settings)
    assert [len(sentence[0].tokens) for sentence in found] == lengths
    running = [sum(length >= call for length in lengths) for call in range(1, 10)]
    first, *later = running
    assert (
        state["calls"]
        == [first, *(beams * rows for rows in later)]
        == [4, *(beams * n for n in (4, 3, 2, 2, 1, 1, 1, 1))]
    )


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_nothing_follows_eos(beams: int) -> None:  # case B2
    fake = FakeModel(seed=11, ease=1.5)
    for wanted in ({}, {"eos_token_id": [0, 5]}, {"early_stopping": True}):
        found, _ = decode(fake, 8, base(fake, num_beams=beams, num_return_sequences=beams, **wanted))
        ends = {0, 5} if wanted.get("eos_token_id") else {0}
        for output in (output for sentence in found for output in sentence):
            assert not ends & set(output.tokens[:-1])
            assert output.finished == (output.tokens[-1] in ends)
            assert output.finished or len(output.tokens) == 11


WANTED: list[dict] = [
    {},
    {"num_beams": 4, "num_return_sequences": 3},
    {"num_beams": 2, "early_stopping": True, "length_penalty": 2.0},
    {"num_beams": 3, "early_stopping": "never", "repetition_penalty": 1.2},
    {"no_repeat_ngram_size": 2, "bad_words_ids": [[16], [3, 4]]},
    {"do_sample": True, "top_k": 4},
]


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.permutations(range(6)), st.sampled_from(WANTED), st.integers(0, 20))
def test_outputs_permute_with_the_sentences(order: list[int], wanted: dict, seed: int) -> None:  # cases B1, B2
    fake = FakeModel(seed=seed, ease=1.0, rise=0.3)
    together, _ = decode(fake, 6, base(fake, **wanted), seed=5)
    permuted, _ = decode(fake, order, base(fake, **wanted), seed=5, streams=order)
    assert permuted == [together[number] for number in order]


@pytest.mark.parametrize("beams", [1, 4])
def test_alone_or_in_a_batch(beams: int) -> None:
    fake = FakeModel(seed=6, ease=1.0, vocabulary=1200)
    wanted = base(fake, num_beams=beams, num_return_sequences=beams, bad_words_ids=[[1199]], forced_eos_token_id=0)
    together, _ = decode(fake, 9, wanted)
    assert [decode(fake, [number], wanted)[0][0] for number in range(9)] == together


def test_the_limit_is_flagged_also_where_it_forces_an_eos() -> None:  # case L1
    fake = FakeModel(ease=-30.0, rise=0.0)
    for beams in (1, 3):
        for wanted in ({}, {"forced_eos_token_id": 0}):
            found, _ = decode(fake, 3, base(fake, num_beams=beams, **wanted))
            assert [len(sentence[0].tokens) for sentence in found] == [11, 11, 11]
            assert {sentence[0].finished for sentence in found} == {False}
            assert all((sentence[0].tokens[-1] == 0) == bool(wanted) for sentence in found)


def test_twenty_tokens_where_nothing_sets_a_limit() -> None:  # case L1
    fake = FakeModel(ease=-30.0, rise=0.0)
    found, _ = decode(fake, 1, {"decoder_start_token_id": 16, "eos_token_id": 0})
    assert len(found[0][0].tokens) == 20
    assert found[0][0].finished is False


@pytest.mark.parametrize("beams", [1, 4])
def test_padding_is_never_generated_however_likely(beams: int) -> None:  # case G2
    fake = FakeModel(seed=3)
    fake.table = fake.table.copy()
    fake.table[:, 16] = 40.0
    settings = GenerationSettings.from_checkpoint(
        {}, base(fake, num_beams=beams, bad_words_ids=[[16]], num_return_sequences=beams)
    )
    for kept in (settings, GenerationSettings.from_dict(settings.to_dict())):
        found = search(fake.start(6), rows=6, settings=kept)
        assert all(16 not in output.tokens for sentence in found for output in sentence)
    without = dataclasses.replace(settings, bad_words_ids=())
    assert all(16 in sentence[0].tokens for sentence in search(fake.start(6), rows=6, settings=without))


def test_a_long_history_outgrows_its_first_buffer() -> None:
    fake = FakeModel(ease=-30.0, rise=0.0)
    for beams in (1, 2):
        found, step = decode(fake, 2, base(fake, max_length=203, num_beams=beams))
        assert len(found[0][0].tokens) == len(step.calls) == 202


def test_forced_tokens_count_as_certain() -> None:
    table = {(): [0.1, 0.1, 0.8], (1,): [0.5, 0.25, 0.25]}
    settings = dataclasses.replace(SETTINGS, forced_bos_token_id=1, forced_eos_token_ids=(0,), max_length=4)
    (output,) = search(chain(table | {(1, 1): [0.01, 0.5, 0.49]}, [0.0, 1.0, 0.0]), rows=1, settings=settings)[0]
    assert output == Hypothesis(tokens=(1, 0), score=pytest.approx(math.log(0.5) / 2), finished=True)


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_not_numbers(beams: int, value: float) -> None:
    fake = FakeModel(ease=-30.0, rise=0.0)

    def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        logits = inner(tokens, parents)
        if len(inner.calls) == 4:
            logits[1, 5] = value
        return logits

    inner = fake.start(2)
    settings = GenerationSettings.from_checkpoint({}, base(fake, num_beams=beams))
    with pytest.raises(DecodingError, match="scores for token 4 of row 1 are not finite"):
        search(step, rows=2, settings=settings)
    inner = fake.start(2)
    output = search(step, rows=2, settings=dataclasses.replace(settings, remove_invalid_values=True))[1][0]
    assert math.isfinite(output.score)


def test_nothing_left_to_choose() -> None:
    fake = FakeModel(vocabulary=5)
    wanted = base(fake, suppress_tokens=[0, 1, 2, 3, 4])
    for kind in ({}, {"do_sample": True}):
        with pytest.raises(DecodingError, match="every token is banned at token 1 of sentence 0: loosen bad_words_ids"):
            decode(fake, 2, wanted | kind)
    with pytest.raises(DecodingError, match="beam search found no output for sentence 0"):
        decode(fake, 2, wanted | {"num_beams": 2})


def test_a_beam_that_dies_leaves_fewer_outputs() -> None:
    # After the forced first token every beam is the same one, and the limit forces EOS: there is one output, not three.
    fake = FakeModel()
    wanted = base(fake, num_beams=3, num_return_sequences=3, forced_bos_token_id=5, forced_eos_token_id=0, max_length=3)
    assert [[output.tokens for output in sentence] for sentence in decode(fake, 2, wanted)[0]] == [[(5, 0)], [(5, 0)]]


def test_beam_search_needs_a_token_that_is_no_eos() -> None:
    fake = FakeModel(vocabulary=3)
    with pytest.raises(GenerationSettingsError, match="needs a token that does not end the sentence"):
        decode(fake, 1, base(fake, num_beams=2, eos_token_id=[0, 1, 2]))


def test_read_only_and_half_precision_scores() -> None:
    fake = FakeModel(seed=9)
    settings = GenerationSettings.from_checkpoint({}, base(fake, bad_words_ids=[[16]], num_beams=2))
    expected = search(fake.start(3), rows=3, settings=settings)
    inner = fake.start(3)

    def frozen(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        logits = inner(tokens, parents)
        logits.flags.writeable = False
        return logits

    assert search(frozen, rows=3, settings=settings) == expected
    half = fake.start(3)
    found = search(lambda t, p: half(t, p).astype(np.float16), rows=3, settings=settings)
    assert [len(sentence) for sentence in found] == [1, 1, 1]


def test_scores_of_the_wrong_shape() -> None:
    for shape in ((2, 17), (3, 1, 17), (17,)):
        with pytest.raises(DecodingError, match=r"scores of shape .* for 3 rows"):
            search(lambda tokens, parents, shape=shape: np.zeros(shape, np.float32), rows=3, settings=SETTINGS)


def test_streams_must_be_one_a_sentence() -> None:
    with pytest.raises(UsageError, match="streams has 2 numbers for 3 sentences"):
        search(FakeModel().start(3), rows=3, settings=SETTINGS, streams=[0, 1])


@pytest.mark.parametrize("beams", [1, 3])
def test_a_processor_of_ones_own(beams: int) -> None:
    class OnlyEven:
        only_bans = True

        def __call__(self, history: np.ndarray, scores: Scores) -> None:
            assert (history[:, 0] == 16).all()
            scores.ban(np.arange(1, scores.vocabulary, 2))

    fake = FakeModel(seed=2)
    found, _ = decode(fake, 4, base(fake, num_beams=beams), processors=[OnlyEven()])
    assert all(token % 2 == 0 for sentence in found for output in sentence for token in output.tokens)
    bans = base(fake, num_beams=beams, suppress_tokens=list(range(1, 17, 2)))
    assert found == decode(fake, 4, bans)[0]
