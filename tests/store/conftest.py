from __future__ import annotations

from pathlib import Path

import pytest

from onnxmt.store.shelf import Shelf, shelf_of


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store that is this process's own."""
    root = tmp_path / "store"
    monkeypatch.setenv("ONNXMT_STORE", str(root))
    return root


@pytest.fixture
def shelf(store: Path) -> Shelf:
    return shelf_of("m")
