"""DeepL's API, version 2: /v2/translate, /v2/languages, /v2/usage. The official Python client works with it."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onnxmt.serve.answering import answered, authorize
from onnxmt.serve.asking import read_fields, texts_of
from onnxmt.serve.dialects.wishes import dropped, language, told, translated
from onnxmt.serve.problems import Problem, too_much
from onnxmt.serve.service import Wish
from onnxmt.serve.state import service_of, state_of
from onnxmt.text.formats.document import Format

_MOST_TEXTS = 50
# DeepL's own clients take 400 for a wrong request and 403 for a wrong key.
_STATUS = {401: 403, 408: 400, 415: 400, 422: 400}
_HINTS = ("context", "preserve_formatting", "model_type", "enable_beta_languages", "tag_handling_version")
_READ = (
    "text, source_lang, target_lang, split_sentences, tag_handling (html, xml), formality (default, prefer_more, "
    "prefer_less), show_billed_characters; without effect: " + ", ".join(_HINTS)
)
_TAGS: dict[str, Format] = {"html": "html", "xml": "html"}
_NO_QUOTA = 1_000_000_000_000


async def translate(request: Request) -> Response:
    """POST /v2/translate."""
    authorize_deepl = not state_of(request).keyring.needed or "authorization" in request.headers
    if authorize_deepl:
        authorize(request)
    fields = await read_fields(request, state_of(request).options.limits)
    key = fields.string("auth_key")  # how older clients send it
    if not authorize_deepl:
        authorize(request, key=key)
    found, _ = texts_of(fields.raw("text"), "text", state_of(request).options.limits)
    if len(found) > _MOST_TEXTS:
        raise too_much("too_many_items", "items in text", found=len(found), limit=_MOST_TEXTS)
    target = language(fields, "target_lang")
    if target is None:
        raise Problem(422, "bad_field", "target_lang is missing; a language code such as ZH is needed")
    wish = Wish(
        texts=found,
        source=language(fields, "source_lang"),
        target=target,
        split=fields.choice("split_sentences", {"0": False, "1": True}, default=True),
        format=fields.choice("tag_handling", _TAGS, default="text"),
    )
    fields.choice("formality", {"default": None, "prefer_more": None, "prefer_less": None}, default=None)
    billed = fields.yes("show_billed_characters")
    ignored = dropped(fields, _HINTS)
    fields.refuse_rest(allowed=_READ)
    results = await translated(request, wish)
    service = service_of(request)
    source = (wish.source or service.own("source")).upper()
    translations: list[dict[str, object]] = [
        {
            "detected_source_language": source,
            "text": result.text,
            **({"billed_characters": len(text)} if billed else {}),
        }
        for text, result in zip(found, results.results, strict=True)
    ]
    return told({"translations": translations}, ignored=ignored)


async def languages(request: Request) -> Response:
    """GET /v2/languages?type=source|target; the official client sends the type as a form."""
    authorize(request)
    fields = await read_fields(request, state_of(request).options.limits, query=True, needed=False)
    side = fields.choice("type", {"source": "source", "target": "target"}, default="source")
    more = {"supports_formality": False} if side == "target" else {}
    known = service_of(request).languages(side)
    return JSONResponse([{"language": code.upper(), "name": name, **more} for code, name in known.items()])


async def usage(request: Request) -> Response:
    """GET /v2/usage: characters since the server's start; there is no quota, so the limit is out of reach."""
    authorize(request)
    return JSONResponse({"character_count": service_of(request).characters, "character_limit": _NO_QUOTA})


def routes() -> list[Route]:
    """The routes of this dialect."""
    return [
        Route("/v2/translate", answered(translate, shape=_shape, status=_STATUS), methods=["POST"]),
        Route("/v2/languages", answered(languages, shape=_shape, status=_STATUS), methods=["GET"]),
        Route("/v2/usage", answered(usage, shape=_shape, status=_STATUS), methods=["GET"]),
    ]


def _shape(problem: Problem) -> Mapping[str, object]:
    return {"message": problem.message}
