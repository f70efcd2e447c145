"""Parquet files: one column of texts is translated, a column `translation` added; needs pyarrow (extra `ray`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from onnxmt.bulk.lines import TRANSLATION, decoded
from onnxmt.bulk.rows import LONGEST_ROW, Bad, Row, Shard, ShardSize
from onnxmt.errors import UsageError

_BATCH = 1024


@dataclass(frozen=True, kw_only=True)
class Table:
    """A Parquet file; row N of the output is row N of the input, with all its columns."""

    field: str

    def shards(self, path: Path, size: ShardSize) -> list[Shard]:
        """Cut each row group evenly. Raises UsageError where the column is absent or holds no texts."""
        file = _opened(path)
        self._check(path, file.schema_arrow)
        shards: list[Shard] = []
        start = 0
        for group in range(file.metadata.num_row_groups):
            described = file.metadata.row_group(group)
            column = next(
                one for one in map(described.column, range(described.num_columns)) if one.path_in_schema == self.field
            )
            each = max(1, column.total_uncompressed_size // max(1, described.num_rows))
            step = max(1, min(size.rows, size.bytes // each))
            end = start + described.num_rows
            for at in range(start, end, step):
                until = min(at + step, end)
                shards.append(Shard(index=len(shards), first_row=at + 1, rows=until - at, start=at, end=until))
            start = end
        return shards

    def read(self, path: Path, shard: Shard) -> Iterator[Row]:
        """Read rows of the one column; a null or what is not UTF-8 is bad."""
        number = shard.first_row
        for batch in _batches(path, shard, columns=[self.field]):
            for value in _binary(batch.column(0)).to_pylist():
                text, bad = self._text(value)
                yield Row(number=number, text=text, bad=bad)
                number += 1

    def write(self, stream: BinaryIO, rows: Iterable[tuple[Row, str | None]]) -> None:
        """Write the translations alone, as one column."""
        import pyarrow
        import pyarrow.parquet

        column = pyarrow.array([translation for _, translation in rows], pyarrow.string())
        pyarrow.parquet.write_table(pyarrow.table({TRANSLATION: column}), stream)

    def join(self, path: Path, shards: Sequence[Shard], parts: Sequence[Path], stream: BinaryIO) -> None:
        """Write the input's rows with their translations, a row group a shard."""
        import pyarrow
        import pyarrow.parquet

        schema = _opened(path).schema_arrow
        field = pyarrow.field(TRANSLATION, pyarrow.string())
        with pyarrow.parquet.ParquetWriter(stream, schema.append(field)) as writer:
            for shard, part in zip(shards, parts, strict=True):
                rows = pyarrow.Table.from_batches(_batches(path, shard, columns=None), schema)
                translated = pyarrow.parquet.read_table(part, partitioning=None).column(TRANSLATION)
                writer.write_table(rows.append_column(field, translated))

    def _check(self, path: Path, schema: Any) -> None:
        import pyarrow

        if self.field not in schema.names:
            known = ", ".join(schema.names[:20])
            raise UsageError(f"{path} has no column {self.field!r}; it has: {known}. Name one with --field")
        if TRANSLATION in schema.names:
            raise UsageError(f"{path} has a column {TRANSLATION!r} already: rename it, the translation goes there")
        kind = schema.field(self.field).type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        texts = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
        if kind not in texts:
            raise UsageError(f"column {self.field!r} of {path} holds {kind}; a column of strings can be translated")

    def _text(self, value: bytes | None) -> tuple[str | None, Bad | None]:
        if value is None:
            return None, Bad(code="not_string", reason=f"{self.field!r} is null; a string is needed")
        if len(value) > LONGEST_ROW:
            return None, Bad(code="too_long", reason=f"{self.field!r} is longer than {LONGEST_ROW:,} bytes")
        return decoded(value)


def _opened(path: Path) -> Any:
    """The file's reader. Raises UsageError where it is no Parquet file, MissingExtraError without pyarrow."""
    from onnxmt.errors import MissingExtraError

    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(needed_for="a Parquet file", extra="ray", module="pyarrow") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise UsageError(f"{path} is not a Parquet file that can be read ({str(error)[:100]})") from error


def _batches(path: Path, shard: Shard, *, columns: list[str] | None) -> Iterator[Any]:
    """The rows of a shard, from the row groups that hold it, a batch at a time."""
    file = _opened(path)
    start = 0
    for group in range(file.metadata.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        if start < shard.end and shard.start < end:
            at = start
            for batch in file.iter_batches(batch_size=_BATCH, row_groups=[group], columns=columns):
                first, last = max(shard.start - at, 0), min(shard.end - at, batch.num_rows)
                if first < last:
                    yield batch.slice(first, last - first)
                at += batch.num_rows
                if at >= shard.end:
                    break
        start = end


def _binary(column: Any) -> Any:
    """A column of texts as bytes: Arrow does not check that they are UTF-8."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pyarrow.large_binary())
