from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
from onnxmt.serve import create_app
from tests.runtime.conftest import FORMAT1


@pytest.fixture(scope="session")
def translator() -> Iterator[Translator]:
    """The golden bundle: a tiny model that knows twelve sentences by heart."""
    with Translator.load(FORMAT1 / "bundle", options=RuntimeOptions(threads=1)) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def client(translator: Translator) -> Iterator[TestClient]:
    """The service with its defaults."""
    with TestClient(create_app(translator), raise_server_exceptions=False) as started:
        yield started
