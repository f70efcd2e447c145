"""The rules on the next token as operators: what runtime/processors.py does to one step's scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxmt.errors import GenerationSettingsError
from onnxmt.runtime.settings import GenerationSettings

from .single_emit import FLOAT, Emit

_BANNED = np.array(-np.inf, np.float32)
_FREE = np.array(np.inf, np.float32)


def refuse_inexpressible(settings: GenerationSettings) -> None:
    """Raise GenerationSettingsError for what one graph cannot do, each by its name with what would help."""
    forced_eos, begin = set(settings.forced_eos_token_ids), set(settings.begin_suppress_tokens)
    refused = {
        "do_sample": settings.do_sample and "a graph draws nothing at random: set do_sample to false",
        "remove_invalid_values": settings.remove_invalid_values
        and "a graph fails where scores are not finite: remove remove_invalid_values",
        "exponential_decay_length_penalty": settings.exponential_decay_length_penalty is not None
        and "remove it, or use the bundle",
        "begin_suppress_tokens": bool(forced_eos & begin)
        and f"it bans {sorted(forced_eos & begin)}, which forced_eos_token_id asks for: remove it from one of them",
    }
    problems = [f"{key}: {fix}" for key, fix in refused.items() if fix]
    if problems:
        raise GenerationSettingsError(
            f"a single graph cannot express {len(problems)} of the model's generation settings: {'; '.join(problems)}"
        )


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """What rules ask of a step: tokens so far int64 [R, t], their number t, and whether the next token is the last.

    `length` is int64 [1], `final` and `first` are boolean [1].
    """

    history: Any
    length: Any
    final: Any
    first: Any


class Rules:
    """The rules that some settings ask for, over a vocabulary of known size."""

    def __init__(self, settings: GenerationSettings, *, vocabulary: int) -> None:
        self._settings, self._vocabulary = settings, vocabulary
        words = settings.bad_words_ids
        single = [word[0] for word in words if len(word) == 1 and word[0] not in settings.eos_token_ids]
        self._always = self._inside([*single, *settings.suppress_tokens])
        self._at_begin = self._inside(settings.begin_suppress_tokens)
        self._while_short = self._inside(settings.eos_token_ids) if settings.length_minimum > 1 else []
        self._sequences: dict[int, list[Sequence[int]]] = {}
        for word in words:
            if len(word) > 1:
                self._sequences.setdefault(len(word) - 1, []).append(word)

    @property
    def only_ban(self) -> bool:
        """Whether the tokens left keep the scores that they were given."""
        return self._settings.repetition_penalty == 1.0

    @property
    def forced_eos(self) -> list[int]:
        """What the last token may be; none: anything."""
        suppressed = set(self._settings.suppress_tokens)
        return sorted(token for token in self._settings.forced_eos_token_ids if token not in suppressed)

    def apply(self, emit: Emit, scores: Any, step: StepFacts) -> Any:
        """Penalise and ban in `scores` float32 [R, V]: logits in greedy search, log-probabilities in beam search."""
        settings = self._settings
        if settings.repetition_penalty != 1.0:
            scores = self._penalise(emit, scores, step.history)
        if self._always or self._at_begin or self._while_short:
            scores = self._ban_listed(emit, scores, step)
        if settings.no_repeat_ngram_size:
            scores = self._ban_repeats(emit, scores, step.history, settings.no_repeat_ngram_size)
        for length, group in self._sequences.items():
            scores = self._ban_ends(emit, scores, step.history, length, group)
        return scores

    def _inside(self, tokens: Iterable[int]) -> list[int]:
        return sorted({token for token in tokens if token < self._vocabulary})

    def _penalise(self, emit: Emit, scores: Any, history: Any) -> Any:
        """RepetitionPenalty. The start token may be beyond the vocabulary: then it has no score."""
        if self._settings.decoder_start_token_id >= self._vocabulary:
            history = emit.cut(history, 1, 1)
        penalty = np.array(self._settings.repetition_penalty, np.float32)
        found = emit("GatherElements", scores, history, axis=1)
        changed = emit("Where", emit("Less", found, 0.0), emit("Mul", found, penalty), emit("Div", found, penalty))
        return emit("ScatterElements", scores, history, changed, axis=1)

    def _ban_listed(self, emit: Emit, scores: Any, step: StepFacts) -> Any:
        """NoBadWords of one token, MinLength and SuppressTokens, in one pass."""
        always, begin, short = self._always, self._at_begin, self._while_short
        listed = [*always, *begin, *short]
        rows = emit.axis_length(scores, 0)
        shape = emit.join(rows, [len(listed)], axis=0)
        tokens = emit("Expand", np.array([listed]), shape)
        if len(listed) == len(always):
            return emit("ScatterElements", scores, tokens, emit("Expand", _BANNED, shape), axis=1)
        parts: list[Any] = [np.ones(len(always), np.bool_)] if always else []
        if begin:
            begin_length = 1 if self._settings.forced_bos_token_id is None else 2
            parts.append(emit("Expand", emit("Equal", step.length, [begin_length]), [len(begin)]))
        if short:
            is_short = emit("Less", step.length, [self._settings.length_minimum])
            parts.append(emit("Expand", is_short, [len(short)]))
        active = emit.join(*parts, axis=0) if len(parts) > 1 else parts[0]
        return self._ban(emit, scores, tokens, emit("Expand", active, shape))

    def _ban_repeats(self, emit: Emit, scores: Any, history: Any, size: int) -> Any:
        """NoRepeatNGram: compares the last size − 1 tokens with every run of so many."""
        prefix = size - 1
        length = emit.axis_length(history, 1)
        windows = emit("Max", emit("Sub", length, [prefix]), [0])  # runs that a token follows
        tokens = emit.cut(history, 1, prefix)
        same = emit("Expand", True, emit("Shape", tokens))
        for offset in range(prefix):
            run = emit.cut(history, 1, offset, emit("Add", windows, [offset]))
            last = emit.cut(history, 1, emit("Add", windows, [offset]), emit("Add", windows, [offset + 1]))
            same = emit("And", same, emit("Equal", run, last))
        if self._settings.decoder_start_token_id >= self._vocabulary:  # the start token has no score, nor a repeat
            tokens = emit("Min", tokens, [self._vocabulary - 1])
            start = emit("Equal", emit.cut(history, 1, prefix), [self._settings.decoder_start_token_id])
            same = emit("And", same, emit("Not", start))
        return self._ban(emit, scores, tokens, same)

    def _ban_ends(self, emit: Emit, scores: Any, history: Any, length: int, words: Sequence[Sequence[int]]) -> Any:
        """NoBadWords of several tokens: bans the last where the others of one are the newest tokens."""
        rows = emit.axis_length(history, 0)
        before = emit("Expand", [-1], emit.join(rows, [length], axis=0))  # so that a short history has as many
        newest = emit.cut(emit.join(before, history, axis=1), 1, -length)
        begins = np.array([[word[:-1] for word in words]], np.int64)
        matched = emit.all_of(emit("Equal", emit("Unsqueeze", newest, [1]), begins), 2)
        last = emit("Expand", np.array([[word[-1] for word in words]], np.int64), emit("Shape", matched))
        return self._ban(emit, scores, last, matched)

    @staticmethod
    def _ban(emit: Emit, scores: Any, tokens: Any, active: Any) -> Any:
        """Ban tokens [R, n] where `active` [R, n]; one token may be listed more than once."""
        updates = emit("Where", active, _BANNED, _FREE)
        return emit("ScatterElements", scores, tokens, updates, axis=1, reduction="min")


def log_probabilities(emit: Emit, scores: Any) -> Any:
    """The logarithm of each token's probability, float32 [R, V]."""
    return emit("LogSoftmax", scores, axis=-1)


def is_any_of(emit: Emit, tokens: Any, wanted: Sequence[int]) -> Any:
    """Whether each token is one of `wanted`, boolean of the tokens' shape."""
    if not wanted:
        return emit("Expand", False, emit("Shape", tokens))
    found = emit("Equal", tokens, wanted[0])
    for token in wanted[1:]:
        found = emit("Or", found, emit("Equal", tokens, token))
    return found


def as_float(emit: Emit, x: Any) -> Any:
    """Cast to float32."""
    return emit.cast(x, FLOAT)
