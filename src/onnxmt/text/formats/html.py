"""HTML: the text of each block with its inline tags is one unit; scripts, code, comments and other tags stay.

Python's html.parser reads it: it takes any HTML, as browsers do, and of the parsers at hand it alone tells where in the
text each tag begins, without which the rest could not stay byte for byte.
"""

from __future__ import annotations

import html
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate
from typing import Literal

from onnxmt.text.formats.document import Document, DocumentOptions, Piece, Slot, UnfitTranslationError, Unit
from onnxmt.text.formats.inline import Inline, Mark, Part, Run, edges, joined_lines
from onnxmt.text.protect import has_prose
from onnxmt.text.spans import ProtectOptions, find_protected

__all__ = ["read_html"]

# Elements inside a sentence; any other ends it.
_INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "img",
    "input", "ins", "label", "mark", "nobr", "output", "q", "ruby", "rb", "rp", "rt", "s", "small", "span",
    "strike", "strong", "sub", "sup", "time", "tt", "u", "wbr"
})  # fmt: skip
_CODE = frozenset({"code", "kbd", "samp", "var"})
_FIGURES = frozenset({"svg", "math", "canvas", "object", "audio", "video", "picture"})
_UNTOUCHED = (
    _CODE | _FIGURES | {"script", "style", "pre", "textarea", "template", "xmp", "noembed", "iframe", "listing"}
)
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"
})  # fmt: skip
_ATTRIBUTES = frozenset({"alt", "title", "placeholder", "aria-label"})
_META = frozenset({
    "description", "og:title", "og:description", "og:image:alt", "twitter:title", "twitter:description",
    "twitter:image:alt"
})  # fmt: skip
_ATTRIBUTE = re.compile(r"""(?P<name>[^\s"'<>/=]+)(?:\s*=\s*(?P<value>"[^"]*"|'[^']*'|[^\s"'=<>`]+))?""")
_SPACE = " \t\r\n\f"
_ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9A-Fa-f]+|[A-Za-z][A-Za-z0-9]*);?")
# {% if … %} of template languages: its order matters, as a tag's does.
# None holds the start of another: thousands of starts without an end are then read in one pass.
_TEMPLATE_TAG = re.compile(r"(\{%(?:(?!\{%).)*?%\}|\{#(?:(?!\{#).)*?#\})", re.DOTALL)
# As browsers end it; Python 3.11 does not know `<!-->` and `--!>`.
_COMMENT = re.compile(r"<!--(?:-?>|.*?--!?>)", re.DOTALL)
_PLACEHOLDERS = ProtectOptions(kinds=frozenset({"placeholder"}))


def read_html(text: str, options: DocumentOptions | None = None) -> Document:
    """Read an HTML document or a part of one; markup that is wrong is kept as it is, never an error."""
    options = options or DocumentOptions()
    reader = _Reader(text, options)
    reader.read()
    return Document(
        pieces=tuple(reader.pieces), slots=tuple(reader.slots), structure=lambda text: _structure(text, options)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Event:
    """What the parser sees next: a tag, text, or something else, at start:end of the text."""

    kind: Literal["open", "close", "text", "other"]
    start: int
    end: int
    name: str = ""
    attributes: tuple[tuple[str, str | None], ...] = ()
    empty: bool = False


class _Parser(HTMLParser):
    """Collects what the parser sees, with its place."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self._found: list[_Event] = []
        self._length = len(text)
        self.feed(text)
        self.close()

    def events(self) -> list[_Event]:
        if not self._found:
            return [_Event(kind="other", start=0, end=self._length)] if self._length else []
        ends = [*(event.start for event in self._found[1:]), self._length]
        first = self._found[0].start
        lead = [_Event(kind="other", start=0, end=first)] if first else []
        return lead + [
            _Event(
                kind=event.kind, start=event.start, end=end, name=event.name, attributes=event.attributes,
                empty=event.empty,
            )
            for event, end in zip(self._found, ends, strict=True)
        ]  # fmt: skip

    def _add(
        self,
        kind: Literal["open", "close", "text", "other"],
        name: str = "",
        attributes: Sequence[tuple[str, str | None]] = (),
        *,
        empty: bool = False,
    ) -> None:
        line, column = self.getpos()
        start = self._starts[line - 1] + column
        self._found.append(
            _Event(kind=kind, start=start, end=start, name=name, attributes=tuple(attributes), empty=empty)
        )

    # Markup that never ends (a tag without its `>`, a comment without `-->`) takes the rest of the text with it, as in
    # browsers. html.parser calls it text, which would be translated away, and looks for its end from each `<` anew.

    def _to_the_end(self, place: int) -> int:
        if place >= 0:
            return place
        self._add("other")
        return len(self.rawdata)

    def parse_starttag(self, i: int) -> int:
        return self._to_the_end(super().parse_starttag(i))

    def parse_endtag(self, i: int) -> int:
        return self._to_the_end(super().parse_endtag(i))

    def parse_comment(self, i: int, report: bool = True) -> int:  # noqa: ARG002 - the parser's signature
        self._add("other")
        comment = _COMMENT.match(self.rawdata, i)
        return comment.end() if comment else len(self.rawdata)

    def parse_pi(self, i: int) -> int:
        return self._to_the_end(super().parse_pi(i))

    def parse_html_declaration(self, i: int) -> int:
        try:
            return self._to_the_end(super().parse_html_declaration(i))
        except AssertionError:  # what Python 3.11 raises at a marked section that it does not know, such as <![x[
            return self._to_the_end(self.parse_bogus_comment(i))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("open", tag, attrs, empty=tag in _VOID)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("open", tag, attrs, empty=True)

    def handle_endtag(self, tag: str) -> None:
        self._add("close", tag)

    def handle_data(self, data: str) -> None:  # noqa: ARG002 - the text is read by its place
        self._add("text")

    def handle_entityref(self, name: str) -> None:  # noqa: ARG002
        self._add("text")

    def handle_charref(self, name: str) -> None:  # noqa: ARG002
        self._add("text")

    def handle_comment(self, data: str) -> None:  # noqa: ARG002
        self._add("other")

    def handle_decl(self, decl: str) -> None:  # noqa: ARG002
        self._add("other")

    def handle_pi(self, data: str) -> None:  # noqa: ARG002
        self._add("other")

    def unknown_decl(self, data: str) -> None:  # noqa: ARG002
        self._add("other")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stretch:
    """Text, a tag, or an element that stays as it is from its first tag to its last."""

    kind: Literal["open", "close", "text", "other", "untouched"]
    start: int
    end: int
    event: _Event


def _stretches(events: Sequence[_Event]) -> Iterator[_Stretch]:
    """The events with untouched elements and runs of text each as one."""
    closings = _closings(events)
    index = 0
    while index < len(events):
        event, last = events[index], index
        kind: Literal["open", "close", "text", "other", "untouched"] = event.kind
        if event.kind == "text":
            while last + 1 < len(events) and events[last + 1].kind == "text":
                last += 1
        elif event.kind == "open" and not event.empty and _stays(event):
            closing = closings.get(index)
            if closing is not None:
                kind, last = "untouched", closing
        yield _Stretch(kind=kind, start=event.start, end=events[last].end, event=event)
        index = last + 1


def _stays(event: _Event) -> bool:
    attributes = dict(event.attributes)
    return (
        event.name in _UNTOUCHED
        or (attributes.get("translate") or "").lower() == "no"
        or "notranslate" in (attributes.get("class") or "").split()
    )


def _closings(events: Sequence[_Event]) -> dict[int, int]:
    """For each element that is closed: the index of its first tag → of its last."""
    closings: dict[int, int] = {}
    waiting: dict[str, list[int]] = {}
    for index, event in enumerate(events):
        if event.kind == "open" and not event.empty:
            waiting.setdefault(event.name, []).append(index)
        elif event.kind == "close" and waiting.get(event.name):
            closings[waiting[event.name].pop()] = index
    return closings


class _Reader:
    """Cuts a document into runs of text and inline tags."""

    def __init__(self, text: str, options: DocumentOptions) -> None:
        self._text, self._options = text, options
        self.pieces: list[Piece] = []
        self.slots: list[Slot] = []
        self._parts: list[Part] = []
        self._sources: list[tuple[Piece, ...]] = []
        self._starts: list[int] = []

    def read(self) -> None:
        for stretch in _stretches(_Parser(self._text).events()):
            self._take(stretch)
        self._flush()

    def _take(self, stretch: _Stretch) -> None:
        raw, event = self._text[stretch.start : stretch.end], stretch.event
        if stretch.kind == "text":
            self._take_text(raw, stretch.start)
        elif stretch.kind == "untouched":
            if event.name in _CODE or (event.name in _INLINE and event.name not in _UNTOUCHED):
                self._add(Mark(kind="word", pieces=(raw,), shown=_shown(raw)), (raw,), stretch.start)
            elif event.name in _FIGURES:
                self._add(Mark(kind="single", pieces=(raw,)), (raw,), stretch.start)
            else:
                self._flush()
                tag = (
                    self._tag(event) if event.name in _UNTOUCHED and "translate" not in dict(event.attributes) else None
                )
                self.pieces += [raw] if tag is None else [*tag, self._text[event.end : stretch.end]]
        elif stretch.kind == "other":
            if self._parts and raw.startswith("<!--"):
                self._add(Mark(kind="single", pieces=(raw,)), (raw,), stretch.start)
            else:
                self._flush()
                self.pieces.append(raw)
        elif event.name == "br":
            self._add(Mark(kind="break", pieces=(raw,)), (raw,), stretch.start)
        elif event.name in _INLINE:
            pieces = tuple(self._tag(event)) if event.kind == "open" else (raw,)
            kind: Literal["open", "close", "single"] = "close" if event.kind == "close" else "open"
            self._add(
                Mark(kind="single" if event.empty else kind, pieces=pieces, name=event.name), pieces, stretch.start
            )
        else:
            self._flush()
            self.pieces += self._tag(event) if event.kind == "open" else [raw]

    def _add(self, part: Part, source: tuple[Piece, ...], start: int) -> None:
        self._parts.append(part)
        self._sources.append(source)
        self._starts.append(start)

    def _take_text(self, raw: str, start: int) -> None:
        core = raw.strip(_SPACE)
        lead = len(raw) - len(raw.lstrip(_SPACE)) if core else 0
        for piece, place in (
            (raw[:lead], start),
            (core, start + lead),
            (raw[lead + len(core) :], start + lead + len(core)),
        ):
            for index, inside in enumerate(_TEMPLATE_TAG.split(piece)):
                if index % 2:
                    self._add(Mark(kind="single", pieces=(inside,)), (inside,), place)
                elif inside:
                    self._add(Run(plain=_plain(inside)), (inside,), place)
                place += len(inside)

    def _flush(self) -> None:
        """The run is complete: make it a unit if there is prose in it."""
        start, end = edges(self._parts)
        before = [piece for source in self._sources[:start] for piece in source]
        middle = tuple(piece for source in self._sources[start:end] for piece in source)
        after = [piece for source in self._sources[end:] for piece in source]
        inline = Inline(self._parts[start:end])
        if has_prose(inline.text):
            line = self._text.count("\n", 0, self._starts[start]) + 1
            texts = "".join(
                piece
                for part, source in zip(self._parts[start:end], self._sources[start:end], strict=True)
                if isinstance(part, Run)
                for piece in source
                if isinstance(piece, str)
            )
            unit = Unit(text=inline.text, line=line, marks=inline.marks)
            self.pieces += [*before, len(self.slots), *after]
            self.slots.append(_Block(unit=unit, source=middle, inline=inline, texts=texts))
        else:
            self.pieces += [*before, *middle, *after]
        self._parts, self._sources, self._starts = [], [], []

    def _tag(self, event: _Event) -> list[Piece]:
        """An opening tag, with the values of its translatable attributes as units."""
        raw = self._text[event.start : event.end]
        names = _translatable(event, self._options)
        if not names:
            return [raw]
        pieces: list[Piece] = []
        position = 0
        for match in _ATTRIBUTE.finditer(raw, len(event.name) + 1):
            name, value = match["name"].lower(), match["value"]
            if name not in names or not value:
                continue
            body = value[1:-1] if value[0] in "\"'" else value
            plain = " ".join(_plain(body).split())
            if html.unescape(body) != dict(event.attributes).get(name) or not has_prose(plain):
                continue
            line = self._text.count("\n", 0, event.start + match.start()) + 1
            pieces += [raw[position : match.start("value")], len(self.slots)]
            position = match.end("value")
            unit = Unit(text=plain, line=line, where=f"the attribute {name} of <{event.name}>")
            self.slots.append(_Value(unit=unit, source=(value,)))
        return [*pieces, raw[position:]]


def _translatable(event: _Event, options: DocumentOptions) -> frozenset[str]:
    """The attributes of a tag that hold prose."""
    attributes = {name: (value or "").lower() for name, value in event.attributes}
    names: set[str] = set()
    if options.attributes:
        names |= _ATTRIBUTES
        if event.name == "input" and attributes.get("type") in {"submit", "button", "reset"}:
            names.add("value")
    if options.meta and event.name == "meta" and (attributes.get("name") or attributes.get("property")) in _META:
        names.add("content")
    return frozenset(names & attributes.keys())


def _shown(raw: str) -> str | None:
    """An element with code as the translator may see it: between backticks, where it holds plain text."""
    match = re.fullmatch(r"<[^<>]*>([^<>&`]*)</[^<>]*>", raw)
    code = f"`{match[1]}`" if match else ""
    return code if code.isprintable() and [span.text for span in find_protected(f" {code} ")] == [code] else None


def _plain(raw: str) -> str:
    """What a text says, on one line. `&lt;`, `&gt;`, and `&amp;` before a letter stay: they would read as markup."""

    def resolved(match: re.Match[str]) -> str:
        character = html.unescape(match.group())
        if character in {"<", ">"}:
            return "&lt;" if character == "<" else "&gt;"
        if character == "&" and re.match(r"[#A-Za-z]", raw[match.end() :]):
            return "&amp;"
        return character

    def one_line(match: re.Match[str]) -> str:
        if "\n" not in match.group():
            return " "
        whole = match.string
        return joined_lines(whole[: match.start()], whole[match.end() :])

    return re.sub(f"[{_SPACE}]+", one_line, _ENTITY.sub(resolved, raw))


def _entities(source: str) -> dict[str, str]:
    """The characters that a source writes as entities, such as `&nbsp;`: a translation writes them so too."""
    entities = {html.unescape(entity): entity for entity in _ENTITY.findall(source) if entity.endswith(";")}
    return {sign: entity for sign, entity in entities.items() if sign not in {"&", "<", ">"}}


def _markup(text: str, source: str, entities: dict[str, str]) -> str:
    """The text as HTML; placeholders of the source stay as they are."""
    parts: list[str] = []
    position = 0
    for span in find_protected(text, _PLACEHOLDERS) if "{" in text else ():
        if span.text in source:
            parts += [_escaped(text[position : span.start], entities), span.text]
            position = span.end
    return "".join([*parts, _escaped(text[position:], entities)])


def _escaped(text: str, entities: dict[str, str]) -> str:
    escaped = re.sub(r"&(?!(?:lt|gt|amp);)", "&amp;", text).replace("<", "&lt;").replace(">", "&gt;")
    for character, entity in entities.items():
        if len(character) == 1:
            escaped = escaped.replace(character, entity)
    return escaped


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """A block's text; `texts` is what stands between its tags now."""

    unit: Unit
    source: tuple[Piece, ...]
    inline: Inline
    texts: str

    def write(self, translation: str) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        entities = _entities(self.texts)
        for item in self.inline.read(translation):
            pieces += [_markup(item, self.texts, entities)] if isinstance(item, str) else item.pieces
        return tuple(pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Value:
    """An attribute's value, with its quotes."""

    unit: Unit
    source: tuple[Piece, ...]

    def write(self, translation: str) -> tuple[Piece, ...]:
        if "\n" in translation:
            raise UnfitTranslationError("an attribute's value must be one line of text")
        value = str(self.source[0])
        quote = value[0] if value[0] in "\"'" else '"'
        text = _markup(translation.strip(), value, _entities(value)).replace(
            quote, "&quot;" if quote == '"' else "&#39;"
        )
        return (quote + text + quote,)


def _structure(text: str, options: DocumentOptions) -> Hashable:
    """All but the words: tags with their attributes, comments, code; code in a sentence may change places in it."""
    found: list[Hashable] = []
    code: list[str] = []
    for stretch in _stretches(_Parser(text).events()):
        event = stretch.event
        if stretch.kind == "untouched" and (event.name in _CODE or event.name in _INLINE):
            code.append(text[stretch.start : stretch.end])
            continue
        if stretch.kind != "text" and event.name not in _INLINE:
            found.append(tuple(sorted(code)))
            code = []
        if stretch.kind == "untouched":
            found.append(text[event.end : stretch.end])
        if event.kind == "open":
            hidden = _translatable(event, options)
            found.append((event.name, event.empty, tuple((n, None if n in hidden else v) for n, v in event.attributes)))
        elif event.kind == "close":
            found.append((event.name,))
        elif event.kind == "other":
            found.append(text[stretch.start : stretch.end])
    return (*found, tuple(sorted(code)))
