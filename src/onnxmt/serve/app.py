"""`create_app`: the routes, the life of the model behind them, and what is answered where nothing else is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
from onnxmt.serve import dialects, own, web
from onnxmt.serve.edge import Edge
from onnxmt.serve.files import KeptFiles
from onnxmt.serve.keys import Keyring, RateLimit
from onnxmt.serve.metrics import Metrics
from onnxmt.serve.options import ServeOptions
from onnxmt.serve.problems import Problem
from onnxmt.serve.rollout import Rollout
from onnxmt.serve.rollout_options import RolloutPlan
from onnxmt.serve.rollout_request import Pinning
from onnxmt.serve.service import Service
from onnxmt.serve.state import State


def create_app(
    model: str | os.PathLike[str] | Translator | None = None,
    *,
    options: ServeOptions | None = None,
    runtime: RuntimeOptions | None = None,
    rollout: RolloutPlan | None = None,
) -> Starlette:
    """Return the service as an ASGI app; it loads and warms the model when it starts, and is ready when it has.

    `model` is a bundle's folder, NAME:VERSION|ALIAS in the store, None for the demo model, or a Translator, which stays
    the caller's to close. With a `rollout` (serve.rollout_options) the service follows a name of the store; `model` is
    then what it means now, and is closed when another version has taken its place. Starting raises what
    `Translator.load` raises.
    """
    options = options or ServeOptions()
    state = State(
        options=options,
        metrics=Metrics(),
        keyring=Keyring(options.keys),
        rate=RateLimit(options.requests_per_minute),
        files=KeptFiles(),
    )

    @asynccontextmanager
    async def life(_app: Starlette) -> AsyncIterator[None]:
        given = isinstance(model, Translator)
        translator = model if isinstance(model, Translator) else await asyncio.to_thread(_load, model, runtime)
        try:
            async with _served(state, translator, rollout):
                yield
        finally:
            if not given:
                translator.close()

    routes = _routes(options)
    app = Starlette(
        routes=routes,
        lifespan=life,
        middleware=[
            Middleware(Edge, metrics=state.metrics, paths=[route.path for route in routes], origins=options.origins),
            Middleware(Pinning, state=state),
        ],
        exception_handlers={HTTPException: _no_route},
    )
    app.state.onnxmt = state
    return app


@asynccontextmanager
async def _served(state: State, translator: Translator, plan: RolloutPlan | None) -> AsyncIterator[None]:
    """Put the service around the translator into the state, warm, while the block runs."""
    if plan is None:
        state.service = Service(translator, state.options, state.metrics)
        await state.service.warm()
        try:
            yield
        finally:
            await state.service.close()
            state.service = None
        return

    def use(service: Service) -> None:
        state.service = service

    state.rollout = Rollout(translator, plan, options=state.options, metrics=state.metrics, use=use)
    await state.rollout.start()
    try:
        yield
    finally:
        await state.rollout.close()
        state.service = state.rollout = None


def _load(model: str | os.PathLike[str] | None, runtime: RuntimeOptions | None) -> Translator:
    return Translator.load(model, options=runtime)


def _routes(options: ServeOptions) -> list[Route]:
    return [*own.routes(), *dialects.routes(options.dialects), *web.routes(options)]


# Both are Starlette's own: no route for the path, or none for the method.
_NO_ROUTE: Mapping[int, tuple[str, str]] = {
    404: ("not_found", "there is nothing at this address; /docs lists what there is"),
    405: ("method_not_allowed", "this address does not take this method; /docs lists what there is"),
}


async def _no_route(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code, message = _NO_ROUTE.get(error.status_code, ("http_error", error.detail))
    problem = Problem(error.status_code, code, message)
    return JSONResponse(problem.to_dict(), status_code=error.status_code, headers=error.headers)
