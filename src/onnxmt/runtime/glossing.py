"""Outputs that lack a glossary term, decoded once more so that they hold it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from onnxmt.runtime.batching import plan_batches
from onnxmt.runtime.decoding import BatchDecoder
from onnxmt.runtime.engine import Engine
from onnxmt.runtime.search.constrained import LEAST_BEAMS, StandIn, TermCosts, TermHypothesis, search_constrained
from onnxmt.runtime.search.terms import TargetVocabulary, Wanted, WantedTerms
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.translation import Alternative
from onnxmt.text.glossary import Glossary, Term, is_wordlike, target_pattern, uses_of
from onnxmt.text.spans import ProtectOptions, find_protected

__all__ = ["GlossaryDecoder", "Question"]

Encode = Callable[[str], Sequence[int]]

# Where the model's own word for a term is of no use, one of these stands for it; none is a word that a text would have.
_STAND_INS = ("ABC", "XYZ", "QRS", "A1", "B2", "7")
_LONGEST_STAND_IN = 24
# Rows that a sentence may come to: beams that lack a term have a second row for it, and some are in the middle of one.
_ROWS_PER_TERM, _MOST_ROWS = 14, 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A text that the model was given, its tokens, and how texts like it are encoded."""

    text: str
    ids: Sequence[int]
    encode: Encode


class GlossaryDecoder:
    """The terms of one call: found in what the model is given, and written into what it gives back.

    `protect`: spans that hold no terms; None: nothing is protected.
    """

    def __init__(
        self,
        engine: Engine,
        decoder: BatchDecoder,
        glossary: Glossary,
        *,
        protect: ProtectOptions | None,
        costs: TermCosts | None = None,
    ) -> None:
        self._engine, self._decoder, self._glossary, self._protect = engine, decoder, glossary, protect
        self._costs = costs
        self._own: dict[str, str] = {}

    def terms(self, text: str) -> tuple[Term, ...]:
        """The terms in a text outside its protected spans."""
        spans = () if self._protect is None else find_protected(text, self._protect)
        return self._glossary.find(text, protected=spans)

    def mended(
        self, questions: Sequence[Question], answers: Sequence[list[Alternative]], settings: GenerationSettings
    ) -> list[list[Alternative]]:
        """The answers, those whose best candidate lacks a term replaced by ones that hold all terms.

        An answer that has them is returned as it was, and so is one where constrained search finds nothing better.
        """
        mended = list(answers)
        lacking = {
            number: terms
            for number, (question, answer) in enumerate(zip(questions, answers, strict=True))
            if (terms := self.terms(question.text)) and _lacks(terms, answer[0].text)
        }
        self._learn([term.source for terms in lacking.values() for term in terms], questions, settings)
        wanted = {number: self._wanted(questions[number], terms) for number, terms in lacking.items()}
        numbers = [number for number in lacking if wanted[number].wanted]
        rows = max((_rows(wanted[number]) for number in numbers), default=1)
        budget = self._decoder.budget_for(rows)
        if not budget:
            return mended
        for batch in plan_batches([len(questions[number].ids) for number in numbers], budget=budget):
            chosen = [numbers[place] for place in batch]
            found = self._decoded([questions[n] for n in chosen], [wanted[n] for n in chosen], settings)
            for number, outputs in zip(chosen, found, strict=True):
                again = [self._candidate(output, wanted[number], settings) for output in outputs]
                before = sum(use.applied for use in uses_of(lacking[number], answers[number][0].text))
                if again and sum(use.applied for use in uses_of(lacking[number], again[0].text)) > before:
                    mended[number] = again
        return mended

    def _learn(self, sources: Sequence[str], questions: Sequence[Question], settings: GenerationSettings) -> None:
        """Find out the model's own words for these terms, which stand for them while a sentence is decoded."""
        new = [source for source in dict.fromkeys(sources) if source not in self._own]
        if not new:
            return
        plain = replace(settings, do_sample=False, num_return_sequences=1)
        encode = questions[0].encode
        found = self._decoder.decode([encode(source) for source in new], list(range(len(new))), settings=plain)
        for source, (best, *_) in zip(new, found, strict=True):
            text = self._engine.tokenizer.decode([t for t in best.tokens if t not in settings.eos_token_ids])
            self._own[source] = re.sub(r"^\W+|\W+$", "", text)

    def _wanted(self, question: Question, terms: Sequence[Term]) -> WantedTerms:
        """What is written for each term; terms that can be written in no way are left out."""
        vocabulary = self._engine.target_vocabulary
        wanted = []
        for term in terms:
            own = self._own[term.source]
            looped = len(own) > 3 * len(set(own))
            usable = 0 < len(own) <= _LONGEST_STAND_IN and not looped and term.target not in own
            options = [own, term.target] if usable else [term.target]
            options += [text for text in _STAND_INS if text not in question.text]
            standin = next((text for text in options if vocabulary.can_write(text)), None)
            if standin is not None:
                source = _places(question, term)
                pattern = target_pattern(term.target)
                wanted.append(Wanted(text=term.target, pattern=pattern, source=source, standin=standin))
        return WantedTerms(wanted)

    def _decoded(
        self, questions: Sequence[Question], wanted: Sequence[WantedTerms], settings: GenerationSettings
    ) -> list[list[TermHypothesis]]:
        padded, mask = self._decoder.padded([question.ids for question in questions])
        vocabulary = self._engine.target_vocabulary
        model = self._engine.model
        more = None
        if model.shortlist is not None:  # what the terms are written with
            texts = [[text for one in terms.wanted for text in (one.text, one.standin)] for terms in wanted]
            more = [{token for text in own for token in vocabulary.writers(text)} for own in texts]
        decoding = model.start_seeing(padded, mask, more)
        if model.shortlist is not None:
            vocabulary = TargetVocabulary(self._engine.target_bytes, kept=decoding.kept)
        return search_constrained(
            decoding.step,
            mask=mask,
            terms=wanted,
            vocabulary=vocabulary,
            settings=replace(settings, do_sample=False, num_beams=max(settings.num_beams, LEAST_BEAMS)),
            kept=decoding.kept,
            costs=self._costs,
        )

    def _candidate(self, output: TermHypothesis, wanted: WantedTerms, settings: GenerationSettings) -> Alternative:
        hypothesis = output.hypothesis
        tokens = hypothesis.tokens
        if tokens and tokens[-1] in settings.eos_token_ids:
            tokens = tokens[:-1]
        text = _replaced(self._engine.tokenizer.decode(tokens), output.stands, wanted)
        return Alternative(text=text, score=hypothesis.score, tokens=tokens, finished=hypothesis.finished)


def _lacks(terms: Sequence[Term], text: str) -> bool:
    return not all(use.applied for use in uses_of(terms, text))


def _rows(wanted: WantedTerms) -> int:
    return min(_MOST_ROWS, 8 + _ROWS_PER_TERM * len(wanted.wanted))


def _places(question: Question, term: Term) -> tuple[int, ...]:
    """The source tokens that write a term: those that change when other words stand in its place."""
    ids, changed = list(question.ids), set[int]()
    for other in ("7", "Q"):
        text = question.text[: term.start] + other + question.text[term.end :]
        against = list(question.encode(text))
        shorter = min(len(ids), len(against))
        same = next((n for n in range(shorter) if ids[n] != against[n]), shorter)
        behind = next((n for n in range(shorter - same) if ids[-1 - n] != against[-1 - n]), shorter - same)
        changed.update(range(same, len(ids) - behind))
    return tuple(sorted(changed)) if len(changed) < len(ids) else ()


def _replaced(text: str, stands: Sequence[StandIn], wanted: WantedTerms) -> str:
    """The text with the terms in the places of their stand-ins."""
    edits = []
    for stand in stands:
        places = [match.start() for match in re.finditer(f"(?={re.escape(stand.text)})", text)]
        if stand.number < len(places):
            edits.append((places[stand.number], stand))
    for start, stand in sorted(edits, key=lambda edit: -edit[0]):
        before, term, behind = text[:start], wanted.wanted[stand.term].text, text[start + len(stand.text) :]
        text = before + _gap(before, term) + term + _gap(term, behind) + behind
    return text


def _gap(left: str, right: str) -> str:
    """The space that keeps two words apart: a stand-in of Han characters needed none."""
    return " " if left and right and is_wordlike(left[-1]) and is_wordlike(right[0]) else ""
