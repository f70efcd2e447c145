"""What changes the scores before a token is chosen: one class a rule, in the order of transformers.

Each equals the LogitsProcessor of transformers 5.24 whose name it carries in its docstring. All rows of a call have the
same number of tokens, since all sentences of a batch start together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from onnxmt.errors import GenerationSettingsError
from onnxmt.runtime.scores import Floats, Ids, Scores, best_tokens
from onnxmt.runtime.settings import GenerationSettings

_LARGEST = np.finfo(np.float32).max


class Processor(Protocol):
    """A rule on the next token. To add one of your own, pass it to `search`; it runs after those of the settings."""

    @property
    def only_bans(self) -> bool:
        """True when `scores` is changed by ban, ban_at and force alone: the tokens left keep the model's own scores."""

    def __call__(self, history: Ids, scores: Scores) -> None:
        """Edit `scores` [R, V] given `history` int64 [R, L], all tokens so far with the start token first."""


def build_processors(settings: GenerationSettings, more: Sequence[Processor] = ()) -> list[Processor]:
    """The processors that these settings ask for, then `more`, then what shapes the distribution to sample from."""
    limit, eos = settings.length_limit, _array(settings.eos_token_ids)
    built: list[Processor] = []
    if settings.repetition_penalty != 1.0:
        built.append(RepetitionPenalty(settings.repetition_penalty))
    if settings.no_repeat_ngram_size:
        built.append(NoRepeatNGram(settings.no_repeat_ngram_size))
    if bad_words := [word for word in settings.bad_words_ids if len(word) > 1 or word[0] not in settings.eos_token_ids]:
        built.append(NoBadWords(bad_words))
    if settings.length_minimum > 1 and eos.size:
        built.append(MinLength(settings.length_minimum, eos))
    if settings.forced_bos_token_id is not None:
        built.append(ForcedToken(1, _array([settings.forced_bos_token_id])))
    if settings.forced_eos_token_ids:
        built.append(ForcedToken(limit - 1, _array(settings.forced_eos_token_ids)))
    if settings.remove_invalid_values:
        built.append(RemoveInvalid())
    if settings.exponential_decay_length_penalty is not None and eos.size:
        start, factor = settings.exponential_decay_length_penalty
        built.append(ExponentialDecay(start + 1, factor, eos))
    if settings.suppress_tokens:
        built.append(SuppressTokens(settings.suppress_tokens))
    if settings.begin_suppress_tokens:
        begin = 1 if settings.forced_bos_token_id is None else 2
        built.append(SuppressTokens(settings.begin_suppress_tokens, only_at=begin))
    built.extend(more)
    if settings.do_sample:
        if settings.temperature != 1.0:
            built.append(Temperature(settings.temperature))
        if settings.top_k:
            built.append(TopK(settings.top_k))
        if settings.top_p < 1.0:
            built.append(TopP(settings.top_p))
        if settings.min_p:
            built.append(MinP(settings.min_p))
    elif settings.num_beams > 1 and settings.renormalize_logits:
        # Elsewhere it changes nothing: sampling normalises anyway, and greedy search takes the highest either way.
        built.append(Renormalize())
    return built


def check_vocabulary(settings: GenerationSettings, vocabulary: int) -> None:
    """Raise GenerationSettingsError where the settings name tokens that the model's `vocabulary` scores do not have.

    The start token is not asked: it is fed, never chosen. Neither are suppressed tokens, whose absence does no harm.
    """
    named: tuple[tuple[str, Iterable[int]], ...] = (
        ("eos_token_id", settings.eos_token_ids),
        ("forced_bos_token_id", () if settings.forced_bos_token_id is None else (settings.forced_bos_token_id,)),
        ("forced_eos_token_id", settings.forced_eos_token_ids),
        ("bad_words_ids", (token for word in settings.bad_words_ids for token in word)),
    )
    problems = [
        f"{key} has {', '.join(map(str, outside))}"
        for key, tokens in named
        if (outside := sorted({token for token in tokens if token >= vocabulary}))
    ]
    if problems:
        raise GenerationSettingsError(
            f"the model scores {vocabulary} tokens, 0 to {vocabulary - 1}, and {'; '.join(problems)}: the generation "
            "settings belong to another model"
        )


class RepetitionPenalty:
    """Makes tokens that were already generated less likely: RepetitionPenaltyLogitsProcessor."""

    only_bans = False

    def __init__(self, penalty: float) -> None:
        self._penalty = np.float32(penalty)

    def __call__(self, history: Ids, scores: Scores) -> None:
        """See Processor."""
        seen = _inside(history, scores.vocabulary)
        rows = np.arange(len(seen))[:, None]
        values = scores.settled()
        found = values[rows, seen]
        values[rows, seen] = np.where(found < 0, found * self._penalty, found / self._penalty)


class NoRepeatNGram:
    """Bans the token that would complete an n-gram for the second time: NoRepeatNGramLogitsProcessor."""

    only_bans = True

    def __init__(self, size: int) -> None:
        self._size = size

    def __call__(self, history: Ids, scores: Scores) -> None:
        """See Processor."""
        prefix, windows = self._size - 1, history.shape[1] - self._size + 1
        if windows < 1:
            return
        same = np.ones((len(history), windows), np.bool_)
        for offset in range(prefix):
            same &= history[:, offset : offset + windows] == history[:, windows + offset, None]
        rows, starts = np.nonzero(same)
        tokens = history[rows, starts + prefix]
        inside = tokens < scores.vocabulary
        scores.ban_at(rows[inside], tokens[inside])


class NoBadWords:
    """Bans tokens, and tokens that would complete a banned sequence: NoBadWordsLogitsProcessor."""

    only_bans = True

    def __init__(self, words: Sequence[Sequence[int]]) -> None:
        self._tokens = _array([word[0] for word in words if len(word) == 1])
        by_length: dict[int, list[Sequence[int]]] = {}
        for word in words:
            if len(word) > 1:
                by_length.setdefault(len(word) - 1, []).append(word)
        self._sequences = [
            (length, np.array([word[:-1] for word in group], np.int64), _array([word[-1] for word in group]))
            for length, group in by_length.items()
        ]

    def __call__(self, history: Ids, scores: Scores) -> None:
        """See Processor."""
        scores.ban(self._tokens)
        for length, prefixes, last in self._sequences:
            if length <= history.shape[1]:
                rows, words = np.nonzero((history[:, None, -length:] == prefixes).all(axis=2))
                scores.ban_at(rows, last[words])


class MinLength:
    """Bans EOS in a sequence that is too short: MinLengthLogitsProcessor and MinNewTokensLengthLogitsProcessor."""

    only_bans = True

    def __init__(self, minimum: int, eos: Ids) -> None:
        self._minimum, self._eos = minimum, eos

    def __call__(self, history: Ids, scores: Scores) -> None:
        """See Processor."""
        if history.shape[1] < self._minimum:
            scores.ban(self._eos)


class ForcedToken:
    """Leaves only these tokens at one length: ForcedBOSTokenLogitsProcessor and ForcedEOSTokenLogitsProcessor."""

    only_bans = True

    def __init__(self, length: int, tokens: Ids) -> None:
        self._length, self._tokens = length, tokens

    def __call__(self, history: Ids, scores: Scores) -> None:
        """See Processor."""
        if history.shape[1] == self._length:
            scores.force(self._tokens)


class RemoveInvalid:
    """NaN becomes 0 and ±inf the largest float, bans included: InfNanRemoveLogitsProcessor."""

    only_bans = False

    def __call__(self, history: Ids, scores: Scores) -> None:  # noqa: ARG002 (the protocol's)
        """See Processor."""
        replace_invalid(scores.settled())


def replace_invalid(values: Floats) -> None:
    """In place: NaN becomes 0, ±inf the largest float."""
    np.nan_to_num(values, copy=False, nan=0.0, posinf=float(_LARGEST), neginf=-float(_LARGEST))


class ExponentialDecay:
    """Raises EOS more with each token after a length: ExponentialDecayLengthPenalty."""

    only_bans = False

    def __init__(self, start: int, factor: float, eos: Ids) -> None:
        self._start, self._factor, self._eos = start, factor, eos

    def __call__(self, history: Ids, scores: Scores) -> None:
        """See Processor."""
        over = history.shape[1] - self._start
        if over > 0:
            values = scores.settled()
            ends = values[:, self._eos]
            # A banned EOS stays banned, also where RemoveInvalid made a number of its −inf (transformers lifts that).
            free = np.abs(ends) < _LARGEST
            with np.errstate(over="ignore"):  # long after the start the power passes the largest float
                growth = np.minimum(np.power(np.float64(self._factor), over) - 1, _LARGEST).astype(np.float32)
                values[:, self._eos] = np.where(free, ends + np.where(free, np.abs(ends), 0) * growth, ends)


class SuppressTokens:
    """Bans tokens everywhere, or at one length: SuppressTokens and SuppressTokensAtBeginLogitsProcessor."""

    only_bans = True

    def __init__(self, tokens: Sequence[int], *, only_at: int | None = None) -> None:
        self._tokens, self._only_at = _array(tokens), only_at

    def __call__(self, history: Ids, scores: Scores) -> None:
        """See Processor."""
        if self._only_at is None or history.shape[1] == self._only_at:
            scores.ban(_inside(self._tokens, scores.vocabulary))


class Renormalize:
    """Log-probabilities that sum to 1 again after the bans: LogitNormalization."""

    only_bans = False

    def __call__(self, history: Ids, scores: Scores) -> None:  # noqa: ARG002 (the protocol's)
        """See Processor."""
        scores.renormalize()


class Temperature:
    """Sharpens (below 1) or flattens (above 1) the distribution: TemperatureLogitsWarper."""

    only_bans = False

    def __init__(self, temperature: float) -> None:
        self._temperature = np.float32(temperature)

    def __call__(self, history: Ids, scores: Scores) -> None:  # noqa: ARG002 (the protocol's)
        """See Processor."""
        values = scores.settled()
        np.divide(values, self._temperature, out=values)


class TopK:
    """Keeps the k likeliest tokens, and those that tie with the last of them: TopKLogitsWarper."""

    only_bans = True

    def __init__(self, k: int) -> None:
        self._k = k

    def __call__(self, history: Ids, scores: Scores) -> None:  # noqa: ARG002 (the protocol's)
        """See Processor."""
        values = scores.settled()
        values[values < best_tokens(values, self._k).values.min(axis=1, keepdims=True)] = -np.inf


class TopP:
    """Keeps the likeliest tokens that together reach probability p (nucleus sampling): TopPLogitsWarper."""

    only_bans = True

    def __init__(self, p: float) -> None:
        self._p = p

    def __call__(self, history: Ids, scores: Scores) -> None:  # noqa: ARG002 (the protocol's)
        """See Processor."""
        for row in scores.settled():
            left = np.flatnonzero(row > -np.inf)  # after top k only a few: the sort is over these
            if left.size > 1:
                left = left[np.argsort(row[left], kind="stable")]
                shares = np.cumsum(np.exp(row[left] - row[left[-1]], dtype=np.float64))
                unlikely = shares / shares[-1] <= 1 - self._p
                unlikely[-1] = False
                row[left[unlikely]] = -np.inf


class MinP:
    """Keeps tokens at least p times as likely as the likeliest: MinPLogitsWarper."""

    only_bans = True

    def __init__(self, p: float) -> None:
        self._distance = np.float32(math.log(p))

    def __call__(self, history: Ids, scores: Scores) -> None:  # noqa: ARG002 (the protocol's)
        """See Processor."""
        values = scores.settled()
        values[values < values.max(axis=1, keepdims=True) + self._distance] = -np.inf


def _array(tokens: Iterable[int]) -> Ids:
    return np.array(list(tokens), np.int64)


def _inside(tokens: Ids, vocabulary: int) -> Ids:
    """The tokens that have a score. In a history [R, L] only the start token may have none: then its column goes."""
    if tokens.ndim == 1:
        return tokens[tokens < vocabulary]
    return tokens if tokens[0, 0] < vocabulary else tokens[:, 1:]
