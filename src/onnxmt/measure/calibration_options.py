"""How to calibrate int8-static: on which text, and how a range is chosen; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from onnxmt.errors import UsageError

RangeMethod = Literal["minmax", "percentile", "entropy"]
METHODS: tuple[RangeMethod, ...] = ("minmax", "percentile", "entropy")


@dataclass(frozen=True, kw_only=True)
class RangeOptions:
    """How a range is chosen: all values, all but a share of them, or the range whose steps tell the values apart best.

    `percentile` is the share of values, in percent, that "percentile" keeps: half of the rest is cut at each end.
    Raises UsageError.
    """

    method: RangeMethod = "percentile"
    percentile: float = 99.99

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"the calibration method is {self.method!r}; allowed: {', '.join(METHODS)}")
        if not 50 < self.percentile <= 100:
            raise UsageError(f"the calibration percentile is {self.percentile!r}; above 50 and up to 100 is allowed")


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """What to calibrate on (`file`; None: the text that ships with onnxmt), in which languages, and how."""

    file: Path | None = None
    source: str | None = None
    target: str | None = None
    ranges: RangeOptions = field(default_factory=RangeOptions)
