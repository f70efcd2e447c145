"""What a report's page is made of: cards, alarms, and sections with facts, tables, plots and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from onnxmt.measure.report_sentences import SideBySide

Mood = Literal["good", "bad", "warn", "plain"]
UNKNOWN = "–"


@dataclass(frozen=True, kw_only=True)
class Card:
    """One headline figure."""

    label: str
    value: str
    note: str
    mood: Mood = "plain"


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """What a reader must not miss, above everything else."""

    mood: Mood
    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """A table's row: its heading first; `fault` marks one that missed a limit, `total` the sum below the others."""

    cells: tuple[str, ...]
    fault: bool = False
    total: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table: the first column names the rows; columns named in `texts` hold words, all others figures.

    `note` is a line below it.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    texts: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A drawing (`svg`, made by report_plots and by nothing else), what it shows in words, and its caption."""

    svg: str
    alt: str
    caption: str


@dataclass(kw_only=True)
class Section:
    """One part of the page, in this order: paragraphs, facts, plots, tables, listed remarks, sentences."""

    name: str
    title: str
    paragraphs: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    sentences: SideBySide | None = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole report. `source_lang` and `target_lang` are BCP 47 tags of the sentences, None where not known."""

    title: str
    recipe: str
    line: str
    alarms: Sequence[Alarm]
    cards: Sequence[Card]
    sections: Sequence[Section]
    source_lang: str | None
    target_lang: str | None
    footer: str


def number(value: Any) -> float | None:
    """A figure of the manifest, None where there is none: what is inside `quality` and `speed` may grow and change."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def figure(value: Any, digits: int = 2) -> str:
    """A figure in so many digits after the point, or a dash."""
    found = number(value)
    return UNKNOWN if found is None else f"{found:.{digits}f}"


def percent(value: Any) -> str:
    """A share as per cent, or a dash."""
    found = number(value)
    return UNKNOWN if found is None else f"{found:.0%}"


def mapping(value: Any) -> dict[str, Any]:
    """An object of the manifest, empty where there is none."""
    return dict(value) if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """The objects in a list of the manifest."""
    return [dict(entry) for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
