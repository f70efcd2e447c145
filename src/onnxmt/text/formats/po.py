"""GNU gettext catalogues: msgid is translated into an empty msgstr; everything else stays as it is.

The reader is our own: polib, the one on the package index, writes a catalogue anew (wrapping, order of comments), and
here every byte outside the new translations must come back. The tests compare with polib what both read.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from onnxmt.text.formats.document import (
    Document,
    DocumentError,
    DocumentOptions,
    Piece,
    Slot,
    UnfitTranslationError,
    Unit,
    When,
)
from onnxmt.text.formats.placeholders import check_placeholders
from onnxmt.text.protect import has_prose

__all__ = ["read_po"]

_KEYWORD = re.compile(r"(?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[(?P<form>\d+)\])?)[ \t]*(?P<string>.*)")
_STRING = re.compile(r'"(?P<body>(?:[^"\\]|\\.)*)"[ \t]*')
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\v": "\\v",
}
_CHARSET = re.compile(r"charset=([^\s\\]+)", re.IGNORECASE)
# printf's unnumbered directives, which take the arguments in turn.
_DIRECTIVE = re.compile(r"%[-+ 0#]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGcrsa]")
_FORMAT_FLAG = re.compile(r"(?<!no-)\b(?:c|objc|python|php|perl|sh|lua|awk|gcc-internal)-format\b")
_BODY = re.compile(r"\A(\s*)(.*?)(\s*)\Z", re.DOTALL)


def read_po(text: str, options: DocumentOptions | None = None) -> Document:
    """Read a catalogue. Raises DocumentError, with the line, where it is not one."""
    options = options or DocumentOptions()
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
    entries = _entries(lines)
    if not entries and text.strip():
        raise DocumentError("this is no gettext catalogue: no line begins with msgid")
    _check_charset(entries)
    pieces: list[Piece] = []
    slots: list[Slot] = []
    position = 0
    for entry in entries:
        translated = _translate_entry(entry, lines, options, slots)
        if translated:
            pieces += lines[position : entry.start]
            pieces += translated
            position = entry.end
    return Document(pieces=(*pieces, *lines[position:]), slots=tuple(slots), structure=_structure)


@dataclass(kw_only=True, slots=True)
class _Field:
    """One keyword of an entry with its strings, at lines start:end."""

    keyword: str
    form: int | None
    text: str
    start: int
    end: int


@dataclass(kw_only=True, slots=True)
class _Entry:
    """One message: where its lines stand, where its flags do, its fields."""

    start: int
    end: int = 0
    flags: list[int] = field(default_factory=list)
    previous: int | None = None
    fields: list[_Field] = field(default_factory=list)

    def text(self, keyword: str) -> str | None:
        return next((found.text for found in self.fields if found.keyword == keyword), None)

    @property
    def text_line(self) -> int:
        """The line of msgid, from 1."""
        return next(found.start for found in self.fields if found.keyword == "msgid") + 1

    @property
    def translations(self) -> list[_Field]:
        return [found for found in self.fields if found.keyword.startswith("msgstr")]


def _entries(lines: Sequence[str]) -> list[_Entry]:
    """The messages in use; obsolete ones (#~) are comments. Raises DocumentError."""
    entries: list[_Entry] = []
    entry: _Entry | None = None
    for number, line in enumerate(lines):
        body = line.strip("\ufeff \t\r\n\f\v")
        if not body or body.startswith("#"):
            if entry is not None and entry.translations:
                entries.append(entry)
                entry = None
            if body.startswith("#") and not body.startswith("#~"):
                entry = entry or _Entry(start=number)
                if entry.fields:
                    continue
                if body.startswith("#,"):
                    entry.flags.append(number)
                elif body.startswith("#|") and entry.previous is None:
                    entry.previous = number
            elif entry is not None and not entry.fields:
                entry = None  # comments that belong to no message, or to an obsolete one
            continue
        keyword = _KEYWORD.fullmatch(body)
        if keyword:
            name = "msgstr" if keyword["keyword"].startswith("msgstr") else keyword["keyword"]
            if name in {"msgid", "msgctxt"} and entry is not None and entry.translations:
                entries.append(entry)
                entry = None
            entry = entry or _Entry(start=number)
            form = int(keyword["form"]) if keyword["form"] else None
            text = _string(keyword["string"], number)
            entry.fields.append(_Field(keyword=name, form=form, text=text, start=number, end=number + 1))
        elif body.startswith('"') and entry is not None and entry.fields:
            entry.fields[-1].text += _string(body, number)
            entry.fields[-1].end = number + 1
        else:
            raise DocumentError(
                f"line {number + 1} is not one of a gettext catalogue: {body[:40]!r}; such lines begin with msgctxt, "
                "msgid, msgid_plural, msgstr, a quote or #"
            )
        entry.end = number + 1
    if entry is not None and entry.fields:
        entries.append(entry)
    for found in entries:
        if found.text("msgid") is None or not found.translations:
            missing = "msgid" if found.text("msgid") is None else "msgstr"
            raise DocumentError(f"line {found.start + 1}: the message that begins here has no {missing}")
    return entries


def _string(raw: str, number: int) -> str:
    found = _STRING.fullmatch(raw)
    if found is None:
        raise DocumentError(f"line {number + 1}: {raw[:40]!r} is no string between quotes with escapes such as \\n")

    def resolved(match: re.Match[str]) -> str:
        octal, hexadecimal, sign = match.groups()
        if sign is not None:
            return _ESCAPES.get(sign, sign)
        return chr(int(octal, 8) if octal else int(hexadecimal, 16))

    return _ESCAPE.sub(resolved, found["body"])


def _quoted(text: str) -> str:
    return '"' + re.sub(r'[\\"\n\t\r\a\b\f\v]', lambda match: _WRITTEN[match.group()], text) + '"'


def _check_charset(entries: Sequence[_Entry]) -> None:
    """A catalogue whose header names another encoding would be read wrongly by every program afterwards."""
    header = next((entry for entry in entries if entry.text("msgid") == "" and entry.text("msgctxt") is None), None)
    found = _CHARSET.search(header.translations[0].text) if header is not None else None
    if found and found[1].lower().replace("-", "") not in {"utf8", "charset"}:
        raise DocumentError(
            f"the catalogue's header says charset={found[1]}; only UTF-8 can hold every translation: convert it with "
            "msgconv -t UTF-8"
        )


def _translate_entry(
    entry: _Entry, lines: Sequence[str], options: DocumentOptions, slots: list[Slot]
) -> list[Piece] | None:
    """The pieces of an entry that is to be translated; None for one that stays."""
    message, plural = entry.text("msgid"), entry.text("msgid_plural")
    done = any(found.text for found in entry.translations)
    if not message or (done and not options.redo):
        return None
    flags = "".join(lines[number] for number in entry.flags)
    newline = "\r\n" if lines[entry.start].endswith("\r\n") else "\n"
    first = len(slots)
    pieces: list[Piece] = []
    position = entry.fields[0].start
    for found in entry.translations:
        # of several forms the first is the singular; a language with one form (Chinese) has the plural there
        singular = plural is None or (found.form == 0 and len(entry.translations) > 1)
        text = message if singular else plural or message
        if not has_prose(text):
            continue
        raw = "".join(lines[found.start : found.end])
        place = raw.index('"')
        ending = raw[len(raw.rstrip("\r\n")) :]
        unit = Unit(text=_BODY.sub(r"\2", text), line=entry.text_line, where=entry.text("msgctxt") or "")
        pieces += [*lines[position : found.start], raw[:place], len(slots), ending]
        slots.append(
            _Message(unit=unit, source=(raw[place:].removesuffix(ending),), text=text, flags=flags, newline=newline)
        )
        position = found.end
    if len(slots) == first:
        return None
    head = _flagged(entry, lines, frozenset(range(first, len(slots))), newline) if options.fuzzy else None
    return [*(head or lines[entry.start : entry.fields[0].start]), *pieces, *lines[position : entry.end]]


def _flagged(entry: _Entry, lines: Sequence[str], units: frozenset[int], newline: str) -> list[Piece]:
    """The comments of an entry with the flag `fuzzy`, if one of the units is translated."""
    start, end = entry.start, entry.fields[0].start
    if any(re.search(r"\bfuzzy\b", lines[number]) for number in entry.flags):
        return [*lines[start:end]]
    if entry.flags:
        number = entry.flags[-1]
        body = lines[number].rstrip("\r\n")
        flagged = f"{body.rstrip()}, fuzzy{lines[number][len(body) :]}"
        return [
            *lines[start:number],
            When(units=units, then=flagged, otherwise=lines[number]),
            *lines[number + 1 : end],
        ]
    place = end if entry.previous is None else entry.previous
    return [*lines[start:place], When(units=units, then=f"#, fuzzy{newline}", otherwise=""), *lines[place:end]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Message:
    """The strings of one msgstr; `text` is the whole msgid, with the spaces and line breaks at its ends."""

    unit: Unit
    source: tuple[Piece, ...]
    text: str
    flags: str
    newline: str

    def write(self, translation: str) -> tuple[Piece, ...]:
        translation = translation.strip()
        check_placeholders(self.unit.text, translation)
        self._check_order(translation)
        whole = _BODY.sub(lambda match: match[1] + translation + match[3], self.text)
        parts = whole.splitlines(keepends=True)
        if len(parts) == 1:
            return (_quoted(whole),)
        return (self.newline.join(['""', *map(_quoted, parts)]),)

    def _check_order(self, translation: str) -> None:
        """printf puts its values in by their order."""
        if _FORMAT_FLAG.search(self.flags):
            order = [_DIRECTIVE.findall(text.replace("%%", "")) for text in (self.unit.text, translation)]
            if order[0] != order[1]:
                raise UnfitTranslationError(f"{' and '.join(order[0])} stand in another order in the translation")


def _structure(text: str) -> Hashable:
    """Every line but those of msgstr, and the flags but for `fuzzy`."""
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
    entries = _entries(lines)
    flags = {number for entry in entries for number in entry.flags}
    written = {number for entry in entries for found in entry.translations for number in range(found.start, found.end)}
    apart = flags | written
    around = [line for number, line in enumerate(lines) if number not in apart]
    return tuple(around), tuple(
        (
            entry.text("msgctxt"),
            entry.text("msgid"),
            tuple(found.form for found in entry.translations),
            frozenset(re.findall(r"[\w-]+", "".join(lines[number] for number in entry.flags))) - {"fuzzy"},
        )
        for entry in entries
    )
