from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxmt.migration import MigrateOptions, export
from onnxmt.precision import PRESETS
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model, a trained one, as an fp32 bundle."""
    folder = tmp_path_factory.mktemp("demo") / "fp32"
    export("demo", folder, options=MigrateOptions(precision=PRESETS["fp32"]))
    return folder


@pytest.fixture(scope="session")
def fp32(demo: Path) -> Iterator[Translator]:
    with Translator.load(demo, options=RuntimeOptions(threads=1)) as translator:
        yield translator
