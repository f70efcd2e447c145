"""Lines of text from arguments, files or a pipe: as bytes that are never altered, in windows of what has arrived."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxmt.errors import UsageError

# A line is held in memory whole. A text of this size is hours of work for a model, and no line of a document.
LONGEST_LINE = 2**20
_CHUNK = 2**16
_BOM = b"\xef\xbb\xbf"
# How many lines make a window: few at first, so that the first answer comes soon; many later, so that batches are full.
_FIRST_WINDOW, _LARGEST_WINDOW = 4, 1024


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line without its ending; `where` says which one to a person, `error` why it cannot be translated.

    `ending` is what followed it: a newline, CR and newline, or nothing at the end of the input.
    """

    text: str
    ending: bytes
    where: str
    bytes: int
    error: str | None = None


class Source(Protocol):
    """Where lines come from; a window holds what can be had without waiting, at least one line."""

    def windows(self) -> Iterator[list[Line]]:
        """Yield the lines in order; raises UsageError for what is not UTF-8 text, after the lines before it."""

    @property
    def size(self) -> int | None:
        """Bytes in all; None where that is not known beforehand."""


class Arguments:
    """The texts of the command line, each a line (or several, where one holds newlines)."""

    size = None

    def __init__(self, texts: Sequence[str]) -> None:
        wrong = [number for number, text in enumerate(texts, 1) if not _is_unicode(text)]
        if wrong:
            raise UsageError(f"text {wrong[0]} on the command line is not UTF-8: write it into a file in UTF-8, use -f")
        self._texts = texts

    def windows(self) -> Iterator[list[Line]]:
        """Yield all of them."""
        lines = [
            Line(text=line, ending=b"\n", where=f"text {number}", bytes=0)
            for number, text in enumerate(self._texts, 1)
            for line in text.split("\n")
        ]
        yield from _cut(lines, _Growth())


def _is_unicode(text: str) -> bool:
    """Whether an argument was valid UTF-8: for a byte that was not, Python puts in a lone surrogate."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


class Files:
    """Files one after another; `-` is standard input."""

    def __init__(self, paths: Sequence[Path]) -> None:
        problems = [problem for path in paths if (problem := _unreadable(path))]
        if problems:
            raise UsageError(f"cannot read {'; '.join(problems)}")
        self._paths = paths

    @property
    def size(self) -> int | None:
        """Bytes of all files, where all are plain ones."""
        plain = [path.stat() for path in self._paths if str(path) != "-"]
        if len(plain) < len(self._paths) or not all(stat.S_ISREG(found.st_mode) for found in plain):
            return None
        return sum(found.st_size for found in plain)

    def windows(self) -> Iterator[list[Line]]:
        """Yield each file's lines. A file that lacks its last newline gets one, if another file follows."""
        growth = _Growth()
        for index, path in enumerate(self._paths):
            last = index == len(self._paths) - 1
            name = "standard input" if str(path) == "-" else str(path)
            try:
                with _opened(path) as stream:
                    for window in _windows(stream, name, growth):
                        yield window if last else [_ended(line) for line in window]
            except OSError as error:
                raise UsageError(f"cannot read {name}: {error.strerror or error}") from error


def standard_input() -> Files:
    """Lines of a pipe or a redirected file; a person who typed nothing else is told what to type."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            'nothing to translate: give a text (onnxmt translate "Good morning."), a file (-f FILE), or lines on '
            "standard input (-f - reads them from the terminal)"
        )
    return Files([Path("-")])


def _unreadable(path: Path) -> str | None:
    if str(path) == "-":
        return None
    if not path.exists():
        return f"{path}: no such file"
    if path.is_dir():
        return f"{path}: it is a folder"
    return None if os.access(path, os.R_OK) else f"{path}: no permission"


class _Standard:
    """Standard input as a context manager that leaves it open."""

    def __enter__(self) -> BinaryIO:
        return sys.stdin.buffer

    def __exit__(self, *_: object) -> None:
        """Leave it open."""


def _opened(path: Path) -> BinaryIO | _Standard:
    return _Standard() if str(path) == "-" else path.open("rb")


def _ended(line: Line) -> Line:
    return line if line.ending.endswith(b"\n") else Line(**{**vars(line), "ending": line.ending + b"\n"})


class _Growth:
    """The size of the next window."""

    def __init__(self) -> None:
        self.lines = _FIRST_WINDOW

    def grow(self) -> None:
        self.lines = min(2 * self.lines, _LARGEST_WINDOW)


def _cut(lines: list[Line], growth: _Growth) -> Iterator[list[Line]]:
    while lines:
        window, lines = lines[: growth.lines], lines[growth.lines :]
        growth.grow()
        yield window


def _windows(stream: BinaryIO, name: str, growth: _Growth) -> Iterator[list[Line]]:
    """Cut a stream into lines; after each piece that arrives, all complete ones are handed on."""
    reader = _Reader(name)
    while chunk := _read_some(stream):
        yield from _handed_on(reader, reader.feed(chunk), growth)
    yield from _handed_on(reader, reader.finish(), growth)


def _handed_on(reader: _Reader, raw: list[bytes | None], growth: _Growth) -> Iterator[list[Line]]:
    lines: list[Line] = []
    for piece in raw:
        try:
            lines.append(reader.line(piece))
        except UsageError:
            yield from _cut(lines, growth)  # what came before the fault is translated first
            raise
    yield from _cut(lines, growth)


def _read_some(stream: BinaryIO) -> bytes:
    """Read what is there, waiting only where there is nothing: a pipe's line must not wait for the next one."""
    read1 = getattr(stream, "read1", None)
    data: bytes = read1(_CHUNK) if read1 is not None else stream.read(_CHUNK)
    return data


class _Reader:
    """Bytes in, lines out; holds no more than the line that is not complete yet."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pending = b""
        self._skipping = False  # inside a line that is too long to be held
        self._number = 0
        self._offset = 0

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Take bytes, and return the complete lines with their newlines; None stands for one that is too long."""
        *complete, rest = (self._pending + chunk).split(b"\n")
        lines: list[bytes | None] = []
        for piece in complete:
            too_long = self._skipping or len(piece) > LONGEST_LINE
            lines.append(None if too_long else piece + b"\n")
            self._skipping = False
        self._skipping = self._skipping or len(rest) > LONGEST_LINE
        self._pending = b"" if self._skipping else rest
        return lines

    def finish(self) -> list[bytes | None]:
        """Return the last line, if it has no newline."""
        if self._skipping:
            return [None]
        return [self._pending] if self._pending else []

    def line(self, raw: bytes | None) -> Line:
        """Decode one line; raises UsageError where it is not UTF-8."""
        self._number += 1
        where = f"{self._name}, line {self._number}"
        if raw is None:
            error = f"the line is longer than {LONGEST_LINE} bytes: break it into lines"
            return Line(text="", ending=b"\n", where=where, bytes=0, error=error)
        start = self._offset
        self._offset += len(raw)
        body = raw.removesuffix(b"\n").removesuffix(b"\r")
        ending = raw[len(body) :]
        if self._number == 1:
            body = body.removeprefix(_BOM)  # a mark of the encoding, not text
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError as error:
            place = start + len(raw) - len(ending) - len(body) + error.start
            raise UsageError(
                f"{where}: byte {place + 1} of the input, 0x{body[error.start]:02x}, is not UTF-8 ({error.reason}): "
                "convert the text first, as in: iconv -f GB18030 -t UTF-8"
            ) from error
        return Line(text=text, ending=ending, where=where, bytes=len(raw))
