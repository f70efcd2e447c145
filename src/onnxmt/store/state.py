"""What the store keeps of one model, as frozen dataclasses: state.json, and one event of the history a file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from onnxmt import records
from onnxmt.errors import StoreError
from onnxmt.store.names import CANARY, PRODUCTION, STAGING

FORMAT = 1
Stage = Literal["local", "staging", "production"]
Action = Literal["add", "promote", "rollback", "clear", "return", "remove", "gc", "approve"]
T = TypeVar("T")
# So many earlier holders of an alias can be returned to, one after another.
_REMEMBERED = 50


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version: `digest` is of what decides its translations, `revision` the change that added it."""

    digest: str
    bytes: int
    recipe: str
    added: str
    revision: int


@dataclass(frozen=True, kw_only=True)
class Alias:
    """Who holds an alias since which revision, and who held it before, the latest last."""

    version: str
    revision: int
    previous: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Removed:
    """A version that can no longer be found by name; `at` is in seconds since 1970, `files` are still there."""

    at: float
    digest: str
    files: bool


@dataclass(frozen=True, kw_only=True)
class State:
    """All that a reader needs, in one file that is replaced whole: `revision` counts its changes."""

    format: int = FORMAT
    revision: int = 0
    versions: Mapping[str, Version] = field(default_factory=dict)
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    removed: Mapping[str, Removed] = field(default_factory=dict)

    def version_of(self, ref: str) -> str | None:
        """The version that a version's name or an alias means; None where there is no such one."""
        if ref in self.versions:
            return ref
        return self.aliases[ref].version if ref in self.aliases else None

    def aliases_of(self, version: str) -> tuple[str, ...]:
        """The aliases that a version holds."""
        return tuple(sorted(name for name, alias in self.aliases.items() if alias.version == version))

    def stage_of(self, version: str) -> Stage:
        """How far a version has got: by the aliases that it holds now."""
        held = self.aliases_of(version)
        if PRODUCTION in held:
            return "production"
        return "staging" if STAGING in held or CANARY in held else "local"

    def next_version(self) -> str:
        """The lowest whole number above all that were ever used."""
        return str(max((int(name) for name in (*self.versions, *self.removed) if name.isdecimal()), default=0) + 1)

    def with_version(self, name: str, version: Version) -> State:
        """A copy with one version more."""
        return dataclasses.replace(self, versions={**self.versions, name: version})

    def with_alias(self, alias: str, version: str) -> State:
        """A copy in which `alias` means `version`, and remembers what it meant before."""
        held = self.aliases.get(alias)
        previous = () if held is None else (*held.previous, held.version)[-_REMEMBERED:]
        entry = Alias(version=version, revision=self.revision + 1, previous=previous)
        return dataclasses.replace(self, aliases={**self.aliases, alias: entry})

    def rolled_back(self, alias: str, version: str) -> State:
        """A copy in which `alias` is back at `version`, one of its earlier ones; what came after that is forgotten."""
        previous = self.aliases[alias].previous
        place = len(previous) - 1 - previous[::-1].index(version)
        entry = Alias(version=version, revision=self.revision + 1, previous=previous[:place])
        return dataclasses.replace(self, aliases={**self.aliases, alias: entry})

    def without_alias(self, alias: str) -> State:
        """A copy without the alias."""
        return dataclasses.replace(self, aliases={name: one for name, one in self.aliases.items() if name != alias})

    def without_version(self, name: str, *, at: float) -> State:
        """A copy without the version; its files are still there until gc."""
        versions = {other: one for other, one in self.versions.items() if other != name}
        gone = Removed(at=at, digest=self.versions[name].digest, files=True)
        return dataclasses.replace(self, versions=versions, removed={**self.removed, name: gone})

    def to_text(self) -> str:
        """Return the text of state.json."""
        return json.dumps(records.to_json(self), indent=1) + "\n"

    @classmethod
    def from_text(cls, text: str, *, where: Path) -> State:
        """Read state.json; raises StoreError."""
        return _read(cls, text, where)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One change: who did what when and why, and what was known. `before` is what the alias meant until then."""

    revision: int
    action: Action
    when: str
    who: str
    version: str | None = None
    alias: str | None = None
    before: str | None = None
    reason: str | None = None
    forced: bool = False
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        plain: dict[str, Any] = records.to_json(self)
        return plain

    def to_text(self) -> str:
        """Return the text of its file."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_text(cls, text: str, *, where: Path) -> Event:
        """Read one; raises StoreError."""
        return _read(cls, text, where)


def _read(cls: type[T], text: str, where: Path) -> T:
    try:
        value = json.loads(text)
        found = value.get("format", FORMAT) if isinstance(value, dict) else FORMAT
        if found != FORMAT:
            raise StoreError(f"{where} is of format {found}; this onnxmt reads format {FORMAT}: install a newer one")
        return records.from_json(cls, value)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where} cannot be read: {error}. Restore it from a backup of the store") from error
