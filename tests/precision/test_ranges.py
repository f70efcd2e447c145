"""Ranges from histograms: against numpy, in any order and any pieces, at any magnitude, in fixed memory."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.errors import UsageError
from onnxmt.measure.calibration_options import RangeOptions
from onnxmt.measure.ranges import RangeHistogram
from onnxmt.precision import ActivationRange


def counted(*pieces: np.ndarray) -> RangeHistogram:
    histogram = RangeHistogram()
    for piece in pieces:
        histogram.add(piece.astype(np.float32))
    return histogram


values = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40)


@given(values, st.randoms())
def test_order_and_pieces_do_not_matter(numbers: list[float], random) -> None:
    whole = np.array(numbers, dtype=np.float32)
    shuffled = list(numbers)
    random.shuffle(shuffled)
    cut = random.randint(0, len(numbers))
    pieces = [np.array(part, dtype=np.float32) for part in (shuffled[:cut], shuffled[cut:])]
    for method in ("minmax", "percentile", "entropy"):
        options = RangeOptions(method=method, percentile=90)
        assert counted(whole).range(options) == counted(*pieces).range(options)


@given(values)
def test_a_range_lies_within_the_values(numbers: list[float]) -> None:
    whole = np.array(numbers, dtype=np.float32)
    assert counted(whole).range(RangeOptions(method="minmax")) == ActivationRange(
        low=float(whole.min()), high=float(whole.max())
    )
    for method in ("percentile", "entropy"):
        found = counted(whole).range(RangeOptions(method=method))
        assert whole.min() <= found.low <= found.high <= whole.max()


def test_percentiles_are_numpys_to_the_width_of_a_bin() -> None:
    numbers = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    numbers[0], numbers[1] = 40, -55  # outliers widen the bins: 64 / 2048 each
    found = counted(*np.array_split(numbers, 17)).range(RangeOptions(method="percentile", percentile=99.8))
    low, high = np.quantile(numbers, [0.001, 0.999])
    assert abs(found.low - low) < 2 * 64 / 2048
    assert abs(found.high - high) < 2 * 64 / 2048
    assert counted(numbers).range(RangeOptions(method="percentile", percentile=100)).high == 40


def test_entropy_clips_a_far_outlier_and_keeps_a_flat_distribution() -> None:
    rng = np.random.default_rng(1)
    bell = np.append(rng.standard_normal(500_000), [60.0])
    found = counted(bell).range(RangeOptions(method="entropy"))
    assert 3 < found.high < 20
    flat = rng.uniform(-1, 1, 500_000)
    assert counted(flat).range(RangeOptions(method="entropy")).high > 0.95


def test_zeros_alone_and_tiny_values_have_a_usable_scale() -> None:
    assert counted(np.zeros(5)).range(RangeOptions()) == ActivationRange(low=0.0, high=0.0)
    assert counted(np.zeros(5)).range(RangeOptions()).scale == 1
    assert counted(np.array([1e-30, -1e-30])).range(RangeOptions(method="minmax")).scale > 0


def test_the_histogram_does_not_grow() -> None:
    histogram = counted(np.ones(10))
    before = sys.getsizeof(histogram._counts)
    for power in range(-20, 20):
        histogram.add(np.full(1000, 2.0**power, dtype=np.float32))
    assert sys.getsizeof(histogram._counts) == before
    assert histogram.count == 40_010
    assert int(histogram._counts.sum()) == 40_010


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        counted(np.array([1.0, math.nan]))
    with pytest.raises(ValueError, match="no value"):
        RangeHistogram().range(RangeOptions())


@pytest.mark.parametrize(
    ("low", "high", "scale", "zero"),
    [(-1.28, 1.27, 0.01, 128), (0.0, 5.1, 0.02, 0), (2.0, 5.1, 0.02, 0), (-2.55, 0.0, 0.01, 255), (-3.0, -1.0, 3 / 255, 255)],
)  # fmt: skip
def test_scale_and_zero_point_hold_zero_exactly(low: float, high: float, scale: float, zero: int) -> None:
    found = ActivationRange(low=low, high=high)
    assert found.scale == pytest.approx(scale, rel=1e-6)
    assert int(found.zero_point) == zero


@pytest.mark.parametrize("options", [{"method": "mean"}, {"percentile": 50}, {"percentile": 100.1}])
def test_options_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        RangeOptions(**options)  # type: ignore[arg-type]
