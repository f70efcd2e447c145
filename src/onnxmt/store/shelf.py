"""One model's folder in the store: where its files are, reading its state without a lock, changing it under one."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import getpass
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmt.errors import ModelNotFoundError, OnnxmtError, StoreError
from onnxmt.store.files import locked, write_whole
from onnxmt.store.names import StoreName, check_part, store_root
from onnxmt.store.state import Action, Event, State

STATE_NAME, VERSIONS, HISTORY, OUTPUTS, ROLLOUT = "state.json", "versions", "history", "outputs", "rollout"
_LOCK_NAME = "lock"
_LOCK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The folder of the model `name` in the store `root`. Reading never waits: state.json is replaced whole."""

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        """Where everything of this model is."""
        return self.root / self.name

    def version_folder(self, version: str) -> Path:
        """The bundle of a version."""
        return self.folder / VERSIONS / version

    @property
    def state_path(self) -> Path:
        """The one file that says what there is."""
        return self.folder / STATE_NAME

    def state(self) -> State:
        """Read the state as it is now; an empty one where there is none. Raises StoreError."""
        try:
            text = self.state_path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return State()
        except OSError as error:
            raise StoreError(f"{self.state_path} cannot be read: {error.strerror or error}") from error
        return State.from_text(text, where=self.state_path)

    def version(self, ref: str, state: State | None = None) -> str:
        """The version that a version's name or an alias means. Raises ModelNotFoundError that lists what there is."""
        state = self.require() if state is None else state
        found = state.version_of(ref)
        if found is None:
            raise ModelNotFoundError(self._missing(ref, state))
        return found

    def require(self) -> State:
        """Return the state of a model that is there. Raises ModelNotFoundError that lists the models."""
        state = self.state()
        if not state.revision:
            models = ", ".join(shelf.name for shelf in shelves(self.root)) or "none"
            raise ModelNotFoundError(
                f"the store {self.root} has no model {self.name!r}; it has: {models}. "
                "Add one with: onnxmt models add BUNDLE"
            )
        return state

    def _missing(self, ref: str, state: State) -> str:
        wanted = StoreName(name=self.name, ref=ref)
        gone = " (it was removed)" if ref in state.removed else ""
        versions = ", ".join(state.versions) or "none"
        aliases = ", ".join(f"{name} = {alias.version}" for name, alias in sorted(state.aliases.items())) or "none"
        return f"{wanted} names no version{gone}; versions of {self.name}: {versions}; aliases: {aliases}"

    def history(self) -> tuple[Event, ...]:
        """All events up to now, the oldest first. Raises StoreError."""
        revision, events = self.state().revision, []
        for number in range(1, revision + 1):
            path = self._event_path(number)
            try:
                events.append(Event.from_text(path.read_text(encoding="utf-8"), where=path))
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
        return tuple(events)

    @contextlib.contextmanager
    def changing(self) -> Iterator[Change]:
        """Hold this model's lock while the block runs. Raises StoreError where it cannot be had or written."""
        with writing(self):
            for part in (VERSIONS, HISTORY, OUTPUTS):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
            with locked(self.folder / _LOCK_NAME, seconds=_LOCK_SECONDS):
                yield Change(self, self.state())

    def _event_path(self, revision: int) -> Path:
        return self.folder / HISTORY / f"{revision:08d}.json"


class Change:
    """The state while its lock is held, and how it becomes another one."""

    def __init__(self, shelf: Shelf, state: State) -> None:
        self.shelf, self.state = shelf, state

    def commit(
        self,
        state: State,
        action: Action,
        *,
        version: str | None = None,
        alias: str | None = None,
        before: str | None = None,
        reason: str | None = None,
        forced: bool = False,
        evidence: Mapping[str, Any] | None = None,
    ) -> Event:
        """Make `state` the present one, with an event in the history.

        The event is written first, under a number that no state has yet: it counts when state.json, which has that
        number, is in place. Killed in between, the old state stands and the next change writes over the event.
        """
        revision = self.state.revision + 1
        event = Event(
            revision=revision,
            action=action,
            when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            who=who(),
            version=version,
            alias=alias,
            before=before,
            reason=reason,
            forced=forced,
            evidence=evidence or {},
        )
        write_whole(self.shelf._event_path(revision), event.to_text())
        self.state = dataclasses.replace(state, revision=revision)
        write_whole(self.shelf.state_path, self.state.to_text())
        return event


@contextlib.contextmanager
def writing(shelf: Shelf) -> Iterator[None]:
    """Turn the system's errors in the block into StoreError: no room, no permission, a read-only file system."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OnnxmtError):
            raise
        place = "" if error.filename is None else f"{error.filename}: "
        raise StoreError(f"the store {shelf.root} cannot be changed: {place}{error.strerror or error}") from error


def who() -> str:
    """USER@HOST, for the history."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{platform.node() or 'unknown'}"


def shelf_of(name: str, *, root: Path | None = None) -> Shelf:
    """The folder of a model; it need not exist. Raises UsageError for what can be no name."""
    return Shelf(root=store_root() if root is None else root, name=check_part("name", name))


def shelves(root: Path | None = None) -> tuple[Shelf, ...]:
    """All models of the store, by name."""
    place = store_root() if root is None else root
    try:
        names = sorted(path.parent.name for path in place.glob(f"*/{STATE_NAME}"))
    except OSError as error:
        raise StoreError(f"the store {place} cannot be read: {error.strerror or error}") from error
    return tuple(Shelf(root=place, name=name) for name in names)
