"""What all kinds of input have in common: shards, rows, why a row is bad, and which kind a file is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxmt.errors import UsageError

LONGEST_ROW = 2**20
"""Bytes. A row is held in memory whole; a text of this size is hours of work for a model, and no line of a document."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A run of rows; the first row of a file is 1. `start`, `end` are bytes of a file of lines, rows of a table."""

    index: int
    first_row: int
    rows: int
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class ShardSize:
    """A shard ends after so many rows, or with the row that passes so many bytes."""

    rows: int = 1000
    bytes: int = 2**18


@dataclass(frozen=True, kw_only=True)
class Bad:
    """Why a row has no translation: `code` for programs, `reason` for people."""

    code: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row. `text` is None where there is nothing to translate; `raw` is a line as it stands in the file.

    `offset` is the byte at which a line begins; None in a table.
    """

    number: int
    text: str | None
    bad: Bad | None = None
    raw: bytes = b""
    ending: bytes = b""
    offset: int | None = None


class Kind(Protocol):
    """How rows of one kind of file are found, read and written."""

    def shards(self, path: Path, size: ShardSize) -> list[Shard]:
        """Cut a file, in bounded memory. Raises UsageError for a file that is not of this kind."""

    def read(self, path: Path, shard: Shard) -> Iterator[Row]:
        """Read a shard's rows."""

    def write(self, stream: BinaryIO, rows: Iterable[tuple[Row, str | None]]) -> None:
        """Write a shard's part: each row with its translation, None where there is none."""

    def join(self, path: Path, shards: Sequence[Shard], parts: Sequence[Path], stream: BinaryIO) -> None:
        """Put the parts together into the output."""


def kind_of(path: Path, *, field: str | None) -> Kind:
    """Return the kind that a file's name says. Raises UsageError for a document, and for a field where none are."""
    from onnxmt.bulk.lines import JsonLines, TextLines
    from onnxmt.text.formats.registry import format_of_name

    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return JsonLines(field=field or "text")
    if suffix == ".parquet":
        from onnxmt.bulk.table import Table

        return Table(field=field or "text")
    if (form := format_of_name(path)) is not None:
        raise UsageError(
            f"{path.name} is a document ({form}), which is translated as a whole: leave --ray out. Rows are those of "
            ".txt, .jsonl and .parquet files"
        )
    if field is not None:
        raise UsageError(f"--field {field} has no effect on {path.name}: only .jsonl and .parquet files have fields")
    return TextLines()
