"""Writers of weights files for the tests, byte by byte: what the formats say, and what an attacker would make of them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxmt.errors import CheckpointError
from onnxmt.weights import open_weights

CODES = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64"}
MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
PROTOCOL = b"\x80\x02M\xe9\x03."


def safetensors(tensors: Mapping[str, np.ndarray], *, metadata: dict[str, str] | None = None) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, array in tensors.items():
        raw = array.tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    return with_header(header, data)


def with_header(header: object, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


# Pickle instructions, assembled by hand: every one pushes its value.


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    if 0 <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def named(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def group(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def listed(*items: bytes) -> bytes:
    return b"](" + b"".join(items) + b"e"


def mapping(pairs: Mapping[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in pairs.items()) + b"u"


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + group(*arguments) + b"R"


def storage(
    key: str, count: int, *, kind: str = "FloatStorage", view: bytes | None = None, module: str = "torch"
) -> bytes:
    """A persistent id; `view` (b"N" for none) is the fifth field, which the legacy stream alone has."""
    fields = [text("storage"), named(module, kind), text(key), text("cpu"), number(count)]
    return group(*fields, *([view] if view is not None else [])) + b"Q"


def tensor(place: bytes, shape: tuple[int, ...], *, offset: int = 0, strides: tuple[int, ...] | None = None) -> bytes:
    steps = strides if strides is not None else tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    hooks = call(named("collections", "OrderedDict"))
    return call(
        named("torch._utils", "_rebuild_tensor_v2"),
        place, number(offset), group(*map(number, shape)), group(*map(number, steps)), b"\x89", hooks,
    )  # fmt: skip


def program(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def torch_zip(body: bytes, storages: Mapping[str, bytes], *, root: str = "archive", **extra: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{root}/data.pkl", program(body))
        for key, data in storages.items():
            archive.writestr(f"{root}/data/{key}", data)
        for name, data in extra.items():
            archive.writestr(f"{root}/{name}", data)
    return out.getvalue()


def torch_legacy(body: bytes, storages: Mapping[str, bytes], *, item: int = 4) -> bytes:
    system = program(mapping({"protocol_version": number(1001), "little_endian": b"\x88"}))
    keys = program(listed(*(text(key) for key in storages)))
    data = b"".join(struct.pack("<q", len(raw) // item) + raw for raw in storages.values())
    return MAGIC + PROTOCOL + system + program(body) + keys + data


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read_or_refuse(folder: Path) -> None:
    """Read all weights in `folder`: nothing but a one-line CheckpointError may come of it, and sizes are as announced."""
    messages = []
    try:
        with open_weights(folder) as weights:
            for name in weights.names():
                try:
                    assert weights.read(name).shape == weights.shape(name)
                except CheckpointError as error:
                    messages.append(str(error))
    except CheckpointError as error:
        messages.append(str(error))
    assert all("\n" not in message for message in messages)


def marian_folder(folder: Path, weights: Mapping[str, np.ndarray] | None = None, **config: Any) -> Path:
    """A folder with every file that a marian checkpoint needs; the tokenizer files are empty shells."""
    fields = {"model_type": "marian", "decoder_start_token_id": 7, "pad_token_id": 7, "eos_token_id": 0, **config}
    write(folder / "config.json", json.dumps(fields).encode())
    for name in ("source.spm", "target.spm", "vocab.json"):
        write(folder / name, b"{}")
    write(folder / "model.safetensors", safetensors(weights or {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}))
    return folder
