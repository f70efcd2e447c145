"""Markdown: which lines are prose, by markdown-it-py's blocks; code, HTML blocks, targets and front matter stay."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from onnxmt.text.formats.document import Document, DocumentOptions, Piece, Slot
from onnxmt.text.formats.markdown_inline import Context, prose_pieces
from onnxmt.text.formats.markdown_tokens import Place, inline_signature, markdown_parser

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["read_markdown"]

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")
_FRONT_MATTER = re.compile(
    r"---[ \t]*(?:\r\n?|\n)(?:.*?(?:\r\n?|\n))??(?:---|\.\.\.)[ \t]*(?:\r\n?|\n|\Z)"
    r"|\+\+\+[ \t]*(?:\r\n?|\n)(?:.*?(?:\r\n?|\n))??\+\+\+[ \t]*(?:\r\n?|\n|\Z)",
    re.DOTALL,
)
# Lines that mean something to Markdown's dialects: containers, admonitions, a table of contents, template tags.
_DIALECT = re.compile(r"(?::::|!!!\s|\?\?\?\+?\s|\[TOC\]|\[\[_?TOC_?\]\]|\{%|\{\{[%<]|\$\$|\\\[|\|?[-:| ]+\|[-:| ]*$)")
# What a block may begin with and is no text: a task's box, a GitHub alert, a footnote's mark.
_LEAD = re.compile(r"\[[ xX]\]\s+|\[![A-Za-z]+\](?:[+-])?(?:\s+|$)|\[\^[^\]\s]+\]:\s*")
_PIPE = re.compile(r"(?<!\\)\|")


def read_markdown(text: str, _options: DocumentOptions | None = None) -> Document:
    """Read a Markdown document (CommonMark with GitHub's tables and strikethrough)."""
    reader = _Reader(text)
    reader.read()
    return Document(pieces=tuple(reader.pieces), slots=tuple(reader.slots), structure=_structure)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """A line's place in the text: `start:end` without its ending."""

    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stretch:
    """A block's inline text and its places: line i of it is text[starts[i]:ends[i]]."""

    content: str
    starts: Sequence[int]
    ends: Sequence[int]


class _Reader:
    """Cuts one document into pieces and slots."""

    def __init__(self, text: str) -> None:
        self._text = text
        front = _FRONT_MATTER.match(text)
        self._first = front.end() if front else 0
        self._lines_before = text.count("\n", 0, self._first)
        self._lines = [
            _Line(start=match.start(), end=match.start() + len(match.group().rstrip("\r\n")))
            for match in _LINE.finditer(text, self._first)
        ]
        self._env: dict[str, Any] = {}
        self.pieces: list[Piece] = []
        self.slots: list[Slot] = []
        self._position = 0

    def read(self) -> None:
        tokens = markdown_parser().parse(self._text[self._first :], self._env)
        cells: list[Token] = []
        for before, token in pairwise(tokens):
            if before.type in {"th_open", "td_open"}:
                cells.append(token)
            elif before.type == "tr_close":
                self._row(cells)
                cells = []
            elif token.type == "inline" and token.map is not None:
                self._block(token, heading=before.tag if before.type == "heading_open" else "")
        self.pieces.append(self._text[self._position :])

    def _block(self, token: Token, *, heading: str) -> None:
        stretch = self._located(token)
        if stretch is None or (not heading and _DIALECT.match(stretch.content)):
            return
        first = token.map[0] if token.map else 0
        underlined = bool(heading) and token.markup == "" and not self._begins_with_hash(first)
        context: Context = "underlined" if underlined else "heading" if heading else "paragraph"
        self._unit(stretch, context=context, line=first)

    def _begins_with_hash(self, number: int) -> bool:
        line = self._lines[number]
        return re.match(r"[\s>*+\-0-9.)]*#", self._text[line.start : line.end]) is not None

    def _located(self, token: Token) -> _Stretch | None:
        """Where a block's text stands; None where that cannot be told (markdown-it replaces NUL characters)."""
        assert token.map is not None
        number, last = token.map
        starts, ends, contents = [], [], []
        for wanted in token.content.split("\n"):
            body = wanted.strip(" \t")
            place = None
            while number < last and number < len(self._lines) and place is None:
                line = self._lines[number]
                number += 1
                place = self._in_line(line, body, single=token.content.count("\n") == 0)
            if place is None:
                return None
            starts.append(place)
            ends.append(place + len(body))
            contents.append(wanted)
        return _Stretch(content="\n".join(contents), starts=starts, ends=ends)

    def _in_line(self, line: _Line, body: str, *, single: bool) -> int | None:
        whole = self._text[line.start : line.end]
        stripped = whole.rstrip()
        if stripped.endswith(body):
            return line.start + len(stripped) - len(body)
        closed = re.search(r"[ \t]+#+$", stripped)  # # Title ##
        if single and closed and stripped[: closed.start()].rstrip().endswith(body):
            return line.start + len(stripped[: closed.start()].rstrip()) - len(body)
        return None

    def _row(self, cells: Sequence[Token]) -> None:
        """The cells of a table's row: markdown-it gives their text, the pipes of the line their places."""
        if not cells or cells[0].map is None:
            return
        line = self._lines[cells[0].map[0]]
        whole = self._text[line.start : line.end]
        edges = [-1, *(match.start() for match in _PIPE.finditer(whole)), len(whole)]
        columns = [(a + 1, b) for a, b in pairwise(edges)]
        found: list[tuple[str, int, int]] = []
        remaining = iter(columns)
        for cell in cells:
            if not cell.content:
                continue
            for start, end in remaining:
                raw = whole[start:end].strip()
                if raw.replace("\\|", "|") == cell.content or self._is_first_cell(raw, cell.content, found):
                    found.append((cell.content, end - len(whole[start:end]) + whole[start:end].rfind(raw), len(raw)))
                    break
        for content, place, length in found:
            skipped = length - len(content.replace("|", "\\|"))
            start = line.start + place + max(0, skipped)
            if self._text[start : line.start + place + length].replace("\\|", "|") == content:
                stretch = _Stretch(content=content, starts=[start], ends=[line.start + place + length])
                self._unit(stretch, context="cell", line=cells[0].map[0])

    @staticmethod
    def _is_first_cell(raw: str, content: str, found: Sequence[object]) -> bool:
        """A row without a pipe in front may stand behind a quotation's or a list's mark."""
        return not found and raw.replace("\\|", "|").endswith(f" {content}")

    def _unit(self, stretch: _Stretch, *, context: Context, line: int) -> None:
        content, start = stretch.content, stretch.starts[0]
        lead = _LEAD.match(content) if context == "paragraph" else None
        number = 0
        if lead is not None:
            lines = lead.group().count("\n")
            if lines and lines < len(stretch.starts):
                number, start = lines, stretch.starts[lines]
            else:
                start += lead.end()
            content = content[lead.end() :]
        if not content.strip():
            return
        place = Place(
            content=content,
            text=self._text,
            starts=(start, *stretch.starts[number + 1 :]),
            ends=stretch.ends[number:],
            line=self._lines_before + line + number + 1,
            cell=context == "cell",
        )
        pieces = prose_pieces(place, env=self._env, context=context, slots=self.slots)
        if pieces is not None:
            self.pieces += [self._text[self._position : start], *pieces]
            self._position = stretch.ends[-1]


def _structure(text: str) -> Hashable:
    """The blocks of a document, their nesting, their code, and what is inside them but for its words."""
    front = _FRONT_MATTER.match(text)
    env: dict[str, Any] = {}
    tokens = markdown_parser().parse(text[front.end() if front else 0 :], env)
    return (
        front.group() if front else "",
        tuple(_signature(token) for token in tokens),
        tuple(sorted((name, entry["href"], entry["title"]) for name, entry in env.get("references", {}).items())),
    )


def _signature(token: Token) -> Hashable:
    if token.type == "inline":
        return inline_signature(token.children or [])
    content = token.content if token.type in {"fence", "code_block", "html_block"} else ""
    return token.type, token.tag, token.nesting, token.info, content, tuple(sorted(token.attrs.items()))
