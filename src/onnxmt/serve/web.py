"""What a browser is given: the page at /, its two files, and /docs, which is made from the OpenAPI document."""

from __future__ import annotations

import functools
import html
import json
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import onnxmt
from onnxmt.serve.answering import Handler, answered
from onnxmt.serve.openapi import openapi_document
from onnxmt.serve.options import ServeOptions
from onnxmt.serve.state import state_of

_FILES = (
    ("/", "index.html", "text/html"),
    ("/page.css", "page.css", "text/css"),
    ("/page.js", "page.js", "text/javascript"),
)

_MOST_SHOWN = 8


def routes(options: ServeOptions) -> list[Route]:
    """The routes; the OpenAPI document is there without the page too. The files are read now, once."""

    @functools.cache
    def made(sources: tuple[str, ...], targets: tuple[str, ...]) -> tuple[dict[str, Any], bytes]:
        """The document and the page that shows it, for these languages."""
        document = openapi_document(options, version=onnxmt.__version__, sources=sources, targets=targets)
        return document, _docs(document).encode()

    def known(request: Request) -> tuple[dict[str, Any], bytes]:
        service = state_of(request).service
        return (
            made((), ()) if service is None else made((*service.languages("source"),), (*service.languages("target"),))
        )

    async def openapi(request: Request) -> Response:
        return JSONResponse(known(request)[0])

    async def docs(request: Request) -> Response:
        return Response(known(request)[1], media_type="text/html; charset=utf-8")

    found = [Route("/openapi.json", answered(openapi), methods=["GET"])]
    if not options.page:
        return found
    folder = files("onnxmt.serve") / "page"
    contents = [(path, (folder / name).read_bytes(), kind) for path, name, kind in _FILES]
    return [
        *found,
        Route("/docs", answered(docs), methods=["GET"]),
        *(Route(path, answered(_given(content, kind)), methods=["GET"]) for path, content, kind in contents),
    ]


def _given(content: bytes, kind: str) -> Handler:
    async def give(_request: Request) -> Response:
        headers = {"cache-control": "no-cache"}
        return Response(content, media_type=f"{kind}; charset=utf-8", headers=headers)

    return give


def _docs(document: dict[str, Any]) -> str:
    """The OpenAPI document as a page."""
    parts = [
        _operation(document, path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>onnxmt API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="page.css"></head><body><header><h1>onnxmt API</h1>'
        '<nav><a href="./">Translate</a><a href="openapi.json">openapi.json</a></nav></header>'
        f"<main>{''.join(parts)}</main></body></html>"
    )


def _operation(document: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f"<article><h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{_text(operation['summary'])}</p>"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    command = f"curl -s localhost:8000{path}"
    if body is not None:
        name = body["schema"].get("$ref", "").rpartition("/")[2]
        if name:
            parts.append(_fields(document["components"]["schemas"][name]))
        example = json.dumps(body["example"], ensure_ascii=False)
        command += f" \\\n  -H 'content-type: application/json' \\\n  -d '{example}'"
    parts.append(f"<pre>{html.escape(command)}</pre>")
    rows = "".join(
        f"<tr><td>{code}</td><td>{_text(answer['description'])}</td></tr>"
        for code, answer in operation["responses"].items()
    )
    return "".join(parts) + f'<div class="scroll"><table><tbody>{rows}</tbody></table></div></article>'


def _fields(schema: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{name}</code></td><td>{html.escape(_kind(field))}</td>"
        f"<td>{_text(field.get('description', ''))}</td></tr>"
        for name, field in schema["properties"].items()
    )
    return f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'


def _kind(field: dict[str, Any]) -> str:
    """A field's type in words."""
    if "anyOf" in field:
        return " or ".join(_kind(one) for one in field["anyOf"] if one.get("type") != "null")
    if "enum" in field or "const" in field:
        values = [value for value in field.get("enum", [field.get("const")]) if value is not None]
        return " or ".join(json.dumps(value) for value in values[:_MOST_SHOWN]) + (" …" if values[_MOST_SHOWN:] else "")
    kind = str(field.get("type", "object"))
    if kind == "array":
        return f"list of {_kind(field['items'])}"
    bounds = [f"{sign} {field[key]:,}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in field]
    return " ".join((kind, *bounds))


def _text(text: str) -> str:
    return html.escape(text)
