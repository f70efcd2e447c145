"""POST /translate, the address of several dialects: the body's keys say which one it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxmt.serve.answering import Handler, answered, authorize
from onnxmt.serve.asking import Fields, read_fields
from onnxmt.serve.dialects import deeplx, immersive, kiss, libretranslate
from onnxmt.serve.problems import Problem
from onnxmt.serve.state import state_of

Answer = Callable[[Request, Fields], Awaitable[Response]]
_STATUS = {401: 403, 408: 400, 415: 400, 422: 400}


def routes(names: Collection[str]) -> list[Route]:
    """The route, where any of its dialects is switched on."""
    if not {"libretranslate", "deeplx", "immersive", "kiss"} & {*names}:
        return []
    return [Route("/translate", answered(_endpoint(frozenset(names)), shape=_shape, status=_STATUS), methods=["POST"])]


def _endpoint(names: frozenset[str]) -> Handler:
    async def translate(request: Request) -> Response:
        """POST /translate."""
        fields = await read_fields(request, state_of(request).options.limits)
        authorize(request, key=fields.string("api_key"))
        name, answer = _dialect(fields)
        if name not in names:
            raise Problem(422, "dialect_off", f"this is a request of {name}, which is switched off on this server")
        if name != "deeplx":
            return await answer(request, fields)
        in_shape = answered(lambda asked: answer(asked, fields), shape=_deeplx_shape, status=_STATUS)
        return await in_shape(request)

    return translate


def _dialect(fields: Fields) -> tuple[str, Answer]:
    """Which dialect a body is in: LibreTranslate has `q`, Immersive `text_list`, KISS `to`, DeepLX the `text` left."""
    kinds: Mapping[str, tuple[bool, Answer]] = {
        "libretranslate": ("q" in fields, libretranslate.answer),
        "immersive": ("text_list" in fields, immersive.answer),
        "kiss": ("texts" in fields or ("text" in fields and "to" in fields), kiss.answer),
        "deeplx": ("text" in fields and "to" not in fields, deeplx.answer),
    }
    found = [(name, answer) for name, (fits, answer) in kinds.items() if fits]
    if len(found) != 1:
        reason = "none of them is there" if not found else f"those of {' and '.join(name for name, _ in found)} are"
        raise Problem(
            422,
            "bad_field",
            "the text is read from one of q (LibreTranslate), text_list (Immersive Translate), texts (KISS Translator) "
            f"and text (DeepLX): {reason}",
        )
    return found[0]


def _shape(problem: Problem) -> Mapping[str, object]:
    return {"error": problem.message}


def _deeplx_shape(problem: Problem) -> Mapping[str, object]:
    return deeplx.shape(problem, status=_STATUS)
