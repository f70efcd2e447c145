"""Google's Cloud Translation API, version 2: /language/translate/v2 and its list of languages."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onnxmt.serve.answering import answered, authorize
from onnxmt.serve.asking import read_fields, texts_of
from onnxmt.serve.dialects.wishes import dropped, language, told, translated
from onnxmt.serve.problems import Problem
from onnxmt.serve.service import Wish
from onnxmt.serve.state import service_of, state_of
from onnxmt.text.formats.document import Format

_STATUS = {401: 403, 408: 400, 415: 400, 422: 400}
_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "PERMISSION_DENIED",
    413: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_FORMATS: dict[str, Format] = {"html": "html", "text": "text"}
_HINTS = ("model", "prettyPrint", "alt", "cid")
_READ = "q, source, target, format (html, text), key; without effect: " + ", ".join(_HINTS)


async def translate(request: Request) -> Response:
    """POST /language/translate/v2; `format` is html where it is not named, as in Google's."""
    fields = await read_fields(request, state_of(request).options.limits, query=True)
    authorize(request, key=fields.string("key"))
    found, _ = texts_of(fields.raw("q"), "q", state_of(request).options.limits)
    target = language(fields, "target")
    if target is None:
        raise Problem(422, "bad_field", "target is missing; a language code such as zh is needed")
    wish = Wish(
        texts=found,
        source=language(fields, "source"),
        target=target,
        format=fields.choice("format", _FORMATS, default="html"),
    )
    ignored = dropped(fields, _HINTS)
    fields.refuse_rest(allowed=_READ)
    results = await translated(request, wish)
    detected = {} if wish.source else {"detectedSourceLanguage": service_of(request).own("source")}
    translations = [{"translatedText": result.text, **detected} for result in results.results]
    return told({"data": {"translations": translations}}, ignored=ignored)


async def languages(request: Request) -> Response:
    """GET /language/translate/v2/languages."""
    fields = await read_fields(request, state_of(request).options.limits, query=True, needed=False)
    authorize(request, key=fields.string("key"))
    named = fields.string("target") is not None  # the language that names are wanted in: they are English here
    service = service_of(request)
    known = {**service.languages("source"), **service.languages("target")}
    found = [{"language": code, **({"name": name} if named else {})} for code, name in known.items()]
    return JSONResponse({"data": {"languages": found}})


def routes() -> list[Route]:
    """The routes of this dialect."""
    return [
        Route("/language/translate/v2", answered(translate, shape=_shape, status=_STATUS), methods=["POST"]),
        Route(
            "/language/translate/v2/languages",
            answered(languages, shape=_shape, status=_STATUS),
            methods=["GET"],
        ),
    ]


def _shape(problem: Problem) -> Mapping[str, object]:
    code = _STATUS.get(problem.status, problem.status)
    return {
        "error": {
            "code": code,
            "message": problem.message,
            "errors": [{"message": problem.message, "domain": "global", "reason": problem.code}],
            "status": _NAMES.get(problem.status, "INTERNAL"),
        }
    }
