"""What a canary has shown: counted beside production, kept over restarts, and judged against the limits."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from onnxmt.serve.rollout_options import CanaryLimits
from onnxmt.store.files import write_whole

_FORMAT = 1
_LATENCIES = 200
# A few requests can fail, warn or be late by chance.
_LEAST_ERRORS = _LEAST_WARNED = 3
_LEAST_SECONDS, _LEAST_SHARE = 0.02, 0.05
_MOST_CHARACTERS = 5_000
Reason = Literal["errors", "warnings", "latency", "agreement"]


@dataclass
class Side:
    """One version's requests while the canary ran; `seconds` are the latest ones' latencies."""

    requests: int = 0
    errors: int = 0
    warned: int = 0
    seconds: list[float] = field(default_factory=list)

    def answered(self, seconds: float, *, warned: bool) -> None:
        """Count a request that was answered."""
        self.requests += 1
        self.warned += warned
        self.seconds = [*self.seconds[-_LATENCIES + 1 :], round(seconds, 4)]

    def failed(self) -> None:
        """Count a request that could not be answered."""
        self.requests += 1
        self.errors += 1

    @property
    def warned_share(self) -> float:
        """Share of the answers that had warnings."""
        return self.warned / max(1, self.requests - self.errors)


@dataclass
class CanaryStats:
    """All that is known of a canary since it became one (`since`: the store's revision then)."""

    since: int
    canary: Side = field(default_factory=Side)
    production: Side = field(default_factory=Side)
    compared: int = 0
    likeness: float = 0.0
    returned: str | None = None

    @property
    def agreement(self) -> float | None:
        """Mean likeness of the outputs that were compared; None before there was one."""
        return self.likeness / self.compared if self.compared else None

    def agreed(self, likeness: float) -> None:
        """Count a comparison."""
        self.compared += 1
        self.likeness += likeness

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "format": _FORMAT,
            "since": self.since,
            "canary": vars(self.canary),
            "production": vars(self.production),
            "compared": self.compared,
            "likeness": round(self.likeness, 6),
            "returned": self.returned,
        }

    def summary(self) -> dict[str, Any]:
        """Return what a person wants to see of it, for the history and the log."""
        return {
            "requests": self.canary.requests,
            "errors": self.canary.errors,
            "warned": self.canary.warned,
            "median_ms": _median_ms(self.canary),
            "production_requests": self.production.requests,
            "production_warned": self.production.warned,
            "production_median_ms": _median_ms(self.production),
            "compared": self.compared,
            "agreement": None if self.agreement is None else round(self.agreement, 4),
        }

    def save(self, path: Path) -> None:
        """Write it down. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(self.to_dict()) + "\n")

    @classmethod
    def read(cls, path: Path, *, since: int) -> CanaryStats:
        """Read what was kept of this canary; fresh ones where there is nothing, or of an earlier time as a canary.

        Raises OSError, and ValueError for a file that is none of ours.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls(since=since)
        try:
            if found["format"] != _FORMAT or found["since"] != since:
                return cls(since=since)
            return cls(
                since=since,
                canary=Side(**found["canary"]),
                production=Side(**found["production"]),
                compared=int(found["compared"]),
                likeness=float(found["likeness"]),
                returned=found["returned"],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} holds no statistics of a canary: {error!r}") from error


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Why a canary is returned: a word for programs, and the figures."""

    reason: Reason
    message: str


def judge(stats: CanaryStats, limits: CanaryLimits) -> Verdict | None:
    """Say which limit a canary has left; None: none yet."""
    canary, production = stats.canary, stats.production
    allowed = limits.max_errors * max(canary.requests, limits.min_requests)
    if canary.errors >= _LEAST_ERRORS and canary.errors > allowed:
        message = f"{canary.errors} of {canary.requests} requests failed, at most {limits.max_errors:.0%} may"
        return Verdict(reason="errors", message=message)
    agreement = stats.agreement
    if agreement is not None and 2 * stats.compared >= limits.min_requests and agreement < limits.min_agreement:
        message = (
            f"its outputs are like production's by {agreement:.2f} over {stats.compared} requests, "
            f"at least {limits.min_agreement:g} is allowed"
        )
        return Verdict(reason="agreement", message=message)
    if canary.requests < limits.min_requests:
        return None
    usual = production.warned_share
    chance = 2 * math.sqrt(max(usual, _LEAST_SHARE) * (1 - usual) / canary.requests)  # two standard deviations
    share = usual + limits.max_warnings + chance
    if canary.warned >= _LEAST_WARNED and canary.warned_share > share:
        message = f"{canary.warned_share:.0%} of its answers have warnings, at most {share:.0%} may"
        return Verdict(reason="warnings", message=message)
    if len(canary.seconds) >= limits.min_requests and len(production.seconds) >= limits.min_requests:
        ours, theirs = statistics.median(canary.seconds), statistics.median(production.seconds)
        if ours > limits.max_latency * theirs and ours - theirs > _LEAST_SECONDS:
            message = (
                f"its median latency is {1000 * ours:.0f} ms and production's {1000 * theirs:.0f} ms, "
                f"at most {limits.max_latency:g} times that is allowed"
            )
            return Verdict(reason="latency", message=message)
    return None


def likeness(first: str, second: str) -> float:
    """How alike two texts are, 0 to 1: twice the character pairs that both have over all of both (Dice, 1945).

    Of long texts the beginnings are compared.
    """
    if first == second:
        return 1.0
    ours, theirs = (_pairs(text[:_MOST_CHARACTERS]) for text in (first, second))
    total = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / total if total else 0.0


def _pairs(text: str) -> Counter[str]:
    return Counter(text[at : at + 2] for at in range(len(text) - 1)) if len(text) > 1 else Counter(text)


def _median_ms(side: Side) -> float | None:
    return round(1000 * statistics.median(side.seconds), 1) if side.seconds else None
