"""Typed reading of a family's settings out of a manifest, all problems at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxmt.errors import TokenizerError

__all__ = ["SettingsReader"]


class SettingsReader:
    """Takes entries out of a JSON mapping by name and type, collects what is wrong; `finish` raises it together."""

    def __init__(self, data: Mapping[str, Any], *, where: str) -> None:
        self._data, self._where = data, where
        self._taken: set[str] = set()
        self._problems: list[str] = []

    def _take(self, name: str) -> Any:
        self._taken.add(name)
        if name not in self._data:
            self._problems.append(f"{name!r} is missing")
        return self._data.get(name)

    def _wrong(self, name: str, wanted: str) -> None:
        if name in self._data:
            self._problems.append(f"{name!r} is {self._data[name]!r}, not {wanted}")

    def text(self, name: str) -> str:
        """A string."""
        value = self._take(name)
        if not isinstance(value, str):
            self._wrong(name, "a string")
            return ""
        return value

    def optional_text(self, name: str) -> str | None:
        """A string, or null."""
        value = self._take(name)
        if value is not None and not isinstance(value, str):
            self._wrong(name, "a string or null")
            return None
        return value

    def optional_count(self, name: str) -> int | None:
        """A positive integer, or null."""
        value = self._take(name)
        if value is not None and (type(value) is not int or value < 1):
            self._wrong(name, "a positive integer or null")
            return None
        return value

    def index(self, name: str) -> int:
        """An integer of at least 0."""
        value = self._take(name)
        if type(value) is not int or value < 0:
            self._wrong(name, "an integer of at least 0")
            return 0
        return value

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """A boolean; with a `default` it may be left out."""
        if default is not None and name not in self._data:
            return default
        value = self._take(name)
        if not isinstance(value, bool):
            self._wrong(name, "true or false")
            return False
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._take(name)
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, str) for v in value):
            self._wrong(name, "a list of strings")
            return ()
        return tuple(value)

    def text_map(self, name: str) -> dict[str, str]:
        """An object of strings."""
        value = self._take(name)
        if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
            self._wrong(name, "an object of strings")
            return {}
        return dict(value)

    def mapping(self, name: str) -> dict[str, Any]:
        """An object, read further by its owner."""
        value = self._take(name)
        if not isinstance(value, Mapping):
            self._wrong(name, "an object")
            return {}
        return dict(value)

    def objects(self, name: str) -> list[Mapping[str, Any]]:
        """A list of objects."""
        value = self._take(name)
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, Mapping) for v in value):
            self._wrong(name, "a list of objects")
            return []
        return list(value)

    def finish(self) -> None:
        """Raise TokenizerError for everything that was wrong, missing, or never asked for."""
        problems = self._problems + [f"{name!r} is unknown" for name in sorted(set(self._data) - self._taken)]
        if problems:
            raise TokenizerError(f"{self._where}: {'; '.join(problems)}")
