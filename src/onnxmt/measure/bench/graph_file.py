"""What a decoder graph reads from the weights file for each token, found in the ONNX file without the onnx package."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

# Field numbers of onnx.proto (ModelProto.graph, GraphProto.node and .initializer, …).
_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_NODE_INPUT, _NODE_OPERATOR = 1, 4
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_LOOK_UPS = {"Gather", "GatherBlockQuantized"}  # they read rows of a table, not the table


def weights_per_token(graph: Path) -> int:
    """Bytes of weights that one decoder step reads: every stored tensor that something else than a look-up uses."""
    body = next(value for number, value in _fields(graph.read_bytes()) if number == _GRAPH)
    uses: dict[str, set[str]] = defaultdict(set)
    ranges: dict[str, tuple[int, int]] = {}
    for number, value in _fields(body):
        if number == _NODE:
            fields = list(_fields(value))
            operator = next((v.decode() for n, v in fields if n == _NODE_OPERATOR), "")
            for name in (v.decode() for n, v in fields if n == _NODE_INPUT):
                uses[name].add(operator)
        elif number == _INITIALIZER:
            name, place = _stored(value)
            if place is not None:
                ranges[name] = place
    read = {place for name, place in ranges.items() if not uses[name] <= _LOOK_UPS}
    return sum(length for _, length in read)


def _stored(tensor: bytes) -> tuple[str, tuple[int, int] | None]:
    """The name of a tensor, and (offset, length) of its bytes in the weights file."""
    name, entries = "", {}
    for number, value in _fields(tensor):
        if number == _TENSOR_NAME:
            name = value.decode()
        elif number == _TENSOR_EXTERNAL:
            entry = dict(_fields(value))
            entries[entry.get(_ENTRY_KEY, b"").decode()] = entry.get(_ENTRY_VALUE, b"").decode()
    place = (int(entries.get("offset", 0)), int(entries["length"])) if "length" in entries else None
    return name, place


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each length-delimited field of a protobuf message; other kinds are passed over."""
    position = 0
    while position < len(message):
        tag, position = _number(message, position)
        kind = tag & 7
        if kind == 0:
            _, position = _number(message, position)
        elif kind == 2:
            length, position = _number(message, position)
            yield tag >> 3, message[position : position + length]
            position += length
        else:
            position += 8 if kind == 1 else 4


def _number(message: bytes, position: int) -> tuple[int, int]:
    """A protobuf varint, and the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
