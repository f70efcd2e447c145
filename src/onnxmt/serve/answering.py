"""Handlers → endpoints: keys and rate before the work, each API's own form of an error after it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onnxmt.errors import OnnxmtError
from onnxmt.serve.asking import ClientGone
from onnxmt.serve.problems import Problem, problem_of
from onnxmt.serve.state import state_of

Handler = Callable[[Request], Awaitable[Response]]
Shape = Callable[[Problem], Mapping[str, object]]
_log = logging.getLogger("onnxmt.serve")
# What proxies log for a client that left: no client ever reads it.
_CLIENT_CLOSED = 499


def own_shape(problem: Problem) -> Mapping[str, object]:
    """The error form of the service's own API."""
    return problem.to_dict()


def answered(handler: Handler, *, shape: Shape = own_shape, status: Mapping[int, int] | None = None) -> Handler:
    """Return an endpoint: `handler`, whose errors become answers in `shape`; `status` renames codes for a dialect."""

    async def endpoint(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientGone:
            return Response(status_code=_CLIENT_CLOSED)
        except OnnxmtError as error:
            problem = problem_of(error)
            if problem.status == 500:
                _log_failure(error)
        except Exception as error:  # noqa: BLE001  a fault of ours is an answer too, and its text never in the log
            _log_failure(error)
            problem = Problem(500, "internal", "the server failed; its log says where")
        code = (status or {}).get(problem.status, problem.status)
        return JSONResponse(dict(shape(problem)), status_code=code, headers=problem.headers())

    return endpoint


def authorize(request: Request, *, key: str | None = None) -> None:
    """Check the caller's key and rate; `key` is one that came in the body. Raises Problem 401 or 429."""
    state = state_of(request)
    caller = state.keyring.check(key or given_key(request))
    state.rate.take(caller or (request.client.host if request.client else ""))


def given_key(request: Request) -> str | None:
    """The API key in the headers, in any of the ways that clients send one."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "deepl-auth-key"):
        return value.strip()
    return request.headers.get("x-api-key") or request.headers.get("x-goog-api-key")


def _log_failure(error: BaseException) -> None:
    """Say what kind of fault it was and where; the message may quote a text, so it is left out."""
    trace, place = error.__traceback__, "?"
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}", trace.tb_next
    _log.error("request failed: %s in %s", type(error).__name__, place)
