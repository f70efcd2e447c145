"""Frozen dataclasses to and from JSON: the class is the schema, and every problem is named at once."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

T = TypeVar("T")
_ADDED = "added"
_SCALARS = {str: "a string", int: "an integer", float: "a number", bool: "true or false", type(None): "null"}


class RecordProblems(ValueError):  # noqa: N818 - the caller turns it into the error of its own file
    """A JSON value does not fit the class; `problems` names every key that is missing, unknown or of the wrong type."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def to_json(record: Any) -> Any:
    """Return `record` (a dataclass, or anything inside one) as dicts, lists and scalars for `json.dumps`.

    A key that was `added` later is written only where it differs from its default: older readers refuse unknown keys.
    """
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        values = {field: getattr(record, field.name) for field in dataclasses.fields(record)}
        return {
            field.name: to_json(value)
            for field, value in values.items()
            if _ADDED not in field.metadata or value != field.default
        }
    if isinstance(record, Mapping):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(value) for value in record]
    return record


def added(default: T) -> T:
    """Return a dataclass field that files written before it was added may lack: they are read with `default`."""
    return dataclasses.field(default=default, metadata={_ADDED: True})


def from_json(cls: type[T], value: Any) -> T:
    """Build the dataclass `cls` from parsed JSON; raises RecordProblems with every fault.

    Every field of the class must be present (a default would hide a key that a writer forgot), but for those that were
    `added` to the format later.
    """
    problems: list[str] = []
    record = _read(cls, value, "", problems)
    if problems:
        raise RecordProblems(tuple(problems))
    return typing.cast(T, record)


def _read(kind: Any, value: Any, where: str, problems: list[str]) -> Any:
    """Read `value` as the annotation `kind`; faults go to `problems`, and the result beside a fault is not used."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _read_object(typing.cast(type, kind), value, where, problems)
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value, where, problems)
    if origin is Literal:
        if value not in arguments:
            problems.append(f"{where} is {_shown(value)}; allowed: {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        if not isinstance(value, list):
            problems.append(f"{where} is {_shown(value)}; a list was expected")
            return ()
        return tuple(_read(arguments[0], item, f"{where}[{i}]", problems) for i, item in enumerate(value))
    if origin in (Mapping, dict):
        if not isinstance(value, dict):
            problems.append(f"{where} is {_shown(value)}; an object was expected")
            return {}
        return {key: _read(arguments[1], item, f"{where}.{key}", problems) for key, item in value.items()}
    if kind not in _SCALARS:
        raise TypeError(f"{where}: records.py cannot read the annotation {kind!r}")
    if not _is_scalar(kind, value):
        problems.append(f"{where} is {_shown(value)}; {_SCALARS[kind]} was expected")
    return float(value) if kind is float and _is_scalar(float, value) else value


def _read_object(cls: type, value: Any, where: str, problems: list[str]) -> Any:
    if not isinstance(value, dict):
        problems.append(f"{where or 'the file'} is {_shown(value)}; an object was expected")
        return None
    prefix = f"{where}." if where else ""
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    later = [field.name for field in dataclasses.fields(cls) if _ADDED in field.metadata]
    missing = [name for name in names if name not in value and name not in later]
    problems += [f"the key {prefix}{name} is missing" for name in missing]
    problems += [f"the key {prefix}{name} is unknown" for name in value if name not in names]
    found = len(problems)
    read = {n: _read(hints[n], value[n], prefix + n, problems) for n in names if n in value}
    if len(problems) > found or missing:
        return None
    try:
        return cls(**read)
    except ValueError as error:  # the class's own __post_init__
        problems.append(f"{where}: {error}" if where else str(error))
        return None


def _read_union(kinds: tuple[Any, ...], value: Any, where: str, problems: list[str]) -> Any:
    """The first alternative that fits; for `X | None` a wrong value is judged as an X, so that its faults are named."""
    others = [kind for kind in kinds if kind is not type(None)]
    if value is None and len(others) < len(kinds):
        return None
    if len(others) == 1:
        return _read(others[0], value, where, problems)
    for kind in others:
        faults: list[str] = []
        result = _read(kind, value, where, faults)
        if not faults:
            return result
    problems.append(f"{where} is {_shown(value)}; allowed: {' or '.join(_SCALARS.get(k, str(k)) for k in kinds)}")
    return None


def _is_scalar(kind: Any, value: Any) -> bool:
    if isinstance(value, bool):  # a bool is an int in Python, and is not one in JSON
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
