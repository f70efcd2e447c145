"""What a job keeps beside its output until it is done: the finished shards, by a fingerprint of all that made them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from onnxmt.bulk.rows import Shard
from onnxmt.errors import OutputError, UsageError


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """A finished shard: how many rows are bad, warnings by kind, and the size of its part."""

    index: int
    rows: int
    bad: int
    warnings: Mapping[str, int]
    size: int


class Parts:
    """The folder `OUTPUT.parts/FINGERPRINT`. A shard is finished when its record is there, which is written last."""

    def __init__(self, output: Path, fingerprint: str) -> None:
        self.folder = output.with_name(f"{output.name}.parts") / fingerprint[:16]

    def part(self, index: int) -> Path:
        """The translated rows of a shard."""
        return self.folder / f"{index:06d}.part"

    def notes(self, index: int, kind: str) -> Path:
        """The lines that a shard adds to the report of `kind`: errors or warnings."""
        return self.folder / f"{index:06d}.{kind}.jsonl"

    def finished(self, shards: Sequence[Shard]) -> dict[int, ShardRecord]:
        """The shards that are done, by index; one whose part is not as its record says is not."""
        found: dict[int, ShardRecord] = {}
        for shard in shards:
            try:
                values = json.loads(self._record(shard.index).read_bytes())
                record = ShardRecord(**values)
                if record.rows == shard.rows and self.part(shard.index).stat().st_size == record.size:
                    found[shard.index] = record
            except (OSError, ValueError, TypeError):  # absent, or not whole: its shard is done again
                continue
        return found

    def begin(self, index: int) -> int:
        """Note that a shard is begun, and return how often it has been in this run."""
        try:
            with self._tries(index).open("ab") as stream:
                stream.write(b".")
                return stream.tell()
        except OSError as error:
            raise OutputError(f"cannot write {self.folder}: {error.strerror or error}") from error

    def finish(self, record: ShardRecord) -> None:
        """Write a shard's record."""
        with replacing(self._record(record.index)) as stream:
            stream.write(json.dumps(dataclasses.asdict(record)).encode())
        self._tries(record.index).unlink(missing_ok=True)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder, and keep another run out of it while the block runs. Raises UsageError, OutputError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("ab")
        except OSError as error:
            raise OutputError(f"cannot write {self.folder}: {error.strerror or error}") from error
        with lock:
            _lock(lock, self.folder)
            for left in (*self.folder.glob("*.tries"), *self.folder.glob(".*.part.*")):  # by a run that was killed
                left.unlink(missing_ok=True)
            yield

    def remove(self) -> None:
        """Remove the folder, and the one above it where nothing else is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()

    def _tries(self, index: int) -> Path:
        return self.folder / f"{index:06d}.tries"

    def _record(self, index: int) -> Path:
        return self.folder / f"{index:06d}.json"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` that takes its place when the block is done, whole and on the disk, or not at all.

    Raises OutputError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def file_hash(path: Path) -> str:
    """The sha-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fingerprint_of(facts: Mapping[str, Any]) -> str:
    """One hash of values as they are written in JSON; raises TypeError for what has no such form."""
    return hashlib.sha256(json.dumps(_plain(facts), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__, **values}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(one) for one in value), key=json.dumps)
    raise TypeError(f"{type(value).__name__} has no form that a fingerprint could be made of")


def _lock(stream: BinaryIO, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: two runs at once cost time, and never a wrong result, since parts are replaced whole
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UsageError(f"another run is at work in {folder}: wait for it, or end it") from error
