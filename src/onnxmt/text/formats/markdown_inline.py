"""The inside of a Markdown block: its markup and text in order, and translations written so that they read as meant."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from onnxmt.text.formats.document import Piece, Slot, UnfitTranslationError, Unit
from onnxmt.text.formats.inline import Inline, Mark, Part, Run, edges, joined_lines
from onnxmt.text.patterns import has_letter
from onnxmt.text.protect import has_prose
from onnxmt.text.spans import find_protected

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

__all__ = ["Context", "Place", "inline_signature", "markdown_parser", "prose_pieces"]

Context = Literal["paragraph", "heading", "underlined", "cell"]

_BREAK = re.compile(r"(?:[ \t]*|\\)\n[ \t]*")
# Marks of Markdown's dialects inside a line: footnotes, emoji names, formulas, a heading's name.
_DIALECT = re.compile(
    r"(\[\^[^\]\s]+\]"
    r"|(?<![\w:]):[a-z0-9_+-]*[a-z][a-z0-9_+-]*:(?![\w:])"
    r"|\$\$[^$\n]+\$\$|\$(?=[^\s$])(?=[^$\n]*[\\^_={}])[^$\n]*[^\s$\\]\$(?!\d)"
    r"|\{[#.:][^{}\n]*\}\s*$)"
)
# Spaces at the edges of a text, which stay where they are at the edges of a block.
_SPACES = re.compile(r"(^[ \t]+|[ \t]+$)")
_HTML_NAME = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w-]*)")
_VOID = frozenset({"area", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})
_HTML_CODE = frozenset({"code", "kbd", "samp", "var", "pre", "script", "style", "svg", "math"})


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


def prose_pieces(place: Place, *, env: Mapping[str, Any], context: Context, slots: list[Slot]) -> list[Piece] | None:
    """Read a block; its units are added to `slots`. None when there is nothing to translate in it."""
    children = _children(place.content, env)
    if children is None:
        return None
    reader = _Reader(place, slots)
    for child in children:
        reader.add(child)
    return reader.pieces(context=context, env=env, expected=inline_signature([child.token for child in children]))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Child:
    """An inline token, what stands for it in the content, and where."""

    token: Token
    raw: str
    start: int


def _children(content: str, env: Mapping[str, Any]) -> list[_Child] | None:
    """The tokens of an inline text with their raw texts, which join to it; None where they do not."""
    tokens = _inline_tokens(content, env)
    found: list[_Child] = []
    position = 0
    inside_autolink = False
    for token in tokens:
        # <https://…>: the first of its three tokens stands for all
        raw = "" if inside_autolink else _raw(token, content, position)
        if token.markup == "autolink":
            inside_autolink = token.nesting > 0
        if raw is None:
            return None
        found.append(_Child(token=token, raw=raw, start=position))
        position += len(raw)
    return found if position == len(content) else None


def _inline_tokens(content: str, env: Mapping[str, Any]) -> list[Token]:
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


class _Reader:
    """Collects a block's parts, and beside each what stands for it in the document."""

    def __init__(self, place: Place, slots: list[Slot]) -> None:
        self._place, self._slots = place, slots
        self._parts: list[Part] = []
        self._sources: list[list[Piece]] = []
        self._textual: set[Mark] = set()
        self._code = ""  # the HTML element whose end is waited for
        self._links: list[int] = []  # where the texts of the open links begin

    def add(self, child: _Child) -> None:
        start, end = self._place.offset(child.start), self._place.offset(child.start + len(child.raw))
        source = self._place.text[start:end]
        if self._code:
            self._inside_code(child, source)
            return
        token, raw = child.token, child.raw.replace("\n", " ")
        if token.type == "text":
            self._text(child.raw, source)
        elif token.type == "text_special":
            self._run(token.content, source)
        elif token.type == "softbreak":
            end_of_break = child.start + len(child.raw)
            following = self._place.content[end_of_break : end_of_break + 1]
            before = next((part.plain for part in reversed(self._parts[-1:]) if isinstance(part, Run)), "")
            self._run(joined_lines(before, following), source)
        elif token.type == "hardbreak":
            ending = child.raw.partition("\n")[0] + self._place.line_break(child.start)
            self._mark(Mark(kind="break", pieces=(ending,)), source)
        elif token.type == "code_inline" or token.markup == "autolink":
            if raw:
                self._mark(Mark(kind="word", pieces=(raw,), shown=_shown(raw)), source)
        elif token.type == "image":
            self._image(child, source)
        elif token.type == "html_inline":
            self._html(raw, source)
        else:
            if token.type == "link_open":
                self._links.append(child.start + 1)
            elif token.type == "link_close":
                raw = _named(raw, self._place.content[self._links.pop() : child.start])
            kind: Literal["open", "close"] = "open" if token.nesting > 0 else "close"
            self._mark(Mark(kind=kind, pieces=(raw,), name=token.tag), source)

    def _run(self, plain: str, source: str) -> None:
        self._parts.append(Run(plain=plain))
        self._sources.append([source])

    def _mark(self, mark: Mark, source: str | list[Piece]) -> None:
        self._parts.append(mark)
        self._sources.append([source] if isinstance(source, str) else source)

    def _text(self, raw: str, source: str) -> None:
        if raw != source:  # a tab of the indentation, say
            self._run(raw, source)
            return
        for index, piece in enumerate(_DIALECT.split(raw)):
            if index % 2:
                mark = Mark(kind="single", pieces=(piece,))
                self._textual.add(mark)
                self._mark(mark, piece)
            else:
                for part in _SPACES.split(piece):
                    if part:
                        self._run(part, part)

    def _image(self, child: _Child, source: str) -> None:
        label = child.token.meta["label"]
        start = self._place.offset(child.start + 2)
        end = self._place.offset(child.start + label)
        text = " ".join(str(child.token.content).split())
        whole = self._place.offset(child.start)
        if not has_prose(text) or not source.startswith("![") or re.search(r"[\[\]<>`*_\\&]", text):
            self._mark(Mark(kind="single", pieces=(child.raw.replace("\n", " "),)), source)
            return
        line = self._place.line + self._place.line_of(child.start)
        unit = Unit(text=text, line=line, where="the description of an image")
        number = len(self._slots)
        self._slots.append(_Description(unit=unit, source=(self._place.text[start:end],)))
        rest = _named(child.raw[label:].replace("\n", " "), child.raw[2:label])
        self._mark(
            Mark(kind="single", pieces=("![", number, rest)),
            ["![", number, self._place.text[end : whole + len(source)]],
        )

    def _html(self, raw: str, source: str) -> None:
        match = _HTML_NAME.match(raw)
        name = match["name"].lower() if match else ""
        if name == "br":
            self._mark(Mark(kind="break", pieces=(raw,)), source)
        elif match is None or name in _VOID or raw.endswith("/>"):
            self._mark(Mark(kind="single", pieces=(raw,)), source)
        elif match["close"]:
            self._mark(Mark(kind="close", pieces=(raw,), name=name), source)
        elif name in _HTML_CODE and re.search(rf"</{name}\s*>", self._place.content, re.IGNORECASE):
            self._code = name
            self._mark(Mark(kind="word", pieces=(raw,)), source)
        else:
            self._mark(Mark(kind="open", pieces=(raw,), name=name), source)

    def _inside_code(self, child: _Child, source: str) -> None:
        """Everything up to the end of <code> belongs to the mark that it began."""
        mark = self._parts[-1]
        assert isinstance(mark, Mark)
        self._parts[-1] = Mark(kind="word", pieces=(str(mark.pieces[0]) + child.raw.replace("\n", " "),))
        self._sources[-1].append(source)
        if child.token.type == "html_inline" and re.match(rf"</{self._code}\s*>", child.raw, re.IGNORECASE):
            self._code = ""

    def pieces(self, *, context: Context, env: Mapping[str, Any], expected: Hashable) -> list[Piece] | None:
        start, end = edges(self._parts)
        inline = Inline(self._parts[start:end])
        before = [piece for source in self._sources[:start] for piece in source]
        middle = [piece for source in self._sources[start:end] for piece in source]
        after = [piece for source in self._sources[end:] for piece in source]
        if not has_letter(inline.text) or not has_prose(inline.text):
            return [*before, *middle, *after]
        slot = _Block(
            unit=Unit(text=inline.text, line=self._place.line, marks=inline.marks),
            source=tuple(middle),
            inline=inline,
            context=context,
            env=env,
            expected=expected,
            around=(tuple(self._parts[:start]), tuple(self._parts[end:])),
            textual=frozenset(self._textual),
        )
        self._slots.append(slot)
        return [*before, len(self._slots) - 1, *after]


def _named(closing: str, label: str) -> str:
    """The end of a link or image with the name of its target, which was the text that is now translated."""
    return f"][{' '.join(label.split())}]" if closing in {"]", "][]"} else closing


def _shown(raw: str) -> str | None:
    """Code as the translator may see it: as it stands, where the text layer would find just that and protect it."""
    return raw if raw.isprintable() and [span.text for span in find_protected(f" {raw} ")] == [raw] else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Description:
    """An image's description: translated by itself."""

    unit: Unit
    source: tuple[Piece, ...]

    def write(self, translation: str) -> tuple[Piece, ...]:
        if "\n" in translation:
            raise UnfitTranslationError("an image's description must be one line of text")
        return (_escaped(translation.strip()).replace("|", "\\|"),)


# Stands for an image's description while a block is looked at.
_ANY_DESCRIPTION = "x"
_EMPHASIS = re.compile(r"[*_~]+")
_FIRST = re.compile(r"(?P<digits>\s*\d{1,9})(?P<dot>[.)])(?=\s|$)|(?P<space>\s*)(?P<sign>[#>+\-=*~|:<])")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """The prose of a paragraph, a heading or a table cell; `around` is the markup outside of it."""

    unit: Unit
    source: tuple[Piece, ...]
    inline: Inline
    context: Context
    env: Mapping[str, Any]
    expected: Hashable
    around: tuple[tuple[Part, ...], tuple[Part, ...]]
    textual: frozenset[Mark]

    def write(self, translation: str) -> tuple[Piece, ...]:
        """Write it as plainly as reads right: with escapes and spaces only where it would not."""
        items = self.inline.read(translation.strip())
        wanted = "".join(item if isinstance(item, str) else self._text_of(item) for item in items)
        for escaped in ("none", "first", "all"):
            for emphasis in ("same", "stars", "apart"):
                pieces = tuple(self._composed(items, escaped, emphasis))
                if self._reads_right(pieces, wanted):
                    return pieces
        raise UnfitTranslationError("the translation cannot be written in Markdown so that its markup stays what it is")

    def _text_of(self, mark: Mark) -> str:
        """What Markdown reads as text of a mark: a dialect's marks, and what is between <kbd> and </kbd>."""
        text = "".join(map(str, mark.pieces))
        if mark in self.textual:
            return text
        return _words(_inline_tokens(text, self.env)) if mark.kind == "word" else ""

    def _composed(self, items: Sequence[str | Mark], escaped: str, emphasis: str) -> Iterator[Piece]:
        begins = True  # at the beginning of a line
        for index, item in enumerate(items):
            if isinstance(item, str):
                text = _escaped(item) if escaped == "all" else item
                # a table's first row of -1 and -2 is the line of dashes below it to some readers
                if begins and (escaped != "none" or self.context == "cell") and _FIRST.match(text):
                    text = _FIRST.sub(_guard, text, count=1)
                yield text.replace("|", "\\|") if self.context == "cell" else text
            elif emphasis != "same" and len(item.pieces) == 1 and _EMPHASIS.fullmatch(str(item.pieces[0])):
                yield _spaced(items, index) if emphasis == "apart" else str(item.pieces[0]).replace("_", "*")
            else:
                for piece in item.pieces:
                    yield (piece.replace("|", "\\|") if isinstance(piece, str) and self.context == "cell" else piece)
            begins = isinstance(item, Mark) and item.kind == "break"

    def _reads_right(self, pieces: Sequence[Piece], wanted: str) -> bool:
        """Whether Markdown reads the same markup, and as text just the translation."""
        before, after = ("".join(self._shown(part) for part in parts) for parts in self.around)
        text = before + "".join(_ANY_DESCRIPTION if isinstance(piece, int) else str(piece) for piece in pieces) + after
        children = _read_block(re.sub(r"(?:\r\n?|\n)[ \t>]*", "\n", text), self.context, self.env)
        if children is None or inline_signature(children) != self.expected:
            return False
        outside = ["".join(self._text_of(part) for part in parts if isinstance(part, Mark)) for parts in self.around]
        return _dense(_words(children)) == _dense(outside[0] + wanted + outside[1])

    def _shown(self, part: Part) -> str:
        text = (
            part.plain
            if isinstance(part, Run)
            else "".join(_ANY_DESCRIPTION if isinstance(piece, int) else str(piece) for piece in part.pieces)
        )
        return text.replace("|", "\\|") if self.context == "cell" else text


def _guard(match: re.Match[str]) -> str:
    return f"{match['digits']}\\{match['dot']}" if match["dot"] else f"{match['space']}\\{match['sign']}"


def _escaped(text: str) -> str:
    """The text with nothing in it that Markdown reads; not every reader takes an escaped backtick for text."""
    escaped = re.sub(r"&(?=[#A-Za-z])", "&amp;", re.sub(r"([\\*_\[\]<>~#])", r"\\\1", text))
    return escaped.replace("`", "&#96;")


def _spaced(items: Sequence[str | Mark], index: int) -> str:
    """A mark of emphasis with a space outside, where a letter stands there: `是**“好”**的` would not be read as one."""
    mark = items[index]
    assert isinstance(mark, Mark)
    sign = str(mark.pieces[0]).replace("_", "*")
    beside = items[index - 1] if mark.kind == "open" and index else ""
    if mark.kind == "close":
        beside = items[index + 1] if index + 1 < len(items) else ""
    if not isinstance(beside, str) or not beside:
        return sign
    if mark.kind == "open":
        return sign if beside[-1].isspace() else f" {sign}"
    return sign if beside[0].isspace() else f"{sign} "


def _read_block(text: str, context: Context, env: Mapping[str, Any]) -> Sequence[Token] | None:
    """The inline tokens of a text as this kind of block; None when it is read as something else."""
    if context == "cell":
        return _inline_tokens(text.replace("\\|", "|"), env)
    whole = f"# {text}" if context == "heading" else f"{text}\n===" if context == "underlined" else text
    tokens = markdown_parser().parse(whole, {"references": dict(env.get("references", {}))})
    if len(tokens) != 3 or tokens[0].tag != ("p" if context == "paragraph" else "h1"):
        return None
    return tokens[1].children or []


def _words(children: Sequence[Token]) -> str:
    inside_autolink = False
    words: list[str] = []
    for token in children:
        if token.markup == "autolink":
            inside_autolink = token.nesting > 0
        elif token.type in {"text", "text_special"} and not inside_autolink:
            words.append(token.content)
    return "".join(words)


def _dense(text: str) -> str:
    return "".join(text.split())
