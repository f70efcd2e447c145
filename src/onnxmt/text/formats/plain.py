"""Plain text: each line is a unit, or each paragraph where lines are wrapped; fenced blocks stay."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass

from onnxmt.text.formats.document import Document, DocumentOptions, Piece, Slot, UnfitTranslationError, Unit
from onnxmt.text.protect import has_prose
from onnxmt.text.spans import find_protected
from onnxmt.text.unwrap import unwrap_lines

__all__ = ["read_text"]

_LINE = re.compile(r"(?P<lead>[ \t\ufeff]*)(?P<body>[^\r\n]*?)(?P<tail>[ \t]*(?:\r\n|\r|\n|\Z))")


def read_text(text: str, options: DocumentOptions | None = None) -> Document:
    """Read a plain text. With `unwrap` the document's own lines are joined first, which changes it."""
    options = options or DocumentOptions()
    if options.unwrap:
        text = unwrap_lines(text, keep=find_protected(text))
    blocks = [(span.start, span.end) for span in find_protected(text) if "\n" in span.text]
    pieces: list[Piece] = []
    slots: list[Slot] = []
    line = 1
    block = 0
    for match in _LINE.finditer(text):
        if not match.group():
            continue
        while block < len(blocks) and blocks[block][1] <= match.start("body"):
            block += 1
        inside = block < len(blocks) and blocks[block][0] < match.end("body") and bool(match["body"])
        body = match["body"]
        if inside or not has_prose(body):
            pieces.append(match.group())
        else:
            pieces += [match["lead"], len(slots), match["tail"]]
            slots.append(_Line(unit=Unit(text=body, line=line), source=(body,)))
        line += 1
    return Document(pieces=tuple(pieces), slots=tuple(slots), structure=_structure)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """A line without the spaces around it."""

    unit: Unit
    source: tuple[Piece, ...]

    def write(self, translation: str) -> tuple[Piece, ...]:
        if re.search(r"[\r\n]", translation):
            raise UnfitTranslationError("the translation of a line is several lines")
        return (translation,)


def _structure(text: str) -> Hashable:
    return tuple(re.findall(r"\r\n|\r|\n", text))
