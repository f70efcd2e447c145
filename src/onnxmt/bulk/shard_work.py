"""One shard's work: read rows, translate them in windows, write part and notes. Knows nothing of Ray."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from onnxmt.bulk.parts import Parts, ShardRecord, file_hash, replacing
from onnxmt.bulk.rows import Bad, Kind, Row, Shard
from onnxmt.errors import BulkError, OnnxmtError, UsageError
from onnxmt.manifest import MANIFEST_NAME
from onnxmt.runtime.session import options_for
from onnxmt.runtime.translation import TranslateOptions, Translation
from onnxmt.runtime.translator import Translator

# A window is translated in batches of like length: enough rows to fill them, few enough to hold.
_WINDOW_ROWS, _WINDOW_CHARACTERS = 1024, 100_000
# How often workers may die over one shard before the job gives it up.
_TRIES = 3
_NOTES = ("errors", "warnings")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a worker needs, the same for all shards; it travels to other processes and machines.

    `manifest`: the sha-256 of the bundle's manifest, so that no worker takes another bundle of the same name.
    """

    model: Path
    manifest: str
    source: Path
    size: int
    kind: Kind
    options: TranslateOptions
    parts: Parts
    threads: int
    provider: str


class ShardWorker:
    """A loaded translator that does one shard after the other."""

    def __init__(self, task: Task) -> None:
        self._task = task
        found = file_hash(task.model / MANIFEST_NAME)
        if found != task.manifest:
            raise UsageError(f"{task.model} is another bundle on this worker than where the job was started")
        options = options_for("throughput", threads=task.threads, provider=task.provider)
        self._translator = Translator.load(task.model, options=options)

    def __call__(self, shard: Shard) -> ShardRecord:
        """Translate a shard and record it as finished.

        Raises OutputError, UsageError where the input changed, BulkError where earlier workers died over this shard.
        """
        task = self._task
        _check_size(task)
        if task.parts.begin(shard.index) > _TRIES:
            last = shard.first_row + shard.rows - 1
            raise BulkError(
                f"{_TRIES} workers have died over rows {shard.first_row:,} to {last:,} of {task.source.name} (out of "
                "memory, or a crash): give each more memory, or take these rows out. The other shards are kept"
            )
        bad, rows = 0, 0
        warnings: Counter[str] = Counter()
        errors_path, warnings_path = (task.parts.notes(shard.index, kind) for kind in _NOTES)
        part = task.parts.part(shard.index)
        with replacing(part) as stream, replacing(errors_path) as errors, replacing(warnings_path) as told:

            def lines() -> Iterator[tuple[Row, str | None]]:
                nonlocal bad, rows
                for row, translation in self._translated(task.kind.read(task.source, shard)):
                    rows += 1
                    problem = row.bad or _failed(translation)
                    if problem is not None:
                        bad += 1
                        errors.write(_line(_place(row) | {"code": problem.code, "reason": problem.reason}))
                    for warning in translation.warnings if translation is not None else ():
                        warnings[warning.kind] += 1
                        span = None if warning.span is None else list(warning.span)
                        told.write(
                            _line(_place(row) | {"kind": warning.kind, "message": warning.message, "span": span})
                        )
                    yield row, None if problem is not None or translation is None else translation.text

            task.kind.write(stream, lines())
            size = stream.tell()
        if rows != shard.rows:
            raise UsageError(f"{task.source} has changed: a shard has {rows:,} rows, and had {shard.rows:,}")
        record = ShardRecord(index=shard.index, rows=rows, bad=bad, warnings=dict(warnings), size=size)
        task.parts.finish(record)
        return record

    def close(self) -> None:
        """Give the model's memory back."""
        self._translator.close()

    def _translated(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Translation | None]]:
        """Each row with its translation, in order; None where there is no text."""
        for window in _windows(rows):
            texts = [row.text for row in window if row.text is not None]
            found = iter(self._translate(texts))
            yield from ((row, None if row.text is None else next(found)) for row in window)

    def _translate(self, texts: list[str]) -> list[Translation]:
        """Translate together; where that fails, each by itself, so that one row's fault stays its own."""
        try:
            return self._translator.translate_detailed(texts, options=self._task.options, errors="return")
        except OnnxmtError as error:
            if len(texts) == 1:
                return [Translation(source="", text="", score=None, tokens=(), finished=False, error=str(error))]
            return list(chain.from_iterable(self._translate([text]) for text in texts))


def _check_size(task: Task) -> None:
    """Raise UsageError where the input is not the file, on this machine, that was cut into shards."""
    try:
        size = task.source.stat().st_size
    except OSError as error:
        raise UsageError(f"a worker cannot read {task.source}: {error.strerror or error}") from error
    if size != task.size:
        raise UsageError(f"{task.source} has changed: it is {size:,} bytes, and was {task.size:,}")


def _windows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    window: list[Row] = []
    characters = 0
    for row in rows:
        window.append(row)
        characters += len(row.text or "")
        if len(window) >= _WINDOW_ROWS or characters >= _WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def _failed(translation: Translation | None) -> Bad | None:
    if translation is None or translation.error is None:
        return None
    return Bad(code="not_translated", reason=translation.error)


def _place(row: Row) -> dict[str, Any]:
    """Where a row is in the input; a line also by its bytes, so that it can be cut out whatever is in it."""
    return {"row": row.number} | ({} if row.offset is None else {"offset": row.offset})


def _line(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False) + "\n").encode()
