"""What an operator may set about versions and canaries: shares, limits, and how often the store is looked at."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path

from onnxmt.errors import UsageError
from onnxmt.store.names import parse_name
from onnxmt.store.resolving import find, stored_version
from onnxmt.store.shelf import Shelf, shelf_of


@dataclass(frozen=True, kw_only=True)
class CanaryLimits:
    """When a canary is returned.

    Shares of its requests, once there are `min_requests`: failed ones (`max_errors`; from three on the rest is not
    waited for), and ones with warnings, over production's share in the same time and what chance explains
    (`max_warnings`). Its median latency over production's (`max_latency`). `min_agreement`: the mean likeness of its
    outputs and production's for the same texts, 0 to 1, once half of `min_requests` were compared. Raises UsageError.
    """

    min_requests: int = 20
    max_errors: float = 0.02
    max_warnings: float = 0.1
    max_latency: float = 2.0
    min_agreement: float = 0.6

    def __post_init__(self) -> None:
        highest = {"max_errors": 1.0, "max_warnings": 1.0, "min_agreement": 1.0}
        problems = [
            f"{name} is {value!r}; a number from 0 to {highest.get(name, math.inf):g} is allowed"
            for name, value in vars(self).items()
            if isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 <= value <= highest.get(name, 1e9)
        ]
        if not problems and self.min_requests < 2:
            problems.append(f"min_requests is {self.min_requests}; 2 or more is allowed")
        if problems:
            raise UsageError(f"limits of the canary: {'; '.join(problems)}")


@dataclass(frozen=True, kw_only=True)
class RolloutPlan:
    """Which names a service follows.

    `ref` is the version or alias that is served, `version` what it meant when it was loaded; `canary` another version
    or alias of the same model, None: none. `percent` of the requests go to the canary, or, with `shadow`, are also
    given to it after they were answered. At most `pending` outputs wait to be compared at once; what comes on top is
    not compared. Raises UsageError.
    """

    shelf: Shelf
    ref: str
    version: str
    canary: str | None = None
    percent: float = 5.0
    shadow: bool = False
    limits: CanaryLimits = field(default_factory=CanaryLimits)
    poll_seconds: float = 1.0
    pending: int = 8

    def loaded(self, folder: Path) -> RolloutPlan:
        """The same plan for the version whose folder was loaded: the alias may have moved since it was looked up."""
        stored = stored_version(folder)
        return self if stored is None else dataclasses.replace(self, version=stored.ref)

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise UsageError(f"the canary's share is {self.percent!r} %; 0 to 100 is allowed")
        if not 0 < self.poll_seconds <= 3600:
            raise UsageError(f"the store is looked at every {self.poll_seconds!r} s; more than 0 is allowed")
        if self.pending < 1:
            raise UsageError(f"pending is {self.pending!r}; 1 or more is allowed")


def rollout_plan(
    model: str | None,
    canary: str | None,
    *,
    percent: float = 5.0,
    shadow: bool = False,
    limits: CanaryLimits | None = None,
    poll_seconds: float = 1.0,
) -> RolloutPlan | None:
    """The plan for what `serve` is told; None where the model is no name in the store, and so never changes.

    Raises UsageError for a canary beside such a model or of another one, ModelNotFoundError.
    """
    found = None if model is None else find(model)
    if found is None:
        if canary is not None or shadow:
            raise UsageError("--canary and --shadow are for a model in the store: serve it as --model NAME:ALIAS")
        return None
    if shadow and canary is None:
        raise UsageError("--shadow compares a canary: name it with --canary NAME:ALIAS")
    wanted = None if canary is None else parse_name(canary)
    if canary is not None and (wanted is None or wanted.name != found.name):
        raise UsageError(
            f"the canary is {canary!r}; a version or an alias of {found.name} is allowed: {found.name}:canary"
        )
    if wanted is not None and wanted.ref == found.ref:
        raise UsageError(f"the canary {canary} is what is served already: name another version or alias")
    return RolloutPlan(
        shelf=shelf_of(found.name),
        ref=found.ref,
        version=found.version,
        canary=None if wanted is None else wanted.ref,
        percent=percent,
        shadow=shadow,
        limits=limits or CanaryLimits(),
        poll_seconds=poll_seconds,
    )
