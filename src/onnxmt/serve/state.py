"""What an app holds between requests, and how a handler reaches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from onnxmt.serve.files import KeptFiles
from onnxmt.serve.keys import Keyring, RateLimit
from onnxmt.serve.metrics import Metrics
from onnxmt.serve.options import ServeOptions
from onnxmt.serve.problems import Problem
from onnxmt.serve.rollout_request import SERVICE_KEY
from onnxmt.serve.service import Service

if TYPE_CHECKING:
    from onnxmt.serve.rollout import Rollout


@dataclass
class State:
    """One app's state; `service` is None until the model is loaded, `rollout` unless a store is followed."""

    options: ServeOptions
    metrics: Metrics
    keyring: Keyring
    rate: RateLimit
    files: KeptFiles
    service: Service | None = None
    rollout: Rollout | None = None
    receiving: int = 0  # bytes of bodies that are not complete yet


def state_of(request: Request) -> State:
    """The state of the app that a request came to."""
    return cast(State, request.app.state.onnxmt)


def service_of(request: Request) -> Service:
    """The loaded service, of the version that the request is pinned to; raises Problem 503 before it is."""
    service: Service | None = request.scope.get(SERVICE_KEY) or state_of(request).service
    if service is None:
        raise Problem(503, "not_ready", "the model is not loaded yet; try again in 2 s", retry_after=2)
    return service
