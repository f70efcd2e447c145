"""The custom API of the browser extension Immersive Translate: {source_lang, target_lang, text_list}."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxmt.serve.answering import answered, authorize
from onnxmt.serve.asking import Fields, read_json, texts_of
from onnxmt.serve.dialects.wishes import language, told, translated
from onnxmt.serve.service import Wish
from onnxmt.serve.state import service_of, state_of

_READ = "text_list, source_lang, target_lang"


async def translate(request: Request) -> Response:
    """POST /immersive."""
    authorize(request)
    return await answer(request, Fields(await read_json(request, state_of(request).options.limits)))


async def answer(request: Request, fields: Fields) -> Response:
    """Answer a request whose fields are read."""
    texts, _ = texts_of(fields.raw("text_list"), "text_list", state_of(request).options.limits)
    wish = Wish(texts=texts, source=language(fields, "source_lang"), target=language(fields, "target_lang"))
    fields.refuse_rest(allowed=_READ)
    results = await translated(request, wish)
    source = wish.source or service_of(request).own("source")
    return told({"translations": [{"detected_source_lang": source, "text": one.text} for one in results.results]})


def routes() -> list[Route]:
    """The routes of this dialect."""
    return [Route("/immersive", answered(translate), methods=["POST"])]
