"""DeepLX, a free stand-in for DeepL that many clients know: {text, source_lang, target_lang} at /translate."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from onnxmt.serve.asking import Fields, texts_of
from onnxmt.serve.dialects.wishes import language, others, told, translated
from onnxmt.serve.problems import Problem
from onnxmt.serve.service import Wish
from onnxmt.serve.state import service_of, state_of

_MOST_ALTERNATIVES = 3


async def answer(request: Request, fields: Fields) -> Response:
    """Answer a request whose fields are read; alternatives are those that the model's own beams give."""
    texts, many = texts_of(fields.raw("text"), "text", state_of(request).options.limits)
    if many:
        raise Problem(422, "bad_field", "text is a list; one string is read here")
    service = service_of(request)
    wish = Wish(
        texts=texts,
        source=language(fields, "source_lang"),
        target=language(fields, "target_lang"),
        alternatives=min(_MOST_ALTERNATIVES, service.translator.settings.num_beams - 1),
    )
    fields.refuse_rest(allowed="text, source_lang, target_lang")
    found = (await translated(request, wish)).results[0]
    return told(
        {
            "code": 200,
            "id": secrets.randbelow(10**10),
            "data": found.text,
            "alternatives": others(found),
            "source_lang": (wish.source or service.own("source")).upper(),
            "target_lang": (wish.target or service.own("target")).upper(),
            "method": "Free",
        }
    )


def shape(problem: Problem, *, status: Mapping[int, int]) -> Mapping[str, object]:
    """The error form of this dialect."""
    return {"code": status.get(problem.status, problem.status), "message": problem.message}
