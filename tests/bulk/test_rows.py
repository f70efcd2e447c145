"""Rows of every kind keep their place: cut anywhere, read, written, put together."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.bulk.lines import JsonLines, TextLines, cut_lines, read_lines
from onnxmt.bulk.rows import LONGEST_ROW, Kind, Row, Shard, ShardSize, kind_of
from onnxmt.errors import UsageError


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "in"
    path.write_bytes(content)
    return path


def through(kind: Kind, path: Path, size: ShardSize | None = None) -> tuple[bytes, list[Row]]:
    """The output where each text is translated as itself in capitals, and all rows."""
    rows: list[Row] = []
    parts: list[Path] = []
    shards = kind.shards(path, size or ShardSize())
    for shard in shards:
        read = list(kind.read(path, shard))
        rows += read
        parts.append(path.with_name(f"part{shard.index}"))
        with parts[-1].open("wb") as stream:
            kind.write(stream, [(row, None if row.text is None else row.text.upper()) for row in read])
    stream = io.BytesIO()
    kind.join(path, shards, parts, stream)
    return stream.getvalue(), rows


@settings(max_examples=300, deadline=None)
@given(
    lines=st.lists(st.text(st.sampled_from("ab é\t"), max_size=6), max_size=12),
    ending=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    rows=st.integers(1, 5),
    size=st.integers(1, 20),
)
def test_shards_are_whole_lines_and_nothing_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ending: str, last: bool, rows: int, size: int
) -> None:
    content = (ending.join(lines) + (ending if last and lines else "")).encode()
    path = write(tmp_path_factory.mktemp("cut"), content)
    shards = cut_lines(path, ShardSize(rows=rows, bytes=size))

    assert [shard.index for shard in shards] == list(range(len(shards)))
    assert b"".join(content[shard.start : shard.end] for shard in shards) == content
    assert all(shard.rows <= rows for shard in shards)
    assert all(content[: shard.start].endswith(b"\n") for shard in shards[1:])
    read = [row for shard in shards for row in read_lines(path, shard)]
    assert [row.number for row in read] == list(range(1, len(read) + 1))
    assert [shard.first_row for shard in shards] == [1 + content[: shard.start].count(b"\n") for shard in shards]
    assert sum(shard.rows for shard in shards) == len(read)
    assert b"".join(row.raw + row.ending for row in read) == content
    assert all(content[row.offset :].startswith(row.raw) for row in read)


def test_a_line_across_pieces_of_the_file(tmp_path: Path) -> None:
    """The file is read 1 MiB at a time."""
    content = b"a\n" + b"b" * (2**20 - 3) + b"\r\n" + b"c" * 700_000 + b"\nd"
    path = write(tmp_path, content)
    shards = cut_lines(path, ShardSize(rows=2, bytes=10**7))
    assert [(shard.rows, shard.start, shard.end) for shard in shards] == [
        (2, 0, 2**20 + 1),
        (2, 2**20 + 1, len(content)),
    ]
    assert [len(row.raw) for shard in shards for row in read_lines(path, shard)] == [1, 2**20 - 3, 700_000, 1]


def test_text_line_n_is_line_n(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbfone\r\n\n" + b"bad \xff\n" + b"x" * (LONGEST_ROW + 1) + b"\ntwo\x0b\xc2\x85three\n  \nlast"
    out, rows = through(TextLines(), write(tmp_path, content), ShardSize(rows=2))
    assert out == "ONE\r\n\n\n\nTWO\x0b\x85THREE\n  \nLAST".encode()
    assert [(row.number, row.bad.code, row.offset) for row in rows if row.bad] == [
        (3, "not_utf8", 9),
        (4, "too_long", 15),
    ]
    assert rows[2].bad is not None
    assert rows[2].bad.reason == "byte 5 of the row, 0xff, is not UTF-8 (invalid start byte)"


def test_a_translation_with_a_line_break_moves_no_other_line(tmp_path: Path) -> None:
    stream = io.BytesIO()
    TextLines().write(stream, [(Row(number=1, text="a", ending=b"\n"), "b\r\n\nc")])
    assert stream.getvalue() == b"b c\n"


def test_an_empty_file(tmp_path: Path) -> None:
    for kind in (TextLines(), JsonLines(field="text")):
        assert through(kind, write(tmp_path, b"")) == (b"", [])


JSON_ROWS: list[tuple[bytes, bytes, str | None]] = [
    (b'{"text": "yes"}', b'{"text": "yes", "translation": "YES"}', None),
    # what is there stays byte for byte: numbers, escapes, spaces, keys that are repeated
    (
        b'{ "id": 1.0e2, "n": 12345678901234567890, "u": "\\u00e9", "u": 2,"text":"a" } ',
        b'{ "id": 1.0e2, "n": 12345678901234567890, "u": "\\u00e9", "u": 2,"text":"a", "translation": "A"}',
        None,
    ),
    (b'{"text": ""}', b'{"text": "", "translation": ""}', None),
    (b"", b"", None),
    (b'{"text": 5}', b'{"text": 5, "translation": null}', "'text' is a number; a string is needed"),
    (b'{"text": null}', b'{"text": null, "translation": null}', "'text' is null; a string is needed"),
    (b'{"text": ["a"]}', b'{"text": ["a"], "translation": null}', "'text' is a list; a string is needed"),
    (b"{}", b'{"translation": null}', "there is no field 'text'"),
    (b'{"q": "a"}', b'{"q": "a", "translation": null}', "there is no field 'text'"),
    (
        b'{"text": "\\ud800"}',
        b'{"text": "\\ud800", "translation": null}',
        "'text' holds half a surrogate pair, which is no character",
    ),
    (b'"a"', b'{"translation": null}', "the line is a string; a JSON object is needed"),
    (b'{"text": "a"', b'{"translation": null}', "the line is not JSON: Expecting ',' delimiter"),
    (b"[" * 99_999, b'{"translation": null}', "the line is not JSON: "),
    (b'{"text": "\xff"}', b'{"translation": null}', "byte 11 of the row, 0xff, is not UTF-8"),
    (
        b'{"text": "a", "translation": "b"}',
        b'{"text": "a", "translation": "b"}',
        "there is a field 'translation' already; take it out",
    ),
]


@pytest.mark.parametrize(("line", "written", "reason"), JSON_ROWS)
def test_json_rows(tmp_path: Path, line: bytes, written: bytes, reason: str | None) -> None:
    out, (row,) = through(JsonLines(field="text"), write(tmp_path, line + b"\r\n"))
    assert out == written + b"\r\n"
    if reason is None:
        assert row.bad is None
    else:
        assert row.bad is not None
        assert row.bad.reason.startswith(reason)
    if written:
        assert isinstance(json.loads(written), dict)


def test_the_kind_is_in_the_name(tmp_path: Path) -> None:
    assert kind_of(Path("a.txt"), field=None) == TextLines()
    assert kind_of(Path("a.JSONL"), field=None) == JsonLines(field="text")
    assert kind_of(Path("a.ndjson"), field="body") == JsonLines(field="body")
    with pytest.raises(UsageError, match=r"--field body has no effect on a\.txt"):
        kind_of(Path("a.txt"), field="body")
    for name in ("a.md", "a.json", "a.html"):
        with pytest.raises(UsageError, match=f"{name} is a document"):
            kind_of(Path(name), field=None)


class TestTables:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `ray`")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `ray`")

    def table(self, path: Path, columns: dict[str, Any], **options: Any) -> Path:
        self.parquet.write_table(self.pyarrow.table(columns), path, **options)
        return path

    @pytest.mark.parametrize("rows", [1, 3, 4, 100])
    @pytest.mark.parametrize("group", [2, 5, 100])
    def test_rows_keep_their_place_and_their_columns(self, tmp_path: Path, rows: int, group: int) -> None:
        texts = [f"row {i}" if i % 4 else None for i in range(11)]
        source = self.table(tmp_path / "in.parquet", {"id": list(range(11)), "text": texts}, row_group_size=group)
        kind = kind_of(source, field=None)
        out, read = through(kind, source, ShardSize(rows=rows))
        found = self.parquet.read_table(self.pyarrow.BufferReader(out)).to_pydict()
        assert found == {
            "id": list(range(11)),
            "text": texts,
            "translation": [None if text is None else text.upper() for text in texts],
        }
        assert [row.number for row in read] == list(range(1, 12))
        assert [(row.number, row.bad.reason) for row in read if row.bad] == [
            (number, "'text' is null; a string is needed") for number in (1, 5, 9)
        ]

    def test_texts_of_every_arrow_kind(self, tmp_path: Path) -> None:
        plain = self.pyarrow.array(["é", None, "b"])
        for column in (plain, plain.cast(self.pyarrow.large_string()), plain.dictionary_encode()):
            source = self.table(tmp_path / "in.parquet", {"body": column})
            out, _ = through(kind_of(source, field="body"), source)
            found = self.parquet.read_table(self.pyarrow.BufferReader(out))
            assert found["translation"].to_pylist() == ["É", None, "B"]

    def test_bytes_that_are_not_utf8(self, tmp_path: Path) -> None:
        column = self.pyarrow.array([b"ok", b"\xff"], self.pyarrow.binary()).view(self.pyarrow.string())
        source = self.table(tmp_path / "in.parquet", {"text": column})
        _, rows = through(kind_of(source, field=None), source)
        assert [row.bad and row.bad.code for row in rows] == [None, "not_utf8"]

    def test_a_table_without_rows(self, tmp_path: Path) -> None:
        source = self.table(tmp_path / "in.parquet", {"text": self.pyarrow.array([], self.pyarrow.string())})
        out, rows = through(kind_of(source, field=None), source)
        assert self.parquet.read_table(self.pyarrow.BufferReader(out)).column_names == ["text", "translation"]
        assert rows == []

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ({"q": ["a"], "n": [1]}, r"has no column 'text'; it has: q, n\. Name one with --field"),
            ({"text": [1]}, r"column 'text' of .* holds int64; a column of strings can be translated"),
            ({"text": ["a"], "translation": ["b"]}, "has a column 'translation' already"),
        ],
    )
    def test_columns_that_cannot_be_translated(self, tmp_path: Path, columns: dict[str, Any], said: str) -> None:
        source = self.table(tmp_path / "in.parquet", columns)
        with pytest.raises(UsageError, match=said):
            kind_of(source, field=None).shards(source, ShardSize())

    def test_a_file_that_is_no_table(self, tmp_path: Path) -> None:
        source = tmp_path / "in.parquet"
        source.write_bytes(b"text")
        with pytest.raises(UsageError, match="is not a Parquet file that can be read"):
            kind_of(source, field=None).shards(source, ShardSize())


def test_a_shard_of_a_file_that_has_become_shorter(tmp_path: Path) -> None:
    path = write(tmp_path, b"a\n")
    assert [row.raw for row in read_lines(path, Shard(index=0, first_row=1, rows=3, start=0, end=9))] == [b"a"]
