"""JSON: values that are prose are translated; keys, numbers, structure, indentation and the way of escaping stay."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from onnxmt.text.formats.document import (
    Document,
    DocumentError,
    DocumentOptions,
    Piece,
    Slot,
    Unit,
)
from onnxmt.text.formats.placeholders import check_placeholders
from onnxmt.text.protect import has_prose

__all__ = ["read_json"]

# The document is known to be JSON, so that its tokens are all there is to read.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
# Values under these keys are names for programs, whatever they look like.
_NAMES = frozenset({
    "id", "uuid", "guid", "key", "type", "kind", "format", "ref", "href", "url", "uri", "src", "path", "file",
    "icon", "class", "classname", "slug", "lang", "language", "locale", "version", "encoding", "charset",
    "mimetype", "hash", "checksum", "sha", "sha256", "color", "colour", "email", "date", "timestamp", "licence",
    "license", "spdxid", "purl", "bom-ref"
})  # fmt: skip
# One word that is written as identifiers are: a_b, a-b, a.b, a/b, aB, lower case, A_B, with digits, #ff0000. Read in
# one pass: of what makes it one the first counts, and a word has no space.
_IDENTIFIER = re.compile(
    r"[a-z]+|[^\s_/\\.:#@=+*$0-9-]*[_/\\.:#@=+*$0-9-]\S*[\w)]|(?!\S*\s)\S*?[a-z][A-Z]\S*|[A-Z]+(?:_[A-Z]+)+"
)
_PATH_STEP = re.compile(r"[A-Za-z_$][\w$-]*")


def read_json(text: str, options: DocumentOptions | None = None) -> Document:
    """Read a JSON document. Raises DocumentError, with line and column, where it is none."""
    options = options or DocumentOptions()
    _check(text)
    wanted = _paths(options.json_paths)
    ascii_only = text.isascii() and re.search(r"\\u(?!00[01])[0-9A-Fa-f]{4}", text) is not None
    pieces: list[Piece] = []
    slots: list[Slot] = []
    position = 0
    for value in _values(text):
        plain = json.loads(text[value.start : value.end], strict=False)
        if not _is_wanted(plain, value.path, wanted):
            continue
        unit = Unit(text=plain, line=text.count("\n", 0, value.start) + 1, where=_said(value.path))
        raw = text[value.start : value.end]
        pieces += [text[position : value.start], len(slots)]
        slots.append(_Value(unit=unit, source=(raw,), ascii_only=ascii_only))
        position = value.end
    if options.json_paths and not slots:
        raise DocumentError(f"no text in the document is at a path of {', '.join(options.json_paths)}")
    return Document(pieces=(*pieces, text[position:]), slots=tuple(slots), structure=_structure)


def _check(text: str) -> None:
    try:
        json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        raise DocumentError(f"line {error.lineno}, column {error.colno} is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise DocumentError("the JSON is nested too deeply to be read") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class _String:
    """A string value at start:end, with its quotes, and the keys and indexes that lead to it."""

    start: int
    end: int
    path: tuple[str, ...]


@dataclass(kw_only=True, slots=True)
class _Level:
    """An open object or array: the key or index of its present value."""

    is_object: bool
    step: str = ""
    count: int = 0
    waits_for_key: bool = field(default=True)


def _values(text: str) -> Iterator[_String]:
    levels: list[_Level] = []
    for token in _TOKEN.finditer(text):
        sign, level = token.group()[0], levels[-1] if levels else None
        if sign in "{[":
            levels.append(_Level(is_object=sign == "{", step="0"))
        elif sign in "}]":
            levels.pop()
        elif sign == "," and level is not None:
            level.count += 1
            level.step, level.waits_for_key = str(level.count), True
        elif sign == ":" and level is not None:
            level.waits_for_key = False
        elif sign == '"':
            if level is not None and level.is_object and level.waits_for_key:
                level.step = json.loads(token.group(), strict=False)
            else:
                path = tuple(level.step for level in levels)
                yield _String(start=token.start(), end=token.end(), path=path)


def _paths(patterns: Sequence[str]) -> Callable[[tuple[str, ...]], bool] | None:
    """Whether one of the patterns is a path; None without patterns."""
    if not patterns:
        return None
    expressions = []
    for pattern in patterns:
        steps = [
            "(?:[^\0]*\0)*" if s == "**" else r"[^\0]*\0" if s == "*" else re.escape(s) + "\0"
            for s in pattern.split(".")
        ]
        expressions.append(re.compile("".join(steps)))
    return lambda path: any(e.fullmatch("".join(f"{step}\0" for step in path)) for e in expressions)


def _is_wanted(value: str, path: tuple[str, ...], wanted: Callable[[tuple[str, ...]], bool] | None) -> bool:
    if any("\ud800" <= character <= "\udfff" for character in value) or not has_prose(value):
        return False
    if wanted is not None:
        return wanted(path)
    keys = [step for step in path if not step.isdigit()]
    if keys and (keys[-1].startswith(("$", "@")) or keys[-1].lower() in _NAMES):
        return False
    return _IDENTIFIER.fullmatch(value.strip()) is None


def _said(path: Sequence[str]) -> str:
    """The path for people: a.b[0], with quotes around a key that has other characters."""
    parts: list[str] = []
    for step in path:
        if step.isdigit():
            parts.append(f"[{step}]")
        elif _PATH_STEP.fullmatch(step):
            parts.append(f".{step}" if parts else step)
        else:
            parts.append(f"[{json.dumps(step, ensure_ascii=False)}]")
    return "".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Value:
    """A string with its quotes."""

    unit: Unit
    source: tuple[Piece, ...]
    ascii_only: bool

    def write(self, translation: str) -> tuple[Piece, ...]:
        check_placeholders(self.unit.text, translation)
        written = json.dumps(translation, ensure_ascii=self.ascii_only)
        source = str(self.source[0])
        if "\\/" in source:
            written = written.replace("/", "\\/")
        for sign in "<>&'":  # written as \u003c where the document is to stand inside HTML
            escape = f"\\u{ord(sign):04x}"
            if escape in source.lower() and sign not in source:
                written = written.replace(sign, escape)
        return (written,)


def _structure(text: str) -> Hashable:
    """All but the values that are translated, which a translation must leave strings."""
    try:
        json.loads(text, strict=False)
    except ValueError:
        return None
    parts: list[Hashable] = []
    position = 0
    for value in _values(text):
        parts += [text[position : value.start], value.path]
        position = value.end
    return (*parts, text[position:])
