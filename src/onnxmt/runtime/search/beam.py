"""Beam search, with the arithmetic of transformers 5.24's `_beam_search`.

Two things differ, without changing an answer: a sentence that is decided leaves the batch at once (there it stays,
frozen, until all are), and the first step runs one row a sentence, since all its beams are still the same.

Ties: transformers leaves equal scores to torch.topk, which promises no order. Here the lowest beam wins, then the
lowest token, whatever the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxmt.errors import DecodingError, GenerationSettingsError
from onnxmt.runtime.processors import Processor
from onnxmt.runtime.scores import Best, Floats, Ids, Scores, best_tokens, log_sum_exp
from onnxmt.runtime.search.rows import Bools, Rows, check_finite, closed_up, ended_by_model
from onnxmt.runtime.search.types import Hypothesis, Step
from onnxmt.runtime.settings import GenerationSettings

# transformers' stand-in for "not a candidate": added to what may not be chosen, and the score of places not yet taken.
_DEAD = np.float32(-1.0e9)


def search_beam(
    step: Step, *, sentences: int, settings: GenerationSettings, processors: Sequence[Processor]
) -> list[list[Hypothesis]]:
    """The num_return_sequences best outputs of each sentence, best first."""
    beams = settings.num_beams
    eos = np.array(settings.eos_token_ids, np.int64)
    keep = max(2, 1 + eos.size) * beams  # so many that, even if every EOS is among them, `beams` are left to go on with
    rows = Rows(step, rows=sentences, settings=settings)
    sentence = np.arange(sentences)  # which sentence each line of the arrays below is
    row_of_beam = np.repeat(sentence[:, None], beams, axis=1)
    running = np.full((sentences, beams), _DEAD)
    running[:, 0] = 0.0  # on the first step all beams are the same: only the first counts
    finished = _Finished(sentences, settings)
    results: list[list[Hypothesis]] = [[] for _ in range(sentences)]

    while sentence.size:
        best = _best_log_probabilities(rows, settings, processors, keep)
        line = np.arange(sentence.size)[:, None]

        # The `keep` best ways to go on, over all beams of a sentence: [S, keep], best first.
        totals = (best.values[row_of_beam] + running[:, :, None]).reshape(sentence.size, -1)
        order = _best_first(totals, keep)
        totals = totals[line, order]
        beam, candidate = np.divmod(order, best.values.shape[1])
        parent = row_of_beam[line, beam]
        token = best.tokens[parent, candidate]
        ends = (token[:, :, None] == eos).any(axis=2)
        if rows.final:
            ends[:] = True

        if ends[:, :beams].any():
            finished.add(rows, totals, parent, token, ends)
        totals = totals + ends * _DEAD
        order = _best_first(totals, beams)
        running = totals[line, order]

        decided = ~finished.can_improve(running, rows.length) | rows.final
        for place in np.flatnonzero(decided).tolist():
            results[sentence[place]] = finished.hypotheses(place, int(sentence[place]))
        parent, token = parent[line, order], token[line, order]
        if decided.any():
            stay = closed_up(~decided)
            sentence, running, parent, token = sentence[stay], running[stay], parent[stay], token[stay]
            finished.keep(stay)
        held = rows.history.shape[0]
        moved = parent.size != held or not np.array_equal(parent.ravel(), np.arange(held))
        rows.advance(token.ravel(), parent.ravel() if moved else None)
        row_of_beam = np.arange(parent.size).reshape(parent.shape)
    return results


def _best_log_probabilities(
    rows: Rows, settings: GenerationSettings, processors: Sequence[Processor], keep: int
) -> Best:
    """The `keep` best next tokens of each row, with their log-probabilities as the processors leave them."""
    logits = rows.logits()
    shift = log_sum_exp(logits)
    if not settings.remove_invalid_values:
        check_finite(shift, rows.length)
    scores = Scores(logits, shift)
    for processor in processors:
        processor(rows.history, scores)
    best = best_tokens(scores.values, keep)
    if best.tokens.shape[1] * settings.num_beams < keep:
        raise GenerationSettingsError(
            f"the model scores {scores.vocabulary} tokens and eos_token_id names {len(settings.eos_token_ids)}: "
            "beam search needs a token that does not end the sentence"
        )
    return best if scores.shift is None else Best(best.tokens, best.values - scores.shift[:, None])


def _best_first(scores: Floats, count: int) -> Ids:
    """Places of the `count` highest of each line, best first, the leftmost of equal ones first; int64 [S, count]."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


class _Finished:
    """The best `beams` outputs of each sentence that have ended so far."""

    def __init__(self, sentences: int, settings: GenerationSettings) -> None:
        self._settings = settings
        self._scores = np.full((sentences, settings.num_beams), _DEAD)
        self._taken = np.zeros((sentences, settings.num_beams), np.bool_)
        self._number = np.full((sentences, settings.num_beams), -1)  # in _sequences; −1 = none worth returning
        self._sequences: list[tuple[int, ...]] = []

    def add(self, rows: Rows, totals: Floats, parent: Ids, token: Ids, ends: Bools) -> None:
        """Offer candidates [S, keep] with sums of log-probabilities `totals`; only a line's first `beams` may end."""
        beams = self._settings.num_beams
        ends = ends[:, :beams]
        scores = totals[:, :beams] / self._divisor(rows.length)
        number = np.full(ends.shape, -1)
        # A total near −1e9 continues a beam that did not count: it takes a place, as in transformers, but is no output.
        for line, column in np.argwhere(ends & (totals[:, :beams] > _DEAD / 2)).tolist():
            number[line, column] = len(self._sequences)
            self._sequences.append(rows.sequence(int(parent[line, column]), int(token[line, column])))
        merged = np.concatenate((self._scores, np.where(ends, scores, np.float32(-np.inf))), axis=1)
        order = _best_first(merged, beams)
        lines = np.arange(len(order))[:, None]
        self._scores = merged[lines, order]
        self._taken = np.concatenate((self._taken, ends), axis=1)[lines, order]
        self._number = np.concatenate((self._number, number), axis=1)[lines, order]

    def can_improve(self, running: Floats, new_tokens: int) -> Bools:
        """Whether going on may yet change a sentence's outputs, bool [S]; `running` [S, beams] has the best first."""
        settings = self._settings
        if settings.early_stopping == "never" and settings.length_penalty > 0:
            new_tokens = settings.length_limit - 1
        possible = running[:, :1] / self._divisor(new_tokens)
        worst = np.where(self._taken, self._scores.min(axis=1, keepdims=True), _DEAD)
        better: Bools = np.any(possible > worst, axis=1)
        if settings.early_stopping is True:
            better &= ~self._taken.all(axis=1)
        return better

    def _divisor(self, new_tokens: int) -> np.float32:
        with np.errstate(over="ignore"):
            return np.float32(np.power(np.float64(new_tokens), self._settings.length_penalty))

    def keep(self, lines: Ids) -> None:
        """Forget all sentences but these."""
        self._scores, self._taken, self._number = self._scores[lines], self._taken[lines], self._number[lines]

    def hypotheses(self, line: int, sentence: int) -> list[Hypothesis]:
        """What is returned for a decided sentence, best first; fewer than asked for where the bans left no more."""
        found = []
        for place in range(self._settings.num_return_sequences):
            if (number := self._number[line, place]) >= 0:
                tokens = self._sequences[number]
                score = float(self._scores[line, place])
                found.append(Hypothesis(tokens=tokens, score=score, finished=ended_by_model(tokens, self._settings)))
        if not found:
            raise DecodingError(
                f"beam search found no output for sentence {sentence}: every way to go on is banned (bad_words_ids, "
                "suppress_tokens, no_repeat_ngram_size, minimum length), or length_penalty is too far below 0"
            )
        return found
