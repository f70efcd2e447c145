from __future__ import annotations

from typing import Any

import pytest

from onnxmt.errors import GenerationSettingsError, UsageError
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.translation import TranslateOptions

BASE = GenerationSettings(decoder_start_token_id=9, eos_token_ids=(0,), max_length=50, num_beams=4, length_penalty=0.8)


def test_nothing_asked_changes_nothing() -> None:
    assert TranslateOptions().apply_to(BASE) == BASE


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"beams": 1}, {"num_beams": 1}),
        ({"max_new_tokens": 7}, {"max_new_tokens": 7}),
        ({"min_new_tokens": 0}, {"min_new_tokens": 0}),
        ({"length_penalty": 1.5, "early_stopping": "never"}, {"length_penalty": 1.5, "early_stopping": "never"}),
        (
            {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3},
            {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3},
        ),
        ({"alternatives": 3}, {"num_return_sequences": 4}),
        ({"sample": True, "top_k": 5}, {"do_sample": True, "top_k": 5, "num_beams": 1}),
        ({"sample": True, "alternatives": 2}, {"do_sample": True, "num_beams": 1, "num_return_sequences": 3}),
        ({"sample": False}, {"do_sample": False}),
    ],
)
def test_each_option_sets_its_setting(options: dict[str, Any], changed: dict[str, Any]) -> None:
    found = TranslateOptions(**options).apply_to(BASE)

    assert {name: getattr(found, name) for name in changed} == changed
    assert found.length_penalty == changed.get("length_penalty", 0.8)


def test_beams_replace_a_bundles_sampling() -> None:
    sampling = GenerationSettings(decoder_start_token_id=9, do_sample=True, max_length=9)

    assert TranslateOptions(beams=4).apply_to(sampling).do_sample is False
    assert TranslateOptions().apply_to(sampling).do_sample is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alternatives": 4}, "4 alternatives need 5 beams, and there are 4: raise beams, or ask for fewer"),
        ({"beams": 1, "alternatives": 1}, "1 alternatives need 2 beams, and there is 1"),
    ],
)
def test_more_candidates_than_beams_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TranslateOptions(**options).apply_to(BASE)


def test_whole_numbers_are_checked_together() -> None:
    with pytest.raises(UsageError) as caught:
        TranslateOptions(beams=0, max_new_tokens=-1, batch_tokens=True, seed=1.5, alternatives=-2)  # type: ignore[arg-type]

    for part in (
        "beams is 0; a whole number of 1 or more", "max_new_tokens is -1", "batch_tokens is True", "seed is 1.5",
        "alternatives is -2; a whole number of 0 or more",
    ):  # fmt: skip
        assert part in str(caught.value)


@pytest.mark.parametrize("options", [{"sample": True, "beams": 2}, {"top_p": 2.0}, {"length_penalty": float("nan")}])
def test_contradictions_are_the_settings_errors(options: dict[str, Any]) -> None:
    with pytest.raises(GenerationSettingsError):
        TranslateOptions(**options).apply_to(BASE)
