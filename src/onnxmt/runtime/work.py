"""One call of a Translator: cut the texts, have the sentences translated, and put everything back in place."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from onnxmt.errors import DoubtfulTranslationError, InputTooLongError, TokenizerError, UsageError
from onnxmt.runtime.asking import Encoder, Sentence, join_candidates
from onnxmt.runtime.decoding import BatchDecoder
from onnxmt.runtime.direction import settings_for, settle
from onnxmt.runtime.engine import Engine
from onnxmt.runtime.recall import Recall, scope_of
from onnxmt.runtime.sentences import Outcome, SentenceTranslator
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.translation import (
    Alternative,
    SegmentTranslation,
    TranslateOptions,
    Translation,
    TranslationWarning,
)
from onnxmt.text.glossary import TermUse
from onnxmt.text.places import SpacingMap
from onnxmt.text.segment import Segment, join_translations, passes_through, segment_text, split_to_limit
from onnxmt.text.spans import Span, find_protected
from onnxmt.text.unwrap import unwrap_lines

__all__ = ["Engine", "Errors", "Work"]

Errors = Literal["raise", "return"]
# A Marian text may name its target language in front; the sentences after the first need the same name.
_LEADING_CODE = re.compile(r"\s*>>([A-Za-z][A-Za-z0-9_@-]*)<<")
_PLACEHOLDER = "(1)"  # what a protected span may become, when its sentence is measured


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A segment, and what of it is translated, `offset` characters behind its start; None where nothing is."""

    segment: Segment
    sentence: Sentence | None
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """One text, cut and encoded; `error` says why it cannot be translated, `spacing` where an unwrapped text was."""

    source: str
    pieces: tuple[_Piece, ...] = ()
    target: str = ""
    error: str | None = None
    spacing: SpacingMap | None = None


class Work:
    """One call of the Translator: its options, resolved once."""

    def __init__(self, engine: Engine, options: TranslateOptions, errors: Errors) -> None:
        if errors not in ("raise", "return"):
            raise UsageError(f"errors is {errors!r}; allowed: 'raise', 'return'")
        self._engine, self._options, self._errors = engine, options, errors
        self._told = settle(
            engine.tokenizer,
            engine.settings,
            source=options.source or engine.default.source,
            target=options.target or engine.default.target,
        )
        settings = settings_for(engine.tokenizer, options.apply_to(engine.settings), self._told.target)
        if engine.model.positions is not None:
            settings = settings.limited_to(engine.model.positions)
        layer = options.text if options.split else None
        if layer is not None and not settings.do_sample:  # what the search has found anyway, for the layer to choose
            settings = dataclasses.replace(settings, num_return_sequences=settings.num_beams)
        self._source_language = self._told.source or engine.source_language
        self._encoder = Encoder(engine, self._told)
        self._protect = layer.protect if layer is not None else None
        self._translator = SentenceTranslator(
            engine,
            encoder=self._encoder,
            decoder=BatchDecoder(
                engine, settings, batch_tokens=options.batch_tokens, seed=options.seed, scored=options.scores
            ),
            layer=layer,
            source_language=self._source_language,
            target_language=self._told.target or engine.target_language,
            alternatives=options.alternatives,
            glossary=options.glossary,
            recall=Recall(engine.memory, "" if engine.memory is None else self._scope(settings)),
        )

    def _scope(self, settings: GenerationSettings) -> str:
        """What a translation memory has to know beside a sentence."""
        engine = self._engine
        languages = (self._source_language, engine.target_language)
        return scope_of(engine.identity, settings, self._told, self._options, languages)

    def translate(self, texts: Sequence[str]) -> Iterator[Translation]:
        """Translate these texts, in order. Raises DoubtfulTranslationError at the first that `strict` refuses."""
        prepared = [self._prepare(index, text) for index, text in enumerate(texts)]
        sentences = [piece.sentence for text in prepared for piece in text.pieces if piece.sentence is not None]
        outcomes = iter(self._translator.translate(sentences))
        assembled = (
            self._assemble(text, [next(outcomes) if piece.sentence is not None else None for piece in text.pieces])
            for text in prepared
        )
        if not self._options.strict or self._errors == "return":
            yield from assembled
            return
        done = list(assembled)
        for index, translation in enumerate(done):
            if translation.error is not None:
                raise DoubtfulTranslationError(f"text {index}: {translation.error}", translations=done)
            yield translation

    def _prepare(self, index: int, text: str) -> _Prepared:
        split = self._options.split
        if not text.strip() and (not split or text.splitlines() in ([], [text])):
            return _Prepared(source=text)  # a blank line
        try:
            return self._cut(text) if split else self._whole(text)
        except TokenizerError as error:
            if self._errors == "raise":
                error.add_note(f"in text {index} of those given: {text[:60]!r}")
                raise
            return _Prepared(source=text, error=str(error))

    def _whole(self, text: str) -> _Prepared:
        """Encode a text as it is; the code that it begins with wins over the bundle's default."""
        own = self._options.target is None and self._leading_code(text) is not None
        ids, limit = self._encoder.whole(text, own=own), self._engine.limit
        if limit is not None and len(ids) > limit:
            raise InputTooLongError(tokens=len(ids), limit=limit)
        segment = Segment(text=text, start=0, end=len(text), separator="")
        return _Prepared(source=text, pieces=(_Piece(segment=segment, sentence=Sentence(text=text, ids=tuple(ids))),))

    def _cut(self, source: str) -> _Prepared:
        """Cut a text into sentences that fit the model, and encode each."""
        spans = self._spans(source)
        text, spacing = source, None
        if self._options.unwrap:
            text = unwrap_lines(source, keep=spans)
            if text != source:
                spans, spacing = self._spans(text), SpacingMap(changed=text, original=source)
        code = self._leading_code(text) if self._options.target is None else None
        pieces: list[_Piece] = []
        for segment in segment_text(text, language=self._source_language or "en", keep=spans):
            leads = code is not None and segment.start <= code.start(1) < segment.end
            if passes_through(segment.text):
                pieces.append(_Piece(segment=segment, sentence=None))
            else:
                pieces += self._fitting(segment, spans, code=code[1] if code else None, leads=leads)
        if self._options.overlap:
            pieces = _with_context(pieces, self._options.overlap)
        target = code[1] if code else self._told.target or self._engine.target_language
        return _Prepared(source=source, pieces=tuple(pieces), target=target, spacing=spacing)

    def _spans(self, text: str) -> tuple[Span, ...]:
        return () if self._protect is None else find_protected(text, self._protect)

    def _leading_code(self, text: str) -> re.Match[str] | None:
        return _LEADING_CODE.match(text) if self._engine.codes_in_text else None

    def _fitting(self, segment: Segment, spans: Sequence[Span], *, code: str | None, leads: bool) -> list[_Piece]:
        """Encode a segment, in parts where it is over the limit. `code`: the language code at the start of the text."""
        encode = self._encoder

        def piece(part: Segment) -> _Piece:
            text, offset, first = _without_code(part.text, code) if leads else (part.text, 0, False)
            ids = encode(text, code=code, leads=first)
            fits = encode.limit is None or len(ids) <= encode.limit
            sentence = Sentence(text=text, ids=ids if fits else None, code=code, leads=first)
            return _Piece(segment=part, sentence=sentence, offset=offset)

        def fits(text: str) -> bool:
            text, _, first = _without_code(text, code) if leads else (text, 0, False)
            return encode.fits(text, code=code, leads=first) or (
                self._protect is not None and encode.fits(self._masked(text), code=code, leads=first)
            )

        whole = piece(segment)
        if whole.sentence is not None and whole.sentence.ids is not None:
            return [whole]
        return [piece(part) for part in split_to_limit(segment, fits=fits, keep=spans)]

    def _masked(self, text: str) -> str:
        """The text as the model gets it, about: with a placeholder for each protected span."""
        parts, position = [], 0
        for span in self._spans(text):
            parts += [text[position : span.start], _PLACEHOLDER]
            position = span.end
        return "".join([*parts, text[position:]])

    def _assemble(self, text: _Prepared, outcomes: Sequence[Outcome | None]) -> Translation:
        if text.error is not None or not text.pieces:
            return Translation(
                source=text.source, text="", score=None, tokens=(), finished=text.error is None, error=text.error
            )
        warnings: list[TranslationWarning] = []
        segments = []
        for piece, outcome in zip(text.pieces, outcomes, strict=True):
            segments.append(_segment(piece, outcome, text.spacing))
            warnings += _placed(piece, outcome, text.spacing)
        best = _join(text, segments, rank=0, split=self._options.split)
        ranks = range(1, max(len(segment.alternatives) for segment in segments) + 1)
        return Translation(
            source=text.source,
            text=best.text,
            score=None if all(segment.score is None for segment in segments) else _known(best.score),
            tokens=best.tokens,
            finished=best.finished,
            warnings=tuple(warnings),
            alternatives=tuple(_join(text, segments, rank=rank, split=self._options.split) for rank in ranks),
            segments=tuple(dataclasses.replace(segment, score=_known(segment.score)) for segment in segments),
            error=_refusal(warnings) if self._options.strict and warnings else None,
        )


def _without_code(text: str, code: str | None) -> tuple[str, int, bool]:
    """The text behind its language code, how long the code is with its spaces, and whether it was there."""
    mark = f">>{code}<<"
    if not text.startswith(mark):
        return text, 0, False
    rest = text[len(mark) :].lstrip()
    return rest, len(text) - len(rest), True


def _with_context(pieces: Sequence[_Piece], overlap: int) -> list[_Piece]:
    """The pieces, each with the sentences before it that the model sees too."""
    earlier: list[str] = []
    result = []
    for piece in pieces:
        sentence = piece.sentence
        if sentence is not None:
            context = tuple(earlier[-overlap:])
            earlier = [*earlier[-overlap:], sentence.text]
            piece = dataclasses.replace(piece, sentence=dataclasses.replace(sentence, context=context))
        result.append(piece)
    return result


def _refusal(warnings: Sequence[TranslationWarning]) -> str:
    kinds = ", ".join(dict.fromkeys(warning.kind for warning in warnings))
    noun = "warning" if len(warnings) == 1 else "warnings"
    return f"{len(warnings)} {noun} ({kinds}), and strict allows none: {warnings[0].message}"


def _segment(piece: _Piece, outcome: Outcome | None, spacing: SpacingMap | None) -> SegmentTranslation:
    segment = piece.segment
    start, end = (segment.start, segment.end) if spacing is None else spacing.span(segment.start, segment.end)
    return SegmentTranslation(
        source=segment.text,
        start=start,
        end=end,
        text=segment.text if outcome is None else outcome.text,
        score=None if outcome is None else outcome.score,
        tokens=() if outcome is None else outcome.tokens,
        finished=outcome is None or outcome.finished,
        alternatives=() if outcome is None else outcome.alternatives,
        method="untouched" if outcome is None else outcome.method,
        case=None if outcome is None else outcome.case,
        terms=() if outcome is None else tuple(_placed_terms(piece, outcome, spacing)),
    )


def _known(score: float | None) -> float | None:
    """A score; None for NaN, which search gives where no scores were asked for."""
    return None if score is None or math.isnan(score) else score


def _placed_terms(piece: _Piece, outcome: Outcome, spacing: SpacingMap | None) -> Iterator[TermUse]:
    """The glossary's terms in a segment, with their places in the whole source text."""
    by = piece.segment.start + piece.offset
    for use in outcome.terms:
        span = (use.start + by, use.end + by)
        start, end = span if spacing is None else spacing.span(*span)
        yield dataclasses.replace(use, start=start, end=end)


def _placed(piece: _Piece, outcome: Outcome | None, spacing: SpacingMap | None) -> Iterator[TranslationWarning]:
    """The warnings about a segment, with their places in the whole source text."""
    for warning in () if outcome is None else outcome.warnings:
        by = piece.segment.start + piece.offset
        start, end = warning.span[0] + by, warning.span[1] + by
        if warning.span == (0, len(piece.segment.text) - piece.offset):
            start = piece.segment.start  # all of it: with the language code in front
        span = (start, end) if spacing is None else spacing.span(start, end)
        yield TranslationWarning(kind=warning.kind, message=warning.message, span=span)


def _join(text: _Prepared, segments: Sequence[SegmentTranslation], *, rank: int, split: bool) -> Alternative:
    """Join the candidates of one rank (a segment with fewer gives its last) into one of the whole text."""
    chosen = [_ranked(segment, rank) for segment in segments]
    parts = [candidate.text for candidate in chosen]
    if split:
        joined = join_translations(
            parts,
            [piece.segment.separator for piece in text.pieces],
            target_language=text.target,
            sources=[piece.segment.text for piece in text.pieces],
        )
    else:
        joined = parts[0]
    scored = [c for c, s in zip(chosen, segments, strict=True) if s.score is not None]
    return join_candidates(joined, scored) if scored else Alternative(text=joined, score=0.0, tokens=(), finished=True)


def _ranked(segment: SegmentTranslation, rank: int) -> Alternative:
    if rank > 0 and segment.alternatives:
        return segment.alternatives[min(rank, len(segment.alternatives)) - 1]
    return Alternative(text=segment.text, score=segment.score or 0.0, tokens=segment.tokens, finished=segment.finished)
