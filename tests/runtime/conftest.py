from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator

FORMAT1 = Path(__file__).parent.parent / "golden" / "format1"


@pytest.fixture(scope="session")
def translator() -> Iterator[Translator]:
    """The golden bundle: a tiny model that knows twelve sentences by heart."""
    with Translator.load(FORMAT1 / "bundle", options=RuntimeOptions(threads=1)) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def expected() -> list[dict[str, Any]]:
    """What generate() of transformers said of each sentence when the golden bundle was made."""
    return json.loads((FORMAT1 / "expected.json").read_text(encoding="utf-8"))
