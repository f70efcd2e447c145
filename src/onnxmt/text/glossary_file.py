"""A glossary's file: a line for each term, source, tab, target, and perhaps a tab and options."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from onnxmt.errors import GlossaryError
from onnxmt.text.glossary import Glossary, GlossaryEntry, key_of

__all__ = ["parse_glossary", "read_glossary"]

_OPTIONS = ("case", "nocase", "forms")
_LARGEST_BYTES = 50_000_000
_SHOWN = 5


def read_glossary(path: str | os.PathLike[str]) -> Glossary:
    """Read a file in UTF-8, with or without a byte order mark. Raises GlossaryError that names lines and columns."""
    file = Path(path)
    try:
        if file.is_dir():
            raise GlossaryError(f"the glossary {file} is a folder: name a file of lines SOURCE, tab, TARGET")
        with file.open("rb") as stream:
            data = stream.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise GlossaryError(f"the glossary {file} cannot be read: {error.strerror or error}") from error
    if len(data) > _LARGEST_BYTES:
        raise GlossaryError(f"the glossary {file} is larger than {_LARGEST_BYTES // 1_000_000} MB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise GlossaryError(
            f"the glossary {file} is not UTF-8: line {line} has a byte {data[error.start]:#04x}"
        ) from error
    return parse_glossary(text, name=str(file))


def parse_glossary(text: str, *, name: str = "the glossary") -> Glossary:
    """Read the lines of a glossary; `name` stands for it in messages.

    Blank lines, and those that begin with `#`, are skipped; spaces around a term do not count. Options, apart by commas
    or spaces: `case` finds the term as it is written only, `nocase` in any case, `forms` in the plural too.
    """
    entries: list[GlossaryEntry] = []
    first: dict[tuple[bool, tuple[str, ...]], tuple[int, str]] = {}
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or line.startswith("#"):
            continue
        try:
            entry = _entry(line)
        except _Wrong as wrong:
            problems.append(f"line {number}, column {wrong.column}: {wrong}")
            continue
        line_before, target = first.setdefault(key_of(entry), (number, entry.target))
        if target != entry.target:
            problems.append(
                f"line {number}, column {line.index(chr(9)) + 2}: {entry.source!r} becomes {entry.target!r} here and "
                f"{target!r} in line {line_before}"
            )
        if line_before == number:
            entries.append(entry)
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise GlossaryError(f"{name}: {'; '.join(problems[:_SHOWN])}{more}")
    if not entries:
        raise GlossaryError(f"{name} has no terms: a line is SOURCE, tab, TARGET")
    return Glossary(tuple(entries))


class _Wrong(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, column: int, message: str) -> None:
        self.column = column
        super().__init__(message)


def _entry(line: str) -> GlossaryEntry:
    fields = list(_fields(line))
    if len(fields) < 2:
        raise _Wrong(len(line) + 1, f"no tab and target behind {line.strip()[:40]!r}")
    if len(fields) > 3:
        raise _Wrong(fields[3][0], "a third tab: a line is SOURCE, tab, TARGET, and perhaps a tab and options")
    (source_column, source), (target_column, target) = fields[:2]
    for column, what, value in ((source_column, "source", source), (target_column, "target", target)):
        if not value:
            raise _Wrong(column, f"the {what} term is empty")
    options = _options(*fields[2]) if len(fields) > 2 else frozenset[str]()
    case = True if "case" in options else False if "nocase" in options else None
    try:
        return GlossaryEntry(source=source, target=target, case=case, forms="forms" in options)
    except GlossaryError as error:
        raise _Wrong(source_column, str(error).removeprefix("glossary: ")) from error


def _fields(line: str) -> Iterator[tuple[int, str]]:
    """The fields of a line, each with the column (from 1) at which it begins."""
    place = 0
    for field in line.split("\t"):
        yield place + len(field) - len(field.lstrip()) + 1, field.strip()
        place += len(field) + 1


def _options(column: int, text: str) -> frozenset[str]:
    words = text.replace(",", " ").split()
    unknown = [word for word in words if word not in _OPTIONS]
    if unknown:
        raise _Wrong(column, f"unknown option {unknown[0]!r}; options are {', '.join(_OPTIONS)}")
    if {"case", "nocase"} <= set(words):
        raise _Wrong(column, "case and nocase at once")
    return frozenset(words)
