from __future__ import annotations

import pytest

from onnxmt.runtime.flags import repeated_run, warnings_of
from onnxmt.runtime.settings import GenerationSettings

SETTINGS = GenerationSettings(decoder_start_token_id=9, eos_token_ids=(0,), max_length=41)


@pytest.mark.parametrize(
    ("tokens", "run"),
    [
        ((), 0),
        ((1, 2, 3, 4, 5, 6, 7, 8, 9), 0),
        ((5,) * 7, 0),  # an exclamation drawn out
        ((5,) * 8, 8),
        ((1, 2, 5, 5, 5, 5, 5, 5, 5, 5, 3), 8),
        ((1, 2) * 4, 8),
        ((1, 2) * 3, 0),
        ((4, 1, 2, 3) * 3, 0),
        ((4, 1, 2, 3) * 4, 16),
        ((1, 2, 3, 4, 5, 6, 7, 8) * 4, 32),
        ((1, 2, 3, 4, 5, 6, 7, 8, 9) * 4, 0),  # nine tokens: a refrain, not a loop
    ],
)
def test_repeated_run(tokens: tuple[int, ...], run: int) -> None:
    assert repeated_run(tokens) == run


def test_a_finished_output_without_loops_has_no_warnings() -> None:
    assert warnings_of((1, 2, 3), finished=True, settings=SETTINGS, span=(0, 5)) == []


def test_a_cut_output_is_flagged_with_the_limit() -> None:
    """Case L1."""
    (found,) = warnings_of((1, 2, 3), finished=False, settings=SETTINGS, span=(3, 5))

    assert (found.kind, found.span) == ("length_cap", (3, 5))
    assert found.message.startswith("the output was cut at 40 tokens before the model ended it: raise max_new_tokens")


def test_the_default_of_20_tokens_is_named() -> None:
    unset = GenerationSettings(decoder_start_token_id=9, eos_token_ids=(0,))

    (found,) = warnings_of((1, 2, 3), finished=False, settings=unset, span=(0, 5))

    assert "cut at 20 tokens" in found.message
    assert "the model sets no output length" in found.message


def test_a_loop_is_flagged() -> None:
    """Case I1."""
    (found,) = warnings_of((5,) * 30, finished=True, settings=SETTINGS, span=(0, 5))

    assert found.kind == "repetition"
    assert found.message.startswith("30 tokens of the output repeat")
