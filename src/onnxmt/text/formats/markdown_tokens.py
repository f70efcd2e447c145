"""What markdown-it-py tells of a block's inside, and where in the document it stands, which it does not tell."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

__all__ = ["Child", "Place", "inline_children", "inline_signature", "inline_tokens", "markdown_parser"]

_BREAK = re.compile(r"(?:[ \t]*|\\)\n[ \t]*")


@functools.cache
def markdown_parser() -> MarkdownIt:
    """CommonMark with GitHub's tables and strikethrough; escapes and entities stay apart from the text around them."""
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import reference
    from markdown_it.rules_inline import image, link

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    parser.block.ruler.at("reference", _without_footnotes(reference))
    parser.inline.ruler.at("link", _measured(link))
    parser.inline.ruler.at("image", _measured(image))
    return parser


def _without_footnotes(
    rule: Callable[[StateBlock, int, int, bool], bool],
) -> Callable[[StateBlock, int, int, bool], bool]:
    """The rule for `[name]: target`, which would take a footnote of one word (in Chinese any) for one."""

    def run(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        place = state.bMarks[start] + state.tShift[start]
        return not state.src.startswith("[^", place) and rule(state, start, end, silent)

    return run


def _measured(rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
    """The rule, noting where in the text its link or image ends: markdown-it's inline tokens have no places."""

    def run(state: StateInline, silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        found = rule(state, silent)
        if found and not silent and len(state.tokens) > count:
            last = state.tokens[-1]
            last.meta["end"] = state.pos
            if last.type == "image":
                last.meta["label"] = state.md.helpers.parseLinkLabel(state, start + 1, False) - start
        return found

    return run


def inline_signature(children: Sequence[Token]) -> Hashable:
    """What a block holds beside its words: its markup in order, and its code, which may change places."""
    ordered: list[Hashable] = []
    code: list[str] = []
    waiting = iter(children)
    for token in waiting:
        if token.type == "code_inline":
            code.append(token.content)
        elif token.type == "link_open" and token.markup == "autolink":
            code.append(str(token.attrs["href"]))
            next(waiting)
            next(waiting)
        elif token.type == "html_inline":
            ordered.append((token.type, " ".join(token.content.split())))
        elif token.type not in {"text", "text_special", "softbreak"}:
            attributes = {name: value for name, value in token.attrs.items() if name != "alt"}
            ordered.append((token.type, tuple(sorted(attributes.items()))))
    return tuple(ordered), tuple(sorted(code))


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a block's inline text stands.

    content: the text as markdown-it gives it, its lines without the marks of quotations and the indentation.
    text: the document; line i of the content is text[starts[i]:ends[i]], without spaces at its edges.
    line: the first line's number.
    cell: it is a table's cell, where the document has `\\|` for each `|`.
    """

    content: str
    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    line: int
    cell: bool = False
    _begins: list[int] = field(init=False, repr=False, compare=False)
    _indents: list[int] = field(init=False, repr=False, compare=False)
    _pipes: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lines = self.content.split("\n")
        begins = list(accumulate((len(line) + 1 for line in lines), initial=0))
        object.__setattr__(self, "_begins", begins[:-1])
        object.__setattr__(self, "_indents", [len(line) - len(line.lstrip(" \t")) for line in lines])
        pipes = [match.start() for match in re.finditer(r"\|", self.content)] if self.cell else []
        object.__setattr__(self, "_pipes", pipes)

    def line_of(self, position: int) -> int:
        """Which of its lines holds a position of the content, from 0."""
        return bisect_right(self._begins, position) - 1

    def offset(self, position: int) -> int:
        """The place in the document of a position in the content."""
        number = self.line_of(position)
        column = position - self._begins[number] - self._indents[number] + bisect_left(self._pipes, position)
        return min(self.starts[number] + max(0, column), self.ends[number])

    def line_break(self, position: int) -> str:
        """The end of the line that holds a position, and what stands before the text of the next one."""
        number = self.line_of(position)
        between = self.text[self.ends[number] : self.starts[number + 1]]
        return between.lstrip(" \t\\")


@dataclass(frozen=True, kw_only=True, slots=True)
class Child:
    """An inline token, what stands for it in the content, and where."""

    token: Token
    raw: str
    start: int


def inline_children(content: str, env: Mapping[str, Any]) -> list[Child] | None:
    """The tokens of an inline text with their raw texts, which join to it; None where they do not."""
    tokens = inline_tokens(content, env)
    found: list[Child] = []
    position = 0
    inside_autolink = False
    for token in tokens:
        # <https://…>: the first of its three tokens stands for all
        raw = "" if inside_autolink else _raw(token, content, position)
        if token.markup == "autolink":
            inside_autolink = token.nesting > 0
        if raw is None:
            return None
        found.append(Child(token=token, raw=raw, start=position))
        position += len(raw)
    return found if position == len(content) else None


def inline_tokens(content: str, env: Mapping[str, Any]) -> list[Token]:
    """Read a text as the inside of a block; `env` has the document's definitions of link targets."""
    tokens = markdown_parser().parseInline(content, {"references": env.get("references", {})})
    return (tokens[0].children or []) if tokens else []


def _raw(token: Token, content: str, position: int) -> str | None:
    """What stands for a token at this place; None when it is not there."""
    kind = token.type
    match: re.Match[str] | None = None
    if kind in {"text", "html_inline"}:
        raw = token.content
    elif kind in {"link_close", "image"}:
        raw = content[position : token.meta.get("end", position)]
    elif kind == "code_inline":
        fence = token.markup
        match = re.compile(rf"{fence}(?!`).*?(?<!`){fence}(?!`)", re.DOTALL).match(content, position)
        raw = match.group() if match else ""
    elif kind in {"softbreak", "hardbreak"}:
        match = _BREAK.match(content, position)
        raw = match.group() if match else ""
    elif kind == "link_open":
        match = re.compile(r"<[^<>\s]*>|\[").match(content, position)
        raw = match.group() if match else ""
    else:  # escapes, entities, emphasis
        raw = token.markup
    return raw if content.startswith(raw, position) and (raw or kind == "text") else None
