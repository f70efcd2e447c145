"""GenerationSettings: reading checkpoints, refusing by name, and the round trip through a bundle."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onnxmt.errors import GenerationSettingsError
from onnxmt.runtime.settings import GenerationSettings, unknown_settings

OPUS_MT = {
    "_from_model_config": True, "bad_words_ids": [[65000]], "bos_token_id": 0, "decoder_start_token_id": 65000,
    "eos_token_id": 0, "forced_eos_token_id": 0, "max_length": 512, "num_beams": 4, "pad_token_id": 65000,
    "renormalize_logits": True, "transformers_version": "4.32.0.dev0",
}  # fmt: skip
NLLB = {
    "_from_model_config": True, "bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "max_length": 200,
    "pad_token_id": 1, "transformers_version": "4.27.0.dev0",
}  # fmt: skip


def test_opus_mt() -> None:
    assert GenerationSettings.from_checkpoint({}, OPUS_MT) == GenerationSettings(
        decoder_start_token_id=65000, eos_token_ids=(0,), pad_token_id=65000, forced_eos_token_ids=(0,), max_length=512,
        num_beams=4, bad_words_ids=((65000,),), renormalize_logits=True,
    )  # fmt: skip


def test_nllb() -> None:
    assert GenerationSettings.from_checkpoint({"d_model": 1024}, NLLB) == GenerationSettings(
        decoder_start_token_id=2, eos_token_ids=(2,), pad_token_id=1, max_length=200
    )


def test_special_tokens_come_from_config_json_where_the_generation_config_lacks_them() -> None:
    config = {"decoder_start_token_id": 7, "eos_token_id": 0, "pad_token_id": 7, "num_beams": 6, "max_length": 99}
    assert GenerationSettings.from_checkpoint(config, {"num_beams": 2}) == GenerationSettings(
        decoder_start_token_id=7, eos_token_ids=(0,), pad_token_id=7, num_beams=2
    )
    assert GenerationSettings.from_checkpoint(config, {"decoder_start_token_id": 3}).decoder_start_token_id == 3


def test_a_missing_start_token_is_an_error_and_never_the_bos_token() -> None:  # case G1
    with pytest.raises(GenerationSettingsError, match=r"decoder_start_token_id is missing.*not guessed.*add it"):
        GenerationSettings.from_checkpoint(
            {"bos_token_id": 0, "eos_token_id": 0}, {"bos_token_id": 0, "eos_token_id": 0}
        )
    with pytest.raises(GenerationSettingsError, match="decoder_start_token_id is missing"):
        GenerationSettings.from_dict({"eos_token_id": 0})


REFUSED = [
    ("num_beam_groups", 2, "group beam search"),
    ("diversity_penalty", 0.5, "group beam search"),
    ("constraints", [{"token": 1}], "constrained beam search"),
    ("force_words_ids", [[3]], "constrained beam search"),
    ("penalty_alpha", 0.6, "contrastive search"),
    ("dola_layers", "low", "DoLa"),
    ("prompt_lookup_num_tokens", 3, "assisted decoding"),
    ("assistant_early_exit", 4, "assisted decoding"),
    ("is_assistant", True, "assisted decoding"),
    ("use_mtp", True, "multi-token prediction"),
    ("guidance_scale", 1.5, "classifier-free guidance"),
    ("sequence_bias", [[[4], 2.0]], "biased sequences"),
    ("watermarking_config", {"bias": 2.0}, "watermarking"),
    ("typical_p", 0.9, "typical sampling"),
    ("epsilon_cutoff", 3e-4, "epsilon sampling"),
    ("eta_cutoff", 3e-4, "eta sampling"),
    ("top_h", 0.4, "top-H sampling"),
    ("encoder_repetition_penalty", 1.5, "source"),
    ("encoder_no_repeat_ngram_size", 2, "source"),
    ("token_healing", True, "token healing"),
    ("stop_strings", ["."], "stop strings"),
    ("max_time", 3.0, "a time limit"),
    ("low_memory", True, "sequential"),
    ("forced_decoder_ids", [[1, 2]], "forced decoder ids"),
    ("force_bos_token_to_be_generated", True, "forced_bos_token_id"),
]


@pytest.mark.parametrize(("key", "value", "what"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_not_implemented_is_refused_by_name(key: str, value: Any, what: str) -> None:
    with pytest.raises(GenerationSettingsError, match=what) as caught:
        GenerationSettings.from_checkpoint({}, NLLB | {key: value})
    assert key in str(caught.value)
    assert "\n" not in str(caught.value)


def test_neutral_values_ask_for_nothing() -> None:
    neutral = {
        "num_beam_groups": 1, "diversity_penalty": 0.0, "constraints": None, "force_words_ids": [], "penalty_alpha": 0,
        "guidance_scale": 1.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0, "encoder_repetition_penalty": 1.0,
        "encoder_no_repeat_ngram_size": 0, "token_healing": False, "low_memory": None, "sequence_bias": None,
        "repetition_penalty": None, "num_beams": None, "forced_bos_token_id": None, "bad_words_ids": [],
        "suppress_tokens": [], "early_stopping": None, "temperature": None, "top_k": None, "min_length": None,
        "exponential_decay_length_penalty": None, "num_assistant_tokens": 20,
    }  # fmt: skip
    assert GenerationSettings.from_checkpoint({}, NLLB | neutral) == GenerationSettings.from_checkpoint({}, NLLB)


def test_modes_that_need_two_settings_are_refused() -> None:
    with pytest.raises(GenerationSettingsError, match="do_sample with num_beams = 4 asks for beam sampling"):
        GenerationSettings.from_checkpoint({}, OPUS_MT | {"do_sample": True})
    with pytest.raises(GenerationSettingsError, match="num_return_sequences is 3 and num_beams 1"):
        GenerationSettings(decoder_start_token_id=1, num_return_sequences=3)
    with pytest.raises(GenerationSettingsError, match="num_return_sequences is 5 and num_beams 4"):
        GenerationSettings.from_checkpoint({}, OPUS_MT | {"num_return_sequences": 5})
    assert (
        GenerationSettings(decoder_start_token_id=1, num_return_sequences=3, do_sample=True).num_return_sequences == 3
    )


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("decoder_start_token_id", -1, "a whole number of 0 or more"),
        ("decoder_start_token_id", True, "a whole number of 0 or more"),
        ("eos_token_id", "0", "token ids of 0 or more, as a list or a single one"),
        ("eos_token_id", [0, -1], "token ids"),
        ("num_beams", 0, "a whole number of 1 or more"),
        ("num_beams", 4.0, "a whole number of 1 or more"),
        ("num_return_sequences", 0, "a whole number of 1 or more"),
        ("max_length", 1, "a whole number of 2 or more"),
        ("max_new_tokens", 0, "a whole number of 1 or more"),
        ("min_length", -1, "a whole number of 0 or more"),
        ("early_stopping", "always", 'true, false or "never"'),
        ("early_stopping", 1, 'true, false or "never"'),
        ("length_penalty", float("nan"), "a number"),
        ("length_penalty", "1.0", "a number"),
        ("repetition_penalty", 0, "a number above 0"),
        ("bad_words_ids", [3], "a list of lists"),
        ("bad_words_ids", [[3], []], "none of them empty"),
        ("bad_words_ids", "none", "a list of lists"),
        ("suppress_tokens", 4, "token ids"),
        ("exponential_decay_length_penalty", [3], "after how many new tokens"),
        ("exponential_decay_length_penalty", 3, "after how many new tokens"),
        ("do_sample", "yes", "true or false"),
        ("temperature", 0.0, "set do_sample: false"),
        ("top_k", -1, "a whole number of 0 or more"),
        ("top_p", 0.0, "a number above 0, at most 1"),
        ("top_p", 1.5, "a number above 0, at most 1"),
        ("min_p", -0.1, "a number from 0 to 1"),
    ],
)
def test_values_out_of_range(key: str, value: Any, allowed: str) -> None:
    for read in (lambda values: GenerationSettings.from_checkpoint({}, values), GenerationSettings.from_dict):
        with pytest.raises(GenerationSettingsError) as caught:
            read({"decoder_start_token_id": 2, "eos_token_id": 0, key: value})
        assert f"{key} is " in str(caught.value)
        assert allowed in str(caught.value)


def test_all_problems_are_listed_at_once() -> None:
    with pytest.raises(GenerationSettingsError) as caught:
        GenerationSettings.from_checkpoint({}, {"num_beams": 0, "top_p": 7, "penalty_alpha": 0.6, "num_beam_groups": 4})
    message = str(caught.value)
    assert "5 problems" in message
    for name in ("num_beams", "top_p", "penalty_alpha", "num_beam_groups", "decoder_start_token_id"):
        assert name in message


def test_forcing_a_suppressed_token_is_an_error() -> None:
    with pytest.raises(GenerationSettingsError, match=r"forced_eos_token_id \[0\] is also in suppress_tokens"):
        GenerationSettings.from_checkpoint({}, OPUS_MT | {"suppress_tokens": [0, 4]})
    with pytest.raises(GenerationSettingsError, match=r"forced_bos_token_id \[9\] is also in suppress_tokens"):
        GenerationSettings.from_checkpoint({}, NLLB | {"suppress_tokens": [9], "forced_bos_token_id": 9})
    GenerationSettings.from_checkpoint({}, NLLB | {"suppress_tokens": [9], "forced_eos_token_id": [9, 2]})


def test_lengths() -> None:
    settings = GenerationSettings(decoder_start_token_id=1)
    assert (settings.length_limit, settings.length_minimum) == (21, 0)
    assert dataclasses.replace(settings, max_length=50).length_limit == 50
    assert dataclasses.replace(settings, max_length=50, max_new_tokens=7).length_limit == 8
    assert dataclasses.replace(settings, min_length=5).length_minimum == 5
    assert dataclasses.replace(settings, min_length=5, min_new_tokens=2).length_minimum == 3


def test_a_limit_that_nothing_sets_is_worth_a_warning() -> None:
    settings = GenerationSettings(decoder_start_token_id=1)
    assert "cut at 20 tokens" in (settings.length_warning or "")
    assert dataclasses.replace(settings, max_length=20).length_warning is None
    assert dataclasses.replace(settings, max_new_tokens=20).length_warning is None


def test_limit_of_the_position_table() -> None:  # case L1
    settings = GenerationSettings(decoder_start_token_id=1, max_length=1024)
    assert settings.limited_to(512).length_limit == 513  # 512 tokens are fed, and the 513th is never fed back
    assert settings.limited_to(1023) is settings
    assert dataclasses.replace(settings, max_new_tokens=600).limited_to(512).length_limit == 513


def test_opus_mt_as_a_bundle_keeps_it() -> None:
    assert GenerationSettings.from_checkpoint({}, OPUS_MT).to_dict() == {
        "decoder_start_token_id": 65000, "eos_token_id": 0, "pad_token_id": 65000, "forced_eos_token_id": 0,
        "max_length": 512, "min_length": 0, "num_beams": 4, "num_return_sequences": 1, "early_stopping": False,
        "length_penalty": 1.0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "bad_words_ids": [[65000]],
        "renormalize_logits": True, "remove_invalid_values": False, "do_sample": False, "temperature": 1.0, "top_k": 50,
        "top_p": 1.0,
    }  # fmt: skip


def test_a_key_that_is_not_known_is_refused_in_a_bundle() -> None:
    written = GenerationSettings(decoder_start_token_id=1).to_dict()
    with pytest.raises(GenerationSettingsError, match="'top_z' is not a setting of this version"):
        GenerationSettings.from_dict(written | {"top_z": 3})
    with pytest.raises(GenerationSettingsError, match="'num_beam_groups' is not a setting"):
        GenerationSettings.from_dict(written | {"num_beam_groups": 1})


TOKENS = st.integers(0, 300_000)
NUMBERS = st.floats(-10, 10) | st.integers(-5, 5)
ANY_SETTINGS = st.fixed_dictionaries(
    {"decoder_start_token_id": TOKENS},
    optional={
        "eos_token_ids": st.lists(TOKENS, max_size=3).map(tuple),
        "pad_token_id": TOKENS,
        "forced_bos_token_id": TOKENS,
        "forced_eos_token_ids": st.lists(TOKENS, max_size=3).map(tuple),
        "max_length": st.integers(2, 10**9),
        "max_new_tokens": st.integers(1, 10**9),
        "min_length": st.integers(0, 99),
        "min_new_tokens": st.integers(0, 99),
        "num_beams": st.integers(1, 9),
        "early_stopping": st.sampled_from([True, False, "never"]),
        "length_penalty": NUMBERS,
        "repetition_penalty": st.floats(0.1, 9),
        "no_repeat_ngram_size": st.integers(0, 9),
        "bad_words_ids": st.lists(st.lists(TOKENS, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
        "begin_suppress_tokens": st.lists(TOKENS, max_size=3).map(tuple),
        "exponential_decay_length_penalty": st.tuples(st.integers(0, 9), st.floats(0.1, 9)),
        "renormalize_logits": st.booleans(),
        "remove_invalid_values": st.booleans(),
        "temperature": st.floats(0.01, 9),
        "top_k": st.integers(0, 99),
        "top_p": st.floats(0.01, 1),
        "min_p": st.floats(0, 1),
    },
)


@hypothesis_settings(max_examples=50, deadline=None)
@given(ANY_SETTINGS)
def test_round_trip_is_exact(values: dict[str, Any]) -> None:
    settings = GenerationSettings(**values)
    assert GenerationSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    assert GenerationSettings.from_checkpoint({}, settings.to_dict()) == settings


def test_settings_cannot_be_changed_in_place_and_are_hashable() -> None:
    settings = GenerationSettings.from_checkpoint({}, OPUS_MT)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.num_beams = 2  # type: ignore[misc]
    assert len({settings, GenerationSettings.from_checkpoint({}, OPUS_MT)}) == 1


def test_unknown_settings() -> None:
    assert unknown_settings(OPUS_MT | {"num_beam_groups": 1, "lang_to_id": {"zh": 3}, "alpha": 1}) == (
        "alpha",
        "lang_to_id",
    )


@pytest.mark.reference
def test_every_setting_of_transformers_has_been_considered() -> None:
    from transformers import GenerationConfig

    assert unknown_settings(GenerationConfig().to_dict()) == ()


@pytest.mark.reference
def test_transformers_reads_what_a_bundle_holds() -> None:
    from transformers import GenerationConfig

    written = GenerationSettings.from_checkpoint({}, OPUS_MT).to_dict()
    theirs = GenerationConfig(**written).to_dict()
    assert {key: theirs[key] for key in written} == written


@pytest.mark.reference
def test_defaults_are_those_of_transformers() -> None:
    from transformers import GenerationConfig

    theirs = GenerationConfig._get_default_generation_params()
    ours = GenerationSettings(decoder_start_token_id=0).to_dict()
    assert {key: ours[key] for key in ours.keys() & theirs.keys()} == {
        key: theirs[key] for key in ours.keys() & theirs.keys()
    }
    assert theirs["max_length"] == 20
