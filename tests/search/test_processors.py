"""Each processor equals transformers' LogitsProcessor of the same task, and all stand in transformers' order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxmt.errors import GenerationSettingsError
from onnxmt.runtime import processors
from onnxmt.runtime.processors import build_processors
from onnxmt.runtime.scores import Scores, log_sum_exp
from onnxmt.runtime.settings import GenerationSettings
from tests.search.fake import FakeModel, torch_class

V = 60
HISTORY = np.array([[59, 3, 4, 3, 4, 3], [59, 7, 7, 7, 7, 7], [59, 1, 2, 59, 1, 2]])

ONE_BY_ONE: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 1.7},
    "repetition_penalty below 1": {"repetition_penalty": 0.4},
    "no_repeat_ngram_size 1": {"no_repeat_ngram_size": 1},
    "no_repeat_ngram_size 2": {"no_repeat_ngram_size": 2},
    "no_repeat_ngram_size 3": {"no_repeat_ngram_size": 3},
    "no_repeat_ngram_size 6": {"no_repeat_ngram_size": 6},
    "no_repeat_ngram_size 7": {"no_repeat_ngram_size": 7},
    "bad_words_ids": {"bad_words_ids": [[5], [3, 9], [4, 3, 10], [7, 7, 7, 11], [2, 12], [2, 13], [59, 1, 2, 14], [0]]},
    "bad word as long as the history": {"bad_words_ids": [[59, 3, 4, 3, 4, 3, 8], [1, 59, 3, 4, 3, 4, 3, 9]]},
    "min_length": {"min_length": 7},
    "min_length reached": {"min_length": 6},
    "min_new_tokens": {"min_new_tokens": 6},
    "min_new_tokens reached": {"min_new_tokens": 5},
    "forced_eos_token_id": {"forced_eos_token_id": [0, 8], "max_length": 7},
    "forced_eos_token_id, later": {"forced_eos_token_id": [0, 8], "max_length": 8},
    "forced_bos_token_id, earlier": {"forced_bos_token_id": 8},
    "exponential_decay_length_penalty": {"exponential_decay_length_penalty": [2, 1.3]},
    "exponential_decay_length_penalty, later": {"exponential_decay_length_penalty": [5, 1.3]},
    "suppress_tokens": {"suppress_tokens": [4, 9]},
    "begin_suppress_tokens, earlier": {"begin_suppress_tokens": [4, 9]},
    "renormalize_logits": {"renormalize_logits": True, "suppress_tokens": [4, 9]},
    "remove_invalid_values": {"remove_invalid_values": True, "suppress_tokens": [4], "bad_words_ids": [[5]]},
    "temperature": {"do_sample": True, "temperature": 0.7, "top_k": 0},
    "top_k": {"do_sample": True, "top_k": 5},
    "top_k above the vocabulary": {"do_sample": True, "top_k": 500},
    "top_p 0.9": {"do_sample": True, "top_k": 0, "top_p": 0.9},
    "top_p 0.2": {"do_sample": True, "top_k": 0, "top_p": 0.2},
    "top_p tiny": {"do_sample": True, "top_k": 0, "top_p": 1e-6},
    "min_p": {"do_sample": True, "top_k": 0, "min_p": 0.1},
    "min_p 0": {"do_sample": True, "top_k": 0, "min_p": 0.0},
    "all of sampling": {"do_sample": True, "temperature": 1.4, "top_k": 20, "top_p": 0.8, "min_p": 0.05},
}
FIRST_STEP: dict[str, dict[str, Any]] = {
    "forced_bos_token_id": {"forced_bos_token_id": 8},
    "begin_suppress_tokens": {"begin_suppress_tokens": [4, 9]},
    "begin_suppress_tokens after a forced BOS": {"begin_suppress_tokens": [4, 9], "forced_bos_token_id": 4},
    "forced_eos_token_id": {"forced_eos_token_id": 0, "max_length": 2},
    "repetition_penalty": {"repetition_penalty": 2.0},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 1},
    "bad_words_ids": {"bad_words_ids": [[59, 7], [5], [3, 59, 2]]},
}
CASES = [(name, HISTORY, wanted) for name, wanted in ONE_BY_ONE.items()]
CASES += [(f"{name}, first step", HISTORY[:, :1], wanted) for name, wanted in FIRST_STEP.items()]
CASES += [
    ("begin_suppress_tokens, second step", HISTORY[:, :2], {"begin_suppress_tokens": [4], "forced_bos_token_id": 3})
]
# Beam search does not sample.
BEAMS_AND_CASES = [(beams, *case) for beams in (1, 3) for case in CASES if beams == 1 or "do_sample" not in case[2]]


def theirs(wanted: dict[str, Any]) -> Any:
    """The processors that generate() of transformers makes for these settings."""
    import torch
    from transformers import GenerationConfig

    model = torch_class()(FakeModel(vocabulary=V))
    config = GenerationConfig(
        **({"decoder_start_token_id": 59, "eos_token_id": [0, 6], "num_beams": 1, "max_length": 50} | wanted)
    )
    model._prepare_special_tokens(config, device=torch.device("cpu"))
    config = model._prepare_generated_length(
        config, False, "min_length" not in wanted, "input_ids", 1, torch.zeros(1, 1)
    )
    return model._get_logits_processor(config, input_ids_seq_length=1, device="cpu")


def ours(wanted: dict[str, Any]) -> list[processors.Processor]:
    return build_processors(
        GenerationSettings.from_checkpoint(
            {}, {"decoder_start_token_id": 59, "eos_token_id": [0, 6], "max_length": 50} | wanted
        )
    )


@pytest.mark.reference
@pytest.mark.parametrize(
    ("beams", "history", "wanted"),
    [(beams, history, wanted) for beams, _, history, wanted in BEAMS_AND_CASES],
    ids=[f"{name}, {beams} beams" for beams, name, _, _ in BEAMS_AND_CASES],
)
def test_equals_transformers(beams: int, history: np.ndarray, wanted: dict[str, Any]) -> None:
    import torch

    wanted = wanted | {"num_beams": beams}
    logits = (np.random.default_rng(5).normal(size=(3, V)) * 3).astype(np.float32)
    shown = torch.from_numpy(logits)
    expected = theirs(wanted)(torch.from_numpy(history), shown.log_softmax(-1) if beams > 1 else shown).numpy()
    scores = Scores(logits.copy(), log_sum_exp(logits) if beams > 1 else None)
    built = ours(wanted)
    for processor in built:
        processor(history, scores)
    found = scores.settled()
    if beams == 1 and wanted.get("renormalize_logits"):  # left out where it changes no choice
        found = found - log_sum_exp(found)[:, None]
    assert np.array_equal(np.isneginf(found), np.isneginf(expected))
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.reference
def test_removes_invalid_values_as_transformers_does() -> None:
    import torch

    logits = np.array([[np.nan, np.inf, -np.inf, 1.5]], np.float32)
    expected = theirs({"remove_invalid_values": True})(torch.tensor([[59]]), torch.from_numpy(logits.copy())).numpy()
    scores = Scores(logits)
    processors.RemoveInvalid()(np.array([[59]]), scores)
    assert scores.values.tolist() == expected.tolist()


ALL = {
    "repetition_penalty": 1.1, "no_repeat_ngram_size": 2, "bad_words_ids": [[5]], "min_new_tokens": 3, "forced_bos_token_id": 8,
    "forced_eos_token_id": 0, "remove_invalid_values": True, "exponential_decay_length_penalty": [2, 1.1],
    "suppress_tokens": [4], "begin_suppress_tokens": [9],
}  # fmt: skip
SAMPLING = {"do_sample": True, "temperature": 0.5, "top_k": 9, "top_p": 0.9, "min_p": 0.1}
NAMES = {
    "RepetitionPenaltyLogitsProcessor": "RepetitionPenalty", "NoRepeatNGramLogitsProcessor": "NoRepeatNGram",
    "NoBadWordsLogitsProcessor": "NoBadWords", "MinLengthLogitsProcessor": "MinLength",
    "MinNewTokensLengthLogitsProcessor": "MinLength", "ForcedBOSTokenLogitsProcessor": "ForcedToken",
    "ForcedEOSTokenLogitsProcessor": "ForcedToken", "InfNanRemoveLogitsProcessor": "RemoveInvalid",
    "ExponentialDecayLengthPenalty": "ExponentialDecay", "SuppressTokensLogitsProcessor": "SuppressTokens",
    "SuppressTokensAtBeginLogitsProcessor": "SuppressTokens", "TemperatureLogitsWarper": "Temperature",
    "TopKLogitsWarper": "TopK", "TopPLogitsWarper": "TopP", "MinPLogitsWarper": "MinP", "LogitNormalization": "Renormalize",
}  # fmt: skip


@pytest.mark.reference
@pytest.mark.parametrize("wanted", [ALL | SAMPLING, ALL | {"num_beams": 4, "renormalize_logits": True}])
def test_order_is_that_of_transformers(wanted: dict[str, Any]) -> None:
    expected = [NAMES[type(processor).__name__] for processor in theirs(wanted)]
    expected.remove("MinLength")  # theirs are two that do the same, since min_new_tokens sets min_length as well
    found = [type(processor).__name__ for processor in ours(wanted)]
    assert found == expected
    assert len(found) >= 11


def test_nothing_asked_for_nothing_done() -> None:
    assert build_processors(GenerationSettings(decoder_start_token_id=1, eos_token_ids=(0,))) == []
    assert (
        build_processors(GenerationSettings(decoder_start_token_id=1, bad_words_ids=((0,),), eos_token_ids=(0,))) == []
    )


def test_more_processors_run_between_the_settings_and_the_shaping_of_the_distribution() -> None:
    class Mine:
        only_bans = True

        def __call__(self, history: np.ndarray, scores: Scores) -> None:
            raise NotImplementedError

    settings = GenerationSettings.from_checkpoint(
        {}, {"decoder_start_token_id": 59, "eos_token_id": 0} | ALL | SAMPLING
    )
    names = [type(processor).__name__ for processor in build_processors(settings, [Mine()])]
    assert names[-5:] == ["Mine", "Temperature", "TopK", "TopP", "MinP"]


def test_a_start_token_without_a_score_is_no_repetition() -> None:
    history = np.array([[9, 2, 2], [9, 1, 1]])
    for processor in (processors.RepetitionPenalty(2.0), processors.NoRepeatNGram(1)):
        scores = Scores(np.ones((2, 4), np.float32))
        processor(history, scores)
        changed = [np.flatnonzero(row != 1).tolist() for row in scores.values]
        assert changed == [[2], [1]]


def test_decay_leaves_a_banned_eos_banned_and_stays_finite() -> None:
    for banned in (-np.inf, np.finfo(np.float32).min):
        scores = Scores(np.array([[banned, -0.5, 0.0]], np.float32))
        processors.ExponentialDecay(1, 9.0, np.array([0, 1]))(np.zeros((1, 900), np.int64), scores)
        assert scores.values[0, 0] == np.float32(banned)
        assert np.isfinite(scores.values[0, 1])
        assert scores.values[0, 1] > 1e38


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"eos_token_id": 40}, "eos_token_id has 40"),
        ({"forced_bos_token_id": 17}, "forced_bos_token_id has 17"),
        ({"forced_eos_token_id": [0, 18]}, "forced_eos_token_id has 18"),
        ({"bad_words_ids": [[3], [2, 99], [65000]]}, "bad_words_ids has 99, 65000"),
    ],
)
def test_settings_of_another_model(wanted: dict[str, Any], named: str) -> None:
    settings = GenerationSettings.from_checkpoint({}, {"decoder_start_token_id": 400, "eos_token_id": 0} | wanted)
    with pytest.raises(
        GenerationSettingsError, match=f"the model scores 17 tokens, 0 to 16, and {named}: .*another model"
    ):
        processors.check_vocabulary(settings, 17)
