"""One call of a Translator: cut the texts, encode, decode in batches, and put everything back in place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnxmt.errors import InputTooLongError, TokenizerError, UsageError
from onnxmt.runtime.batching import LEAST_TOKENS, plan_batches
from onnxmt.runtime.decoder import Seq2SeqModel
from onnxmt.runtime.direction import settings_for, settle
from onnxmt.runtime.flags import warnings_of
from onnxmt.runtime.memory import BatchNeeds
from onnxmt.runtime.search import Hypothesis, search
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction, Tokenizer
from onnxmt.runtime.translation import (
    Alternative,
    SegmentTranslation,
    TranslateOptions,
    Translation,
    TranslationWarning,
)
from onnxmt.text.segment import Segment, join_translations, passes_through, segment_text, split_to_limit

Errors = Literal["raise", "return"]
# A Marian text may name its target language in front; the sentences after the first need the same name.
_LEADING_CODE = re.compile(r"\s*>>([A-Za-z][A-Za-z0-9_@-]*)<<")


_NOTHING_TOLD = Direction()


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What does the work, the same for every call: `limit` is the most source tokens, languages are the model's own.

    `default`: what the tokenizer is told where a call names no language. `codes_in_text`: a text may begin with the
    code of its target, `>>deu<<`; in the other families such characters are text. `workers` batches are decoded side by
    side; together they take at most `spare_memory` bytes, by what they are known to need.
    """

    model: Seq2SeqModel
    tokenizer: Tokenizer
    settings: GenerationSettings
    limit: int | None
    source_language: str
    target_language: str
    default: Direction = _NOTHING_TOLD
    codes_in_text: bool = True
    workers: int = 1
    needs: BatchNeeds | None = None
    spare_memory: int | None = None


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A segment and its token ids; None where the model is not asked."""

    segment: Segment
    ids: list[int] | None


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """One text, cut and encoded; `error` says why it cannot be translated."""

    source: str
    pieces: tuple[_Piece, ...] = ()
    target: str = ""
    error: str | None = None


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
        self._settings = settings
        rows = settings.num_return_sequences if settings.do_sample else settings.num_beams
        self._budget = max(1, self._batch_tokens(options, rows) // rows)
        self._done = 0  # pieces that earlier windows sent to the model: each draws from a random stream of its own

    def _batch_tokens(self, options: TranslateOptions, rows: int) -> int:
        """The budget asked for, cut to what the memory limit leaves each worker. Raises UsageError for too little."""
        engine = self._engine
        if engine.spare_memory is None or engine.needs is None:
            return options.batch_tokens
        fits = engine.needs.batch_tokens(engine.spare_memory // engine.workers, rows_each=rows)
        if fits == 0:
            least = engine.needs.batch(rows=rows, source=LEAST_TOKENS)
            raise UsageError(
                f"the memory limit leaves {engine.spare_memory / 1e6:.0f} MB beside the loaded model, and one short "
                f"sentence with {rows} beams takes {least / 1e6:.0f} MB for "
                f"each of {engine.workers} workers: raise the limit, or ask for fewer beams or workers"
            )
        return min(options.batch_tokens, fits)

    def translate(self, texts: Sequence[str]) -> Iterator[Translation]:
        """Translate these texts, in order."""
        prepared = [self._prepare(index, text) for index, text in enumerate(texts)]
        asked = [piece.ids for text in prepared for piece in text.pieces if piece.ids is not None]
        answers = iter(self._decode(asked))
        for text in prepared:
            yield self._assemble(text, [next(answers) if piece.ids is not None else [] for piece in text.pieces])

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
        ids, limit = self._encode(text, None if own else self._told.target), self._engine.limit
        if limit is not None and len(ids) > limit:
            raise InputTooLongError(tokens=len(ids), limit=limit)
        segment = Segment(text=text, start=0, end=len(text), separator="")
        return _Prepared(source=text, pieces=(_Piece(segment=segment, ids=ids),))

    def _cut(self, text: str) -> _Prepared:
        """Cut a text into segments that fit the model, and encode each."""
        code = self._leading_code(text) if self._options.target is None else None
        source = self._told.source or self._engine.source_language
        pieces: list[_Piece] = []
        for segment in segment_text(text, language=source):
            if passes_through(segment.text):
                pieces.append(_Piece(segment=segment, ids=None))
            else:
                has_code = code is not None and segment.start <= code.start(1) < segment.end
                pieces += self._fitting(segment, code=code[1] if code else None, has_code=has_code)
        target = code[1] if code else self._told.target or self._engine.target_language
        return _Prepared(source=text, pieces=tuple(pieces), target=target)

    def _leading_code(self, text: str) -> re.Match[str] | None:
        return _LEADING_CODE.match(text) if self._engine.codes_in_text else None

    def _fitting(self, segment: Segment, *, code: str | None, has_code: bool) -> list[_Piece]:
        """Encode a segment, in parts where it is over the limit. `code`: the language code at the start of the text."""

        def encode(part: str) -> list[int]:
            if has_code and part.startswith(f">>{code}<<"):
                return self._encode(part, None)
            target = code or self._told.target
            # A code counts at the start of a text only: elsewhere it is text, which a space in front says.
            plain = target is None and self._engine.codes_in_text and part.startswith(">>")
            return self._encode(f" {part}" if plain else part, target)

        ids, limit = encode(segment.text), self._engine.limit
        if limit is None or len(ids) <= limit:
            return [_Piece(segment=segment, ids=ids)]
        parts = split_to_limit(segment, fits=lambda part: len(encode(part)) <= limit)
        return [_Piece(segment=part, ids=encode(part.text)) for part in parts]

    def _encode(self, text: str, target: str | None) -> list[int]:
        return self._engine.tokenizer.encode(text, source=self._told.source, target=target)

    def _decode(self, sources: Sequence[list[int]]) -> list[list[Hypothesis]]:
        """Translate token ids, in batches of like length; the result is in the order of `sources`."""
        batches = plan_batches([len(ids) for ids in sources], budget=self._budget, workers=self._engine.workers)
        answers: list[list[Hypothesis]] = [[] for _ in sources]

        def run(batch: Sequence[int]) -> None:
            found = self._decode_batch([sources[index] for index in batch], [self._done + index for index in batch])
            for index, hypotheses in zip(batch, found, strict=True):
                answers[index] = hypotheses

        if self._engine.workers == 1 or len(batches) < 2:
            for batch in batches:
                run(batch)
        else:  # ONNX Runtime and numpy let other threads run meanwhile
            with ThreadPoolExecutor(self._engine.workers, thread_name_prefix="onnxmt") as pool:
                running = [pool.submit(run, batch) for batch in batches]
                try:
                    for future in running:
                        future.result()
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        self._done += len(sources)
        return answers

    def _decode_batch(self, sources: Sequence[list[int]], streams: Sequence[int]) -> list[list[Hypothesis]]:
        """Translate one batch; sentence i draws from the random stream streams[i]."""
        width = max(len(ids) for ids in sources)
        padded = np.full((len(sources), width), self._padding(sources[0]), np.int64)
        mask = np.zeros((len(sources), width), np.int64)
        for row, ids in enumerate(sources):
            padded[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        return search(
            self._engine.model.start(padded, mask),
            rows=len(sources),
            settings=self._settings,
            seed=self._options.seed,
            streams=streams,
        )

    def _padding(self, ids: Sequence[int]) -> int:
        """What stands under the mask: it has no effect, but must be a row of the embedding."""
        return ids[-1] if self._settings.pad_token_id is None else self._settings.pad_token_id

    def _assemble(self, text: _Prepared, answers: Sequence[list[Hypothesis]]) -> Translation:
        if text.error is not None or not text.pieces:
            return Translation(
                source=text.source, text="", score=None, tokens=(), finished=text.error is None, error=text.error
            )
        warnings: list[TranslationWarning] = []
        segments = []
        for piece, hypotheses in zip(text.pieces, answers, strict=True):
            segment = self._segment(piece, hypotheses)
            segments.append(segment)
            if hypotheses:
                span = (segment.start, segment.end)
                warnings += warnings_of(segment.tokens, finished=segment.finished, settings=self._settings, span=span)
        best = _join(text, segments, rank=0, split=self._options.split)
        ranks = range(1, max(len(segment.alternatives) for segment in segments) + 1)
        return Translation(
            source=text.source,
            text=best.text,
            score=None if all(segment.score is None for segment in segments) else best.score,
            tokens=best.tokens,
            finished=best.finished,
            warnings=tuple(warnings),
            alternatives=tuple(_join(text, segments, rank=rank, split=self._options.split) for rank in ranks),
            segments=tuple(segments),
        )

    def _segment(self, piece: _Piece, hypotheses: Sequence[Hypothesis]) -> SegmentTranslation:
        segment = piece.segment
        candidates = [self._candidate(hypothesis) for hypothesis in hypotheses]
        best = candidates[0] if candidates else None
        return SegmentTranslation(
            source=segment.text,
            start=segment.start,
            end=segment.end,
            text=segment.text if best is None else best.text,
            score=None if best is None else best.score,
            tokens=() if best is None else best.tokens,
            finished=best is None or best.finished,
            alternatives=tuple(candidates[1:]),
        )

    def _candidate(self, hypothesis: Hypothesis) -> Alternative:
        tokens = hypothesis.tokens
        if tokens and tokens[-1] in self._settings.eos_token_ids:
            tokens = tokens[:-1]
        return Alternative(
            text=self._engine.tokenizer.decode(tokens),
            score=hypothesis.score,
            tokens=tokens,
            finished=hypothesis.finished,
        )


def _join(text: _Prepared, segments: Sequence[SegmentTranslation], *, rank: int, split: bool) -> Alternative:
    """Join the candidates of one rank (a segment with fewer gives its last) into one of the whole text."""
    chosen = [_ranked(segment, rank) for segment in segments]
    scored = [
        (c.score, len(c.tokens) + c.finished) for c, s in zip(chosen, segments, strict=True) if s.score is not None
    ]
    weight = sum(tokens for _, tokens in scored)
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
    return Alternative(
        text=joined,
        score=scored[0][0] if len(scored) == 1 else sum(s * n for s, n in scored) / weight if weight else 0.0,
        tokens=tuple(token for candidate in chosen for token in candidate.tokens),
        finished=all(candidate.finished for candidate in chosen),
    )


def _ranked(segment: SegmentTranslation, rank: int) -> Alternative:
    if rank > 0 and segment.alternatives:
        return segment.alternatives[min(rank, len(segment.alternatives)) - 1]
    return Alternative(text=segment.text, score=segment.score or 0.0, tokens=segment.tokens, finished=segment.finished)
