"""Tokens and scores equal those of generate(): each setting, at greedy and beams 2, 4 and 5, and random mixtures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onnxmt.runtime.search import search
from onnxmt.runtime.settings import GenerationSettings
from tests.search.fake import FakeModel
from tests.search.judge import assert_same, base
from tests.tiny import build_marian

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("ignore")]

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no EOS": {"eos_token_id": None},
    "EOS as a list of one": {"eos_token_id": [3]},
    "EOS list": {"eos_token_id": [0, 4, 9]},
    "forced BOS": {"forced_bos_token_id": 5},
    "forced EOS": {"forced_eos_token_id": 0},
    "forced EOS that is no EOS": {"forced_eos_token_id": 7},
    "forced BOS and EOS, short": {"forced_bos_token_id": 5, "forced_eos_token_id": 0, "max_length": 5},
    "bad words, single": {"bad_words_ids": [[16], [3], [8]]},
    "bad words, sequences": {"bad_words_ids": [[5, 6], [1, 2], [2, 1], [9, 9, 9], [3, 0], [4, 0], [16, 2], [16, 5]]},
    "bad words of all lengths": {"bad_words_ids": [[16], [11, 3], [2, 5, 1], [10, 12], [16, 11], [16, 1], [7, 8, 9, 10]]},
    "bad word EOS is ignored": {"bad_words_ids": [[0], [1]]},
    "bad word EOS of a list": {"bad_words_ids": [[0], [4], [1]], "eos_token_id": [0, 4]},
    "bad words empty": {"bad_words_ids": None},
    "suppressed": {"suppress_tokens": [2, 3, 16]},
    "suppressed EOS": {"suppress_tokens": [0]},
    "suppressed outside the vocabulary": {"suppress_tokens": [2, 400]},
    "suppressed first": {"begin_suppress_tokens": [0, 1, 2, 3, 4, 5]},
    "suppressed first after forced BOS": {"begin_suppress_tokens": [0, 1, 2, 3, 4, 5], "forced_bos_token_id": 3},
    "length penalty 0": {"length_penalty": 0.0},
    "length penalty 0.6": {"length_penalty": 0.6},
    "length penalty 2": {"length_penalty": 2.0},
    "length penalty -1": {"length_penalty": -1.0},
    "length penalty as a whole number": {"length_penalty": -2},
    "early stopping": {"early_stopping": True},
    "early stopping, length penalty 2": {"early_stopping": True, "length_penalty": 2.0},
    "early stopping, length penalty -1": {"early_stopping": True, "length_penalty": -1.0},
    "early stopping never": {"early_stopping": "never"},
    "early stopping never, length penalty 0": {"early_stopping": "never", "length_penalty": 0.0},
    "early stopping never, length penalty -1": {"early_stopping": "never", "length_penalty": -1.0},
    "early stopping never, length penalty 2": {"early_stopping": "never", "length_penalty": 2.0},
    "repetition penalty": {"repetition_penalty": 1.5},
    "repetition reward": {"repetition_penalty": 0.6},
    "no repeated token": {"no_repeat_ngram_size": 1},
    "no repeated bigram": {"no_repeat_ngram_size": 2, "repetition_penalty": 0.5, "max_length": 25},
    "no repeated trigram": {"no_repeat_ngram_size": 3, "repetition_penalty": 0.2, "max_length": 30},
    "n-gram longer than the text": {"no_repeat_ngram_size": 40},
    "minimum length": {"min_length": 6},
    "minimum new tokens": {"min_new_tokens": 6},
    "minimum: new tokens win": {"min_length": 9, "min_new_tokens": 3},
    "minimum over the maximum": {"min_length": 30},
    "maximum new tokens": {"max_length": None, "max_new_tokens": 4},
    "maximum: new tokens win, longer": {"max_length": 4, "max_new_tokens": 9},
    "maximum: new tokens win, shorter": {"max_length": 20, "max_new_tokens": 3},
    "no maximum: 20 new tokens": {"max_length": None, "suppress_tokens": [0]},
    "one new token": {"max_new_tokens": 1},
    "decay": {"exponential_decay_length_penalty": [2, 1.4]},
    "decay of EOS's chances": {"exponential_decay_length_penalty": [0, 0.5]},
    "renormalised": {"renormalize_logits": True, "bad_words_ids": [[16], [3]], "repetition_penalty": 1.3},
    "invalid values removed": {"remove_invalid_values": True, "bad_words_ids": [[3]], "forced_eos_token_id": 0},
    "as opus-mt": {"bad_words_ids": [[16]], "forced_eos_token_id": 0, "renormalize_logits": True},
    "as nllb": {"forced_bos_token_id": 14, "max_length": 20, "no_repeat_ngram_size": 3},
    "everything": {
        "forced_bos_token_id": 5, "forced_eos_token_id": 0, "bad_words_ids": [[16], [3, 4]], "suppress_tokens": [2],
        "begin_suppress_tokens": [8], "repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "min_length": 4,
        "exponential_decay_length_penalty": [3, 1.1], "renormalize_logits": True, "length_penalty": 0.7,
        "early_stopping": True, "remove_invalid_values": True,
    },
}  # fmt: skip

# Short outputs that end at different steps; long ones that mostly reach the limit; a vocabulary searched by blocks.
MODELS = {
    "ends early": FakeModel(seed=1, ease=2.0, rise=0.3),
    "ends late": FakeModel(seed=2, ease=-1.0, rise=0.2),
    "1,500 tokens": FakeModel(seed=3, ease=4.0, rise=0.4, vocabulary=1500),
}


@pytest.mark.parametrize("beams", [1, 2, 4, 5])
@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting(name: str, beams: int) -> None:
    for fake in MODELS.values():
        wanted = base(fake, num_beams=beams, num_return_sequences=max(1, beams - 1))
        assert_same(fake, 4, {key: value for key, value in (wanted | SETTINGS[name]).items() if value is not None})


@pytest.mark.parametrize("beams", [2, 3, 5])
def test_forced_eos_of_a_list_ties(beams: int) -> None:
    # Each beam ends in either token with the same score: torch.topk promises no order between them, so they count as one.
    for seed in range(6):
        fake = FakeModel(seed=seed, ease=-1.0)
        wanted = base(
            fake, num_beams=beams, num_return_sequences=beams, forced_eos_token_id=[0, 1], eos_token_id=[0, 1]
        )
        assert_same(fake, 3, wanted, masked=frozenset({0, 1}))


def test_forced_eos_of_a_list_greedy() -> None:
    assert_same(FakeModel(ease=-5.0), 4, base(FakeModel(), forced_eos_token_id=[4, 2]))


def test_greedy_takes_the_lowest_of_equal_tokens_as_torch_does() -> None:
    for seed in range(20):
        fake = FakeModel(seed=seed, grid=1.0, scale=1.0, ease=0.0, rise=0.0)
        assert_same(fake, 5, base(fake, max_length=16))


@pytest.mark.parametrize("beams", [2, 4])
def test_several_likely_ends(beams: int) -> None:
    # Most of the best candidates end: more than 2 * beams have to be looked at to find `beams` that go on.
    for seed in range(4):
        fake = FakeModel(seed=seed, ease=2.0, rise=0.0)
        fake.table = fake.table.copy()
        fake.table[:, [4, 9, 11]] += 2.0
        wanted = {"eos_token_id": [0, 4, 9, 11], "early_stopping": "never", "length_penalty": 3.0}
        assert_same(fake, 4, base(fake, num_beams=beams, num_return_sequences=beams, **wanted))


def test_minus_infinity_in_the_logits() -> None:
    # Some conversions ban <pad> by a bias of -inf.
    for beams in (1, 3):
        for invalid in (False, True):
            fake = FakeModel(seed=5)
            fake.table[:, -1] = -np.inf
            assert_same(fake, 3, base(fake, num_beams=beams, remove_invalid_values=invalid))


def test_long_outputs_and_a_wide_beam() -> None:
    fake = FakeModel(seed=8, ease=-3.0, rise=0.02, vocabulary=60)
    assert_same(fake, 3, base(fake, num_beams=12, num_return_sequences=12, max_length=150))


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[FakeModel, int, dict[str, Any]]:
    vocabulary = draw(st.sampled_from([17, 30, 1300]))
    tokens = st.integers(0, vocabulary - 1)
    fake = FakeModel(
        seed=draw(st.integers(0, 30)), vocabulary=vocabulary,
        ease=draw(st.sampled_from([-2.0, 0.0, 1.0, 3.0])), rise=draw(st.sampled_from([0.0, 0.1, 0.5])),
    )  # fmt: skip
    beams = draw(st.integers(1, 5))
    optional: dict[str, st.SearchStrategy[Any]] = {
        "eos_token_id": st.sampled_from([0, [0], [0, 1], [2, 0, 1]]),
        "max_length": st.integers(4, 14),
        "max_new_tokens": st.integers(3, 12),
        "min_length": st.integers(0, 6),
        "min_new_tokens": st.integers(0, 6),
        "early_stopping": st.sampled_from([False, True, "never"]),
        "length_penalty": st.sampled_from([-1.0, -0.5, 0.0, 0.6, 1, 2.0]),
        "repetition_penalty": st.sampled_from([0.8, 1.2, 3.0]),
        "no_repeat_ngram_size": st.integers(1, 3),
        "bad_words_ids": st.lists(st.lists(tokens, min_size=1, max_size=3), min_size=1, max_size=4),
        "forced_bos_token_id": st.integers(3, vocabulary - 1),
        "forced_eos_token_id": st.just(0),
        "suppress_tokens": st.lists(st.integers(5, vocabulary - 1), min_size=1, max_size=3),
        "begin_suppress_tokens": st.lists(tokens, min_size=1, max_size=3),
        "exponential_decay_length_penalty": st.tuples(st.integers(0, 5), st.sampled_from([0.9, 1.1, 1.5])).map(list),
        "renormalize_logits": st.booleans(),
    }
    chosen = draw(st.fixed_dictionaries({}, optional=optional))
    assume(chosen.get("forced_bos_token_id") not in chosen.get("suppress_tokens", []))
    return (
        fake,
        draw(st.integers(1, 4)),
        base(fake, num_beams=beams, num_return_sequences=draw(st.integers(1, beams))) | chosen,
    )


@hypothesis_settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(mixtures())
def test_random_mixtures(mixture: tuple[FakeModel, int, dict[str, Any]]) -> None:
    assert_same(*mixture)


# A real model: the step is a torch forward over all tokens so far, the judge is generate() with its own cache.


def marian_step(model: Any, inputs: Any) -> Any:
    import torch

    encoded = model.get_encoder()(**inputs)[0]
    held: dict[str, Any] = {"history": None, "sentence": np.arange(len(encoded))}

    def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        if parents is not None:
            held["sentence"] = held["sentence"][parents]
        history = held["history"] if parents is None or held["history"] is None else held["history"][parents]
        held["history"] = tokens if history is None else np.concatenate((history, tokens), axis=1)
        with torch.no_grad():
            output = model(
                encoder_outputs=(encoded[held["sentence"]],),
                attention_mask=inputs["attention_mask"][held["sentence"]],
                decoder_input_ids=torch.from_numpy(held["history"]),
                use_cache=False,
            )
        return output.logits[:, -1].numpy().copy()

    return step


@pytest.fixture(scope="module", params=[0.0, 5.0, 30.0], ids=["no bias", "random bias", "padding likeliest"])
def marian(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny Marian model; cases G1 (a random ±5 logits bias) and G2 (<pad> has by far the highest bias)."""
    import torch
    from transformers import MarianMTModel

    folder = build_marian(
        tmp_path_factory.mktemp("marian"), seed=7, logits_bias=min(request.param, 5.0), generation={"max_length": 24}
    )
    model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    if request.param == 30.0:
        model.final_logits_bias[0, model.config.pad_token_id] = 30.0
    return model


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_marian(marian: Any, beams: int, tmp_path: Path) -> None:
    import json

    import torch

    pad = marian.config.pad_token_id
    ids = [[21, 35, 0], [8, 9, 10, 11, 12, 13, 40, 41, 42, 7, 0], [17, 0]]
    width = max(map(len, ids))
    inputs = {
        "input_ids": torch.tensor([row + [pad] * (width - len(row)) for row in ids]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids]),
    }
    marian.generation_config.save_pretrained(tmp_path)
    generation = json.loads((tmp_path / "generation_config.json").read_text()) | {
        "num_beams": beams, "num_return_sequences": beams,
    }  # fmt: skip
    settings = GenerationSettings.from_checkpoint({}, generation)
    settings = GenerationSettings.from_dict(json.loads(json.dumps(settings.to_dict())))  # as a bundle keeps them
    with torch.no_grad():
        expected = marian.generate(
            **inputs, num_beams=beams, num_return_sequences=beams, output_scores=True, return_dict_in_generate=True
        )
    found = [
        output for sentence in search(marian_step(marian, inputs), rows=3, settings=settings) for output in sentence
    ]
    for output, tokens in zip(found, expected.sequences[:, 1:].tolist(), strict=True):
        assert list(output.tokens) == tokens[: len(output.tokens)]
        assert set(tokens[len(output.tokens) :]) <= {pad}
        assert pad not in output.tokens
    if beams > 1:
        assert [output.score for output in found] == pytest.approx(expected.sequences_scores.tolist(), abs=1e-4)


def test_greedy_score_is_the_mean_of_the_models_own_log_probabilities() -> None:
    import torch

    fake = FakeModel(seed=4, ease=1.0)
    wanted = base(fake, repetition_penalty=1.3, bad_words_ids=[[16], [3]], no_repeat_ngram_size=2)
    settings = GenerationSettings.from_checkpoint({}, wanted)
    for number, (output,) in enumerate(search(fake.start(5), rows=5, settings=settings)):
        history, total = [16], 0.0
        for token in output.tokens:
            logits = torch.from_numpy(fake.logits(np.array([number]), np.array([history])))
            total += torch.log_softmax(logits.double(), dim=1)[0, token].item()
            history.append(token)
        assert output.score == pytest.approx(total / len(output.tokens), abs=1e-5)
