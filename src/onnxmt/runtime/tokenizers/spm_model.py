"""What a SentencePiece model file says beyond what the sentencepiece package tells: its settings and piece types.

A small reader of the protobuf format, because the base install has no protobuf. The message is ModelProto of
sentencepiece_model.proto; the numbers below are its field numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizers.files import read_bytes

__all__ = ["Piece", "SentencePieceModel", "read_sentencepiece_model"]

UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_FLOAT = struct.Struct("<f")


@dataclass(frozen=True, kw_only=True)
class SentencePieceModel:
    """The pieces in id order, and the settings that decide how text is cut and normalised."""

    pieces: tuple[Piece, ...]
    model_type: int
    unk_id: int
    byte_fallback: bool
    charsmap: bytes

    def of_type(self, *kinds: int) -> tuple[str, ...]:
        """The spellings of the pieces of these types, in id order."""
        return tuple(piece.text for piece in self.pieces if piece.kind in kinds)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece: its spelling, its log-probability (or merge rank), its type."""

    text: str
    score: float
    kind: int


def read_sentencepiece_model(path: Path) -> SentencePieceModel:
    """Read `path`. Raises TokenizerError when it is missing, is no SentencePiece model, or is cut short.

    A file cut exactly between two pieces still loads in sentencepiece, without its last pieces and its normaliser; here
    the settings behind the pieces are required. About 0.1 s for 32,000 pieces.
    """
    content = read_bytes(path)
    pieces: list[Piece] = []
    trainer = normalizer = None
    try:
        for number, value in _fields(content):
            if number == _PIECES and isinstance(value, bytes):
                pieces.append(_piece(value))
            elif number == _TRAINER and isinstance(value, bytes):
                trainer = dict(_fields(value))
            elif number == _NORMALIZER and isinstance(value, bytes):
                normalizer = dict(_fields(value))
    except (ValueError, IndexError, struct.error) as error:
        raise TokenizerError(f"tokenizer file {path} is not a SentencePiece model, or is cut short: {error}") from error
    missing = [
        name
        for name, part in (("pieces", pieces), ("trainer settings", trainer), ("normaliser settings", normalizer))
        if not part
    ]
    if missing or trainer is None or normalizer is None:
        raise TokenizerError(
            f"tokenizer file {path} is not a whole SentencePiece model: it has no {', no '.join(missing)}; "
            "download it again"
        )
    charsmap = normalizer.get(2, b"")
    return SentencePieceModel(
        pieces=tuple(pieces),
        model_type=_number(trainer.get(3), UNIGRAM),
        unk_id=_number(trainer.get(40), 0),
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=charsmap if isinstance(charsmap, bytes) else b"",
    )


def _piece(content: bytes) -> Piece:
    text, score, kind = "", 0.0, NORMAL
    for number, value in _fields(content):
        if number == 1 and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif number == 2 and isinstance(value, bytes):
            score = _FLOAT.unpack(value)[0]
        elif number == 3 and isinstance(value, int):
            kind = value
    return Piece(text, score, kind)


def _number(value: bytes | int | None, default: int) -> int:
    return value if isinstance(value, int) else default


def _fields(content: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field: an int for a varint, the raw bytes for all else. Raises ValueError when cut."""
    position, end = 0, len(content)
    while position < end:
        tag, position = _varint(content, position)
        kind = tag & 7
        if kind == 0:
            value: bytes | int
            value, position = _varint(content, position)
        elif kind == 2:
            length, position = _varint(content, position)
            value, position = content[position : position + length], position + length
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
            value, position = content[position : position + length], position + length
        else:
            raise ValueError(f"a field of kind {kind} at byte {position}")
        if position > end:
            raise ValueError(f"it ends at byte {end}, inside a field")
        yield tag >> 3, value


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """The base-128 number at `position`, and the position after it. Raises IndexError when it is cut."""
    byte = content[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = content[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
