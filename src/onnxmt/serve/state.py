"""What an app holds between requests, and how a handler reaches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from onnxmt.serve.files import KeptFiles
from onnxmt.serve.keys import Keyring, RateLimit
from onnxmt.serve.metrics import Metrics
from onnxmt.serve.options import ServeOptions
from onnxmt.serve.problems import Problem
from onnxmt.serve.service import Service


@dataclass
class State:
    """One app's state; `service` is None until the model is loaded."""

    options: ServeOptions
    metrics: Metrics
    keyring: Keyring
    rate: RateLimit
    files: KeptFiles
    service: Service | None = None
    receiving: int = 0  # bytes of bodies that are not complete yet


def state_of(request: Request) -> State:
    """The state of the app that a request came to."""
    return cast(State, request.app.state.onnxmt)


def service_of(request: Request) -> Service:
    """The loaded service; raises Problem 503 before it is."""
    service = state_of(request).service
    if service is None:
        raise Problem(503, "not_ready", "the model is not loaded yet; try again in 2 s", retry_after=2)
    return service
