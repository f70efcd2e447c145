"""Learning which target tokens go with a source token, from pairs of token sequences: IBM model 1 in bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Pairs", "learn_lexicon"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# A cell is one source and one target token of the same pair: 4 million are 32 MB an array, of which some ten live.
_CELLS_AT_ONCE = 4_000_000
# Distinct (source, target) pairs that are followed: 16 bytes each. Beyond, those with the least weight are forgotten.
_LARGEST_LEXICON = 20_000_000
_ROUNDS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Pairs of token sequences, each token once a sequence: `source` and `target` int32 end to end, and where each
    begins."""

    source: npt.NDArray[np.int32]
    source_starts: Ints
    target: npt.NDArray[np.int32]
    target_starts: Ints

    @classmethod
    def of(cls, pairs: Iterable[tuple[Iterable[int], Iterable[int]]]) -> Pairs:
        """Take pairs one after another: a token takes 4 bytes."""
        flat, starts = (array("i"), array("i")), (array("q", [0]), array("q", [0]))
        for pair in pairs:
            for so_far, ends, side in zip(flat, starts, pair, strict=True):
                so_far.extend(sorted(set(side)))
                ends.append(len(so_far))
        tokens: list[npt.NDArray[np.int32]] = [np.array(side, np.int32) for side in flat]
        begins = [np.array(side, np.int64) for side in starts]
        return cls(source=tokens[0], source_starts=begins[0], target=tokens[1], target_starts=begins[1])

    def __len__(self) -> int:
        return len(self.source_starts) - 1

    def parts(self) -> Iterator[tuple[int, int]]:
        """Ranges of pairs of at most _CELLS_AT_ONCE cells (a pair that has more is a part of its own)."""
        cells = np.cumsum(np.diff(self.source_starts) * np.diff(self.target_starts))
        first = 0
        while first < len(self):
            before = cells[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(cells, before + _CELLS_AT_ONCE, side="right")))
            yield first, last
            first = last


@dataclass(frozen=True, kw_only=True, eq=False)
class _Lexicon:
    """P(target | source): `keys` = source · width + target, ascending, and a probability each."""

    keys: Ints
    values: Floats


def learn_lexicon(
    pairs: Pairs,
    *,
    source_vocabulary: int,
    target_vocabulary: int,
    per_token: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return (offsets int32 [source_vocabulary + 1], tokens int32): the `per_token` likeliest of each source token.

    IBM model 1 (Brown et al., 1993) with an empty source word, from a uniform start, `_ROUNDS` rounds of EM. Candidates
    with an expected count under 0.05 are chance, and left out. `progress` counts pairs over all rounds.
    """
    width = target_vocabulary
    empty = source_vocabulary  # the source word of what comes from nowhere
    lexicon: _Lexicon | None = None
    counted = _Lexicon(keys=np.empty(0, np.int64), values=np.empty(0))
    for turn in range(_ROUNDS):
        known = lexicon is not None  # from the second round on no pair of tokens is new
        counted = _Lexicon(keys=lexicon.keys, values=np.zeros(lexicon.keys.size)) if lexicon is not None else counted
        for first, last in pairs.parts():
            keys, weights = _expected(pairs, first, last, lexicon, empty=empty, width=width)
            if known:
                places = np.minimum(np.searchsorted(counted.keys, keys), counted.keys.size - 1)
                counted.values[places] += np.where(counted.keys[places] == keys, weights, 0.0)
            else:
                counted = _added(counted, keys, weights)
            if progress is not None:
                progress(turn * len(pairs) + last, _ROUNDS * len(pairs))
        lexicon = _normalised(counted, empty + 1, width)
    return _best(counted, source_vocabulary, width, per_token)


def _expected(
    pairs: Pairs, first: int, last: int, lexicon: _Lexicon | None, *, empty: int, width: int
) -> tuple[Ints, Floats]:
    """The expected count of each (source, target) pair in pairs first to last − 1, as keys ascending and counts."""
    source_lengths = np.diff(pairs.source_starts[first : last + 1]) + 1  # with the empty word
    target_lengths = np.diff(pairs.target_starts[first : last + 1])
    cells = source_lengths * target_lengths
    starts = np.cumsum(cells) - cells
    pair = np.repeat(np.arange(last - first), cells)
    within = np.arange(int(cells.sum())) - starts[pair]
    row, column = np.divmod(within, np.maximum(target_lengths, 1)[pair])
    column += pairs.target_starts[first + pair] - pairs.target_starts[first]
    source_places = np.minimum(pairs.source_starts[first + pair] + row, max(pairs.source.size - 1, 0))
    sources = np.where(row == source_lengths[pair] - 1, empty, pairs.source[source_places])
    targets = pairs.target[pairs.target_starts[first] + column]
    distinct, place = np.unique(sources.astype(np.int64) * width + targets, return_inverse=True)
    if lexicon is None:
        weights = 1.0 / source_lengths[pair]
    else:
        weights = _looked_up(lexicon, distinct)[place]
        totals = np.bincount(column, weights=weights)
        weights = weights / np.maximum(totals[column], 1e-300)
    return distinct, _sums(place, weights, distinct.size)


def _sums(place: npt.NDArray[np.intp], weights: Floats, size: int) -> Floats:
    return np.bincount(place, weights=weights, minlength=size).astype(np.float64)


def _looked_up(lexicon: _Lexicon, keys: Ints) -> Floats:
    places = np.minimum(np.searchsorted(lexicon.keys, keys), max(lexicon.keys.size - 1, 0))
    found: Floats = np.where(lexicon.keys[places] == keys, lexicon.values[places], 0.0)
    return found


def _added(counted: _Lexicon, keys: Ints, weights: Floats) -> _Lexicon:
    every = np.concatenate([counted.keys, keys])
    distinct, place = np.unique(every, return_inverse=True)
    values = _sums(place, np.concatenate([counted.values, weights]), distinct.size)
    if distinct.size > _LARGEST_LEXICON:
        leaving = distinct.size - _LARGEST_LEXICON // 2
        stay = np.sort(np.argpartition(values, leaving)[leaving:])
        distinct, values = distinct[stay], values[stay]
    return _Lexicon(keys=distinct, values=values)


def _normalised(counted: _Lexicon, sources: int, width: int) -> _Lexicon:
    source = counted.keys // width
    totals = np.bincount(source, weights=counted.values, minlength=sources)
    return _Lexicon(keys=counted.keys, values=counted.values / totals[source])


def _best(
    counted: _Lexicon, sources: int, width: int, per_token: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The highest counts of each source token; of equal ones the lower token."""
    likely = (counted.keys < sources * width) & (counted.values >= 0.05)
    source, target = np.divmod(counted.keys[likely], width)
    order = np.lexsort((target, -counted.values[likely], source))
    source, target = source[order], target[order]
    begins = np.searchsorted(source, np.arange(sources))
    chosen = np.arange(source.size) - begins[source] < per_token
    source, target = source[chosen], target[chosen]
    order = np.lexsort((target, source))
    offsets = np.searchsorted(source[order], np.arange(sources + 1))
    return offsets.astype(np.int32), target[order].astype(np.int32)
