"""One seeded tiny Marian, exported once, for the tests of verification."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measure.marian import Case, build_case


@pytest.fixture(scope="session")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A float32 model with a final logits bias of up to ±5 (case G1)."""
    return build_case(Path(tmp_path_factory.mktemp("verified")), logits_bias=5.0)
