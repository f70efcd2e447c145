"""Sentences of one call → what became of each: through the text layer, or straight through the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from onnxmt.runtime.asking import Asker, Encoder, Sentence, join_candidates
from onnxmt.runtime.decoding import BatchDecoder
from onnxmt.runtime.engine import Engine
from onnxmt.runtime.glossing import GlossaryDecoder
from onnxmt.runtime.outcome import Outcome
from onnxmt.runtime.recall import Recall
from onnxmt.runtime.translation import Alternative, SegmentMethod
from onnxmt.text.glossary import Glossary, TermUse, missed, uses_of
from onnxmt.text.layer import Inputs, SentenceTranslation, TextOptions, translate_sentences
from onnxmt.text.pair import TextWarning
from onnxmt.text.spans import ProtectOptions

__all__ = ["Outcome", "SentenceTranslator"]


class SentenceTranslator:
    """Translates the sentences of one call, window after window."""

    def __init__(
        self,
        engine: Engine,
        *,
        encoder: Encoder,
        decoder: BatchDecoder,
        layer: TextOptions | None,
        source_language: str,
        target_language: str,
        alternatives: int,
        glossary: Glossary | None = None,
        recall: Recall | None = None,
    ) -> None:
        self._engine, self._encoder, self._decoder, self._layer = engine, encoder, decoder, layer
        self._source_language, self._target_language = source_language, target_language
        self._alternatives = alternatives
        self._recall = recall
        self._terms: GlossaryDecoder | None = None
        if glossary:
            protect = ProtectOptions() if layer is None else layer.protect
            self._terms = GlossaryDecoder(engine, decoder, glossary, protect=protect)
            if layer is not None:
                self._layer = dataclasses.replace(layer, glossary=glossary)
        self._done = 0  # sentences of earlier windows: each draws from random streams of its own

    def translate(self, sentences: Sequence[Sentence]) -> list[Outcome]:
        """Translate, in order; equal sentences once, unless tokens are drawn at random.

        Without the layer that is so with a translation memory only.
        """
        recall = self._recall
        if recall is None or self._decoder.settings.do_sample or (self._layer is None and not recall.lasting):
            outcomes = self._distinct(sentences, range(len(sentences)))
            self._done += len(sentences)
            return outcomes
        numbers: dict[Sentence, int] = {}
        for sentence in sentences:
            numbers.setdefault(sentence, len(numbers))
        found = recall.known(list(numbers))
        new = [sentence for sentence in numbers if sentence not in found]
        made = dict(zip(new, self._distinct(new, [numbers[sentence] for sentence in new]), strict=True))
        recall.keep(made)
        self._done += len(sentences)
        found |= made
        return [found[sentence] for sentence in sentences]

    def _distinct(self, sentences: Sequence[Sentence], numbers: Sequence[int]) -> list[Outcome]:
        """Translate sentences, each by itself; `numbers` count those of this window."""
        outcomes: dict[int, Outcome] = {}
        for code in dict.fromkeys(sentence.code for sentence in sentences):
            chosen = [i for i, sentence in enumerate(sentences) if sentence.code == code]
            found = self._group([sentences[i] for i in chosen], code, numbers=[self._done + numbers[i] for i in chosen])
            outcomes.update(zip(chosen, found, strict=True))
        return [outcomes[place] for place in range(len(sentences))]

    def _group(self, sentences: Sequence[Sentence], code: str | None, *, numbers: Sequence[int]) -> list[Outcome]:
        """Translate sentences of one target language."""
        target = code or self._target_language
        asker = Asker(
            sentences,
            encoder=self._encoder,
            decoder=self._decoder,
            engine=self._engine,
            target_language=target,
            numbers=numbers,
            once=self._layer is not None,
            terms=self._terms,
        )
        if self._layer is None:
            return self._straight(sentences, asker)
        options = dataclasses.replace(self._layer, source_language=self._source_language, target_language=target)
        results = translate_sentences(
            [sentence.text for sentence in sentences],
            asker,
            options=options,
            doubts=asker.doubts,
            others=self._alternatives > 0,
        )
        return [self._outcome(result, asker) for result in results]

    def _straight(self, sentences: Sequence[Sentence], asker: Asker) -> list[Outcome]:
        asker(Inputs([sentence.text for sentence in sentences], owners=range(len(sentences))))
        outcomes = []
        for number, sentence in enumerate(sentences):
            best, *others = asker.answers(number)
            warnings = [
                dataclasses.replace(warning, span=(0, len(sentence.text))) for warning in asker.doubts(number, 0)
            ]
            terms = () if self._terms is None else uses_of(self._terms.terms(sentence.text), best.text)
            warnings += missed(terms)
            outcomes.append(_of(best, alternatives=tuple(others), warnings=tuple(warnings), terms=terms))
        return outcomes

    def _outcome(self, result: SentenceTranslation, asker: Asker) -> Outcome:
        chosen = asker.chosen(result.inputs, result.ranks)
        if not chosen:
            return Outcome(
                text=result.text, score=None, tokens=(), finished=True, warnings=result.warnings, method=result.method
            )
        others = [
            dataclasses.replace(asker.chosen([other.number], [other.rank])[0], text=other.text)
            for other in result.others[: self._alternatives]
        ]
        return _of(
            join_candidates(result.text, chosen),
            alternatives=tuple(others),
            warnings=result.warnings,
            method=result.method,
            case=result.case,
            terms=result.terms,
        )


def _of(
    best: Alternative,
    *,
    alternatives: tuple[Alternative, ...],
    warnings: tuple[TextWarning, ...],
    method: SegmentMethod = "plain",
    case: Literal["all_caps", "title_case"] | None = None,
    terms: tuple[TermUse, ...] = (),
) -> Outcome:
    return Outcome(
        text=best.text,
        score=best.score,
        tokens=best.tokens,
        finished=best.finished,
        alternatives=alternatives,
        warnings=warnings,
        method=method,
        case=case,
        terms=terms,
    )
