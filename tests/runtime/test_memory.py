"""Memory limits: amounts as people write them, what a batch takes, and a Translator that keeps to a limit."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.errors import UsageError
from onnxmt.manifest import Dimensions
from onnxmt.runtime.decoding import BatchDecoder
from onnxmt.runtime.engine import Engine
from onnxmt.runtime.memory import BatchNeeds, parse_bytes, usual_target
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from tests.runtime.conftest import FORMAT1

BUNDLE = FORMAT1 / "bundle"
OPUS = Dimensions(
    encoder_layers=6, decoder_layers=6, encoder_heads=8, decoder_heads=8, head_dim=64, d_model=512,
    source_vocabulary=65001, target_vocabulary=65001, positions=512,
)  # fmt: skip
NEEDS = BatchNeeds.of(OPUS, length_limit=512)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("512Mi", 536_870_912), ("512MiB", 536_870_912), ("300MB", 300_000_000), ("1.5g", 1_500_000_000),
        ("2 Gi", 2_147_483_648), ("64k", 64_000), ("4096", 4096), (4096, 4096),
    ],
)  # fmt: skip
def test_amounts(text: str | int, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "Mi", "-5", "0", "5T", "1e9", "five", True])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(UsageError, match=r"512Mi, 300MB or 1\.5G"):
        parse_bytes(text)


def test_what_opus_mt_takes() -> None:
    """A token of a row: keys and values of 6 layers of 512 numbers; a row: three copies of 65,001 scores."""
    assert NEEDS.position == 24_576
    assert NEEDS.scores == 780_012
    assert usual_target(20, 512) == 72
    assert usual_target(400, 512) == 512
    assert NEEDS.batch(rows=2, source=20) == 2 * ((20 + 2 * 72) * 24_576 + 780_012)


@given(available=st.integers(10**6, 2 * 10**9), rows=st.sampled_from([1, 4]), source=st.integers(1, 400))
def test_a_batch_within_the_budget_fits(available: int, rows: int, source: int) -> None:
    tokens = NEEDS.batch_tokens(available, rows_each=rows)

    sentences = (tokens // rows) // max(source, 16)
    if sentences:
        assert NEEDS.batch(rows=sentences * rows, source=source) <= available


def test_resident_memory_is_that_of_a_python() -> None:
    """In a process of its own: this one may hold freed memory that it fills again."""
    code = (
        "from onnxmt.runtime.memory import resident_bytes; before = resident_bytes(); held = b'x' * 50_000_000; "
        "print(before, resident_bytes() - before)"
    )
    before, more = map(
        int, subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout.split()
    )

    assert 10**7 < before < 10**9
    assert 40_000_000 < more < 70_000_000


def test_a_limit_below_the_loaded_model_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"the memory limit is 5 MB, and this process with the loaded model needs \d+ MB"
    ):
        Translator.load(BUNDLE, memory_limit="5M")
    with pytest.raises(UsageError, match="memory_limit is 0"):
        RuntimeOptions(memory_limit=0)


def budget(engine: Engine) -> int:
    settings = dataclasses.replace(engine.settings, num_beams=1)
    return BatchDecoder(engine, settings, batch_tokens=1024, seed=None).budget


def test_batches_are_cut_to_the_limit(expected: list[dict[str, Any]]) -> None:
    texts = [row["source"] for row in expected]
    with Translator.load(BUNDLE, memory_limit="50Gi") as roomy, Translator.load(BUNDLE) as free:
        assert free._engine.spare_memory is None
        assert budget(roomy._engine) == 1024
        each = roomy._engine.needs.batch(rows=1, source=16)  # type: ignore[union-attr]
        roomy._engine = dataclasses.replace(roomy._engine, spare_memory=3 * each)
        assert budget(roomy._engine) == 48
        assert roomy.translate(texts, options=TranslateOptions(beams=1)) == free.translate(
            texts, options=TranslateOptions(beams=1)
        )
        with pytest.raises(UsageError, match=r"one short sentence with 4 beams takes .* raise the limit"):
            roomy.translate("Yes.", options=TranslateOptions(beams=4))


def test_the_limit_survives_pickling() -> None:
    with Translator.load(BUNDLE, memory_limit="50Gi") as loaded:
        again = pickle.loads(pickle.dumps(loaded))
    assert again.runtime.memory_limit == 50 * 2**30
    again.close()
