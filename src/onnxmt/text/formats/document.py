"""What every format gives: a document with units to translate, which is written back byte for byte around them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from onnxmt.errors import DocumentError, OnnxmtError, UsageError

__all__ = [
    "FORMATS",
    "Document",
    "DocumentError",
    "DocumentOptions",
    "Format",
    "Piece",
    "Problem",
    "Rendered",
    "Slot",
    "UnfitTranslationError",
    "Unit",
    "When",
]

Format = Literal["text", "markdown", "html", "srt", "po", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


class UnfitTranslationError(OnnxmtError):
    """A translation cannot be written where it belongs without breaking the document; never leaves this package."""


@dataclass(frozen=True, kw_only=True)
class DocumentOptions:
    """What of a document is translated.

    unwrap: text: the lines of hard-wrapped paragraphs are joined before they are translated.
    attributes: HTML: alt, title, placeholder and aria-label are translated.
    meta: HTML: the page's description and title for search engines and previews (`<meta>`) are translated.
    json_paths: JSON: only values at these paths, such as `messages.*.text` (`*` is one key or index, `**` any number).
    redo: PO: entries that have a translation are translated again.
    fuzzy: PO: what was translated is marked `fuzzy`, for a person to check.
    """

    unwrap: bool = False
    attributes: bool = True
    meta: bool = False
    json_paths: tuple[str, ...] = ()
    redo: bool = False
    fuzzy: bool = True

    def __post_init__(self) -> None:
        wrong = [path for path in self.json_paths if not path or "" in path.split(".")]
        if wrong:
            raise UsageError(
                f"the JSON paths {', '.join(map(repr, wrong))} have an empty step; write keys with dots between them, "
                "as in messages.*.text"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A stretch of prose that is translated as one.

    text: what a translator gets. Inline markup stands in it as short tags, `<m1>very</m1>`, and code as `m2` in
        backticks, so that the text layer protects it and a link's address is no part of the text.
    line: the line of the document where it begins, from 1.
    where: a name for people where the line says little: a JSON path, an attribute.
    marks: the tags and code marks in `text`, in order; the translation must hold each once.
    """

    text: str
    line: int
    where: str = ""
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class When:
    """A stretch that depends on whether one of some units was translated."""

    units: frozenset[int]
    then: str
    otherwise: str


# A document is a row of pieces: text that stays, the numbers of units, and what depends on units.
Piece = str | int | When


class Slot(Protocol):
    """The place of one unit: what stands there, and how a translation is written there."""

    @property
    def unit(self) -> Unit:
        """What is translated."""

    @property
    def source(self) -> tuple[Piece, ...]:
        """What stands there now."""

    def write(self, translation: str) -> tuple[Piece, ...]:
        """Write a translation. Raises UnfitTranslationError when that would break the document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A unit that was left as it is, because its translation would have broken the document."""

    unit: int
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """A document with its translations; the units of `problems` stand there untranslated."""

    text: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A parsed document. `structure` reads from a text of this format what a translation must not change."""

    pieces: tuple[Piece, ...]
    slots: tuple[Slot, ...]
    structure: Callable[[str], Hashable]
    units: tuple[Unit, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(slot.unit for slot in self.slots))

    def render(self, translations: Sequence[str | None]) -> Rendered:
        """Write the document with a translation for each unit; None, or the unit's own text, leaves what is there.

        What would change the structure is left untranslated and named in `problems`. Raises UsageError for a wrong
        number of translations.
        """
        if len(translations) != len(self.slots):
            raise UsageError(f"the document has {len(self.slots)} units; {len(translations)} translations were given")
        written: dict[int, tuple[Piece, ...]] = {}
        problems: list[Problem] = []
        for number, (slot, translation) in enumerate(zip(self.slots, translations, strict=True)):
            if translation is None or translation == slot.unit.text:
                continue
            if not any(map(str.isalnum, translation)):
                problems.append(Problem(unit=number, message="the translation holds no word"))
                continue
            try:
                written[number] = slot.write(translation)
            except UnfitTranslationError as error:
                problems.append(Problem(unit=number, message=str(error)))
        kept = self._fitting(written)
        message = "with the translation the document would be read differently"
        problems += [Problem(unit=number, message=message) for number in written if number not in kept]
        return Rendered(text=self._text(kept), problems=tuple(sorted(problems, key=lambda problem: problem.unit)))

    def _text(self, written: Mapping[int, tuple[Piece, ...]]) -> str:
        parts: list[str] = []
        waiting: list[Piece] = list(reversed(self.pieces))
        while waiting:
            piece = waiting.pop()
            if isinstance(piece, str):
                parts.append(piece)
            elif isinstance(piece, When):
                parts.append(piece.then if any(unit in written for unit in piece.units) else piece.otherwise)
            else:
                waiting += reversed(written.get(piece, self.slots[piece].source))
        return "".join(parts)

    def _fitting(self, written: dict[int, tuple[Piece, ...]]) -> dict[int, tuple[Piece, ...]]:
        """The written units without those that change how the document is read, found by halving."""
        expected = self.structure(self._text({}))
        kept: dict[int, tuple[Piece, ...]] = {}
        waiting = [list(written)]
        while waiting:
            part = waiting.pop()
            tried = kept | {number: written[number] for number in part}
            if not part or self.structure(self._text(tried)) == expected:
                kept = tried
            elif len(part) > 1:
                middle = len(part) // 2
                waiting += [part[middle:], part[:middle]]
        return kept
