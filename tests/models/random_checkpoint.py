"""Large random checkpoints, written in a stream: names and shapes from the architecture, numbers from a seed. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxmt.models import architecture_of
from onnxmt.models.layers import weighted_modules


def write_random_checkpoint(
    folder: Path, config: Mapping[str, Any], *, dtype: str = "float32", untied: tuple[str, ...] = ()
) -> int:
    """Write config.json and model.safetensors; return the size of the weights in bytes.

    Of weights that are tied only the first is written, with those in `untied` beside it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    architecture = architecture_of(config)
    homes = {
        target: source for source, targets in architecture.ties().items() for target in targets if target not in untied
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for tree in (architecture.encoder_graph(), architecture.decoder_graph()):
        for path, module in weighted_modules(tree):
            shapes |= {
                homes.get(wanted.name, wanted.name): wanted.shape
                for wanted in module.wanted(path)
                if not wanted.optional
            }
    numbers = np.dtype(np.float16 if dtype == "float16" else np.float32)
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + int(np.prod(shape)) * numbers.itemsize
        header[name] = {
            "dtype": "F16" if dtype == "float16" else "F32",
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(0)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            left = int(np.prod(shape))
            while left:
                some = min(left, 1 << 20)
                file.write((rng.standard_normal(some, dtype=np.float32) * 0.02).astype(numbers).tobytes())
                left -= some
    return end
