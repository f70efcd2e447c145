"""A job from start to end in this process: bad rows, resuming, fingerprints, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from onnxmt.bulk import BulkOptions, run_job
from onnxmt.bulk.job import in_this_process
from onnxmt.bulk.parts import Parts, ShardRecord, fingerprint_of
from onnxmt.bulk.rows import Shard
from onnxmt.bulk.shard_work import ShardWorker, Task
from onnxmt.errors import BulkError, OutputError, UnknownLanguageError, UsageError
from onnxmt.runtime.translation import TranslateOptions
from tests.cli.harness import GOLDEN
from tests.runtime.test_translator import KNOWN

Job = Callable[..., Any]
TEXT = "".join(f"{text}\n" for text in KNOWN) * 3
CHINESE = "".join(f"{text}\n" for text in KNOWN.values()) * 3


def stops_after(count: int, seen: list[int]) -> Any:
    """A runner that is killed after so many shards."""

    def run(task: Task, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
        for number, record in enumerate(in_this_process(task, shards)):
            seen.append(record.index)
            yield record
            if number + 1 == count:
                raise KeyboardInterrupt

    return run


def test_lines(job: Job) -> None:
    result, out, errors = job(TEXT.encode())
    assert out.decode() == CHINESE
    assert (result.rows, result.bad, result.kept, errors) == (12, 0, 0, [])
    assert result.warnings_file is None
    assert sorted(path.name for path in result.output.parent.iterdir()) == ["in.txt", "out.txt"]


def test_objects(job: Job) -> None:
    rows = [{"id": number, "body": text} for number, text in enumerate(KNOWN)]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    _, out, _ = job(content, "in.jsonl", field="body")
    assert [json.loads(line) for line in out.splitlines()] == [
        {**row, "translation": KNOWN[str(row["body"])]} for row in rows
    ]


def test_a_table(tmp_path: Path, job: Job) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `ray`")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `ray`")
    path = tmp_path / "table"
    parquet.write_table(pyarrow.table({"text": [*KNOWN, None]}), path)
    result, _, errors = job(path.read_bytes(), "in.parquet", shard_rows=2)
    assert parquet.read_table(result.output)["translation"].to_pylist() == [*KNOWN.values(), None]
    assert errors == [{"row": 5, "code": "not_string", "reason": "'text' is null; a string is needed"}]


def test_bad_rows_keep_their_place_and_are_listed(job: Job) -> None:
    content = b"Yes.\n\xff\n" + b"no, " * 300 + b"\nIt rained.\n"
    result, out, errors = job(content, options=TranslateOptions(beams=1, max_new_tokens=16, split=False), shard_rows=2)
    assert out.decode() == "是的。\n\n\n下雨了。\n"
    assert [(error["row"], error["offset"], error["code"]) for error in errors] == [
        (2, 5, "not_utf8"),
        (3, 7, "not_translated"),
    ]
    assert "tokens long and the model takes at most" in errors[1]["reason"]
    assert (result.rows, result.bad) == (4, 2)


def test_warnings_are_listed_with_their_rows(job: Job) -> None:
    result, _, errors = job(b"Yes.\nI will bring the umbrella.\n", options=TranslateOptions(beams=1, max_new_tokens=1))
    assert errors == []
    told = [json.loads(line) for line in result.warnings_file.read_text(encoding="utf-8").splitlines()]
    assert {(one["row"], one["kind"]) for one in told} >= {(1, "length_cap"), (2, "length_cap")}
    assert sum(result.warnings.values()) == len(told)


def test_reports_of_an_earlier_job_do_not_stay(job: Job) -> None:
    first, _, _ = job(b"\xff\n")
    assert first.errors_file.exists()
    job(b"Yes.\n")
    assert not first.errors_file.exists()


def test_what_was_finished_is_not_done_again(job: Job) -> None:
    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        job(TEXT.encode(), shard_rows=2, runner=stops_after(4, seen))
    assert seen == [0, 1, 2, 3]
    result, out, _ = job(TEXT.encode(), shard_rows=2, runner=stops_after(99, seen))
    assert seen == [0, 1, 2, 3, 4, 5]
    assert (out.decode(), result.kept, result.shards) == (CHINESE, 4, 6)


@pytest.mark.parametrize(
    "change",
    [
        {"options": TranslateOptions(beams=2, max_new_tokens=16)},
        {"options": TranslateOptions(beams=1, max_new_tokens=17)},
        {"shard_rows": 3},
        {"content": TEXT.replace("Yes.", "Yes!").encode()},
    ],
)
def test_another_job_takes_nothing_of_it(job: Job, change: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        job(TEXT.encode(), shard_rows=2, runner=stops_after(4, []))
    result, _, _ = job(**{"content": TEXT.encode(), "shard_rows": 2, **change})
    assert result.kept == 0


def test_a_part_that_is_not_whole_is_done_again(job: Job, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        job(TEXT.encode(), shard_rows=2, runner=stops_after(4, []))
    (folder,) = (tmp_path / "out.txt.parts").iterdir()
    (folder / "000001.part").write_bytes(b"cut")
    (folder / "000002.json").write_bytes(b'{"index": ')
    result, out, _ = job(TEXT.encode(), shard_rows=2)
    assert (out.decode(), result.kept) == (CHINESE, 2)


def test_a_shard_over_which_workers_die_is_given_up(job: Job, tmp_path: Path) -> None:
    def dies(task: Task, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
        for _ in range(3):
            task.parts.begin(shards[1].index)  # and the process was gone
        yield from in_this_process(task, shards)

    with pytest.raises(BulkError, match=r"3 workers have died over rows 3 to 4 of in\.txt"):
        job(TEXT.encode(), shard_rows=2, runner=dies)
    result, out, _ = job(TEXT.encode(), shard_rows=2)
    assert (out.decode(), result.kept) == (CHINESE, 1)


def test_an_input_that_changes_meanwhile(job: Job, tmp_path: Path) -> None:
    def changes(text: str) -> Any:
        def run(task: Task, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
            worker = ShardWorker(task)
            yield worker(shards[0])
            task.source.write_text(text)
            yield from map(worker, shards[1:])

        return run

    with pytest.raises(UsageError, match="has changed: it is 4 bytes, and was"):
        job(TEXT.encode(), shard_rows=2, runner=changes("Yes."))
    with pytest.raises(UsageError, match="was changed while it was translated"):
        job(TEXT.encode(), shard_rows=2, runner=changes(TEXT))
    assert not (tmp_path / "out.txt").exists()


def test_a_second_run_waits_for_nobody(job: Job) -> None:
    def twice(task: Task, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
        with task.parts.held():
            yield from in_this_process(task, shards)

    with pytest.raises(UsageError, match="another run is at work"):
        job(TEXT.encode(), runner=twice)


def test_a_worker_with_another_bundle(tmp_path: Path) -> None:
    task = Task(
        model=GOLDEN,
        manifest="0" * 64,
        source=tmp_path,
        size=0,
        kind=None,  # type: ignore[arg-type]
        options=TranslateOptions(),
        parts=Parts(tmp_path / "out", "f" * 64),
        threads=1,
        provider="cpu",
    )
    with pytest.raises(UsageError, match="is another bundle on this worker"):
        ShardWorker(task)


def test_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Yes.\n")
    (tmp_path / "out.txt.parts").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write"):
        run_job(BulkOptions(source=tmp_path / "in.txt", output=tmp_path / "out.txt", model=GOLDEN))


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"source": "absent.txt"}, UsageError, "cannot read absent.txt: no such file"),
        ({"source": "."}, UsageError, r"cannot read \.: it is a folder"),
        ({"output": "in.txt"}, UsageError, "is the input"),
        ({"output": "."}, OutputError, "is a folder"),
        ({"output": "out.parquet"}, UsageError, "is no Parquet file"),
        ({"field": "text"}, UsageError, "--field text has no effect"),
        ({"options": TranslateOptions(target="tlh")}, UnknownLanguageError, "tlh"),
        ({"options": TranslateOptions(beams=2, alternatives=1)}, UsageError, "alternatives have no place"),
        ({"options": TranslateOptions(sample=True, seed=1)}, UsageError, "sample, seed: draws would differ"),
        ({"threads": 0}, UsageError, "threads is 0; a whole number of 1 or more is allowed"),
    ],
)
def test_what_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], kind: type[Exception], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("Yes.\n")
    with pytest.raises(kind, match=said):
        run_job(BulkOptions(**{"source": Path("in.txt"), "output": Path("out.txt"), "model": GOLDEN, **change}))
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_fingerprints_are_of_values() -> None:
    options = TranslateOptions(beams=1)
    assert fingerprint_of({"a": options, "b": {"x": (1, 2)}}) == fingerprint_of({"b": {"x": [1, 2]}, "a": options})
    assert fingerprint_of({"a": TranslateOptions(beams=2)}) != fingerprint_of({"a": options})
    with pytest.raises(TypeError, match="object has no form"):
        fingerprint_of({"a": object()})
