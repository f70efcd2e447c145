"""The OpenAPI document of the service, from the same models that check requests, with this server's own limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from onnxmt.serve.dialects.schemas import Operation, operations
from onnxmt.serve.options import Limits, ServeOptions
from onnxmt.serve.schemas import ErrorAnswer, ModelsAnswer, StreamRequest, TranslateAnswer, TranslateRequest

_MODELS: tuple[type[BaseModel], ...] = (TranslateRequest, StreamRequest, TranslateAnswer, ModelsAnswer, ErrorAnswer)
_ERRORS = {
    "400": "The body is not JSON.",
    "401": "An API key is needed, or the one that came is not known.",
    "408": "The body did not arrive in time.",
    "409": "`strict`: the translation has warnings, which are listed.",
    "413": "A limit on size is passed; the message says which, and how much is allowed.",
    "415": "Another content type than application/json.",
    "422": "A field is wrong; the message says which, and what is allowed.",
    "429": "The queue is full, or the caller's rate is used up; see Retry-After.",
    "500": "The server failed; a request that causes this is a bug.",
    "503": "Not ready, short of memory, or stopping; see Retry-After.",
    "504": "Not done within the deadline.",
}
_EXAMPLE = {"text": ["Good morning.", "The library opens at nine."]}


def openapi_document(
    options: ServeOptions, *, version: str, sources: Sequence[str] = (), targets: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the document; examples in it work as they are.

    `sources` and `targets` are the languages as far as they are known; other spellings of them are taken too.
    """
    security: list[dict[str, list[str]]] = [{"bearer": []}] if options.keys else []
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "onnxmt",
            "version": version,
            "description": "Translation by one model. Limits of this server are in the schemas.",
        },
        "paths": _paths(options, sources=sources, targets=targets),
        "components": {
            "schemas": _schemas(options.limits, sources=sources, targets=targets),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": security,
    }


def _paths(options: ServeOptions, *, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
    wrong = ("400", "401", "408", "409", "413", "415", "422", "429", "500", "503", "504")
    stream = "Segments as server-sent events: `segment` (`append` or `replace`, `span`, `warnings`), `done`, `error`."
    paths: dict[str, Any] = {
        "/v1/translate": {
            "post": _operation(
                "Translate a text or a list of texts.",
                body="TranslateRequest",
                example=_EXAMPLE,
                answer=_json("TranslateAnswer"),
                errors=wrong,
            )
        },
        "/v1/translate/stream": {
            "post": _operation(
                stream,
                body="StreamRequest",
                example={"text": "It rained. We stayed in."},
                answer={"text/event-stream": {"schema": {}}},
                errors=wrong,
            )
        },
        "/v1/models": {
            "get": _operation(
                "What is served, and its limits.", answer=_json("ModelsAnswer"), errors=("401", "429", "503")
            )
        },
    }
    ok = {"application/json": {"schema": {"type": "object", "properties": {"status": {"const": "ok"}}}}}
    for path, summary, errors in (
        ("/livez", "The process answers.", ()),
        ("/readyz", "The model is loaded and warm.", ("503",)),
    ):
        paths[path] = {"get": {**_operation(summary, answer=ok, errors=errors), "security": []}}
    text = {"text/plain": {"schema": {"type": "string"}}}
    paths["/metrics"] = {"get": {**_operation("Metrics for Prometheus.", answer=text), "security": []}}
    for operation in operations(options.dialects, options.limits, sources=sources, targets=targets):
        paths[operation.path] = {operation.method: _dialect(operation)}
    return paths


def _operation(
    summary: str,
    *,
    answer: Mapping[str, Any],
    errors: tuple[str, ...] = (),
    body: str | None = None,
    example: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    responses = {"200": {"description": "Done.", "content": dict(answer)}}
    responses |= {code: {"description": _ERRORS[code], "content": _json("ErrorAnswer")} for code in errors}
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _reference(body), "example": dict(example or {})}},
        }
    return operation


def _dialect(dialect: Operation) -> dict[str, Any]:
    """An operation of another service's API; its answers are as that service documents them."""
    answer: Mapping[str, Any] = {"application/json": {"schema": {}}}
    operation = _operation(dialect.summary, answer=answer)
    for code in sorted({*_ERRORS, "403"}):
        operation["responses"][code] = {"description": "As that service says it.", "content": dict(answer)}
    if dialect.body:
        content = {"schema": dialect.body, "example": dialect.example}
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return operation


def _schemas(limits: Limits, *, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for model in _MODELS:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    text = {"type": "string", "maxLength": limits.characters}
    for name in ("TranslateRequest", "StreamRequest"):
        fields = schemas[name]["properties"]
        fields["text"] = {
            **(
                {"anyOf": [text, {"type": "array", "items": text, "maxItems": limits.items}]}
                if name == "TranslateRequest"
                else text
            ),
            "description": fields["text"]["description"] + f" At most {limits.characters:,} characters in all.",
        }
        for side, codes in (("source", sources), ("target", targets)):
            if codes:
                fields[side] = {"enum": [None, *codes], "default": None, "description": fields[side]["description"]}
        for one in fields["glossary"]["anyOf"]:
            if one["type"] == "object":
                one["maxProperties"] = limits.glossary_terms
        _at_most(fields["beams"], limits.beams)
        _at_most(fields["max_new_tokens"], limits.new_tokens)
    _at_most(schemas["TranslateRequest"]["properties"]["alternatives"], limits.alternatives)
    return schemas


def _at_most(field: dict[str, Any], most: int) -> None:
    for schema in (field, *field.get("anyOf", ())):
        if schema.get("type") == "integer":
            schema["maximum"] = most


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(name)}}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
