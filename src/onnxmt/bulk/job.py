"""A bulk job from start to end: cut, take what is finished already, have the rest translated, put it all together."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import onnxmt
from onnxmt.bulk.parts import Parts, ShardRecord, file_hash, fingerprint_of, replacing
from onnxmt.bulk.rows import Kind, Shard, ShardSize, kind_of
from onnxmt.bulk.shard_work import ShardWorker, Task
from onnxmt.errors import BulkError, OutputError, UsageError
from onnxmt.manifest import MANIFEST_NAME
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator

_MOST_SHARDS = 5_000
_DRAWING = ("sample", "temperature", "top_k", "top_p", "seed")
Runner = Callable[[Task, Sequence[Shard]], Iterator[ShardRecord]]
"""Has shards translated, in any order, wherever; yields each one's record when it is finished."""


@dataclass(frozen=True, kw_only=True)
class BulkOptions:
    """What to translate and where to put it.

    `source` is a file of lines (.jsonl and .ndjson: an object a line; .parquet: a table; any other: text). `field` is
    the field or column that is translated (default: text). A worker computes with `threads` threads. `shard_rows`: the
    unit that is done again after a crash; None: 1,000, and more in very large files.
    """

    source: Path
    output: Path
    model: str | os.PathLike[str] | None = None
    field: str | None = None
    options: TranslateOptions = dataclasses.field(default_factory=TranslateOptions)
    threads: int = 1
    provider: str = "cpu"
    shard_rows: int | None = None

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}; a whole number of 1 or more is allowed"
            for name in ("threads", "shard_rows")
            if (value := getattr(self, name)) is not None and not (type(value) is int and value >= 1)
        ]
        if self.options.alternatives:
            problems.append("alternatives have no place in the output")
        drawing = [name for name in _DRAWING if getattr(self.options, name) not in (None, False)]
        if drawing:
            problems.append(f"{', '.join(drawing)}: draws would differ each time that a shard is done again")
        if problems:
            raise UsageError(f"bulk options: {'; '.join(problems)}")


@dataclass(frozen=True, kw_only=True)
class BulkResult:
    """What a job did. `errors` and `warnings` are the side files, None where there is nothing in them."""

    output: Path
    rows: int
    bad: int
    warnings: Mapping[str, int]
    shards: int
    kept: int  # shards that an earlier run had finished
    errors_file: Path | None
    warnings_file: Path | None


class Progress(Protocol):
    """Who is told how far the job is."""

    def advance(self, amount: int) -> None:
        """So many more rows are done."""


class _Unseen:
    def advance(self, amount: int) -> None:
        """Tell nobody."""


def run_job(
    options: BulkOptions,
    *,
    runner: Runner | None = None,
    progress: Callable[[int], contextlib.AbstractContextManager[Progress]] | None = None,
) -> BulkResult:
    """Translate a file; `runner` says where (None: in this process). `progress(rows)` shows how far it is.

    Finished shards are kept in `OUTPUT.parts` until the output is whole: the same job begun again goes on there. Bad
    rows keep their place without a translation, and are listed in `OUTPUT.errors.jsonl`; warnings are in
    `OUTPUT.warnings.jsonl`. Raises UsageError, ModelNotFoundError, BundleError, OutputError, BulkError, and what
    `Translator.translate` raises for wrong options.
    """
    source, output = _checked(options)
    kind = kind_of(source, field=options.field)
    model, manifest = _checked_model(options)
    stamp = _stamp(source)
    try:
        shards = kind.shards(source, _shard_size(options, stamp[0]))
        facts = {
            "format": 1,
            "onnxmt": onnxmt.__version__,
            "input": file_hash(source),
            "kind": type(kind).__name__,
            "kind_options": kind,
            "model": manifest,
            "options": options.options,
            "provider": options.provider,
            "shards": [(shard.start, shard.end) for shard in shards],
        }
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror or error}") from error
    parts = Parts(output, fingerprint_of(facts))
    task = Task(
        model=model,
        manifest=manifest,
        source=source,
        size=stamp[0],
        kind=kind,
        options=options.options,
        parts=parts,
        threads=options.threads,
        provider=options.provider,
    )
    with parts.held():
        records = parts.finished(shards)
        kept = len(records)
        missing = [shard for shard in shards if shard.index not in records]
        total = sum(shard.rows for shard in shards)
        with (progress or _unseen)(total) as meter:
            meter.advance(sum(record.rows for record in records.values()))
            for record in (runner or in_this_process)(task, missing) if missing else ():
                records[record.index] = record
                meter.advance(record.rows)
        if len(records) < len(shards):
            raise BulkError(f"{len(shards) - len(records)} of {len(shards)} shards were not done; begin the job again")
        if _stamp(source) != stamp:
            raise UsageError(f"{source} was changed while it was translated: begin again")
        errors_file, warnings_file = _put_together(kind, source, output, shards, parts, records)
        parts.remove()
    return BulkResult(
        output=output,
        rows=total,
        bad=sum(record.bad for record in records.values()),
        warnings=dict(sum((Counter(record.warnings) for record in records.values()), Counter[str]())),
        shards=len(shards),
        kept=kept,
        errors_file=errors_file,
        warnings_file=warnings_file,
    )


def in_this_process(task: Task, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
    """Translate shards here, one after the other."""
    worker = ShardWorker(task)
    try:
        yield from map(worker, shards)
    finally:
        worker.close()


def _checked(options: BulkOptions) -> tuple[Path, Path]:
    """The input and the output as whole paths, since workers have other current folders."""
    source, output = Path(options.source).resolve(), Path(options.output).resolve()
    if not source.is_file():
        reason = "it is a folder" if source.is_dir() else "no such file"
        raise UsageError(f"cannot read {options.source}: {reason}")
    if output.is_dir():
        raise OutputError(f"the output {options.output} is a folder; name a file")
    if output == source:
        raise UsageError(f"the output {options.output} is the input: name another file")
    if output.suffix.lower() == ".parquet" and source.suffix.lower() != ".parquet":
        raise UsageError(f"the output {options.output} is to be as the input is, and {source.name} is no Parquet file")
    return source, output


def _checked_model(options: BulkOptions) -> tuple[Path, str]:
    """The bundle's folder and its manifest's hash; loads it once, so that what is wrong is said before any work."""
    from onnxmt.runtime.session import RuntimeOptions

    runtime = RuntimeOptions(threads=1, provider=options.provider)
    with Translator.load(options.model, options=runtime) as translator:
        translator.translate_windows([], options=options.options)
        folder = translator.bundle.folder.resolve()
        return folder, file_hash(folder / MANIFEST_NAME)


def _shard_size(options: BulkOptions, size: int) -> ShardSize:
    """Larger shards in larger files: each costs a few files and an entry in the plan."""
    usual = ShardSize()
    scale = max(1, size // (_MOST_SHARDS * usual.bytes))
    if options.shard_rows is not None:
        return ShardSize(rows=options.shard_rows, bytes=scale * usual.bytes)
    return ShardSize(rows=scale * usual.rows, bytes=scale * usual.bytes)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _put_together(
    kind: Kind, source: Path, output: Path, shards: Sequence[Shard], parts: Parts, records: Mapping[int, ShardRecord]
) -> tuple[Path | None, Path | None]:
    """Write the reports and the output, the output last: when it is there, all is."""
    reports = []
    for name, counted in (
        ("errors", any(record.bad for record in records.values())),
        ("warnings", any(record.warnings for record in records.values())),
    ):
        report = output.with_name(f"{output.name}.{name}.jsonl")
        if counted:
            with replacing(report) as stream:
                _copy([parts.notes(shard.index, name) for shard in shards], stream)
        else:
            report.unlink(missing_ok=True)  # an earlier job's, about an output that is no more
        reports.append(report if counted else None)
    with replacing(output) as stream:
        kind.join(source, shards, [parts.part(shard.index) for shard in shards], stream)
    return reports[0], reports[1]


def _copy(paths: Sequence[Path], stream: BinaryIO) -> None:
    for path in paths:
        stream.write(path.read_bytes())


@contextlib.contextmanager
def _unseen(_rows: int) -> Iterator[Progress]:
    yield _Unseen()
