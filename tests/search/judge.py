"""Compare our search with transformers' generate() on the same fake model and the same generation_config."""

from __future__ import annotations

from typing import Any

import pytest

from onnxmt.runtime.search import Hypothesis, search
from onnxmt.runtime.settings import GenerationSettings
from tests.search.fake import FakeModel, FakeStep, generate


def base(fake: FakeModel, **settings: Any) -> dict[str, Any]:
    """A generation_config whose start and padding token is the fake's last one."""
    last = fake.vocabulary - 1
    return {
        "decoder_start_token_id": last,
        "pad_token_id": last,
        "eos_token_id": fake.eos,
        "max_length": 12,
        **settings,
    }


def decode(
    fake: FakeModel, sentences: int | list[int], settings: dict[str, Any], **options: Any
) -> tuple[list[list[Hypothesis]], FakeStep]:
    """Our search; with it the step, which has counted its rows."""
    step = fake.start(sentences)
    parsed = GenerationSettings.from_checkpoint({}, settings)
    return search(step, rows=len(step.sentences), settings=parsed, **options), step


def assert_same(
    fake: FakeModel, sentences: int | list[int], settings: dict[str, Any], *, masked: frozenset[int] = frozenset()
) -> None:
    """Tokens of all outputs are generate()'s, beam scores within 1e-4, and no step more or less was run.

    `masked` tokens count as one and the same.
    """
    found, step = decode(fake, sentences, settings)
    expected = generate(fake, sentences, settings)
    outputs = [output for sentence in found for output in sentence]
    assert len(outputs) == len(expected.tokens)
    assert len(step.calls) == expected.steps

    def seen(tokens: list[int]) -> list[int]:
        return [min(masked) if token in masked else token for token in tokens]

    for output, tokens in zip(outputs, expected.tokens, strict=True):
        length = len(output.tokens)
        assert seen(list(output.tokens)) == seen(tokens[:length])
        assert set(tokens[length:]) <= {settings["pad_token_id"]}  # generate() pads what has ended
    if expected.scores is not None:
        assert [output.score for output in outputs] == pytest.approx(expected.scores, abs=1e-4, rel=1e-6)
