"""SubRip subtitles: numbers, times and tags stay; a cue's lines are one unit, and its translation is wrapped again.

The reader is our own: readers on the package index repair what they read (they number cues anew, and drop byte order
marks and empty cues), and here every byte outside the words must come back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from onnxmt.text.formats.document import (
    Document,
    DocumentError,
    DocumentOptions,
    Piece,
    Slot,
    UnfitTranslationError,
    Unit,
)
from onnxmt.text.formats.inline import Inline, Mark, Part, Run, edges, joined_lines
from onnxmt.text.patterns import is_cjk
from onnxmt.text.protect import has_prose

__all__ = ["read_srt"]

# Columns of one line on the screen; a Han character takes two.
_WIDTH = 42
_TIME = re.compile(
    r"[ \t\ufeff]*-?\d{1,3}:\d{1,2}:\d{1,2}(?:[,.:]\d{1,3})?[ \t]*-{1,2}>"
    r"[ \t]*-?\d{1,3}:\d{1,2}:\d{1,2}(?:[,.:]\d{1,3})?"
    r"(?:[ \t]+[XY][12]:\d+)*[ \t]*"
)
_NUMBER = re.compile(r"[ \t\ufeff]*\d+[ \t]*")
_TAG = re.compile(r"(</?[A-Za-z][^<>\n]*>|\{\\[^{}\n]*\})")
# A speaker's turn and a line of a song stay lines of their own.
_TURN = re.compile(r"\s*(?:<[^<>]*>|\{\\[^{}]*\})*\s*(?:[-–—‐•]\s*\S|[♪♫#]|[A-Z][A-Z .']{1,20}:\s)")
# What begins a turn and is no word of it.
_SIGN = re.compile(r"(?:[-–—‐•♪♫]+[ \t]*)(?=\S)")


def read_srt(text: str, _options: DocumentOptions | None = None) -> Document:
    """Read subtitles. Raises DocumentError where no line of the text gives times."""
    lines = _lines(text)
    cues = list(_cues(lines))
    if not cues and text.strip():
        raise DocumentError(
            "these are no subtitles in SubRip's format: no line gives times, as in 00:00:01,000 --> 00:00:04,000"
        )
    pieces: list[Piece] = []
    slots: list[Slot] = []
    position = 0
    for cue in cues:
        pieces += lines[position : cue.start]
        pieces += _read_cue(lines[cue.start : cue.end], line=cue.start + 1, slots=slots)
        position = cue.end
    return Document(pieces=(*pieces, *lines[position:]), slots=tuple(slots), structure=_structure)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cue:
    """The lines of a cue's text, start:end of all."""

    start: int
    end: int


def _cues(lines: Sequence[str]) -> Iterator[_Cue]:
    """The texts: each from its times to the next cue's number or times, without blank lines at its edges."""
    times = [index for index, line in enumerate(lines) if _TIME.fullmatch(line.rstrip("\r\n"))]
    for time, following in pairwise([*times, len(lines)]):
        start, end = time + 1, following
        if following < len(lines) and end > start and _NUMBER.fullmatch(lines[end - 1].rstrip("\r\n")):
            end -= 1
        while end > start and not lines[end - 1].strip():
            end -= 1
        while start < end and not lines[start].strip():
            start += 1
        if start < end:
            yield _Cue(start=start, end=end)


def _read_cue(lines: Sequence[str], *, line: int, slots: list[Slot]) -> list[Piece]:
    """One cue as one unit, in which each speaker's turn is a line."""
    parts: list[Part] = []
    sources: list[str] = []
    bodies = [whole.strip(" \t\r\n") for whole in lines]
    newline = lines[0][len(lines[0].rstrip("\r\n")) :] or "\n"

    def add(part: Part, source: str) -> None:
        parts.append(part)
        sources.append(source)

    between = lines[0][: len(lines[0]) - len(lines[0].lstrip(" \t"))]
    for index, (whole, body) in enumerate(zip(lines, bodies, strict=True)):
        found = _SIGN.match(body)
        sign = found.group() if found else ""
        if index:
            if not body or not bodies[index - 1] or _TURN.match(body):
                add(Mark(kind="break", pieces=(newline + sign,)), between + sign)
            else:
                before = "".join(part.plain for part in parts[-1:] if isinstance(part, Run))
                add(Run(plain=joined_lines(before, body)), between + sign)
        else:
            add(Mark(kind="single", pieces=(sign,)), between + sign)
        for number, piece in enumerate(_TAG.split(body[len(sign) :])):
            if number % 2:
                add(_tag(piece), piece)
            elif piece:
                add(Run(plain=piece), piece)
        start = whole.index(body) + len(body)
        following = lines[index + 1] if index + 1 < len(lines) else ""
        between = whole[start:] + following[: len(following) - len(following.lstrip(" \t"))]
        if following and not bodies[index + 1]:
            between = whole[start:]
    start, end = edges(parts)
    inline = Inline(parts[start:end])
    if not has_prose(inline.text):
        return [*sources, between]
    unit = Unit(text=inline.text, line=line, marks=inline.marks)
    slots.append(_Text(unit=unit, source=tuple(sources[start:end]), inline=inline, newline=newline))
    return [*sources[:start], len(slots) - 1, *sources[end:], between]


def _tag(raw: str) -> Mark:
    if raw.startswith("{"):
        return Mark(kind="single", pieces=(raw,))
    name = re.match(r"</?(\w+)", raw)
    kind: Literal["open", "close"] = "close" if raw.startswith("</") else "open"
    return Mark(kind=kind, pieces=(raw,), name=name[1].lower() if name else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Text:
    """A cue's text, from its first word to its last."""

    unit: Unit
    source: tuple[Piece, ...]
    inline: Inline
    newline: str

    def write(self, translation: str) -> tuple[Piece, ...]:
        if "-->" in translation and "-->" not in self.unit.text:
            raise UnfitTranslationError("the translation holds '-->', which stands between times in subtitles")
        items = self.inline.read(translation.strip())
        turns: list[list[str | Mark]] = [[]]
        for item in items:
            turns[-1].append(item)
            if isinstance(item, Mark) and item.kind == "break":
                turns.append([])
        return tuple(piece for turn in turns for piece in _wrapped(turn, self.newline))


def _wrapped(items: Sequence[str | Mark], newline: str) -> Iterator[Piece]:
    """A turn in as few lines as fit the screen, of like width."""
    text = "".join(item for item in items if isinstance(item, str))
    cuts = _cuts(text)
    position = 0
    for item in items:
        if isinstance(item, Mark):
            yield from item.pieces
            continue
        end, start = position + len(item), position
        for cut in [cut for cut in cuts if start < cut <= end and cut < len(text)]:
            yield text[position:cut].rstrip() + newline
            position = cut + len(text[cut:end]) - len(text[cut:end].lstrip())
        yield text[position:end]
        position = end


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _cuts(text: str) -> list[int]:
    """The places at which a text is broken into lines."""
    width = _columns(text)
    lines = -(-width // _WIDTH)
    if lines < 2:
        return []
    places = [
        (_columns(text[:place]), penalty, place)
        for place in range(1, len(text))
        if (penalty := _penalty(text[place - 1], text[place])) is not None
    ]
    cuts: set[int] = set()
    for number in range(1, lines):
        wanted = width * number / lines
        best = min(places, key=lambda found: abs(found[0] - wanted) + found[1], default=None)
        if best is not None:
            cuts.add(best[2])
    return sorted(cuts)


def _penalty(left: str, right: str) -> int | None:
    """How bad a line break is between two characters, in columns; None where there must be none."""
    if left in "，。！？；：、…,.!?;:" and (right.isspace() or is_cjk(right)):
        return None if right in "，。！？；：、…”’）》" else 0
    if right.isspace():
        return None if left.isspace() else 3
    if is_cjk(left) and is_cjk(right):
        return None if right in "，。！？；：、）》”’…" or left in "（《“‘" else 6
    return None


def _structure(text: str) -> Hashable:
    """Everything but the texts; of a text its tags."""
    lines = _lines(text)
    cues = list(_cues(lines))
    inside = {number for cue in cues for number in range(cue.start, cue.end)}
    around = tuple(line for number, line in enumerate(lines) if number not in inside)
    return around, tuple(tuple(_TAG.findall("".join(lines[cue.start : cue.end]))) for cue in cues)
