"""LibreTranslate's API: /translate (by way of shared_address), /languages, /detect, /translate_file, /health."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Mapping
from pathlib import PurePath

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onnxmt.runtime.languages import usual_script
from onnxmt.serve.answering import answered, authorize
from onnxmt.serve.asking import Fields, read_body, read_fields, texts_of
from onnxmt.serve.dialects.wishes import language, others, told, translated
from onnxmt.serve.own import ready
from onnxmt.serve.problems import Problem
from onnxmt.serve.service import Service, Wish
from onnxmt.serve.state import service_of, state_of
from onnxmt.text.formats.document import Format
from onnxmt.text.formats.registry import format_of_name

_STATUS = {401: 403, 408: 400, 415: 400, 422: 400}
_FORMATS: dict[str, Format] = {"text": "text", "html": "html"}
_FILES = ".txt, .md, .html, .htm, .xhtml, .srt, .po, .pot, .json"
_KINDS: dict[Format, str] = {
    "text": "text/plain",
    "markdown": "text/markdown",
    "html": "text/html",
    "srt": "application/x-subrip",
    "po": "text/x-gettext-translation",
    "json": "application/json",
}
_READ = "q, source, target, format (text, html), alternatives, api_key"
_MOST_FORM_PARTS = 10
# How letters of a script are named in Unicode; Han text may hold Latin words, which say little.
_SCRIPTS = {"Latn": "LATIN", "Cyrl": "CYRILLIC", "Grek": "GREEK", "Arab": "ARABIC", "Hebr": "HEBREW"} | {
    "Deva": "DEVANAGARI",
    "Thai": "THAI",
    "Hang": "HANGUL",
    "Hans": "CJK",
    "Hant": "CJK",
    "Hani": "CJK",
}


async def answer(request: Request, fields: Fields) -> Response:
    """Answer /translate, whose fields are read."""
    limits = state_of(request).options.limits
    found, many = texts_of(fields.raw("q"), "q", limits)
    source = language(fields, "source")
    wish = Wish(
        texts=found,
        source=source,
        target=language(fields, "target"),
        format=fields.choice("format", _FORMATS, default="text"),
        alternatives=fields.number("alternatives", least=0, most=limits.alternatives) or 0,
    )
    fields.refuse_rest(allowed=_READ)
    if wish.target is None:
        raise Problem(422, "bad_field", "target is missing; a language code such as zh is needed")
    results = (await translated(request, wish)).results
    value: dict[str, object] = {"translatedText": [one.text for one in results] if many else results[0].text}
    if wish.alternatives:
        value["alternatives"] = [others(one) for one in results] if many else others(results[0])
    if source is None:
        guesses = [_guess(service_of(request), text) for text in found]
        value["detectedLanguage"] = guesses if many else guesses[0]
    return told(value)


async def languages(request: Request) -> Response:
    """GET /languages."""
    service = service_of(request)
    sources, targets = service.languages("source"), service.languages("target")
    known = [{"code": code, "name": name, "targets": list(targets)} for code, name in sources.items()]
    known += [{"code": code, "name": name, "targets": []} for code, name in targets.items() if code not in sources]
    return JSONResponse(known)


async def detect(request: Request) -> Response:
    """POST /detect: only how much of the text is in the script of the language that the model reads."""
    fields = await read_fields(request, state_of(request).options.limits)
    authorize(request, key=fields.string("api_key"))
    found, _ = texts_of(fields.raw("q"), "q", state_of(request).options.limits)
    fields.refuse_rest(allowed="q, api_key")
    service = service_of(request)
    if not service.own("source"):
        count = len(service.languages("source"))
        raise Problem(422, "no_detection", f"this model reads {count} languages and cannot tell them apart; name one")
    return JSONResponse([_guess(service, "\n".join(found))])


async def translate_file(request: Request) -> Response:
    """POST /translate_file: a file whose name tells its format; the answer says where its translation lies a while."""
    state = state_of(request)
    body = await read_body(request, state.options.limits)
    fields, upload = await _parts(request, body)
    authorize(request, key=fields.string("api_key"))
    name = (upload.filename or "").lower()
    form = "text" if name.endswith(".txt") else format_of_name(name)
    if form is None:
        raise Problem(422, "bad_file", f"this kind of file is not supported; allowed: {_FILES}")
    try:
        text = (await upload.read()).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Problem(422, "bad_file", "the file is not UTF-8 text") from None
    texts, _ = texts_of(text, "file", state.options.limits)
    wish = Wish(texts=texts, source=language(fields, "source"), target=language(fields, "target"), format=form)
    fields.refuse_rest(allowed="file, source, target, api_key")
    results = await translated(request, wish)
    ticket = state.files.keep(
        results.results[0].text.encode(), kind=_KINDS[form], name=f"translated.{PurePath(name).suffix[1:]}"
    )
    return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", ticket=ticket))})


async def download_file(request: Request) -> Response:
    """GET /download_file/TICKET: a translated file; never shown as a page of this server."""
    found = state_of(request).files.find(request.path_params["ticket"])
    if found is None:
        raise Problem(404, "not_found", "this file is not here, or no longer")
    headers = {"content-disposition": f'attachment; filename="{found.name}"', "cache-control": "no-store"}
    return Response(found.content, media_type=f"{found.kind}; charset=utf-8", headers=headers)


def routes() -> list[Route]:
    """The routes of this dialect; /translate is in shared_address."""
    return [
        Route("/languages", answered(languages, shape=_shape, status=_STATUS), methods=["GET"]),
        Route("/detect", answered(detect, shape=_shape, status=_STATUS), methods=["POST"]),
        Route("/translate_file", answered(translate_file, shape=_shape, status=_STATUS), methods=["POST"]),
        Route(
            "/download_file/{ticket}",
            answered(download_file, shape=_shape, status=_STATUS),
            methods=["GET"],
            name="download_file",
        ),
        Route("/health", answered(ready, shape=_shape), methods=["GET"]),
    ]


class _InMemory(MultiPartParser):
    """Keeps an upload in memory whatever its size: the body is within its limit, and nothing goes to the disk."""

    spool_max_size = 1 << 62


async def _parts(request: Request, body: bytes) -> tuple[Fields, UploadFile]:
    async def stream() -> AsyncIterator[bytes]:
        yield body

    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise Problem(415, "not_multipart", "a multipart/form-data body with the part `file` is read here")
    try:
        parser = _InMemory(request.headers, stream(), max_files=1, max_fields=_MOST_FORM_PARTS)  # type: ignore[arg-type]
        form = await parser.parse()
    # a missing boundary is a KeyError in Starlette, a malformed part its own exception
    except (MultiPartException, KeyError, ValueError, LookupError):
        raise Problem(400, "bad_form", "the multipart body cannot be read") from None
    upload = form.get("file")
    if not isinstance(upload, UploadFile):
        raise Problem(422, "bad_field", "the part `file` is missing; a file is needed")
    plain = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    return Fields(plain, text=True), upload


def _guess(service: Service, text: str) -> dict[str, object]:
    """The language that the model reads, with the share of letters in its script: the only thing that can be told."""
    code = service.own("source")
    start = _SCRIPTS.get(usual_script(code) or "")
    letters = [character for character in text if character.isalpha()]
    if start is None or not letters:
        return {"language": code, "confidence": 0.0}
    own = sum(unicodedata.name(letter, "").startswith(start) for letter in letters)
    return {"language": code, "confidence": round(100 * own / len(letters), 1)}


def _shape(problem: Problem) -> Mapping[str, object]:
    return {"error": problem.message}
