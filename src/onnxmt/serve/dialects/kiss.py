"""The custom API of the browser extension KISS Translator: {texts, from, to}, or {text, from, to} for one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxmt.serve.answering import answered, authorize
from onnxmt.serve.asking import Fields, read_json, texts_of
from onnxmt.serve.dialects.wishes import language, told, translated
from onnxmt.serve.problems import Problem
from onnxmt.serve.service import Wish
from onnxmt.serve.state import service_of, state_of

_READ = "texts (or text), from, to"


async def translate(request: Request) -> Response:
    """POST /kiss."""
    authorize(request)
    return await answer(request, Fields(await read_json(request, state_of(request).options.limits)))


async def answer(request: Request, fields: Fields) -> Response:
    """Answer a request whose fields are read: a list for `texts`, one object for `text`."""
    if "texts" in fields and "text" in fields:
        raise Problem(422, "bad_field", "both texts and text are there; send one of them")
    name = "text" if "text" in fields else "texts"
    texts, many = texts_of(fields.raw(name), name, state_of(request).options.limits)
    wish = Wish(texts=texts, source=language(fields, "from"), target=language(fields, "to"))
    fields.refuse_rest(allowed=_READ)
    results = await translated(request, wish)
    source = wish.source or service_of(request).own("source")
    found = [{"text": one.text, "src": source} for one in results.results]
    return told(found if many else found[0])


def routes() -> list[Route]:
    """The routes of this dialect."""
    return [Route("/kiss", answered(translate), methods=["POST"])]
