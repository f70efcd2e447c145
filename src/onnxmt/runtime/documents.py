"""Whole documents through a Translator: units out, translations in, and what could not be written said."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from onnxmt.errors import DoubtfulTranslationError, UsageError
from onnxmt.runtime.translation import TranslateOptions, Translation
from onnxmt.text.formats.document import Document, DocumentOptions, Problem, Unit
from onnxmt.text.formats.registry import read_document
from onnxmt.text.patterns import is_cjk
from onnxmt.text.protect import has_prose

__all__ = [
    "DocumentTranslation",
    "DocumentWarning",
    "Journal",
    "KeptTranslation",
    "KeptWarning",
    "UnitTranslation",
    "translate_document",
]


class TextTranslator(Protocol):
    """What a Translator can do that documents need."""

    def translate_stream(
        self, texts: Iterable[str], *, options: TranslateOptions | None = None, errors: Any = "raise"
    ) -> Iterator[Translation]:
        """Translate texts in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptWarning:
    """A warning of one translation; `span` is where in the unit's text."""

    kind: str
    message: str
    span: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptTranslation:
    """The translation of one text; `error` says why there is none."""

    text: str
    warnings: tuple[KeptWarning, ...] = ()
    error: str | None = None


class Journal(Protocol):
    """Where translations are kept as soon as they are there, so that a run that is begun again has them."""

    def find(self, text: str) -> KeptTranslation | None:
        """The translation of a text, if it was kept."""

    def keep(self, text: str, translation: KeptTranslation) -> None:
        """Keep one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentWarning:
    """What a reader of the document should know.

    kind: as of TranslationWarning; `structure`: a unit was left untranslated, because its translation would have broken
        the document; `error`: it could not be translated.
    line: where the unit begins in the source document, from 1; `where` names the place if a line says little.
    unit: its number in `DocumentTranslation.units`; `span`: where in its text.
    """

    kind: str
    message: str
    line: int
    where: str
    unit: int
    span: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitTranslation:
    """One unit: its place, what was translated, and what is in the document now (the source where it was left)."""

    source: str
    text: str
    line: int
    where: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentTranslation:
    """A translated document; warnings are in the order of the document."""

    text: str
    units: tuple[UnitTranslation, ...]
    warnings: tuple[DocumentWarning, ...]


def translate_document(
    translator: TextTranslator,
    text: str,
    *,
    format: str,  # noqa: A002 - the name that users know
    options: TranslateOptions | None = None,
    document: DocumentOptions | None = None,
    journal: Journal | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> DocumentTranslation:
    """Translate a document's prose; every other byte stays.

    `format`: text, markdown, html, srt, po or json. `journal` keeps translations for a later call. `progress` is told
    how many of how many texts are done. A unit whose translation would break the document is translated once more in
    the pieces between its markup; if that breaks it too, it stays as it is, and a warning says so. Raises UsageError
    for an unknown format, DocumentError (a UsageError) for a document that is not of the format,
    DoubtfulTranslationError for warnings where `strict` is on, and what Translator.translate_stream raises.
    """
    options, document = options or TranslateOptions(), document or DocumentOptions()
    if options.alternatives:
        raise UsageError(f"a document has one translation; alternatives is {options.alternatives}, 0 is allowed")
    if options.unwrap and format not in _UNWRAPPED_BY_UNIT:  # the others' wrapped lines are joined in any case
        options, document = dataclasses.replace(options, unwrap=False), dataclasses.replace(document, unwrap=True)
    read = read_document(text, format, document)
    call = _Call(translator, dataclasses.replace(options, strict=False), journal, progress)
    answers = call.translate([unit.text for unit in read.units])
    translations = [None if answer.error is not None else answer.text for answer in answers]
    rendered = read.render(translations)
    again = [problem.unit for problem in rendered.problems if read.units[problem.unit].marks]
    if again:
        pieced = call.translate_pieces([read.units[number] for number in again])
        for number, answer in zip(again, pieced, strict=True):
            answers[number], translations[number] = answer, answer.text
        rendered = read.render(translations)
    result = DocumentTranslation(
        text=rendered.text,
        units=tuple(_units(read, translations, rendered.problems)),
        warnings=tuple(_warnings(read, answers, rendered.problems)),
    )
    if options.strict and result.warnings:
        first, count = result.warnings[0], len(result.warnings)
        raise DoubtfulTranslationError(
            f"{count} {'warning' if count == 1 else 'warnings'}, and strict allows none: line {first.line}: "
            f"{first.message}",
            translations=[],
        )
    return result


# Their units may hold several lines.
_UNWRAPPED_BY_UNIT = ("po", "json")


def _units(
    read: Document, translations: Sequence[str | None], problems: Sequence[Problem]
) -> Iterator[UnitTranslation]:
    left = {problem.unit for problem in problems}
    for number, (unit, translation) in enumerate(zip(read.units, translations, strict=True)):
        text = unit.text if translation is None or number in left else translation
        yield UnitTranslation(source=unit.text, text=text, line=unit.line, where=unit.where)


def _warnings(
    read: Document, answers: Sequence[KeptTranslation], problems: Sequence[Problem]
) -> Iterator[DocumentWarning]:
    left = {problem.unit: problem.message for problem in problems}
    for number, (unit, answer) in enumerate(zip(read.units, answers, strict=True)):
        found = list(answer.warnings)
        if answer.error is not None:
            found = [KeptWarning(kind="error", message=f"it stays untranslated: {answer.error}")]
        elif number in left:  # what the checks say of a translation that is not in the document helps nobody
            found = [KeptWarning(kind="structure", message=f"it stays untranslated: {left[number]}")]
        for warning in found:
            yield DocumentWarning(
                kind=warning.kind,
                message=warning.message,
                line=unit.line,
                where=unit.where,
                unit=number,
                span=warning.span,
            )


class _Call:
    """One call: each text is translated once."""

    def __init__(
        self,
        translator: TextTranslator,
        options: TranslateOptions,
        journal: Journal | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._translator, self._options = translator, options
        self._journal, self._progress = journal, progress
        self._known: dict[str, KeptTranslation] = {}

    def translate(self, texts: Sequence[str]) -> list[KeptTranslation]:
        """Translate texts, in order."""
        wanted = [text for text in dict.fromkeys(texts) if text not in self._known]
        total = len(self._known) + len(wanted)
        waiting: list[str] = []
        for text in wanted:
            kept = self._journal.find(text) if self._journal is not None else None
            if kept is None:
                waiting.append(text)
            else:
                self._known[text] = kept
        self._tell(total)
        found = self._translator.translate_stream(iter(waiting), options=self._options, errors="return")
        for text, translation in zip(waiting, found, strict=True):
            answer = _kept(translation)
            self._known[text] = answer
            if self._journal is not None and answer.error is None:
                self._journal.keep(text, answer)
            self._tell(total)
        return [self._known[text] for text in texts]

    def _tell(self, total: int) -> None:
        if self._progress is not None:
            self._progress(len(self._known), total)

    def translate_pieces(self, units: Sequence[Unit]) -> list[KeptTranslation]:
        """Translate units in the pieces between their markup, which so stays as it is."""
        cut = [_pieces(unit) for unit in units]
        answers = iter(self.translate([piece.core for pieces in cut for piece in pieces if piece.core]))
        return [_joined(pieces, [next(answers) for piece in pieces if piece.core]) for pieces in cut]


def _kept(translation: Translation) -> KeptTranslation:
    warnings = tuple(KeptWarning(kind=w.kind, message=w.message, span=w.span) for w in translation.warnings)
    return KeptTranslation(text=translation.text, warnings=warnings, error=translation.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """A stretch of a unit: what is translated (nothing where it is empty), and what stands around it."""

    before: str
    core: str
    after: str


_END_MARKS = ".。．!！?？…"
_AROUND = re.compile(
    r"(?P<before>[\s,;:()\[\]\"“”‘«»/|–—]*)(?P<core>.*?)(?P<after>[\s,;:()\[\]\"“”’«»/|–—]*)", re.DOTALL
)


def _pieces(unit: Unit) -> list[_Piece]:
    names = sorted(map(re.escape, unit.marks), key=len, reverse=True)
    pieces = []
    for index, text in enumerate(re.split("(" + "|".join([*names, "\n"]) + ")", unit.text)):
        match = _AROUND.fullmatch(text)
        if index % 2 or match is None or not has_prose(text):
            pieces.append(_Piece(before=text, core="", after=""))
        else:
            pieces.append(_Piece(before=match["before"], core=match["core"], after=match["after"]))
    return pieces


def _joined(pieces: Sequence[_Piece], answers: Sequence[KeptTranslation]) -> KeptTranslation:
    waiting = iter(answers)
    parts: list[str] = []
    warnings: list[KeptWarning] = []
    for piece in pieces:
        text = ""
        if piece.core:
            answer = next(waiting)
            text = answer.text.strip() if answer.error is None else piece.core
            if piece.core[-1] not in _END_MARKS:  # models end any text with a full stop
                text = text.rstrip(_END_MARKS) or text
            warnings += [dataclasses.replace(warning, span=None) for warning in answer.warnings]
            if answer.error is not None:
                warnings.append(KeptWarning(kind="error", message=f"a part stays untranslated: {answer.error}"))
        before = "" if text and is_cjk(text[0]) and piece.before.isspace() else piece.before
        after = "" if text and is_cjk(text[-1]) and piece.after.isspace() else piece.after
        parts += [before, text, after]
    return KeptTranslation(text="".join(parts), warnings=tuple(warnings))
