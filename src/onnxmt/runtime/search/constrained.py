"""Beam search whose outputs hold given terms, each where the model would translate the source words it stands for.

Beams are in banks by how many terms they still lack (Post and Vilar 2018, "Fast Lexically Constrained Decoding with
Dynamic Beam Allocation for Neural Machine Translation"), so that those which have paid for an unlikely term do not
compete with those which have not.

Where a term belongs is asked of the model: beside each beam that lacks it runs a row that does not see the term's
source tokens. How much probability their sight moves is how much the model is about to translate them at this step. A
term may be *placed* there for that price; the beam goes on in the row that does not see the source tokens, so that they
are not translated a second time. What is written of a placed term is a stand-in that the model knows, its own
translation of the term: behind a word that it would never write it says anything. Or the term itself is written, for
what its tokens cost, where the model finds it likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from onnxmt.runtime.kept_tokens import KeptTokens
from onnxmt.runtime.processors import Processor, build_processors
from onnxmt.runtime.scores import Best, Floats, Ids, Scores, best_tokens, log_sum_exp
from onnxmt.runtime.search.layout import RowLayout
from onnxmt.runtime.search.rows import Rows, check_finite, ended_by_model
from onnxmt.runtime.search.terms import TargetVocabulary, WantedTerms
from onnxmt.runtime.search.types import Hypothesis, SeeingStep
from onnxmt.runtime.settings import GenerationSettings

__all__ = ["LEAST_BEAMS", "StandIn", "TermCosts", "TermHypothesis", "search_constrained"]

LEAST_BEAMS = 4
"""A term needs other ways to say the sentence: greedy search and fewer beams are raised to so many."""
# Beams in the middle of a term: so many for each length of what is written of it.
_STARTED_BEAMS = 1
_LEAST_MASS = 1e-4
# Beams without all terms look better than those with them, which have paid for theirs: what is still to come is waited
# for until an output would be so much longer than the best one found.
_PATIENCE = 1.3


@dataclass(frozen=True, kw_only=True, slots=True)
class TermCosts:
    """What a term costs, in natural logarithms of probability; chosen by measurement (docs/glossary.md).

    placing: added for a term that is placed; at infinity none is, which leaves plain constrained search.
    own_share: how much of its own tokens' cost a placed term pays: which of its spellings in tokens is taken.
    least_own: a term whose next token is less likely than this is placed or not written; −infinity allows all.
    """

    placing: float = 5.0
    own_share: float = 0.05
    least_own: float = -7.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StandIn:
    """Place `number` (from 0, overlapping ones counted) of `text` in an output is where term `term` belongs."""

    term: int
    text: str
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TermHypothesis:
    """An output, and the stand-ins in it that the caller has to replace by their terms."""

    hypothesis: Hypothesis
    stands: tuple[StandIn, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Beam:
    """A beginning of an output of a sentence: what it costs, what it says, how many terms it lacks.

    hidden: the terms that were placed; stands: each of them with the byte at which its stand-in begins; closed: one
        that is a word has just ended.
    term, at, inside, placed: the term that it is in the middle of (−1: none), how many bytes and tokens of it are
        written, and in which way.
    row: its row; unseeing: for each term that it may begin next the row that does not see that term's source.
    """

    sentence: int
    total: float = 0.0
    text: bytes = b""
    missing: int = 0
    hidden: frozenset[int] = frozenset()
    stands: tuple[tuple[int, int], ...] = ()
    closed: bool = False
    term: int = -1
    at: int = 0
    inside: int = 0
    placed: bool = False
    row: int = 0
    unseeing: dict[int, int] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """The text so far; bytes of a character that is not complete yet are left out."""
        return self.text.decode("utf-8", "ignore")


@dataclass(frozen=True, slots=True)
class _Way:
    """A token to go on with a beam, and what it then costs; the rest as in Beam, once the token is there."""

    beam: Beam
    token: int
    total: float
    term: int = -1
    at: int = 0
    placed: bool = False


_Pairs = list[tuple[_Way, Beam]]


@dataclass(frozen=True, slots=True)
class _Output:
    """An output that has ended."""

    missing: int
    score: float
    tokens: tuple[int, ...]
    stands: tuple[StandIn, ...]


def search_constrained(
    step: SeeingStep,
    *,
    mask: Ids,
    terms: Sequence[WantedTerms],
    vocabulary: TargetVocabulary,
    settings: GenerationSettings,
    kept: KeptTokens | None = None,
    costs: TermCosts | None = None,
) -> list[list[TermHypothesis]]:
    """The num_return_sequences best outputs of each sentence that hold its `terms`, best first.

    `mask` int64 [sentences, S]: the source tokens that are there. Where too few outputs with all terms end within the
    length limit, those that lack the fewest follow; a sentence whose every way on is banned has none. A score is that
    of beam search with a term's cost as above, so that it compares with other outputs of the same sentence only.
    `kept`: the tokens of a trimmed head, as in `search`; `vocabulary` then has their places. Sampling has no effect.
    """
    if kept is not None:
        settings = kept.settings(settings)
    found = _Search(step, mask, terms, vocabulary, settings, costs or TermCosts()).run()
    if kept is None:
        return found
    return [
        [replace(one, hypothesis=replace(one.hypothesis, tokens=kept.tokens(one.hypothesis.tokens))) for one in outputs]
        for outputs in found
    ]


class _Search:
    def __init__(
        self,
        step: SeeingStep,
        mask: Ids,
        terms: Sequence[WantedTerms],
        vocabulary: TargetVocabulary,
        settings: GenerationSettings,
        costs: TermCosts,
    ) -> None:
        self._beams = max(settings.num_beams, settings.num_return_sequences, LEAST_BEAMS)
        self._settings = replace(settings, do_sample=False, num_beams=self._beams)
        self._processors: list[Processor] = build_processors(self._settings)
        self._step, self._mask, self._terms = step, mask, terms
        self._vocabulary, self._costs = vocabulary, costs
        self._eos = frozenset(self._settings.eos_token_ids)
        self._done: list[list[_Output]] = [[] for _ in terms]

    def run(self) -> list[list[TermHypothesis]]:
        layout = RowLayout(self._mask, self._terms)
        beams = [
            layout.first(Beam(sentence=number, missing=terms.missing("", frozenset())[0]))
            for number, terms in enumerate(self._terms)
        ]
        views = layout.views

        def step(tokens: Ids, parents: Ids | None) -> Floats:
            return self._step(tokens, parents, views)

        rows = Rows(step, rows=len(layout.parents), settings=self._settings, parents=layout.parents)
        while beams:
            pairs = self._pairs(beams, self._log_probabilities(rows), rows)
            if rows.final:
                break
            layout = RowLayout(self._mask, self._terms)
            beams = [layout.next(beam, after=way.beam, token=way.token) for way, beam in pairs]
            if beams:
                views = layout.views
                rows.advance(layout.tokens, layout.parents)
        return [self._hypotheses(found) for found in self._done]

    def _log_probabilities(self, rows: Rows) -> Floats:
        """Those of all tokens in each row, as the settings' processors leave them."""
        logits = rows.logits()
        shift = log_sum_exp(logits)
        if not self._settings.remove_invalid_values:
            check_finite(shift, rows.length)
        scores = Scores(logits, shift)
        for processor in self._processors:
            processor(rows.history, scores)
        return scores.settled()

    def _pairs(self, beams: Sequence[Beam], values: Floats, rows: Rows) -> _Pairs:
        """The beams of the next step, each with the way that leads to it."""
        free = [beam for beam in beams if beam.term < 0]
        ways: dict[int, list[_Way]] = {beam.sentence: [] for beam in beams}
        if free:
            best = best_tokens(values[[beam.row for beam in free]], self._beams + len(self._eos))
            for number, beam in enumerate(free):
                ways[beam.sentence] += self._free(beam, number, best)
                ways[beam.sentence] += self._beginnings(beam, values)
        for beam in beams:
            if beam.term >= 0:
                ways[beam.sentence] += self._continuations(beam, values)
        return [pair for sentence, found in ways.items() for pair in self._best(sentence, found, rows)]

    def _free(self, beam: Beam, number: int, best: Best) -> list[_Way]:
        """The likeliest tokens, whatever they write; line `number` of `best` is the beam's."""
        return [
            _Way(beam, token, beam.total + value)
            for token, value in zip(best.tokens[number].tolist(), best.values[number].tolist(), strict=True)
            if value > -np.inf and not (beam.closed and _goes_on(self._vocabulary.text_of(token)))
        ]

    def _beginnings(self, beam: Beam, values: Floats) -> list[_Way]:
        """The ways to begin a term."""
        ways: list[_Way] = []
        terms = self._terms[beam.sentence]
        for number, unseeing in beam.unseeing.items():
            moved = float(np.maximum(np.exp(values[beam.row]) - np.exp(values[unseeing]), 0).sum())
            place = float(np.log(max(moved, _LEAST_MASS))) - self._costs.placing
            for token, at, value in self._tokens(beam, terms.data(number, placed=True), values):
                if place > -np.inf:
                    total = beam.total + place + self._costs.own_share * value
                    ways.append(_Way(beam, token, total, number, at, placed=True))
            for token, at, value in self._tokens(beam, terms.data(number, placed=False), values):
                if value > self._costs.least_own:
                    ways.append(_Way(beam, token, beam.total + value, number, at))
        return ways

    def _tokens(self, beam: Beam, data: bytes, values: Floats) -> list[tuple[int, int, float]]:
        """The tokens that begin `data`, how much of it each writes, and what it costs; none that is banned."""
        tokens, steps = self._vocabulary.continuations(data, first=True)
        if beam.text[-1:].isalnum() and data[:1].isalnum():  # it must not grow onto a word
            spaced = [self._vocabulary.text_of(token)[:1] == b" " for token in tokens.tolist()]
            tokens, steps = tokens[spaced], steps[spaced]
        own = values[beam.row, tokens].tolist()
        return [one for one in zip(tokens.tolist(), steps.tolist(), own, strict=True) if one[2] > -np.inf]

    def _continuations(self, beam: Beam, values: Floats) -> list[_Way]:
        """The ways to go on with the term that a beam is in the middle of."""
        rest = self._terms[beam.sentence].data(beam.term, placed=beam.placed)[beam.at :]
        tokens, steps = self._vocabulary.continuations(rest, first=False)
        share = self._costs.own_share if beam.placed else 1.0
        own = values[beam.row, tokens].tolist()
        return [
            _Way(beam, token, beam.total + share * value, beam.term, beam.at + length, placed=beam.placed)
            for token, length, value in zip(tokens.tolist(), steps.tolist(), own, strict=True)
            if value > -np.inf
        ]

    def _best(self, sentence: int, ways: list[_Way], rows: Rows) -> _Pairs:
        """The best ways of each bank; outputs that end here are put aside. None where going on is not worth it."""
        banks: dict[tuple[int, int, bool], _Pairs] = {}
        for way in sorted(ways, key=lambda way: -way.total):
            if way.token in self._eos or rows.final:
                self._end(way, rows)
                continue
            beam = self._followed(way)
            bank = banks.setdefault((beam.missing, beam.inside, beam.placed), [])
            if len(bank) < (_STARTED_BEAMS if beam.inside else self._beams):
                bank.append((way, beam))
        pairs = self._promising(sentence, [pair for bank in banks.values() for pair in bank], rows)
        return [] if self._decided(sentence, pairs, rows) else pairs

    def _followed(self, way: _Way) -> Beam:
        """The beam at the end of a way, without its rows."""
        beam, terms = way.beam, self._terms[way.beam.sentence]
        written = self._vocabulary.text_of(way.token)
        text, stands = beam.text + written, beam.stands
        if way.placed and beam.term < 0:  # its first token, with a space in front of it perhaps
            stands = (*stands, (way.term, len(text) - way.at))
        data = terms.data(way.term, placed=way.placed) if way.term >= 0 else b""
        if way.at < len(data):
            return replace(
                beam, total=way.total, text=text, stands=stands, term=way.term, at=way.at,
                inside=beam.inside + 1, placed=way.placed,
            )  # fmt: skip
        hidden = beam.hidden | {way.term} if way.placed else beam.hidden
        missing = terms.missing(text.decode("utf-8", "ignore"), hidden)[0]
        return Beam(
            sentence=beam.sentence, total=way.total, text=text, missing=missing, hidden=hidden, stands=stands,
            closed=way.placed and _goes_on(data[-1:]),
        )  # fmt: skip

    def _promising(self, sentence: int, pairs: _Pairs, rows: Rows) -> _Pairs:
        """Without beams that lack terms and are yet worse than those with all, or worse than enough outputs are."""
        complete = sorted((beam.total for _, beam in pairs if not beam.missing), reverse=True)
        if len(complete) >= self._beams:
            least = complete[self._beams - 1]
            pairs = [(way, beam) for way, beam in pairs if not beam.missing or beam.total > least]
        worst = self._worst(sentence)
        if worst is not None:
            pairs = [(way, beam) for way, beam in pairs if beam.total / self._divisor(rows) > worst]
        return pairs

    def _decided(self, sentence: int, pairs: _Pairs, rows: Rows) -> bool:
        """Whether going on can hardly change the outputs."""
        worst = self._worst(sentence)
        if worst is None or any(not beam.missing for _, beam in pairs):
            return not pairs
        return not pairs or rows.length > _PATIENCE * len(self._done[sentence][0].tokens) + 4

    def _worst(self, sentence: int) -> float | None:
        """The score of the last of the outputs asked for; None while there are not so many with all terms."""
        answers = self._settings.num_return_sequences
        done = self._done[sentence]
        return done[answers - 1].score if len(done) >= answers and not done[answers - 1].missing else None

    def _divisor(self, rows: Rows) -> float:
        return float(np.power(np.float64(rows.length), self._settings.length_penalty))

    def _end(self, way: _Way, rows: Rows) -> None:
        """Keep an output among the best; one that lacks terms only for want of others."""
        if way.term >= 0 and way.token in self._eos:
            return
        found = self._done[way.beam.sentence]
        tokens = rows.sequence(way.beam.row, way.token)
        found.append(_Output(way.beam.missing, way.total / self._divisor(rows), tokens, self._stand_ins(way.beam)))
        found.sort(key=lambda output: (output.missing, -output.score))
        del found[self._beams :]

    def _stand_ins(self, beam: Beam) -> tuple[StandIn, ...]:
        terms = self._terms[beam.sentence]
        return tuple(
            StandIn(
                term=term,
                text=terms.wanted[term].standin,
                number=sum(beam.text.startswith(terms.standins[term], place) for place in range(start)),
            )
            for term, start in beam.stands
            if term in beam.hidden and terms.standins[term] != terms.texts[term]
        )

    def _hypotheses(self, found: Sequence[_Output]) -> list[TermHypothesis]:
        return [
            TermHypothesis(
                hypothesis=Hypothesis(
                    tokens=one.tokens, score=one.score, finished=ended_by_model(one.tokens, self._settings)
                ),
                stands=one.stands,
            )
            for one in found[: self._settings.num_return_sequences]
        ]


def _goes_on(data: bytes) -> bool:
    """Whether these bytes begin with a letter or a digit of a script that joins them into words."""
    return data[:1].isalnum() or b"\xc3" <= data[:1] <= b"\xd4"
