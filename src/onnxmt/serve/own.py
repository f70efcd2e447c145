"""The service's own API: /v1/translate, /v1/translate/stream, /v1/models, and what an orchestrator asks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from onnxmt.serve.answering import answered, authorize
from onnxmt.serve.asking import read_json, texts_of, while_connected
from onnxmt.serve.problems import Problem
from onnxmt.serve.schemas import StreamRequest, TranslateRequest, checked
from onnxmt.serve.service import Result, Results, Service, Wish
from onnxmt.serve.state import service_of, state_of
from onnxmt.serve.streaming import Streamed, stream


async def translate(request: Request) -> Response:
    """POST /v1/translate."""
    asked, wish = await _asked(request, TranslateRequest)
    service = service_of(request)
    results = await while_connected(request, service.translate(wish))
    if asked.strict:
        _refuse_warnings(results)
    return JSONResponse(
        {
            "translations": [_result(result) for result in results.results],
            "model": service.translator.bundle.manifest.name,
            "timing": _timing(results),
        }
    )


async def translate_stream(request: Request) -> Response:
    """POST /v1/translate/stream: server-sent events `segment`, then `done` or `error`."""
    asked, wish = await _asked(request, StreamRequest)
    events = stream(request, service_of(request), wish, strict=asked.strict)
    first = await anext(events)  # what is refused is refused before the answer begins, with its own status

    async def lines() -> AsyncIterator[bytes]:
        yield _event(first)
        async for event in events:
            yield _event(event)

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


async def models(request: Request) -> Response:
    """GET /v1/models."""
    authorize(request)
    rollout = state_of(request).rollout
    if rollout is None:
        return JSONResponse({"models": [_model(service_of(request))]})
    return JSONResponse({"models": [{**_model(one.service), "role": role} for one, role in rollout.models()]})


async def live(_request: Request) -> Response:
    """GET /livez: the process answers."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """GET /readyz: the model is loaded and has translated."""
    service = state_of(request).service
    if service is None or not service.ready:
        raise Problem(503, "not_ready", "the model is not loaded yet", retry_after=2)
    return JSONResponse({"status": "ok"})


async def metrics(request: Request) -> Response:
    """GET /metrics, for Prometheus."""
    return PlainTextResponse(state_of(request).metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def routes() -> list[Route]:
    """The routes of this file."""
    return [
        Route("/v1/translate", answered(translate), methods=["POST"]),
        Route("/v1/translate/stream", answered(translate_stream), methods=["POST"]),
        Route("/v1/models", answered(models), methods=["GET"]),
        Route("/livez", answered(live), methods=["GET"]),
        Route("/healthz", answered(live), methods=["GET"]),
        Route("/readyz", answered(ready), methods=["GET"]),
        Route("/metrics", answered(metrics), methods=["GET"]),
    ]


async def _asked(request: Request, model: type[TranslateRequest]) -> tuple[TranslateRequest, Wish]:
    authorize(request)
    limits = state_of(request).options.limits
    values = await read_json(request, limits)
    if "text" not in values:
        raise Problem(422, "bad_field", "text is missing; a string or a list of strings is needed")
    texts, _ = texts_of(values["text"], "text", limits)
    asked = checked(model, values, limits)
    wish = Wish(
        texts=texts,
        source=asked.source or None,
        target=asked.target or None,
        beams=asked.beams,
        alternatives=asked.alternatives,
        new_tokens=asked.max_new_tokens,
        format=asked.format,
        glossary=service_of(request).glossary(asked.terms()) if asked.glossary else None,
        seconds=None if asked.timeout_ms is None else asked.timeout_ms / 1000,
    )
    return asked, wish


def _refuse_warnings(results: Results) -> None:
    found = [{"text": index, **warning} for index, result in enumerate(results.results) for warning in result.warnings]
    if found:
        message = f"strict: the translations have {len(found)} warning{'s' if len(found) > 1 else ''}"
        raise Problem(409, "warnings", message, details={"warnings": found})


def _result(result: Result) -> dict[str, Any]:
    return {
        "text": result.text,
        "score": result.score,
        "finished": result.finished,
        "alternatives": [{"text": other.text, "score": other.score} for other in result.alternatives],
        "warnings": list(result.warnings),
        **({} if result.glossary is None else {"glossary": list(result.glossary)}),
    }


def _timing(results: Results) -> dict[str, float]:
    return {
        "queue_ms": round(1000 * results.queue_seconds, 2),
        "compute_ms": round(1000 * results.compute_seconds, 2),
        "total_ms": round(1000 * results.total_seconds, 2),
    }


def _model(service: Service) -> Mapping[str, Any]:
    manifest, limits = service.translator.bundle.manifest, service.options.limits
    return {
        "name": manifest.name,
        "version": manifest.version,
        "precision": manifest.recipe,
        "architecture": manifest.architecture,
        "source_languages": service.languages("source"),
        "target_languages": service.languages("target"),
        "default_source": service.own("source"),
        "default_target": service.own("target"),
        "beams": service.translator.settings.num_beams,
        "limits": vars(limits),
    }


def _event(event: Streamed) -> bytes:
    return f"event: {event.name}\ndata: {json.dumps(event.data, ensure_ascii=False)}\n\n".encode()
