"""The range of a stream of values, from a histogram whose size does not depend on how many there are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmt.measure.calibration_options import RangeOptions
from onnxmt.precision import ActivationRange

_BINS = 4096  # over both signs; doubling the span keeps at least half of them in use
_LEVELS = 128  # steps that 8 bits have for one sign
_SEARCH_STEP = 16
Array = npt.NDArray[Any]


class RangeHistogram:
    """Counts values of any magnitude in a fixed number of bins.

    The bins span [-limit, limit), limit a power of two above all values that doubles when a larger one comes: two bins
    then become one. The result does not depend on the order of the values.
    """

    def __init__(self) -> None:
        self.low, self.high, self.count = math.inf, -math.inf, 0
        self._limit = 0.0
        self._counts = np.zeros(_BINS, dtype=np.int64)
        self._zeros = 0  # before the first value that is not 0, there is no limit

    def add(self, values: Array) -> None:
        """Count finite values of any shape; raises ValueError for others."""
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError("values that are not finite have no range")
        self.low, self.high, self.count = min(self.low, low), max(self.high, high), self.count + values.size
        peak = max(-low, high)
        if peak == 0:
            self._zeros += values.size
            return
        self._reach(2.0 ** math.frexp(peak)[1])
        # A division by a power of two is exact, so that a value's bin does not depend on the limit of the moment.
        places = np.floor(values.ravel().astype(np.float64) / (2 * self._limit / _BINS)).astype(np.int64)
        self._counts += np.bincount(places + _BINS // 2, minlength=_BINS)

    def _reach(self, limit: float) -> None:
        if self._limit == 0:
            self._limit = limit
        while self._limit < limit:
            self._limit *= 2
            merged = self._counts.reshape(-1, 2).sum(axis=1)
            self._counts = np.zeros(_BINS, dtype=np.int64)
            self._counts[_BINS // 4 : _BINS // 4 + _BINS // 2] = merged

    def range(self, options: RangeOptions) -> ActivationRange:
        """Return the range to quantise over; raises ValueError when nothing was counted."""
        if not self.count:
            raise ValueError("no value was counted")
        if self._limit == 0 or options.method == "minmax":
            return ActivationRange(low=self.low, high=self.high)
        counts = self._counts.copy()
        counts[_BINS // 2] += self._zeros
        if options.method == "percentile":
            low, high = self._percentiles(counts, options.percentile)
        else:
            high = self._best_threshold(counts)
            low = -high
        return ActivationRange(low=max(low, self.low), high=min(high, self.high))

    def _percentiles(self, counts: Array, percentile: float) -> tuple[float, float]:
        """The edges of the bins beyond which half of the share that is cut lies at each end."""
        cut = counts.sum() * (100 - percentile) / 200
        width = 2 * self._limit / _BINS
        first = int(np.argmax(np.cumsum(counts) > cut))
        last = int(np.argmax(np.cumsum(counts[::-1]) > cut))
        return first * width - self._limit, self._limit - last * width

    def _best_threshold(self, counts: Array) -> float:
        """The magnitude to clip at that keeps most information (Migacz, 8-bit inference with TensorRT, 2017).

        For each threshold, the clipped distribution is compared with what 128 steps leave of it by Kullback-Leibler
        divergence.
        """
        half = _BINS // 2
        magnitudes = (counts[half:] + counts[:half][::-1]).astype(np.float64)
        used = int(np.flatnonzero(magnitudes)[-1]) + 1
        best, least = used, math.inf
        for end in range(_LEVELS, used + _SEARCH_STEP, _SEARCH_STEP):
            stop = min(end, used)
            if stop < _LEVELS:
                break
            divergence = _divergence(magnitudes, stop)
            if divergence < least:
                best, least = stop, divergence
        return best * self._limit / half


def _divergence(magnitudes: Array, stop: int) -> float:
    """KL of the distribution clipped at bin `stop` from its form in 128 steps."""
    inside = magnitudes[:stop]
    clipped = inside.copy()
    clipped[-1] += magnitudes[stop:].sum()
    starts = np.arange(_LEVELS) * stop // _LEVELS
    sizes = np.diff(np.append(starts, stop))
    present = inside > 0
    sums = np.add.reduceat(inside, starts)
    filled = np.add.reduceat(present.astype(np.float64), starts)
    spread = np.repeat(sums / np.maximum(filled, 1), sizes) * present
    known = (clipped > 0) & (spread > 0)
    if not known.any():
        return math.inf
    wanted, found = clipped / clipped.sum(), spread / spread.sum()
    lost = wanted[(clipped > 0) & ~known].sum()  # what was clipped into a bin that held nothing
    return float((wanted[known] * np.log(wanted[known] / found[known])).sum() + lost)
