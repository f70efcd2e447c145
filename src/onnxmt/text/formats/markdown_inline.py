"""The inside of a Markdown block: its markup and text in order, and translations written so that they read as meant."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from onnxmt.text.formats.document import Piece, Slot, UnfitTranslationError, Unit
from onnxmt.text.formats.inline import Inline, Mark, Part, Run, edges, joined_lines
from onnxmt.text.formats.markdown_tokens import (
    Child,
    Place,
    inline_children,
    inline_signature,
    inline_tokens,
    markdown_parser,
)
from onnxmt.text.patterns import has_letter
from onnxmt.text.protect import has_prose
from onnxmt.text.spans import find_protected

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["Context", "prose_pieces"]

Context = Literal["paragraph", "heading", "underlined", "cell"]

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


def prose_pieces(place: Place, *, env: Mapping[str, Any], context: Context, slots: list[Slot]) -> list[Piece] | None:
    """Read a block; its units are added to `slots`. None when there is nothing to translate in it."""
    children = inline_children(place.content, env)
    if children is None:
        return None
    reader = _Reader(place, slots)
    for child in children:
        reader.add(child)
    return reader.pieces(context=context, env=env, expected=inline_signature([child.token for child in children]))


class _Reader:
    """Collects a block's parts, and beside each what stands for it in the document."""

    def __init__(self, place: Place, slots: list[Slot]) -> None:
        self._place, self._slots = place, slots
        self._parts: list[Part] = []
        self._sources: list[list[Piece]] = []
        self._textual: set[Mark] = set()
        self._code = ""  # the HTML element whose end is waited for
        self._links: list[int] = []  # where the texts of the open links begin

    def add(self, child: Child) -> None:
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

    def _image(self, child: Child, source: str) -> None:
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

    def _inside_code(self, child: Child, source: str) -> None:
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
        return _words(inline_tokens(text, self.env)) if mark.kind == "word" else ""

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
        return inline_tokens(text.replace("\\|", "|"), env)
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
