"""Small bundles that differ in what a test wants: the golden one, copied, with another manifest or another file."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from onnxmt.bundle import Bundle, BundleWriter, read_bundle
from tests.runtime.conftest import FORMAT1

GOLDEN = FORMAT1 / "bundle"


def make_bundle(folder: Path, *, marker: str = "", **manifest: Any) -> Bundle:
    """Copy the golden bundle; `marker` becomes the content of one file more, `manifest` replaces keys."""
    found = read_bundle(GOLDEN, check="size")
    with BundleWriter(folder) as writer:
        for entry in found.manifest.files:
            shutil.copyfile(GOLDEN / entry.path, writer.folder / entry.path)
        (writer.folder / "marker.txt").write_text(marker)
        return writer.commit(dataclasses.replace(found.manifest, **manifest))


def quality(*, bleu: float = 30.0, chrf: float = 25.0, gate: str = "passed", sha256: str = "a") -> dict[str, Any]:
    """What a manifest keeps of an evaluation."""
    how = {"set": "shipped", "sha256": sha256, "target_language": "zh"}
    return {"bleu": bleu, "chrf": chrf, "beams": 1, "gate": gate, "how": how}


def speed(p99: float, *, cpu: str = "a CPU") -> dict[str, Any]:
    """What a manifest keeps of a bench."""
    row = {"beams": 1, "batch": 1, "threads": 2, "workers": 1, "workload": "4 sentences", "p99_ms": p99}
    return {"results": [row], "cpu": cpu}


def damaged_bundle(folder: Path) -> Bundle:
    """The golden bundle with a part of its weights turned round: its hashes are right, and what it says is nonsense."""
    import numpy as np

    found = read_bundle(GOLDEN, check="size")
    with BundleWriter(folder) as writer:
        for entry in found.manifest.files:
            shutil.copyfile(GOLDEN / entry.path, writer.folder / entry.path)
        path = writer.folder / "weights.bin"
        data = path.read_bytes()
        numbers = np.frombuffer(data, np.float32, len(data) // 4).copy()
        numbers[len(numbers) // 3 :] *= np.float32(-1.5)
        path.write_bytes(numbers.tobytes())
        return writer.commit(found.manifest)
