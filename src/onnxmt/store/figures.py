"""What a version's manifest says that a promotion depends on, and whether one version is worse than another by it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxmt.bundle import Bundle
from onnxmt.errors import UsageError
from onnxmt.inspection.bundle_view import verification_word

_FAILED = "verification failed"


@dataclass(frozen=True, kw_only=True)
class PromoteLimits:
    """What a version may be worse by than the one whose alias it gets.

    Points of BLEU and chrF; growth of P99 latency and of size as shares (0.2: 20 %). Raises UsageError.
    """

    max_bleu_drop: float = 0.5
    max_chrf_drop: float = 0.5
    max_p99_growth: float = 0.2
    max_size_growth: float = 0.5

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}; a number of 0 or more is allowed"
            for name, value in vars(self).items()
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf
        ]
        if problems:
            raise UsageError(f"limits of a promotion: {'; '.join(problems)}")


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured of a version; None: was not. `measured_on` says on what BLEU and chrF were measured.

    `p99_ms` by setting (beams, batch, threads, workers, workload, CPU): only equal settings can be compared.
    """

    gate: str | None
    verification: str
    bleu: float | None
    chrf: float | None
    measured_on: tuple[Any, ...] | None
    p99_ms: Mapping[str, float]
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values for the history."""
        return {**dataclasses.asdict(self), "p99_ms": dict(self.p99_ms), "measured_on": list(self.measured_on or ())}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One figure of both versions; `passed` is None where they cannot be compared, and `note` says why."""

    name: str
    new: float | None
    current: float | None
    limit: float
    passed: bool | None
    note: str | None = None

    def line(self) -> str:
        """Say it in one line."""
        if self.passed is None:
            return f"{self.name}: not compared, {self.note}"
        verdict = "within" if self.passed else "beyond"
        return f"{self.name}: {self.new:,.6g}, now {self.current:,.6g}: {verdict} the limit of {self.limit:g}"


def figures_of(bundle: Bundle) -> Figures:
    """Read them off a bundle."""
    manifest = bundle.manifest
    quality = manifest.quality or {}
    how = _mapping(quality.get("how"))
    measured = (how.get("set"), how.get("sha256"), how.get("target_language"), quality.get("beams"))
    speed = manifest.speed or {}
    rows = speed.get("results")
    cpu = str(speed.get("cpu", ""))
    p99 = {}
    for row in rows if isinstance(rows, list) else ():
        found = _mapping(row)
        if isinstance(found.get("p99_ms"), (int, float)):
            setting = ", ".join(f"{name} {found.get(name)}" for name in ("beams", "batch", "threads", "workers"))
            p99[f"{setting}, {found.get('workload')}{f', {cpu}' if cpu else ''}"] = float(found["p99_ms"])
    return Figures(
        gate=None if quality.get("gate") is None else str(quality["gate"]),
        verification=verification_word(manifest),
        bleu=_number(quality.get("bleu")),
        chrf=_number(quality.get("chrf")),
        measured_on=measured if quality else None,
        p99_ms=p99,
        bytes=bundle.size,
    )


def own_faults(figures: Figures) -> list[str]:
    """What keeps a version from any alias, whoever holds it now."""
    faults = []
    if figures.gate == "missed":
        faults.append("its quality gate was missed when it was made")
    if figures.verification == _FAILED:
        faults.append("its verification failed: its layers differ from PyTorch's")
    return faults


def compare_figures(new: Figures, current: Figures, limits: PromoteLimits) -> tuple[Check, ...]:
    """Compare a version with the one that it would replace."""
    return (
        _score("BLEU", new.bleu, current.bleu, new, current, limits.max_bleu_drop),
        _score("chrF", new.chrf, current.chrf, new, current, limits.max_chrf_drop),
        _p99(new, current, limits.max_p99_growth),
        Check(
            name="bytes",
            new=new.bytes,
            current=current.bytes,
            limit=limits.max_size_growth,
            passed=new.bytes <= current.bytes * (1 + limits.max_size_growth),
        ),
    )


def _score(name: str, new: float | None, current: float | None, ours: Figures, theirs: Figures, limit: float) -> Check:
    passed, note = None, None
    if new is None or current is None:
        note = f"the {'new' if new is None else 'current'} version has none"
    elif ours.measured_on != theirs.measured_on:
        note = "they were measured on other sets, languages or beams"
    else:
        passed = current - new <= limit
    return Check(name=name, new=new, current=current, limit=limit, passed=passed, note=note)


def _p99(new: Figures, current: Figures, limit: float) -> Check:
    """The setting, of those that both were measured in, in which the new one is worst."""
    shared = new.p99_ms.keys() & current.p99_ms.keys()
    if not shared:
        note = "they were not measured in one setting (onnxmt bench --write, before they are added)"
        return Check(name="P99 ms", new=None, current=None, limit=limit, passed=None, note=note)
    worst = max(shared, key=lambda setting: new.p99_ms[setting] / max(current.p99_ms[setting], 1e-9))
    ours, theirs = new.p99_ms[worst], current.p99_ms[worst]
    passed = ours <= theirs * (1 + limit)
    return Check(name="P99 ms", new=ours, current=theirs, limit=limit, passed=passed, note=worst)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
