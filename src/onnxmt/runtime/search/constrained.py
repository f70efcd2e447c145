"""Beam search whose outputs hold given terms, each where the model would translate the source words it stands for.

Beams are in banks by how many terms they still lack (Post and Vilar 2018, "Fast lexically constrained decoding with
dynamic beam allocation"), so that those which have paid for an unlikely term do not compete with those which have not.

Where a term belongs is asked of the model: beside each beam runs a second row that cannot see the term's source tokens.
How much probability the sight of them moves at a step is how much the model is about to translate them there; that, and
not the probability of the term's own tokens alone, is what a term costs. Behind it the beam goes on in the second row,
so that the source words are not translated a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from onnxmt.runtime.kept_tokens import KeptTokens
from onnxmt.runtime.processors import Processor, build_processors
from onnxmt.runtime.scores import Best, Floats, Ids, Scores, best_tokens, log_sum_exp
from onnxmt.runtime.search.rows import Rows, check_finite, ended_by_model
from onnxmt.runtime.search.terms import TargetVocabulary, WantedTerms
from onnxmt.runtime.search.types import Hypothesis, SeeingStep
from onnxmt.runtime.settings import GenerationSettings

LEAST_BEAMS = 4
"""A term needs other ways to say the sentence: greedy search and few beams are raised to so many."""
# Beams in the middle of a term, for each token of it.
_STARTED_BEAMS = 2
# How much of a term's cost is the probability of its own tokens; the rest is that of its place. Measured: docs/glossary.md.
_OWN_SHARE = 0.3
_LEAST_MASS = 1e-4
# Beams without all terms look better than those with them, which have paid for theirs: what is still to come is waited
# for until an output would be so much longer than the best one found.
_PATIENCE = 1.3


@dataclass(frozen=True, kw_only=True)
class _Beam:
    """A beginning of an output.

    `row` continues it; `unseeing[n]` is the row that does not see the source of term n. `hidden`: the terms that were
    written for their source. `term`, `at`, `inside`: the term that it is in the middle of, the bytes and the tokens of
    it that are written.
    """

    sentence: int
    total: float
    text: bytes = b""
    missing: int = 0
    hidden: frozenset[int] = frozenset()
    term: int = -1
    at: int = 0
    inside: int = 0
    row: int = 0
    unseeing: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to go on with a beam."""

    beam: _Beam
    token: int
    total: float
    term: int = -1
    at: int = 0


def search_constrained(
    step: SeeingStep,
    *,
    mask: Ids,
    terms: Sequence[WantedTerms],
    vocabulary: TargetVocabulary,
    settings: GenerationSettings,
    kept: KeptTokens | None = None,
) -> list[list[Hypothesis]]:
    """The num_return_sequences best outputs of each sentence that hold its `terms`; `mask` int64 [S, tokens].

    Where none with all terms ends within the length limit, those that lack the fewest come back. A score is that of
    beam search, with a term's cost as said above. `kept`: as in `search`. Sampling settings have no effect.
    """
    if kept is not None:
        settings = kept.settings(settings)
    found = _Search(step, mask, terms, vocabulary, settings).run()
    if kept is None:
        return found
    return [[replace(one, tokens=kept.tokens(one.tokens)) for one in outputs] for outputs in found]


class _Search:
    def __init__(
        self,
        step: SeeingStep,
        mask: Ids,
        terms: Sequence[WantedTerms],
        vocabulary: TargetVocabulary,
        settings: GenerationSettings,
    ) -> None:
        beams = max(settings.num_beams, settings.num_return_sequences, LEAST_BEAMS)
        self._settings = replace(settings, do_sample=False, num_beams=beams)
        self._beams = beams
        self._processors: list[Processor] = build_processors(self._settings)
        self._terms, self._vocabulary, self._mask = terms, vocabulary, mask
        self._eos = frozenset(self._settings.eos_token_ids)
        self._done: list[list[tuple[int, float, tuple[int, ...]]]] = [[] for _ in terms]
        self._views = mask  # what each row of the next step sees
        self._step = step

    def run(self) -> list[list[Hypothesis]]:
        start = [_Beam(sentence=number, total=0.0) for number in range(len(self._terms))]
        layout = _Layout(self)
        beams = [
            layout.place(replace(beam, missing=self._terms[number].missing("", frozenset())[0]), number, {}, 0)
            for number, beam in enumerate(start)
        ]
        rows = Rows(
            lambda tokens, parents: self._step(tokens, parents, self._views),
            rows=len(layout.parents),
            settings=self._settings,
            parents=np.array(layout.parents, np.int64),
        )
        self._views = np.array(layout.views)
        while beams:
            values = self._log_probabilities(rows)
            chosen = self._chosen(beams, values, rows)
            if not chosen or rows.final:
                break
            layout = _Layout(self)
            beams = [layout.place(beam, way.beam.row, way.beam.unseeing, way.token) for way, beam in chosen]
            self._views = np.array(layout.views)
            rows.advance(np.array(layout.tokens, np.int64), np.array(layout.parents, np.int64))
        return [self._hypotheses(found) for found in self._done]

    def candidates(self, beam: _Beam) -> tuple[int, ...]:
        """The terms that a beam may write next."""
        return self._terms[beam.sentence].missing(beam.text.decode("utf-8", "ignore"), beam.hidden)[1]

    def view(self, sentence: int, hidden: frozenset[int]) -> Ids:
        """The source tokens that are seen where the sources of these terms are not."""
        view = self._mask[sentence].copy()
        for number in hidden:
            view[list(self._terms[sentence].wanted[number].source)] = 0
        return view

    def _log_probabilities(self, rows: Rows) -> Floats:
        logits = rows.logits()
        shift = log_sum_exp(logits)
        if not self._settings.remove_invalid_values:
            check_finite(shift, rows.length)
        scores = Scores(logits, shift)
        for processor in self._processors:
            processor(rows.history, scores)
        return scores.settled()

    def _chosen(self, beams: Sequence[_Beam], values: Floats, rows: Rows) -> list[tuple[_Way, _Beam]]:
        """The beams of the next step, each with the way that led to it."""
        free = [beam for beam in beams if beam.term < 0]
        best = best_tokens(values[[beam.row for beam in free]], self._beams + len(self._eos)) if free else None
        ways: dict[int, list[_Way]] = {}
        for number, beam in enumerate(free):
            assert best is not None
            ways.setdefault(beam.sentence, []).extend(self._freely(beam, number, best))
        for beam in beams:
            into = ways.setdefault(beam.sentence, [])
            if beam.term >= 0:
                into += self._onward(beam, values)
            else:
                into += self._begun(beam, values)
        return [pair for sentence, found in ways.items() for pair in self._best_of(sentence, found, rows)]

    def _freely(self, beam: _Beam, number: int, best: Best) -> list[_Way]:
        return [
            _Way(beam, token, beam.total + value)
            for token, value in zip(best.tokens[number].tolist(), best.values[number].tolist(), strict=True)
            if value > -np.inf
        ]

    def _begun(self, beam: _Beam, values: Floats) -> list[_Way]:
        """The ways to begin a term here; it costs what the sight of its source is worth, and a share of its own."""
        ways = []
        for number, unseeing in beam.unseeing.items():
            seen = np.exp(values[beam.row])
            mass = float(np.maximum(seen - np.exp(values[unseeing]), 0).sum())
            cost = (1 - _OWN_SHARE) * float(np.log(max(mass, _LEAST_MASS)))
            data = self._terms[beam.sentence].data[number]
            tokens, steps = self._vocabulary.continuations(data, first=True)
            if _wordlike(beam.text[-1:]) and _wordlike(data[:1]):  # it must not grow onto a word
                spaced = [self._vocabulary.text_of(token)[:1] == b" " for token in tokens.tolist()]
                tokens, steps = tokens[spaced], steps[spaced]
            own = values[beam.row, tokens]
            ways += [
                _Way(beam, token, beam.total + cost + _OWN_SHARE * value, number, at)
                for token, at, value in zip(tokens.tolist(), steps.tolist(), own.tolist(), strict=True)
                if value > -np.inf
            ]
        return ways

    def _onward(self, beam: _Beam, values: Floats) -> list[_Way]:
        data = self._terms[beam.sentence].data[beam.term]
        tokens, steps = self._vocabulary.continuations(data[beam.at :], first=False)
        return [
            _Way(beam, token, beam.total + _OWN_SHARE * value, beam.term, beam.at + length)
            for token, length, value in zip(tokens.tolist(), steps.tolist(), values[beam.row, tokens].tolist(), strict=True)
            if value > -np.inf
        ]

    def _best_of(self, sentence: int, ways: list[_Way], rows: Rows) -> list[tuple[_Way, _Beam]]:
        """The best ways of each bank; outputs that end here are put aside."""
        banks: dict[tuple[int, int], list[tuple[_Way, _Beam]]] = {}
        for way in sorted(ways, key=lambda way: -way.total):
            if way.token in self._eos or rows.final:
                self._end(way, rows)
                continue
            beam = self._followed(way)
            bank = banks.setdefault((beam.missing, beam.inside), [])
            if len(bank) < (_STARTED_BEAMS if beam.inside else self._beams):
                bank.append((way, beam))
        chosen = [pair for bank in banks.values() for pair in bank]
        return [] if self._decided(sentence, [beam for _, beam in chosen], rows) else chosen

    def _followed(self, way: _Way) -> _Beam:
        """The beam at the end of a way, without its rows."""
        beam, terms = way.beam, self._terms[way.beam.sentence]
        text = beam.text + self._vocabulary.text_of(way.token)
        if way.term >= 0 and way.at < len(terms.data[way.term]):
            return replace(beam, total=way.total, text=text, term=way.term, at=way.at, inside=beam.inside + 1)
        hidden = beam.hidden | {way.term} if way.term >= 0 else beam.hidden
        missing = terms.missing(text.decode("utf-8", "ignore"), hidden)[0]
        return replace(
            beam, total=way.total, text=text, missing=missing, hidden=hidden, term=-1, at=0, inside=0
        )

    def _end(self, way: _Way, rows: Rows) -> None:
        found = self._done[way.beam.sentence]
        if way.term >= 0 or (way.beam.missing and len(found) >= self._beams):
            return
        score = way.total / float(rows.length) ** self._settings.length_penalty
        found.append((way.beam.missing, score, rows.sequence(way.beam.row, way.token)))
        found.sort(key=lambda item: (item[0], -item[1]))
        del found[2 * self._beams :]

    def _decided(self, sentence: int, running: Sequence[_Beam], rows: Rows) -> bool:
        """Whether going on can hardly change the outputs."""
        answers = self._settings.num_return_sequences
        whole = [item for item in self._done[sentence] if item[0] == 0]
        if len(whole) < answers:
            return False
        worst = whole[answers - 1][1]
        length = float(rows.length) ** self._settings.length_penalty
        if any(beam.missing == 0 and beam.total / length > worst for beam in running):
            return False
        hopeful = any(beam.total / length > worst for beam in running)
        return not hopeful or rows.length > _PATIENCE * len(whole[0][2]) + 4

    def _hypotheses(self, found: Sequence[tuple[int, float, tuple[int, ...]]]) -> list[Hypothesis]:
        return [
            Hypothesis(tokens=tokens, score=score, finished=ended_by_model(tokens, self._settings))
            for _, score, tokens in found[: self._settings.num_return_sequences]
        ]


class _Layout:
    """The rows of the next step: for each the row that it continues, its token, and what it sees of the source."""

    def __init__(self, search: _Search) -> None:
        self._search = search
        self.parents: list[int] = []
        self.tokens: list[int] = []
        self.views: list[Ids] = []

    def _row(self, parent: int, token: int, view: Ids) -> int:
        self.parents.append(parent)
        self.tokens.append(token)
        self.views.append(view)
        return len(self.parents) - 1

    def place(self, beam: _Beam, row: int, unseeing: dict[int, int], token: int) -> _Beam:
        """Give a beam its rows; `row` and `unseeing` are those of the beam that it continues."""
        search, sentence = self._search, beam.sentence
        if beam.term >= 0:  # from its first token on it is written by the row that does not see the term's source
            hidden = beam.hidden | {beam.term}
            row = unseeing.get(beam.term, row)
            return replace(beam, row=self._row(row, token, search.view(sentence, hidden)), unseeing={})
        own = self._row(row, token, search.view(sentence, beam.hidden))
        blind = {
            number: self._row(unseeing.get(number, row), token, search.view(sentence, beam.hidden | {number}))
            for number in search.candidates(beam)
        }
        return replace(beam, row=own, unseeing=blind)


def _wordlike(byte: bytes) -> bool:
    return byte.isalnum()
