"""A small Marian checkpoint for the command line, made without torch, and ways to break it."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.checkpoint.writers import safetensors
from tests.models.random_checkpoint import write_random_checkpoint
from tests.tiny import write_marian_tokenizer


def write_checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    size, _ = write_marian_tokenizer(folder, model_max_length=64)
    pad = size - 1
    config = {
        "model_type": "marian", "vocab_size": size, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
        "max_position_embeddings": 64, "activation_function": "swish", "scale_embedding": True, "pad_token_id": pad,
        "eos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0, "bad_words_ids": [[pad]],
        "max_length": 12, "num_beams": 2,
    }  # fmt: skip
    write_random_checkpoint(folder, config)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    return folder


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    raw = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    return {
        name: np.frombuffer(raw[8 + size + begin : 8 + size + end], np.float32).reshape(entry["shape"]).copy()
        for name, entry in header.items()
        for begin, end in [entry["data_offsets"]]
    }


def change_weights(folder: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    tensors = _tensors(folder)
    change(tensors)
    (folder / "model.safetensors").write_bytes(safetensors(tensors))


class _Evil:
    """What a pickle can do when it is loaded by the ordinary loader: here it would leave a file behind."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self._trace),)


def write_malicious_pickle(folder: Path, trace: Path) -> None:
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as container:
        container.writestr("archive/data.pkl", pickle.dumps({"model.shared.weight": _Evil(trace)}, protocol=2))
        container.writestr("archive/version", "3\n")
