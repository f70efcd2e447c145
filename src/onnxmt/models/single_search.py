"""Greedy and beam search as the bodies of ONNX loops: the arithmetic of runtime/search/ with tensors of sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import onnx_ir as ir

from onnxmt.runtime.settings import GenerationSettings

from .single_emit import BOOL, DOUBLE, FLOAT, INT64, Emit, value
from .single_rules import Rules, StepFacts, as_float, is_any_of, log_probabilities

_DEAD = np.array(-1.0e9, np.float32)  # transformers' "not a candidate", as in runtime/search/beam.py


class Stepped(NamedTuple):
    """What the decoder gives for one token a row: scores float32 [R, V], and its cache with that token in it."""

    logits: Any
    cache: list[Any]


Decode = Callable[[Emit, Any, Sequence[Any]], Stepped]
"""(emit, newest tokens int64 [R, 1], cache) → Stepped."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the steps of a phase are given: the most tokens of a sequence, int64 [1], and the forced first token.

    `forced_bos` int64 [R, 1], or [1, 1] in the phases after the first, which do not use it; None: no token is forced.
    """

    limit: Any
    forced_bos: Any | None


class Advanced(NamedTuple):
    """A search's state after one step: its own values, the rows' cache, and which sentences are decided, bool [A]."""

    state: list[Any]
    cache: list[Any]
    decided: Any


class Answers(NamedTuple):
    """Outputs of decided sentences: tokens [A, n, length], how many of them count [A, n], scores float32 [A, n]."""

    tokens: Any
    lengths: Any
    scores: Any


class Search(Protocol):
    """A way to search. A is the number of sentences still open, R that of their rows, t of the tokens so far."""

    answers: int
    """n, how many outputs a sentence has."""
    first_alone: bool
    """Whether the first step has one row a sentence and the others more."""

    def described(self) -> list[ir.Value]:
        """The state's values by name, type and shape; the first is the history int64 [R, t]."""
        ...

    def initial(self, emit: Emit, start: Any) -> list[Any]:
        """The state before the first step; `start` int64 [sentences, 1] are the first tokens."""
        ...

    def advance(
        self, emit: Emit, state: Sequence[Any], cache: Sequence[Any], decode: Decode, given: Given, phase: Any
    ) -> Advanced:
        """One step. `phase` is what `phase_facts` gave."""
        ...

    def phase_facts(self, emit: Emit, state: Sequence[Any]) -> Any:
        """What stays as it is while no sentence leaves."""
        ...

    def outputs(self, emit: Emit, state: Sequence[Any]) -> Answers:
        """The outputs of every sentence as they are now."""
        ...

    def rows_of(self, emit: Emit, stay: Any) -> Any:
        """The rows of the sentences `stay`, after a step."""
        ...

    def former_rows(self, emit: Emit, stay: Any, phase: Any) -> Any:
        """The rows, as they were numbered in this phase, that hold what belongs to a sentence for each new row."""
        ...

    def keep(self, emit: Emit, state: Sequence[Any], stay: Any, rows: Any) -> list[Any]:
        """The state of the sentences that stay."""
        ...


def _facts(emit: Emit, history: Any, limit: Any) -> StepFacts:
    length = emit.axis_length(history, 1)
    return StepFacts(
        history=history,
        length=length,
        final=emit("GreaterOrEqual", emit("Add", length, [1]), limit),
        first=emit("Equal", length, [1]),
    )


class Greedy:
    """The highest token at each step. State: history, sums of log-probabilities float64 [R, 1], health."""

    answers, first_alone = 1, False

    def __init__(self, settings: GenerationSettings, rules: Rules) -> None:
        self._settings, self._rules = settings, rules

    def described(self) -> list[ir.Value]:
        """See Search."""
        return [
            value("history", INT64, ["rows", None]),
            value("sums", DOUBLE, ["rows", 1]),
            value("ended", BOOL, ["rows"]),
            value("health", FLOAT, [1]),
        ]

    def initial(self, emit: Emit, start: Any) -> list[Any]:
        """See Search."""
        none = emit("Expand", np.array([[0.0]]), emit("Shape", start))
        ended = emit("Expand", False, emit.axis_length(start, 0))
        return [start, none, ended, emit("Identity", np.zeros(1, np.float32))]

    def phase_facts(self, emit: Emit, state: Sequence[Any]) -> Any:  # noqa: ARG002 (the protocol's)
        """None."""
        return None

    def advance(
        self,
        emit: Emit,
        state: Sequence[Any],
        cache: Sequence[Any],
        decode: Decode,
        given: Given,
        phase: Any,  # noqa: ARG002
    ) -> Advanced:
        """See Search."""
        history, sums, _ended, health = state
        step = _facts(emit, history, given.limit)
        logits, cache = decode(emit, emit.cut(history, 1, -1), cache)
        scores = self._rules.apply(emit, logits, step)
        token = emit("ArgMax", scores, axis=1, keepdims=1)
        best = emit("GatherElements", scores, token, axis=1)
        gain = emit("GatherElements", log_probabilities(emit, logits), token, axis=1)
        # Not a number once it was one: −inf is all that is left where every token is banned.
        wrong = emit("Mul", emit("Add", gain, best), 0.0)
        if given.forced_bos is not None:
            token = emit("Where", step.first, given.forced_bos, token)
            gain, wrong = (emit("Where", step.first, 0.0, x) for x in (gain, wrong))
        if self._rules.forced_eos:
            token = emit("Where", step.final, self._rules.forced_eos[0], token)
            gain, wrong = (emit("Where", step.final, 0.0, x) for x in (gain, wrong))
        ends = emit("Or", is_any_of(emit, token, self._settings.eos_token_ids), step.final)
        state = [
            emit.join(history, token, axis=1),
            emit("Add", sums, emit.cast(gain, DOUBLE)),
            emit("Squeeze", ends, [1]),
            emit("Add", health, emit("ReduceSum", wrong, [0], keepdims=0)),
        ]
        return Advanced(state, cache, state[2])

    def outputs(self, emit: Emit, state: Sequence[Any]) -> Answers:
        """See Search. The score is the mean log-probability of the tokens."""
        history, sums, _ended, _health = state
        tokens = emit("Unsqueeze", emit.cut(history, 1, 1), [1])
        count = emit("Sub", emit.axis_length(history, 1), [1])
        lengths = emit("Expand", count, emit("Shape", sums))
        return Answers(tokens, lengths, as_float(emit, emit("Div", sums, emit.cast(count, DOUBLE))))

    def rows_of(self, emit: Emit, stay: Any) -> Any:  # noqa: ARG002 (the protocol's)
        """See Search."""
        return stay

    def former_rows(self, emit: Emit, stay: Any, phase: Any) -> Any:  # noqa: ARG002 (the protocol's)
        """See Search."""
        return stay

    def keep(self, emit: Emit, state: Sequence[Any], stay: Any, rows: Any) -> list[Any]:  # noqa: ARG002
        """See Search."""
        *by_row, health = state
        return [*(emit.rows(x, rows) for x in by_row), emit("Identity", health)]


class _Places(NamedTuple):
    """A beam search's phase: which row each beam continues [A, beams], and where each sentence's lists begin [A, 1]."""

    row_of_beam: Any
    ended_begin: Any


class Beam:
    """Beam search. State: history, running sums, what has ended (tokens, lengths, scores, taken), health."""

    first_alone = True

    def __init__(self, settings: GenerationSettings, rules: Rules, *, vocabulary: int) -> None:
        self._settings, self._rules, self._vocabulary = settings, rules, vocabulary
        self._beams, self.answers = settings.num_beams, settings.num_return_sequences
        self._keep = max(2, 1 + len(settings.eos_token_ids)) * self._beams
        self._each = min(self._keep, vocabulary)  # candidates of one row

    def described(self) -> list[ir.Value]:
        """See Search."""
        beams = self._beams
        return [
            value("history", INT64, ["rows", None]),
            value("running", FLOAT, ["open", beams]),
            value("ended.tokens", INT64, ["open", beams, None]),
            value("ended.lengths", INT64, ["open", beams]),
            value("ended.scores", FLOAT, ["open", beams]),
            value("ended.taken", BOOL, ["open", beams]),
            value("decided", BOOL, ["open"]),
            value("health", FLOAT, [1]),
        ]

    def initial(self, emit: Emit, start: Any) -> list[Any]:
        """See Search. On the first step all beams are the same: only the first counts."""
        sentences = emit.axis_length(start, 0)
        each = emit.join(sentences, [self._beams], axis=0)
        running = np.full((1, self._beams), _DEAD)
        running[0, 0] = 0.0
        return [
            start,
            emit("Expand", running, each),
            emit("Expand", np.zeros((1, 1, 0), np.int64), emit.join(each, [0], axis=0)),
            emit("Expand", [0], each),
            emit("Expand", _DEAD, each),
            emit("Expand", False, each),
            emit("Expand", False, sentences),
            emit("Identity", np.zeros(1, np.float32)),
        ]

    def phase_facts(self, emit: Emit, state: Sequence[Any]) -> _Places:
        """See Search."""
        history, running = state[0], state[1]
        beams = self._beams
        sentences = emit("Squeeze", emit.axis_length(running, 0), [0])
        count = emit("Mul", sentences, beams)
        rows = emit("Squeeze", emit.axis_length(history, 0), [0])
        places = emit("Div", emit("Range", 0, count, 1), emit("Div", count, rows))
        begin = emit("Mul", emit("Range", 0, sentences, 1), 2 * beams)
        return _Places(emit("Reshape", places, [-1, beams]), emit("Unsqueeze", begin, [1]))

    def advance(
        self, emit: Emit, state: Sequence[Any], cache: Sequence[Any], decode: Decode, given: Given, phase: Any
    ) -> Advanced:
        """See Search."""
        history, running, *ended, _decided, health = state
        places: _Places = phase
        beams, keep = self._beams, self._keep
        step = _facts(emit, history, given.limit)
        logits, cache = decode(emit, emit.cut(history, 1, -1), cache)
        tokens, values, sample = self._candidates(emit, logits, step, given)

        # The `keep` best ways to go on, over all beams of a sentence, best first; the lowest beam wins, then the lowest
        # token, since TopK gives equal ones in their order.
        totals = emit("Add", emit.rows(values, places.row_of_beam), emit("Unsqueeze", running, [2]))
        totals, order = emit("TopK", emit("Reshape", totals, [0, -1]), [keep], axis=1, outputs=2)
        flat = emit("Reshape", emit.rows(tokens, places.row_of_beam), [0, -1])
        token = emit("GatherElements", flat, order, axis=1)
        parent = emit("GatherElements", places.row_of_beam, emit("Div", order, self._each), axis=1)
        ends = emit("Or", is_any_of(emit, token, self._settings.eos_token_ids), step.final)

        ended = self._add_ended(emit, ended, history, places, step.length, totals, parent, token, ends)
        running, order = emit(
            "TopK", emit("Where", ends, emit("Add", totals, _DEAD), totals), [beams], axis=1, outputs=2
        )
        parent, token = (emit("GatherElements", x, order, axis=1) for x in (parent, token))
        decided = emit("Or", emit("Not", self._can_improve(emit, ended, running, step.length, given.limit)), step.final)

        rows = emit("Reshape", parent, [-1])
        state = [
            emit.join(emit.rows(history, rows), emit("Reshape", token, [-1, 1]), axis=1),
            running,
            *ended,
            decided,
            emit("Add", health, emit("ReduceSum", emit("Mul", sample, 0.0), [0], keepdims=0)),
        ]
        return Advanced(state, [emit.rows(x, rows) for x in cache], decided)

    def _candidates(self, emit: Emit, logits: Any, step: StepFacts, given: Given) -> tuple[Any, Any, Any]:
        """The best next tokens of each row [R, each] in ascending order, and their log-probabilities.

        Also one log-probability of each row [R, 1] as the model gave it: not a number where the scores are not finite.
        """
        rules, each = self._rules, self._each
        given_logp = logp = log_probabilities(emit, logits)
        scores = rules.apply(emit, logits if rules.only_ban else logp, step)
        if self._settings.renormalize_logits:
            scores = logp = log_probabilities(emit, scores)
        best, tokens = emit("TopK", scores, [each], axis=1, outputs=2)
        sample = emit("GatherElements", given_logp, emit.cut(tokens, 1, 0, 1), axis=1)
        values = best
        if scores is not logp and rules.only_ban:
            banned = emit("Equal", best, np.array(-np.inf, np.float32))
            values = emit("Where", banned, best, emit("GatherElements", logp, tokens, axis=1))
        # In ascending order of token, so that equal sums are taken as the library takes them.
        tokens, order = emit("TopK", tokens, [each], axis=1, largest=0, outputs=2)
        values = emit("GatherElements", values, order, axis=1)
        if given.forced_bos is not None:
            tokens, values = self._forced(emit, tokens, values, step.first, given.forced_bos, [0.0])
        if rules.forced_eos:
            forced = rules.forced_eos
            share = 0.0 if not self._settings.renormalize_logits else -float(np.log(np.float32(len(forced))))
            tokens, values = self._forced(emit, tokens, values, step.final, np.array([forced]), [share] * len(forced))
        return tokens, values, sample

    def _forced(
        self, emit: Emit, tokens: Any, values: Any, when: Any, forced: Any, scores: Sequence[float]
    ) -> tuple[Any, Any]:
        """Put the forced tokens [R or 1, n] in front and ban all else, at the steps that force them."""
        count = min(len(scores), self._each)
        row = np.full((1, self._each), -np.inf, np.float32)
        row[0, :count] = scores[:count]
        left = self._each - count
        shape = emit.join(emit.axis_length(tokens, 0), [count], axis=0)
        chosen = emit("Expand", forced, shape)
        if left:
            chosen = emit.join(chosen, emit.cut(tokens, 1, 0, left), axis=1)
        return emit("Where", when, chosen, tokens), emit("Where", when, row, values)

    def _add_ended(
        self, emit: Emit, ended: Sequence[Any], history: Any, places: _Places, length: Any, totals: Any, parent: Any,
        token: Any, ends: Any,
    ) -> list[Any]:  # fmt: skip
        """Offer the first `beams` candidates where they end; → what has ended, the best `beams` of each sentence."""
        beams = self._beams
        tokens, lengths, scores, taken = ended
        totals, parent, token, ends = (emit.cut(x, 1, 0, beams) for x in (totals, parent, token, ends))
        offered = emit("Div", totals, self._divisor(emit, length))
        offered = emit("Where", ends, offered, np.array(-np.inf, np.float32))
        # A total near −1e9 continues a beam that did not count: it takes a place, as in transformers, but is no output.
        counts = emit("And", ends, emit("Greater", totals, np.array(_DEAD / 2, np.float32)))
        news = emit.join(emit.rows(emit.cut(history, 1, 1), parent), emit("Unsqueeze", token, [2]), axis=2)
        olds = emit("Pad", tokens, [0, 0, 0, 0, 0, 1])
        scores, order = emit("TopK", emit.join(scores, offered, axis=1), [beams], axis=1, outputs=2)
        both = emit("Reshape", emit.join(olds, news, axis=1), emit.join([-1], length, axis=0))
        return [
            emit.rows(both, emit("Add", order, places.ended_begin)),
            emit("GatherElements", emit.join(lengths, emit("Where", counts, length, [0]), axis=1), order, axis=1),
            scores,
            emit("GatherElements", emit.join(taken, ends, axis=1), order, axis=1),
        ]

    def _can_improve(self, emit: Emit, ended: Sequence[Any], running: Any, length: Any, limit: Any) -> Any:
        """Whether going on may yet change a sentence's outputs, bool [A]."""
        settings = self._settings
        _tokens, _lengths, scores, taken = ended
        if settings.early_stopping == "never" and settings.length_penalty > 0:
            length = emit("Sub", limit, [1])
        possible = emit("Div", emit.cut(running, 1, 0, 1), self._divisor(emit, length))
        least = emit.cut(scores, 1, self._beams - 1, self._beams)  # they are sorted
        worst = emit("Where", taken, least, _DEAD)
        better = emit("Greater", possible, emit("ReduceMin", worst, [1]))
        better = emit("Squeeze", better, [1])
        if settings.early_stopping is True:
            better = emit("And", better, emit("Not", emit.all_of(taken, 1)))
        return better

    def _divisor(self, emit: Emit, length: Any) -> Any:
        """New tokens ** length_penalty as float32 [1], the power taken in float64 as in Python."""
        penalty = self._settings.length_penalty
        if penalty == 1.0:
            return as_float(emit, length)
        return as_float(emit, emit("Pow", emit.cast(length, DOUBLE), np.array(penalty, np.float64)))

    def outputs(self, emit: Emit, state: Sequence[Any]) -> Answers:
        """See Search."""
        _history, _running, tokens, lengths, scores, *_rest = state
        return Answers(*(emit.cut(x, 1, 0, self.answers) for x in (tokens, lengths, scores)))

    def rows_of(self, emit: Emit, stay: Any) -> Any:
        """See Search."""
        beams = self._beams
        rows = emit("Add", emit("Mul", emit("Unsqueeze", stay, [1]), beams), np.arange(beams)[None])
        return emit("Reshape", rows, [-1])

    def former_rows(self, emit: Emit, stay: Any, phase: Any) -> Any:
        """See Search."""
        places: _Places = phase
        return emit("Reshape", emit.rows(places.row_of_beam, stay), [-1])

    def keep(self, emit: Emit, state: Sequence[Any], stay: Any, rows: Any) -> list[Any]:
        """See Search."""
        history, *by_sentence, health = state
        return [emit.rows(history, rows), *(emit.rows(x, stay) for x in by_sentence), emit("Identity", health)]
