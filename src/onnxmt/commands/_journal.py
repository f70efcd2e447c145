"""What a document's translation has done so far, beside its output: a run that was killed goes on from there."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from onnxmt.errors import OutputError, UsageError
from onnxmt.runtime.documents import KeptTranslation, KeptWarning

# Raised when the lines of a journal are written otherwise.
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class JournalKey:
    """What the translations depend on (model, settings) and what they are of (document): sha-256 each."""

    model: str
    settings: str
    document: str


class DocumentJournal:
    """Context manager; translations are appended and flushed, so that a kill loses only the batch at work.

    Raises OutputError where it cannot be written, UsageError where another process writes to the same output.
    """

    def __init__(self, output: Path, key: JournalKey) -> None:
        place = output.resolve()
        self.path = place.with_name(f".{place.name}.onnxmt-part")
        self._output, self._key = output, key
        self._known: dict[str, KeptTranslation] = {}
        self._stream: BinaryIO
        self.note: str | None = None  # what a person should know of the run before

    def __enter__(self) -> DocumentJournal:
        try:
            self._stream = self.path.open("a+b")
            try:
                fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self._stream.close()
                raise UsageError(
                    f"another onnxmt is translating into {self._output}: wait for it, or give another -o"
                ) from error
            self._read()
        except OSError as error:
            raise self._failed(error) from error
        return self

    def _read(self) -> None:
        """Take over what an earlier run left, as far as it is whole and of the same model and settings."""
        self._stream.seek(0)
        data = self._stream.read()
        whole = data[: data.rfind(b"\n") + 1]  # a kill may leave half a line
        lines = whole.splitlines()
        header = _header(lines[0]) if lines else None
        if header is not None and (header.model, header.settings) == (self._key.model, self._key.settings):
            for line in lines[1:]:
                self._take(line)
            self._stream.truncate(len(whole))
            count = len(self._known)
            if header.document != self._key.document:
                self.note = f"the document has changed since the unfinished run; {count} translations are taken over"
                self._begin()
            else:
                self.note = f"going on with an unfinished run: {count} translations are there"
            return
        if header is not None:
            other = "another model" if header.model != self._key.model else "other settings"
            self.note = f"the unfinished run was made with {other}: everything is translated anew"
        self._begin()

    def _begin(self) -> None:
        """Write the journal anew: its header, and what is known."""
        self._stream.truncate(0)
        self._append({"onnxmt": _VERSION, **dataclasses.asdict(self._key)})
        for name, translation in self._known.items():
            self._append(_plain(name, translation))

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            warnings = tuple(
                KeptWarning(kind=w["kind"], message=w["message"], span=None if w["span"] is None else tuple(w["span"]))
                for w in entry["warnings"]
            )
            self._known[entry["source"]] = KeptTranslation(text=entry["text"], warnings=warnings)
        except (ValueError, KeyError, TypeError):
            return  # not a line of ours: the text is translated again

    def find(self, text: str) -> KeptTranslation | None:
        """The translation of a text, if the run before had it."""
        return self._known.get(_name(text))

    def keep(self, text: str, translation: KeptTranslation) -> None:
        """Append a translation."""
        try:
            self._append(_plain(_name(text), translation))
        except OSError as error:
            raise self._failed(error) from error

    def _append(self, entry: dict[str, object]) -> None:
        self._stream.write(json.dumps(entry, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        self._stream.flush()

    def finish(self) -> None:
        """The output is complete: the journal goes."""
        self.path.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def _failed(self, error: OSError) -> OutputError:
        return OutputError(f"cannot write {self._output} (nor {self.path.name} beside it): {error.strerror or error}")


def _header(line: bytes) -> JournalKey | None:
    try:
        entry = json.loads(line)
        if entry.pop("onnxmt") != _VERSION:
            return None
        return JournalKey(**entry)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _name(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(name: str, translation: KeptTranslation) -> dict[str, object]:
    warnings = [dataclasses.asdict(warning) for warning in translation.warnings]
    return {"source": name, "text": translation.text, "warnings": warnings}


def journal_key(*, files: Mapping[str, str], settings: object, document: str) -> JournalKey:
    """The key of a run: the hashes of the bundle's files, the options, and the document."""
    return JournalKey(
        model=_name(json.dumps(dict(files), sort_keys=True)),
        settings=_name(json.dumps(settings, default=_stable, sort_keys=True)),
        document=_name(document),
    )


def _stable(value: object) -> object:
    """Option values as JSON: the same for the same options in every process, so no repr of a set or an object."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "pattern"):
        return value.pattern
    raise TypeError(f"an option of the type {type(value).__name__} has no stable form")
