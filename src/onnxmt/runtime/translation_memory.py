"""A file of finished translations (SQLite): what the same model translated in the same way once is looked up."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from onnxmt.errors import TranslationMemoryError, UsageError

__all__ = ["DEFAULT_BYTES", "TranslationMemory", "default_memory_path"]

Trouble = Callable[[str], None]

_APPLICATION = 0x6F6E6D74  # "onmt" in the file's header: another program's database is not written into
_SCHEMA = 1
# How long a writer waits for another process's; its writes take milliseconds.
_PATIENCE_SECONDS = 10.0
_AT_ONCE = 500  # SQLite of 2020 and before allows 999 values in a statement
DEFAULT_BYTES = 1_000_000_000
_LEAST_BYTES = 100_000
# Of a full memory so much is removed at once, what was used longest ago first.
_REMOVED_SHARE = 0.1


def default_memory_path() -> Path:
    """`onnxmt/translations.sqlite` in the user's cache folder: $XDG_CACHE_HOME, else ~/.cache."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"  # the standard ignores relative ones
    return base / "onnxmt" / "translations.sqlite"


class TranslationMemory:
    """Keys and values that outlive the process; open it with `open`, and give it to `Translator.load`.

    Several processes and threads may use one file at once. What cannot be written (a full disk, a file without
    permission to write) is told once to `trouble`, and the work goes on without being kept; so is a file that turns out
    to be damaged while it is in use.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, *, writable: bool, limit: int, trouble: Trouble
    ) -> None:
        self.path = path
        self._connection, self._writable, self._limit, self._trouble = connection, writable, limit, trouble
        self._readable = True
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._bytes = 0
        if writable:
            self._bytes = self._size()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        limit: int = DEFAULT_BYTES,
        trouble: Trouble | None = None,
    ) -> TranslationMemory:
        """Open the memory in a file, which is made where there is none; None: `default_memory_path`.

        `limit`: bytes of text and keys that are kept, about; beyond it what was used longest ago goes. `trouble` is
        called with one line where something cannot be kept; without it that is a RuntimeWarning. Raises
        TranslationMemoryError for a file that cannot be opened, is damaged, or is no translation memory.
        """
        if limit < _LEAST_BYTES:
            raise UsageError(f"the limit of a translation memory is {limit} bytes; {_LEAST_BYTES} or more are allowed")
        file = default_memory_path() if path is None else Path(path)
        tell = trouble or _warn
        try:
            if path is None:
                file.parent.mkdir(parents=True, exist_ok=True)
            connection, writable = _connected(file)
        except TranslationMemoryError:
            raise
        except OSError as error:
            raise TranslationMemoryError(
                f"the translation memory {file} cannot be opened: {error.strerror or error}"
            ) from error
        except sqlite3.Error as error:
            raise TranslationMemoryError(_unusable(file, error)) from error
        if not writable:
            tell(f"the translation memory {file} is read-only: it is used, and nothing new is kept")
        try:
            return cls(file, connection, writable=writable, limit=limit, trouble=tell)
        except sqlite3.Error as error:
            connection.close()
            raise TranslationMemoryError(_unusable(file, error)) from error

    def close(self) -> None:
        """Close the file; looking up afterwards finds nothing."""
        with self._lock:
            self._readable = self._writable = False
            if self._owner == os.getpid():
                self._connection.close()

    def __enter__(self) -> TranslationMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        with self._lock:
            (count,) = self._connection.execute("SELECT count(*) FROM translations").fetchone()
            return int(count)

    def look_up(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        """The values of those keys that are known."""
        found: dict[bytes, str] = {}
        with self._lock:
            if not self._usable():
                return found
            try:
                for first in range(0, len(keys), _AT_ONCE):
                    some = keys[first : first + _AT_ONCE]
                    marks = ",".join("?" * len(some))
                    found.update(
                        self._connection.execute(f"SELECT key, value FROM translations WHERE key IN ({marks})", some)
                    )
            except sqlite3.Error as error:
                self._give_up(error)
            self._touch(list(found))
        return found

    def keep(self, entries: Mapping[bytes, str]) -> None:
        """Store values; of two processes that store one key the first wins."""
        with self._lock:
            if not entries or not self._usable() or not self._writable:
                return
            now = time.time_ns()
            rows = [(key, value, now, len(key) + len(value.encode())) for key, value in entries.items()]
            try:
                with self._connection:
                    self._connection.executemany("INSERT OR IGNORE INTO translations VALUES (?, ?, ?, ?)", rows)
                self._bytes += sum(size for *_, size in rows)
                if self._bytes > self._limit:
                    self._make_room()
            except sqlite3.Error as error:
                self._stop_writing(error)

    def _touch(self, keys: Sequence[bytes]) -> None:
        """Remember that these were used just now, so that others are removed before them."""
        if not keys or not self._writable:
            return
        try:
            with self._connection:
                now = time.time_ns()
                self._connection.executemany("UPDATE translations SET used = ? WHERE key = ?", [(now, k) for k in keys])
        except sqlite3.Error as error:
            self._stop_writing(error)

    def _size(self) -> int:
        (total,) = self._connection.execute("SELECT coalesce(sum(size), 0) FROM translations").fetchone()
        return int(total)

    def _make_room(self) -> None:
        self._bytes = self._size()  # what others stored or removed meanwhile counts too
        goal = int(self._limit * (1 - _REMOVED_SHARE))
        if self._bytes <= self._limit:
            return
        with self._connection:
            over, last = self._bytes - goal, 0
            for size, used in self._connection.execute("SELECT size, used FROM translations ORDER BY used"):
                over, last = over - size, used
                if over <= 0:
                    break
            self._connection.execute("DELETE FROM translations WHERE used <= ?", (last,))
        self._bytes = self._size()

    def _usable(self) -> bool:
        # SQLite forbids using a connection in a forked child: there the memory is closed.
        return self._readable and self._owner == os.getpid()

    def _give_up(self, error: sqlite3.Error) -> None:
        self._readable = False
        self._trouble(f"{_unusable(self.path, error)}; going on without it")

    def _stop_writing(self, error: sqlite3.Error) -> None:
        self._writable = False
        self._trouble(f"the translation memory {self.path} cannot be written ({error}): nothing new is kept")


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def _unusable(path: Path, error: sqlite3.Error) -> str:
    if isinstance(error, sqlite3.OperationalError):
        return (
            f"the translation memory {path} cannot be opened ({error}): name a file in a folder that you may write to"
        )
    return (
        f"the translation memory {path} is damaged, or is no translation memory ({error}): delete it, or name "
        "another file"
    )


def _connected(path: Path) -> tuple[sqlite3.Connection, bool]:
    """A connection, and whether it may write."""
    exists = path.exists()
    if path.is_dir():
        raise TranslationMemoryError(f"the translation memory {path} is a folder: name a file")
    if exists and not os.access(path, os.W_OK):
        connection = _connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1")
        _check(connection, path, new=False)
        return connection, False
    connection = _connect(f"{path.absolute().as_uri()}?mode=rwc")
    try:
        # A new file is empty, and so is one that another process is making just now: the lock settles who sets it up.
        connection.execute("BEGIN IMMEDIATE")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        _check(connection, path, new=not tables)
        if not tables:
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_SCHEMA}")
            connection.execute(
                "CREATE TABLE translations (key BLOB PRIMARY KEY, value TEXT NOT NULL, used INTEGER NOT NULL, "
                "size INTEGER NOT NULL) WITHOUT ROWID"
            )
            connection.execute("CREATE INDEX by_use ON translations (used)")
        connection.execute("COMMIT")
        with contextlib.suppress(sqlite3.OperationalError):  # a file system without shared memory keeps the old journal
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection, True


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=_PATIENCE_SECONDS, check_same_thread=False)


def _check(connection: sqlite3.Connection, path: Path, *, new: bool) -> None:
    """Raise TranslationMemoryError for a database of something else, or of another version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    if new and application == 0:
        return
    if application != _APPLICATION:
        raise TranslationMemoryError(
            f"{path} is a database of another program, no translation memory: name another file"
        )
    if schema != _SCHEMA:
        raise TranslationMemoryError(
            f"the translation memory {path} has format {schema}, and this onnxmt reads {_SCHEMA}: delete it, or name "
            "another file"
        )
