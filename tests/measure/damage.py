"""Breaking a quantised bundle on purpose: one layer's scales made wrong in its weights file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

# A layer that most of what the decoder knows of the source goes through.
LAYER = "model.decoder.layers.0.encoder_attn.out_proj.weight_scales"


def scales_of(folder: Path, name: str = LAYER) -> tuple[int, int]:
    """Offset and length of a layer's scales in weights.bin."""
    for graph in ("encoder.onnx", "decoder.onnx"):
        model = onnx.load(folder / graph, load_external_data=False)
        for tensor in model.graph.initializer:
            if tensor.name == name:
                places = {entry.key: int(entry.value) for entry in tensor.external_data if entry.key != "location"}
                return places["offset"], places["length"]
    raise AssertionError(f"no initializer {name}")


def multiply_scales(folder: Path, *, by: float = 8, name: str = LAYER) -> None:
    """Make a layer `by` times too large; the manifest's hashes are not touched."""
    offset, length = scales_of(folder, name)
    path = folder / "weights.bin"
    data = bytearray(path.read_bytes())
    scales = np.frombuffer(data, np.float32, length // 4, offset) * np.float32(by)
    data[offset : offset + length] = scales.tobytes()
    path.write_bytes(data)
