"""Around every request: its id, the headers that keep a browser safe, CORS, one log line without text, and metrics."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Collection, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxmt.serve.metrics import Metrics

_log = logging.getLogger("onnxmt.access")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE = {
    "content-security-policy": _CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_METHODS, _HEADERS = "GET, POST", "authorization, content-type, x-api-key, x-request-id"


class Edge:
    """ASGI middleware, the outermost. `paths` are those that may be a metric's label; another is `other`."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, paths: Collection[str], origins: Sequence[str]) -> None:
        self._app, self._metrics, self._paths, self._origins = app, metrics, frozenset(paths), frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope["onnxmt.request_id"] = request_id
        added = {**_SAFE, "x-request-id": request_id, **self._cors(headers.get("origin"))}
        status = 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                found = MutableHeaders(scope=message)
                for name, value in added.items():
                    found.setdefault(name, value)
            await send(message)

        self._metrics.in_flight.inc()
        try:
            if scope["method"] == "OPTIONS" and "access-control-allow-origin" in added:
                await Response(status_code=204)(scope, receive, send_with_headers)
            else:
                await self._app(scope, receive, send_with_headers)
        finally:
            self._metrics.in_flight.dec()
            self._done(scope, status, time.monotonic() - began, request_id)

    def _done(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = scope["path"] if scope["path"] in self._paths else "other"
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.duration.labels(route).observe(seconds)
        _log.info("%s %s %d %.1fms id=%s", _method(scope["method"]), route, status, 1000 * seconds, request_id)

    def _cors(self, origin: str | None) -> dict[str, str]:
        if origin is None or not self._origins or not ({"*", origin} & self._origins):
            return {}
        return {
            "access-control-allow-origin": "*" if "*" in self._origins else origin,
            "access-control-allow-methods": _METHODS,
            "access-control-allow-headers": _HEADERS,
            "access-control-max-age": "600",
            "cross-origin-resource-policy": "cross-origin",
            "vary": "origin",
        }


def _method(method: str) -> str:
    """The method in a log line; it comes from the client."""
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"
