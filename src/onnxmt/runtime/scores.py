"""One step's scores over the vocabulary, and the few numpy kernels that make choosing from 250,000 of them cheap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

# A row is folded this many times, and its columns' maxima taken, before its best k are looked for: one pass over long
# runs of numbers. Measured at 65,001 entries: 5 µs folded 64 times, 17 µs 512 times; maxima of runs of 512, 12 µs.
_FOLDS = 64
# exp needs a copy of what it works on; about 1 MB of it at a time stays in a core's own cache.
_CHUNK_ENTRIES = 1 << 18
# The highest entry of a row that is summed as it is: e^60, a million times, is far below the largest float32, and what
# lies 60 below an entry of -20 is still a normal number.
_LEAST_UNSHIFTED, _MOST_UNSHIFTED = np.float32(-20), np.float32(60)
_LOWEST = np.finfo(np.float32).min


class Scores:
    """What the model gives each token as the next one, [R, V]; processors edit it in place.

    Reading goes through `settled`: the values that transformers would show a processor, which are raw logits in greedy
    search and sampling, and log-probabilities in beam search. A ban needs no reading, so beam search with bans alone
    never normalises the whole array: it picks the best logits first and subtracts `shift` from those few.
    """

    __slots__ = ("forced", "shift", "values")

    def __init__(self, values: Floats, shift: Floats | None = None) -> None:
        self.values = values
        self.shift = shift
        """float32 [R], what is still to be subtracted from each row of `values`."""
        self.forced = False
        """True when this step leaves no choice: the token is forced, with log-probability 0."""

    @property
    def vocabulary(self) -> int:
        """V, how many tokens there are."""
        return int(self.values.shape[1])

    def settled(self) -> Floats:
        """The values to read and change, [R, V]."""
        if self.shift is not None:
            with np.errstate(invalid="ignore"):  # inf - inf: such rows are NaN in transformers too
                np.subtract(self.values, self.shift[:, None], out=self.values)
            self.shift = None
        return self.values

    def ban(self, tokens: Ids) -> None:
        """Ban these tokens in every row."""
        self.values[:, tokens] = -np.inf

    def ban_at(self, rows: Ids, tokens: Ids) -> None:
        """Ban tokens[i] in rows[i]."""
        self.values[rows, tokens] = -np.inf

    def force(self, tokens: Ids) -> None:
        """Ban everything but these tokens, and give each of them the score 0."""
        self.values.fill(-np.inf)
        self.values[:, tokens] = 0.0
        self.shift = None
        self.forced = True

    def renormalize(self) -> None:
        """Make each row's exponentials sum to 1 over the tokens that are left. A row with none stays as it is."""
        total = log_sum_exp(self.values)
        self.shift = np.where(np.isfinite(total), total, np.float32(0))


def log_sum_exp(values: Floats) -> Floats:
    """log Σ exp of each row, float32 [R]: logits minus it are log-probabilities. Not finite where a row is not."""
    largest = values.max(axis=1)
    # exp of an ordinary row neither overflows nor loses what counts, so it is not shifted first, which saves a pass.
    # That is decided row by row: a row's result does not depend on the others.
    shift = np.where((largest > _LEAST_UNSHIFTED) & (largest < _MOST_UNSHIFTED), np.float32(0), largest)
    shifted = bool(np.any(shift))  # NaN counts as true
    sums = np.empty_like(largest)
    rows, vocabulary = values.shape
    chunk = min(rows, max(1, _CHUNK_ENTRIES // vocabulary))
    work = np.empty((chunk, vocabulary), np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        for first in range(0, rows, chunk):
            part = values[first : first + chunk]
            room = work[: len(part)]
            if shifted:
                part = np.subtract(part, shift[first : first + chunk, None], out=room)
            np.exp(part, out=room)
            np.add.reduce(room, axis=1, out=sums[first : first + chunk])
        total: Floats = shift + np.log(sums)
    return total


class Best(NamedTuple):
    """The best k tokens of each row, in ascending order of token."""

    tokens: Ids
    """int64 [R, k]."""
    values: Floats
    """float32 [R, k]; −inf fills up a row that has fewer than k tokens left."""


def best_tokens(values: Floats, k: int) -> Best:
    """The k highest of each row of [R, V]; of equal ones those with the lowest index. k is lowered to V."""
    rows, vocabulary = values.shape
    k = min(k, vocabulary)
    if vocabulary <= 16 * _FOLDS:
        tokens = np.argsort(-values, axis=1, kind="stable")[:, :k]
        tokens.sort(axis=1)
        return Best(tokens, np.take_along_axis(values, tokens, axis=1))

    # No k-th best is below the k-th highest column maximum: only columns that reach it, few of them, are looked into.
    columns = vocabulary // _FOLDS
    covered = columns * _FOLDS
    folded = values[:, :covered].reshape(rows, _FOLDS, columns)
    if columns >= k:
        maxima = folded.max(axis=1)
        bound = np.partition(maxima, columns - k, axis=1)[:, columns - k]
    else:
        maxima = np.full((rows, columns), np.inf, np.float32)
        bound = np.partition(values, vocabulary - k, axis=1)[:, vocabulary - k]
    row_of_column, column = np.nonzero(maxima >= bound[:, None])
    # A row with next to no choice left, such as a forced token, has a bound of -inf: its bans are not worth sorting.
    least = np.maximum(bound, _LOWEST)
    which, fold = np.nonzero(folded[row_of_column, :, column] >= least[row_of_column, None])
    row_of_rest, rest = np.nonzero(values[:, covered:] >= least[:, None])
    row_of = np.concatenate((row_of_column[which], row_of_rest))
    token_of = np.concatenate((fold * columns + column[which], rest + covered))
    value_of = values[row_of, token_of]
    order = np.lexsort((token_of, -value_of, row_of))
    counts = np.bincount(row_of, minlength=rows)
    places = np.arange(k)
    filled = places < counts[:, None]
    chosen = (np.cumsum(counts) - counts)[:, None] + places
    chosen = order[np.where(filled, chosen, 0)] if len(order) else np.zeros((rows, k), np.int64)
    if not filled.all():
        token_of, value_of = np.append(token_of, 0), np.append(value_of, np.float32(-np.inf))
        chosen[~filled] = len(token_of) - 1
    tokens = token_of[chosen]
    by_token = np.argsort(tokens, axis=1, kind="stable")
    return Best(np.take_along_axis(tokens, by_token, axis=1), np.take_along_axis(value_of[chosen], by_token, axis=1))
