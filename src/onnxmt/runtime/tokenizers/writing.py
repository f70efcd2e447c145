"""What each token of a vocabulary writes, as bytes: what search needs to write a given term with any tokens."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

__all__ = ["token_bytes"]

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


def token_bytes(
    tokens: Mapping[str, int], *, skipped: Iterable[int] = (), byte_level: bool = False
) -> dict[int, bytes]:
    """Id → what the token writes in UTF-8, a space for the word mark; ids that write no text of their own are left out.

    SentencePiece writes `▁` for a space and `<0xE4>` for one byte. `byte_level`: the vocabulary is written in GPT-2's
    alphabet, where each character stands for a byte.
    """
    without = set(skipped)
    written = {}
    for token, index in tokens.items():
        if index in without:
            continue
        data = _byte_level(token) if byte_level else _piece(token)
        if data:
            written[index] = data
    return written


def _piece(token: str) -> bytes:
    match = _BYTE_PIECE.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace("\u2581", " ").encode("utf-8", "ignore")


def _byte_level(token: str) -> bytes | None:
    table = _byte_level_table()
    return bytes(table[character] for character in token) if all(character in table for character in token) else None


@functools.cache
def _byte_level_table() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 characters stand for themselves, the other bytes for U+0100 and up."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + place): byte for place, byte in enumerate(rest)}
