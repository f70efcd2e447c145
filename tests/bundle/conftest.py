from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxmt.bundle import BundleWriter
from onnxmt.manifest import Manifest

GOLDEN = Path(__file__).parent.parent / "golden" / "format1" / "bundle"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy of the golden bundle that a test may damage."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "golden"))


@pytest.fixture
def plain() -> dict[str, Any]:
    """The golden manifest as parsed JSON."""
    return json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8"))


@pytest.fixture
def fill() -> Callable[[BundleWriter], Manifest]:
    """Write a bundle's files into a writer's folder; returns the manifest to commit."""

    def write(writer: BundleWriter, text: str = "new") -> Manifest:
        for name in ("encoder.onnx", "decoder.onnx", "weights.bin", "config.json", "generation_config.json"):
            (writer.folder / name).write_text(text)
        manifest = Manifest.from_dict(json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8")))
        return manifest.with_files(())

    return write
