"""What all APIs share: a checked wish → the Translator by way of the batcher → results, the same as the library's."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from onnxmt.runtime.documents import DocumentTranslation
from onnxmt.runtime.languages import language_name, short_code
from onnxmt.runtime.tokenizer import Direction
from onnxmt.runtime.translation import TranslateOptions, Translation
from onnxmt.runtime.translator import Translator
from onnxmt.serve.batcher import Answer, Batcher
from onnxmt.serve.documents import Documents
from onnxmt.serve.guard import MemoryGuard
from onnxmt.serve.metrics import Metrics
from onnxmt.serve.options import ServeOptions
from onnxmt.serve.problems import Problem
from onnxmt.serve.watched import Watch, watched
from onnxmt.text.formats.document import Format
from onnxmt.text.glossary import Glossary

# Warm-up: one short text, and a batch with a long one, so that both shapes of work have been done once (case R5).
_WARM_UP = (["Good morning."], ["It rained.", "The library opens at nine, " * 6 + "and it closes at five."])
# A model that does not end by itself would otherwise warm up for as long as its length limit allows.
_WARM_TOKENS = 8
# What the library searches a sentence with whose translation lacks a term.
_GLOSSARY_BEAMS = 4
_MOST_GLOSSARIES = 32
_NOTHING = Answer(translations=(), queue_seconds=0.0, compute_seconds=0.0, input_tokens=0)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What one request wants, in any of the APIs; None: as the bundle says. `format`: what each text is."""

    texts: Sequence[str]
    source: str | None = None
    target: str | None = None
    beams: int | None = None
    alternatives: int = 0
    new_tokens: int | None = None
    split: bool = True
    format: Format = "text"
    glossary: Glossary | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A further translation."""

    text: str
    score: float | None


@dataclass(frozen=True, kw_only=True)
class Result:
    """One text's translation, as the APIs tell it; `warnings` are JSON values, with a `line` in documents.

    `glossary`: the terms in it and whether they were applied; None where there is no glossary.
    """

    text: str
    score: float | None
    finished: bool
    alternatives: tuple[Candidate, ...]
    warnings: tuple[dict[str, Any], ...]
    tokens: int
    glossary: tuple[dict[str, Any], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Results:
    """The translations of one request, and its timing in seconds."""

    results: tuple[Result, ...]
    queue_seconds: float
    compute_seconds: float
    total_seconds: float


class Translating(Protocol):
    """What of the batcher a service needs; a test passes a fake of ten lines."""

    async def submit(self, texts: Sequence[str], options: TranslateOptions, *, beams: int, seconds: float) -> Answer:
        """Translate the texts of one request."""

    def close(self, *, seconds: float = 30.0) -> None:
        """Finish what waits."""


class Service:
    """The translator behind the APIs, with the limits in front of it."""

    def __init__(self, translator: Translator, options: ServeOptions, metrics: Metrics) -> None:
        self.translator, self.options, self.metrics = translator, options, metrics
        watch = Watch()
        self.batcher: Translating = Batcher(
            watched(translator, watch),
            watch=watch,
            limits=options.limits,
            options=options.batching,
            metrics=metrics,
            workers=translator.runtime.workers,
        )
        self.guard = MemoryGuard(options.memory_bytes)
        self._running = 0
        self._glossaries = OrderedDict[str, Glossary]()
        self.characters = 0  # since the start: what DeepL's /usage tells
        self.ready = False
        metrics.describe(translator)
        metrics.memory_limit.set(self.guard.limit or 0)

    async def warm(self) -> None:
        """Translate a little, so that the first request finds everything set up; then the service is ready."""
        for texts in _WARM_UP:
            options = self._options(Wish(texts=texts, new_tokens=_WARM_TOKENS))
            await self.batcher.submit(texts, options, beams=1, seconds=600)
        self.ready = True
        self.metrics.ready.set(1)

    async def close(self) -> None:
        """Finish what waits, and give the model's memory back."""
        self.ready = False
        self.metrics.ready.set(0)
        await asyncio.to_thread(self.batcher.close)

    async def translate(self, wish: Wish) -> Results:
        """Translate; raises Problem, or the library's errors about languages and options."""
        began = time.monotonic()
        options = self._options(wish)
        beams = options.beams or self.translator.settings.num_beams
        beams = max(beams, _GLOSSARY_BEAMS) if wish.glossary else beams
        self._admit()
        limits = self.options.limits
        until = began + min(wish.seconds or limits.deadline_seconds, limits.deadline_seconds)
        self._running += 1
        try:
            if wish.format == "text":
                answer = await self._submit(wish.texts, options, beams=beams, until=until)
                results = _of_texts(answer, terms=wish.glossary is not None)
            else:
                answer, results = await self._documents(wish, options, beams=beams, until=until)
        finally:
            self._running -= 1
        self._count(wish, answer, results)
        return Results(
            results=results,
            queue_seconds=answer.queue_seconds,
            compute_seconds=answer.compute_seconds,
            total_seconds=time.monotonic() - began,
        )

    async def _submit(self, texts: Sequence[str], options: TranslateOptions, *, beams: int, until: float) -> Answer:
        if not texts:
            return _NOTHING
        seconds = max(until - time.monotonic(), 0.001)  # the batcher says 504 where there is none left
        return await self.batcher.submit(texts, options, beams=beams, seconds=seconds)

    async def _documents(
        self, wish: Wish, options: TranslateOptions, *, beams: int, until: float
    ) -> tuple[Answer, tuple[Result, ...]]:
        """Translate documents, in as many rounds as they ask for more."""
        documents, total = Documents(wish.texts, format=wish.format, options=options), _NOTHING
        while texts := await self._advance(documents, until):
            answer = await self._submit(texts, options, beams=beams, until=until)
            documents.answered(texts, answer.translations)
            total = total.with_(answer)
        terms = wish.glossary is not None
        return total, tuple(_of_document(documents, document, terms=terms) for document in documents.done)

    async def _advance(self, documents: Documents, until: float) -> list[str]:
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.001)):
                return await asyncio.to_thread(documents.advance)
        except TimeoutError:
            self.metrics.rejected.labels("deadline").inc()
            reason = "the documents were not read in time: send less at once, or try again later"
            raise Problem(504, "deadline", reason) from None

    def glossary(self, terms: Mapping[str, str | Mapping[str, Any]]) -> Glossary:
        """Read a glossary; one that was read lately is the same object, which batches are compared by.

        Raises GlossaryError.
        """
        found = Glossary.from_dict(terms)
        kept = self._glossaries.pop(found.digest, None)
        found = found if kept is None or kept.entries != found.entries else kept
        self._glossaries[found.digest] = found
        if len(self._glossaries) > _MOST_GLOSSARIES:
            self._glossaries.popitem(last=False)
        return found

    def languages(self, side: str) -> dict[str, str]:
        """Short codes of the source or target languages, with English names; the model's own where unknown."""
        codes = getattr(self.translator.tokenizer.languages(), side) or (self.own(side),)
        return {short_code(code) or code: language_name(code) or code for code in codes if code}

    def own(self, side: str) -> str:
        """The short code of the language that is meant where a request names none; "" where there is no such one."""
        tokenizer = self.translator.tokenizer
        told: Direction = self.translator.direction
        code = getattr(told, side) or getattr(tokenizer.defaults(), side)
        codes = getattr(tokenizer.languages(), side)
        code = code or (codes[0] if len(codes) == 1 else "")
        return short_code(code) or code

    def _admit(self) -> None:
        if not self.ready:
            raise Problem(503, "not_ready", "the model is not loaded yet; try again in 2 s", retry_after=2)
        # One at a time is always let in: what is held now may be the runtime's reserve, which it uses again, and a
        # service that refused everything would never get to.
        if self._running and self.guard.full():
            self.metrics.rejected.labels("memory").inc()
            raise Problem(503, "memory", "the server is short of memory; try again in 2 s", retry_after=2)

    def _options(self, wish: Wish) -> TranslateOptions:
        """The library's options, checked here already: a wrong one must not reach the queue."""
        beams = wish.beams
        if wish.alternatives >= (beams or self.translator.settings.num_beams):
            beams = wish.alternatives + 1
        options = TranslateOptions(
            beams=beams,
            alternatives=wish.alternatives,
            max_new_tokens=wish.new_tokens or self._capped(),
            source=wish.source,
            target=wish.target,
            split=wish.split,
            glossary=wish.glossary,
            batch_tokens=self.options.batching.max_tokens,
        )
        options.apply_to(self.translator.settings)
        self.translator.tokenizer.resolve(source=wish.source, target=wish.target)
        return options

    def _capped(self) -> int | None:
        """The service's cap on the output where the bundle's own would allow more; None leaves the bundle's."""
        settings, most = self.translator.settings, self.options.limits.new_tokens
        return most if (settings.max_new_tokens or settings.max_length or 0) > most else None

    def _count(self, wish: Wish, answer: Answer, results: Sequence[Result]) -> None:
        metrics, characters = self.metrics, sum(map(len, wish.texts))
        self.characters += characters
        metrics.characters.inc(characters)
        metrics.queue_wait.observe(answer.queue_seconds)
        metrics.compute.observe(answer.compute_seconds)
        metrics.input_tokens.observe(answer.input_tokens)
        metrics.output_tokens.observe(sum(result.tokens for result in results))
        for result in results:
            for warning in result.warnings:
                metrics.warnings.labels(warning["kind"]).inc()


def warning_values(translation: Translation) -> tuple[dict[str, Any], ...]:
    """The warnings of a translation as JSON values."""
    return tuple(
        {"kind": one.kind, "message": one.message, "span": None if one.span is None else list(one.span)}
        for one in translation.warnings
    )


def _terms_of(*translations: Translation) -> tuple[dict[str, Any], ...]:
    """The glossary's terms in these, as JSON values."""
    return tuple(use.to_dict() for one in translations for use in one.glossary)


def _of_texts(answer: Answer, *, terms: bool) -> tuple[Result, ...]:
    problems = [f"text {i}: {one.error}" for i, one in enumerate(answer.translations) if one.error is not None]
    if problems:
        raise Problem(422, "bad_text", "; ".join(problems[:5]))
    return tuple(
        Result(
            text=one.text,
            score=one.score,
            finished=one.finished,
            alternatives=tuple(Candidate(text=other.text, score=other.score) for other in one.alternatives),
            warnings=warning_values(one),
            tokens=len(one.tokens),
            glossary=_terms_of(one) if terms else None,
        )
        for one in answer.translations
    )


def _of_document(documents: Documents, document: DocumentTranslation, *, terms: bool) -> Result:
    """A document's result; its score is the mean over its texts by tokens."""
    parts = documents.translations(document)
    scored = [(part.score, len(part.tokens)) for part in parts if part.score is not None]
    weight = sum(tokens for _, tokens in scored)
    return Result(
        text=document.text,
        score=sum(score * tokens for score, tokens in scored) / weight if weight else None,
        finished=all(part.finished for part in parts),
        alternatives=(),
        warnings=tuple(
            {"kind": one.kind, "message": one.message, "span": None, "line": one.line, "where": one.where}
            for one in document.warnings
        ),
        tokens=sum(len(part.tokens) for part in parts),
        glossary=_terms_of(*parts) if terms else None,
    )
