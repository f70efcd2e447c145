"""One request among versions: which one answers it, and production in its place where a canary cannot."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import TYPE_CHECKING, Any, Literal

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxmt.errors import OnnxmtError
from onnxmt.serve.problems import problem_of
from onnxmt.serve.rollout_loading import Loaded
from onnxmt.serve.service import Results, Wish

if TYPE_CHECKING:
    from onnxmt.serve.rollout import Rollout
    from onnxmt.serve.state import State

Role = Literal["production", "canary", "shadow"]
Outcome = Literal["ok", "refused", "busy", "error"]

SERVICE_KEY = "onnxmt.service"
"""Where a request's scope holds the service that it is pinned to."""
_log = logging.getLogger("onnxmt.serve")
_VERSION_HEADER = "x-onnxmt-version"
# So much of a request's time a canary gets before production takes over.
_CANARY_SHARE = 0.5
_PRODUCTION: Role = "production"


class PinnedRequest:
    """Stands for a Service while one request lasts: the same version for all of it, whatever is switched meanwhile."""

    def __init__(self, rollout: Rollout, *, production: Loaded, canary: Loaded | None, shadow: Loaded | None) -> None:
        self._rollout, self._production, self._canary, self._shadow = rollout, production, canary, shadow
        self._held = [one for one in (production, canary) if one is not None]
        self.answered_by: str | None = None
        for one in self._held:
            one.users += 1

    def __getattr__(self, name: str) -> Any:
        """Everything else is the chosen version's service."""
        return getattr((self._canary or self._production).service, name)

    @property
    def characters(self) -> int:
        """Of all versions together."""
        return self._rollout.characters

    def release(self) -> None:
        """The request is over."""
        for one in self._held:
            one.users -= 1
        self._held = []

    async def translate(self, wish: Wish) -> Results:
        """Translate with the version that the request is pinned to; raises as Service.translate does.

        What a canary cannot do, for whatever reason, production does in the time that is left.
        """
        canary = self._canary
        if canary is None or canary is not self._rollout.canary:  # none, or returned since
            return await self._by_production(wish)
        began = time.monotonic()
        most = self._production.service.options.limits.deadline_seconds
        seconds = min(wish.seconds or most, most)
        try:
            results = await canary.service.translate(dataclasses.replace(wish, seconds=_CANARY_SHARE * seconds))
        except OnnxmtError as error:
            outcome = outcome_of(error)
        except Exception as error:  # noqa: BLE001  a fault of the version that is tried is no client's
            _log.error("canary %s failed: %s", canary.version, type(error).__name__)
            outcome = "error"
        else:
            return await self._settled(canary, wish, results, left=_left(began, seconds))
        left, done = _left(began, seconds), False
        try:
            results = await self._by_production(dataclasses.replace(wish, seconds=left))
            done = True
        finally:  # what production refuses too is the request's own fault
            self._rollout.failed(canary, "canary", outcome, counts=done and outcome != "busy")
        return results

    async def _settled(self, canary: Loaded, wish: Wish, results: Results, *, left: float) -> Results:
        """Give a canary's answer; production's where the canary's has more warnings, which a strict client refuses."""
        self.answered_by = canary.version
        found = _warnings(results)
        if not found:
            self._rollout.answered(canary, "canary", results)
            self._rollout.compare_later(canary, "canary", wish, results)
            return results
        try:
            other = await self._production.quiet.translate(dataclasses.replace(wish, seconds=left))
        except OnnxmtError:  # no time or no room for a second opinion
            self._rollout.answered(canary, "canary", results)
            return results
        self._rollout.answered(canary, "canary", results)
        self._rollout.compared(canary, results, other)
        if _warnings(other) < found:
            self.answered_by = self._production.version
            return other
        return results

    async def _by_production(self, wish: Wish) -> Results:
        production = self._production
        try:
            results = await production.service.translate(wish)
        except OnnxmtError as error:
            self._rollout.failed(production, _PRODUCTION, outcome_of(error), counts=False)
            raise
        except Exception:
            self._rollout.failed(production, _PRODUCTION, "error", counts=False)
            raise
        self.answered_by = production.version
        self._rollout.answered(production, _PRODUCTION, results)
        if self._shadow is not None and self._shadow is self._rollout.canary:
            self._rollout.compare_later(production, _PRODUCTION, wish, results)
        return results


def _left(began: float, seconds: float) -> float:
    return max(0.1, seconds - (time.monotonic() - began))


def _warnings(results: Results) -> int:
    return sum(len(result.warnings) for result in results.results)


def outcome_of(error: OnnxmtError) -> Outcome:
    """What kind of failure it was: the request's own, one of the moment, or the version's."""
    status = problem_of(error).status
    if status in (429, 503):
        return "busy"
    return "refused" if status < 500 else "error"


class Pinning:
    """ASGI middleware: each request is pinned to a version, and its answer says to which."""

    def __init__(self, app: ASGIApp, *, state: State) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        rollout = self._state.rollout
        if scope["type"] != "http" or rollout is None:
            await self._app(scope, receive, send)
            return
        pinned = rollout.pin(scope.get("onnxmt.request_id", ""))
        scope[SERVICE_KEY] = pinned

        async def send_with_version(message: Message) -> None:
            if message["type"] == "http.response.start" and pinned.answered_by is not None:
                MutableHeaders(scope=message)[_VERSION_HEADER] = pinned.answered_by
            await send(message)

        try:
            await self._app(scope, receive, send_with_version)
        finally:
            pinned.release()
