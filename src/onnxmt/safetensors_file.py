"""The safetensors format: its header, checked, as places of tensors in the mapped file."""

from __future__ import annotations

import json
import math
from typing import Any

from onnxmt.errors import CheckpointError
from onnxmt.mapped_file import MappedFile, StoredTensor, item_size, row_major, shown, sizes

# The format's own limit on its header (https://github.com/huggingface/safetensors, "Format").
MAX_HEADER = 100_000_000
TYPES = {
    "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64", "BOOL": "bool",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
}  # fmt: skip


def read_safetensors(file: MappedFile) -> dict[str, StoredTensor]:
    """Return the tensors of a safetensors file by name, none of them read yet.

    As the format asks: an 8-byte little-endian header length, a JSON object, then the data, which the tensors must
    cover without gap or overlap. Anything else is a CheckpointError that names the file and what was found.
    """
    begin = 8 + _header_length(file)
    entries = _header(file, begin)
    tensors = {}
    ranges = []
    for name, entry in entries.items():
        tensor, stop = _tensor(file, begin, name, entry)
        tensors[name] = tensor
        ranges.append((tensor.start, stop, name))
    _check_cover(file, begin, ranges)
    return tensors


def _header_length(file: MappedFile) -> int:
    if file.size < 8:
        raise CheckpointError(f"{file.path} is cut short: it has {file.size} bytes, and a header needs at least 8")
    length = int.from_bytes(file.data[:8], "little")
    if file.data[8:9] != b"{":
        raise CheckpointError(f"{file.path} is not a safetensors file: {file.beginning()}")
    if length > MAX_HEADER:
        raise CheckpointError(f"{file.path} is corrupt: its header claims {length} bytes, and {MAX_HEADER} are allowed")
    if length > file.size - 8:
        raise CheckpointError(
            f"{file.path} is cut short: its header claims {length} bytes and only {file.size - 8} follow; "
            "copy or download it again"
        )
    return length


def _header(file: MappedFile, begin: int) -> dict[str, Any]:
    """The header's entries but `__metadata__`."""
    try:
        header = json.loads(file.data[8:begin].decode("utf-8"), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file.path} is corrupt: its header is not valid JSON ({error})") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{file.path} is corrupt: its header is not a JSON object")
    header.pop("__metadata__", None)
    return header


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {shown(name)} stands in it twice")
        found[name] = value
    return found


def _tensor(file: MappedFile, begin: int, name: str, entry: Any) -> tuple[StoredTensor, int]:
    """The tensor that header entry `name` describes, and the byte after its last."""
    where = f"{file.path}: the entry {shown(name)}"
    if not isinstance(entry, dict):
        raise CheckpointError(f"{where} is not a JSON object")
    code = entry.get("dtype")
    if not isinstance(code, str) or code not in TYPES:
        raise CheckpointError(f"{where} has the dtype {shown(code)}; known are {', '.join(TYPES)}")
    dtype = TYPES[code]
    shape = sizes(entry.get("shape"), "shape", where)
    offsets = sizes(entry.get("data_offsets"), "data_offsets", where)
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{where} has the data_offsets {list(offsets)}; expected [first, after the last]")
    first, last = begin + offsets[0], begin + offsets[1]
    if last > file.size:
        raise CheckpointError(
            f"{where} ends at byte {last} and the file has {file.size}: it is cut short; copy or download it again"
        )
    needed = math.prod(shape) * item_size(dtype)
    if last - first != needed:
        raise CheckpointError(f"{where} has {last - first} bytes, and {dtype} of shape {shape} takes {needed}")
    return StoredTensor(file=file, dtype=dtype, shape=shape, strides=row_major(shape), start=first), last


def _check_cover(file: MappedFile, begin: int, ranges: list[tuple[int, int, str]]) -> None:
    """The data must be the tensors' bytes, each once, as the format demands: nothing is hidden, nothing shared."""
    end = begin
    previous = "the header"
    for start, stop, name in sorted(ranges):
        if start != end:
            what = "overlaps" if start < end else f"leaves {start - end} unused bytes after"
            raise CheckpointError(f"{file.path} is corrupt: the tensor {shown(name)} {what} {previous}")
        end, previous = stop, shown(name)
    if end != file.size:
        rest = "1 byte" if file.size - end == 1 else f"{file.size - end} bytes"
        raise CheckpointError(f"{file.path} is corrupt: after its last tensor the file goes on for {rest}")
