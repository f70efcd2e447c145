"""A model card's licence: read from the card's front matter, and judged where it needs a warning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from onnxmt.checkpoint_files import CARDS
from onnxmt.errors import CheckpointError

LIMIT = 2**18  # bytes of a card that are looked at; front matter with thousands of dataset names stays below it
FIELD = re.compile(r"^(license|license_name|license_link)\s*:\s*(.*)$")
UNSTATED = ("", "unknown", "null", "~", "none")
# "nc" counts as a word of its own (cc-by-nc-4.0), not as two letters of another (licence).
NON_COMMERCIAL = re.compile(r"(^|[^a-z])nc([^a-z]|$)|non-?commercial", re.IGNORECASE)
RESEARCH = re.compile(r"research|academic|evaluation|(^|[^a-z])amlr([^a-z]|$)", re.IGNORECASE)
NO_DERIVATIVES = re.compile(r"(^|[^a-z])nd([^a-z]|$)|no-?deriv", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Card:
    """A model card: its file, and the licence that it states (None where it states none)."""

    path: Path
    licence: str | None


def read_card(folder: Path) -> Card | None:
    """The model card in `folder`: of README.md and MODEL_CARD.md the first that states a licence, else the first."""
    paths = [folder / name for name in CARDS if (folder / name).is_file()]
    cards = [Card(path=path, licence=card_licence(path)) for path in paths]
    return next((card for card in cards if card.licence), cards[0] if cards else None)


def card_licence(path: Path) -> str | None:
    """The licence in the card's YAML front matter, or None.

    `other` is returned with the name and link that the hub asks for beside it; several licences are joined by commas.
    """
    fields = _front_matter(path)
    licence = fields.get("license", "")
    if licence.lower() in UNSTATED:
        return None
    if licence.lower() == "other":
        detail = ", ".join(fields[key] for key in ("license_name", "license_link") if fields.get(key))
        return f"other ({detail})" if detail else "other"
    return licence


def licence_warning(licence: str | None) -> str | None:
    """What a person should know before using a model under `licence`; None where nothing is amiss."""
    if licence is None:
        return "the model states no licence: find out whether you may use it and pass it on"
    if NON_COMMERCIAL.search(licence):
        return f"the model's licence, {licence}, does not allow commercial use"
    if RESEARCH.search(licence):
        return f"the model's licence, {licence}, seems to allow research only: read it before any other use"
    if NO_DERIVATIVES.search(licence):
        return f"the model's licence, {licence}, does not allow changed copies, and a migrated model is one"
    if licence == "other":
        return "the model's card states the licence 'other' without a name: read the card before you use it"
    return None


def _front_matter(path: Path) -> dict[str, str]:
    """The licence fields of the YAML block between the first two lines of `---`.

    Only top-level `key: value` and lists of plain values are understood, which is all that the hub's cards use here.
    """
    try:
        with path.open("rb") as handle:
            text = handle.read(LIMIT).decode("utf-8", errors="replace")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    fields: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines[1:]:
        if line.strip() in ("---", "..."):
            break
        if match := FIELD.match(line):
            current = fields.setdefault(match[1], [])
            current.extend(_scalars(match[2]))
        elif current is not None and line.lstrip().startswith("- "):
            current.extend(_scalars(line.lstrip()[2:]))
        elif line[:1].strip():
            current = None
    return {key: ", ".join(values) for key, values in fields.items()}


def _scalars(text: str) -> list[str]:
    """The plain values in `text`: one, or those of an inline list; quotes and a trailing comment removed."""
    text = re.sub(r"(^|\s)#.*$", "", text).strip()
    if text.startswith("[") and text.endswith("]"):
        return [value for part in text[1:-1].split(",") for value in _scalars(part)]
    value = text.strip("'\"").strip()
    return [value] if value else []
