"""Files of lines: plain text, a text a line; and JSON Lines, an object a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from onnxmt.bulk.rows import LONGEST_ROW, Bad, Row, Shard, ShardSize

TRANSLATION = "translation"
_CHUNK = 2**20
# Rows that cannot be kept in a file that each line of is to be an object; the report says where they are in the input.
_NO_OBJECT = frozenset({"not_json", "not_object", "not_utf8", "too_long"})
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class TextLines:
    """Plain text: line N of the output is the translation of line N, with the same ending."""

    def shards(self, path: Path, size: ShardSize) -> list[Shard]:
        """Cut at newlines."""
        return cut_lines(path, size)

    def read(self, path: Path, shard: Shard) -> Iterator[Row]:
        """Read lines; one that is too long or not UTF-8 is bad."""
        for row in read_lines(path, shard):
            text, bad = (None, row.bad) if row.bad else decoded(row.raw)
            yield Row(number=row.number, text=text, bad=bad, ending=row.ending, offset=row.offset)

    def write(self, stream: BinaryIO, rows: Iterable[tuple[Row, str | None]]) -> None:
        """Write a line each; an empty one stands for a bad row."""
        for row, translation in rows:
            stream.write(_one_line(translation or "").encode() + row.ending)

    def join(self, path: Path, shards: Sequence[Shard], parts: Sequence[Path], stream: BinaryIO) -> None:  # noqa: ARG002
        """Write part after part."""
        copy_parts(parts, stream)


@dataclass(frozen=True, kw_only=True)
class JsonLines:
    """JSON Lines: `field` is translated, `translation` is added behind the other fields, which stay as they are."""

    field: str

    def shards(self, path: Path, size: ShardSize) -> list[Shard]:
        """Cut at newlines."""
        return cut_lines(path, size)

    def read(self, path: Path, shard: Shard) -> Iterator[Row]:
        """Read lines; what is no object with a text in its field is bad. A blank line is no row, and stays."""
        for row in read_lines(path, shard):
            text, bad = (None, row.bad) if row.bad else self._text(row.raw)
            yield Row(number=row.number, text=text, bad=bad, raw=row.raw, ending=row.ending, offset=row.offset)

    def write(self, stream: BinaryIO, rows: Iterable[tuple[Row, str | None]]) -> None:
        """Write the lines with `translation`, null in bad rows; what was no object becomes one that holds just that."""
        for row, translation in rows:
            stream.write(self._line(row, translation) + row.ending)

    def join(self, path: Path, shards: Sequence[Shard], parts: Sequence[Path], stream: BinaryIO) -> None:  # noqa: ARG002
        """Write part after part."""
        copy_parts(parts, stream)

    def _text(self, raw: bytes) -> tuple[str | None, Bad | None]:
        line, bad = decoded(raw)
        if line is None or not line.strip():
            return None, bad
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else str(error)[:100]
            return None, Bad(code="not_json", reason=f"the line is not JSON: {reason}")
        if not isinstance(value, dict):
            return None, Bad(code="not_object", reason=f"the line is {kind_name(value)}; a JSON object is needed")
        if TRANSLATION in value:
            return None, Bad(code="translated", reason=f"there is a field {TRANSLATION!r} already; take it out")
        if self.field not in value:
            return None, Bad(code="missing_field", reason=f"there is no field {self.field!r}")
        return checked_text(value[self.field], self.field)

    def _line(self, row: Row, translation: str | None) -> bytes:
        body = row.raw.rstrip()
        if row.bad is None and not body:
            return row.raw
        if row.bad is not None and row.bad.code == "translated":
            return row.raw
        if row.bad is not None and row.bad.code in _NO_OBJECT:
            body = b"{}"
        # put in before the last brace, so that numbers, spaces and repeated keys stay as they were written
        added = f"{json.dumps(TRANSLATION)}: {json.dumps(translation, ensure_ascii=False)}}}"
        rest = body[:-1].rstrip()
        return rest + (b"" if rest.endswith(b"{") else b", ") + added.encode()


def cut_lines(path: Path, size: ShardSize) -> list[Shard]:
    """Cut a file into shards at newlines, in one pass that holds a piece of the file at a time."""
    shards: list[Shard] = []
    start, rows, row, offset = 0, 0, 1, 0  # of the open shard; then the place of the chunk
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + offset + 1
            at = 0
            while at < len(ends):
                by_rows = at + size.rows - rows - 1
                by_bytes = int(np.searchsorted(ends, start + size.bytes))
                last = max(at, min(by_rows, by_bytes))
                if last >= len(ends):
                    rows += len(ends) - at
                    break
                rows += last + 1 - at
                end = int(ends[last])
                shards.append(Shard(index=len(shards), first_row=row, rows=rows, start=start, end=end))
                row, start, rows, at = row + rows, end, 0, last + 1
            offset += len(chunk)
    if offset > start:
        unended = not _ends_with_newline(path)
        shards.append(Shard(index=len(shards), first_row=row, rows=rows + unended, start=start, end=offset))
    return shards


def read_lines(path: Path, shard: Shard) -> Iterator[Row]:
    """Read a shard's lines as bytes; no more than one of them is held, and one that is too long not even whole."""
    number, offset = shard.first_row, shard.start
    with path.open("rb") as stream:
        stream.seek(shard.start)
        while offset < shard.end:
            line = stream.readline(LONGEST_ROW + 2)
            if not line:  # the file has become shorter: the job finds out by its stamp
                return
            begin, offset = offset, offset + len(line)
            if len(line.rstrip(b"\r\n")) > LONGEST_ROW:
                while not line.endswith(b"\n") and (line := stream.readline(_CHUNK)):
                    offset += len(line)
                bad = Bad(code="too_long", reason=f"the row is longer than {LONGEST_ROW:,} bytes")
                yield Row(number=number, text=None, bad=bad, ending=line[len(_body(line)) :], offset=begin)
            else:
                body = _body(line)
                raw = body.removeprefix(_BOM) if begin == 0 else body  # a mark of the encoding, not text
                yield Row(number=number, text=None, raw=raw, ending=line[len(body) :], offset=begin)
            number += 1


def decoded(raw: bytes) -> tuple[str | None, Bad | None]:
    """A text of bytes, or why they are none."""
    try:
        return raw.decode("utf-8"), None
    except UnicodeDecodeError as error:
        reason = f"byte {error.start + 1} of the row, 0x{raw[error.start]:02x}, is not UTF-8 ({error.reason})"
        return None, Bad(code="not_utf8", reason=reason)


def checked_text(value: Any, field: str) -> tuple[str | None, Bad | None]:
    """A field's value as a text, or why it is none."""
    if not isinstance(value, str):
        return None, Bad(code="not_string", reason=f"{field!r} is {kind_name(value)}; a string is needed")
    if any("\ud800" <= character <= "\udfff" for character in value):  # JSON can write half of a surrogate pair
        return None, Bad(code="not_unicode", reason=f"{field!r} holds half a surrogate pair, which is no character")
    if len(value) > LONGEST_ROW:
        return None, Bad(code="too_long", reason=f"{field!r} has more than {LONGEST_ROW:,} characters")
    return value, None


def kind_name(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    kinds: tuple[tuple[type, str], ...] = ((str, "a string"), (list, "a list"), (dict, "an object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "a number")


def copy_parts(parts: Sequence[Path], stream: BinaryIO) -> None:
    """Write one part after the other."""
    for part in parts:
        with part.open("rb") as source:
            while chunk := source.read(_CHUNK):
                stream.write(chunk)


def _body(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _one_line(text: str) -> str:
    """A translation in a file of lines; one that holds a line break would move all that follow."""
    return re.sub(r"[\r\n]+", " ", text)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, 2)
        return stream.read(1) == b"\n"
