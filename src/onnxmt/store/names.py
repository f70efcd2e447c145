"""How a version in the store is called (NAME:VERSION or NAME:ALIAS), and in which folder the store is."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from onnxmt.errors import UsageError

ROOT_VARIABLE = "ONNXMT_STORE"
PRODUCTION, STAGING, CANARY = "production", "staging", "canary"
# A path separator, a drive or a leading dot can be no part of a name: what is one is never taken for the other.
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_WHOLE = re.compile(_PART)
_NAME = re.compile(rf"(?P<name>{_PART}):(?P<ref>{_PART})")
PARTS = "letters, digits, '.', '_' and '-', a letter or digit first, at most 64"


@dataclass(frozen=True, kw_only=True)
class StoreName:
    """NAME:REF, where REF is a version or an alias."""

    name: str
    ref: str

    def __str__(self) -> str:
        return f"{self.name}:{self.ref}"


def parse_name(text: str | os.PathLike[str]) -> StoreName | None:
    """Read NAME:REF; None for what is not of that form (a path, a hub id, `demo`)."""
    found = _NAME.fullmatch(os.fspath(text))
    return None if found is None else StoreName(name=found["name"], ref=found["ref"])


def required_name(text: str) -> StoreName:
    """Read NAME:REF; raises UsageError for anything else."""
    found = parse_name(text)
    if found is None:
        raise UsageError(f"{text!r} names no version: NAME:VERSION or NAME:ALIAS is expected, such as en-zh:production")
    return found


def check_part(what: str, text: str) -> str:
    """Return `text`; raises UsageError where it can be no model's name, version or alias."""
    if not _WHOLE.fullmatch(text):
        raise UsageError(f"the {what} {text!r} cannot be used: {PARTS} characters are allowed")
    return text


def usable_part(text: str) -> str:
    """Return the name that a model of this name gets in the store: ORG/NAME is NAME, other characters become '-'."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.rpartition("/")[2]).strip("-._")[:64]
    return name or "model"


def store_root() -> Path:
    """Return the store's folder: ONNXMT_STORE, or onnxmt/store in the user's data directory. It need not exist."""
    if given := os.environ.get(ROOT_VARIABLE):
        return Path(given).expanduser().absolute()
    if data := os.environ.get("XDG_DATA_HOME"):
        return Path(data).expanduser().absolute() / "onnxmt" / "store"
    home = Path("~").expanduser()
    data_folder = home / "Library/Application Support" if sys.platform == "darwin" else home / ".local/share"
    return data_folder / "onnxmt" / "store"
