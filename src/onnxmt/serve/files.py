"""Translated files that wait to be fetched: in memory, for a while, up to a size. None ever reaches the disk."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_SECONDS, _MOST_BYTES = 600.0, 16 << 20


@dataclass(frozen=True, kw_only=True)
class KeptFile:
    """A file's content, media type and name, and until when it is kept."""

    content: bytes
    kind: str
    name: str
    until: float


class KeptFiles:
    """The files by their tickets, which cannot be guessed; the oldest go when the room is used up."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._files = clock, OrderedDict[str, KeptFile]()

    def keep(self, content: bytes, *, kind: str, name: str) -> str:
        """Keep a file; returns its ticket."""
        self._tidy(_MOST_BYTES - len(content))
        ticket = secrets.token_urlsafe(24)
        self._files[ticket] = KeptFile(content=content, kind=kind, name=name, until=self._clock() + _SECONDS)
        return ticket

    def find(self, ticket: str) -> KeptFile | None:
        """The file of a ticket; None where there is none, or no longer."""
        self._tidy(_MOST_BYTES)
        return self._files.get(ticket)

    def _tidy(self, room: int) -> None:
        now, held = self._clock(), sum(len(file.content) for file in self._files.values())
        while self._files and (held > room or next(iter(self._files.values())).until <= now):
            _, gone = self._files.popitem(last=False)
            held -= len(gone.content)
