"""The metrics of versions and canaries, in the app's registry; there only where a name of the store is served."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import cast

from prometheus_client import Counter, Gauge, Histogram

from onnxmt.serve.metrics import Metrics

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30)


class RolloutMetrics:
    """Counters by version. A version's name is the operator's own; no label holds text, a key or an address."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        versions = ("version", "role")
        self.requests = Counter(
            "onnxmt_version_requests", "Requests by version.", (*versions, "outcome"), registry=registry
        )
        self.seconds = Histogram(
            "onnxmt_version_request_seconds",
            "Time of an answered request.",
            versions,
            buckets=_SECONDS,
            registry=registry,
        )
        self.warnings = Counter(
            "onnxmt_version_warnings", "Warnings on translations.", (*versions, "kind"), registry=registry
        )
        self.loaded = Gauge("onnxmt_version_loaded", "1 while a version is loaded.", versions, registry=registry)
        self.switches = Counter(
            "onnxmt_version_switches", "Times that another version came into use.", ("role",), registry=registry
        )
        self.refused = Counter(
            "onnxmt_version_refused", "Versions that were not loaded, by reason.", ("reason",), registry=registry
        )
        self.agreement = Gauge(
            "onnxmt_canary_agreement", "Mean likeness of the canary's outputs and production's.", registry=registry
        )
        self.fallbacks = Counter(
            "onnxmt_canary_fallbacks", "Canary requests that production answered.", registry=registry
        )
        self.returned = Counter(
            "onnxmt_canary_returned", "Canaries that were returned, by reason.", ("reason",), registry=registry
        )
        self.not_compared = Counter(
            "onnxmt_canary_not_compared", "Outputs that were not compared, for the load.", registry=registry
        )


class _Level:
    """Stands for a gauge of one version."""

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        """Keep the value."""
        self.value = value


def of_one_version(metrics: Metrics) -> Metrics:
    """The same counters, and levels of its own: two versions must not overwrite each other's."""
    own = copy.copy(metrics)
    for name in ("queue_size", "queue_characters", "ready"):
        setattr(own, name, cast(Gauge, _Level()))
    return own


def show_levels(metrics: Metrics, loaded: Callable[[], Iterable[Metrics]]) -> None:
    """Let the queue's gauges show the sum over the versions that are loaded."""
    for name in ("queue_size", "queue_characters"):
        getattr(metrics, name).set_function(lambda name=name: sum(getattr(one, name).value for one in loaded()))
