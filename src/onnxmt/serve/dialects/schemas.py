"""The dialects in the OpenAPI document: what their requests hold, and an example of each that works."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxmt.serve.options import Limits

Schema = dict[str, Any]
_STRING: Schema = {"type": "string", "maxLength": 100}
_MOST_DEEPL_TEXTS = 50


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation of a dialect; `body` and `example` are empty where it takes none."""

    method: str
    path: str
    summary: str
    body: Schema = field(default_factory=dict)
    example: Schema = field(default_factory=dict)


def operations(
    names: Collection[str], limits: Limits, *, sources: Sequence[str], targets: Sequence[str]
) -> list[Operation]:
    """The operations of the dialects that are switched on; `sources` and `targets` are the languages, if known."""
    source = _language(["auto", "", *sources] if sources else ())
    target, optional = _language(targets), _language(["", *targets] if targets else ())
    text: Schema = {"type": "string", "maxLength": limits.characters}
    texts = _texts(text, limits.items)
    shared: Mapping[str, Schema] = {
        "libretranslate": _object(
            {
                "q": texts,
                "source": source,
                "target": target,
                "format": {"enum": ["text", "html", ""]},
                "alternatives": {"type": "integer", "minimum": 0, "maximum": limits.alternatives},
            },
            "q",
            "target",
        ),
        "deeplx": _object({"text": text, "source_lang": source, "target_lang": optional}, "text"),
        "immersive": _object(
            {"text_list": texts} | {"source_lang": source, "target_lang": optional},
            "text_list",
        ),
        "kiss": _object(
            {"texts": texts, "from": source, "to": optional},
            "texts",
        ),
    }
    found = []
    bodies = [body for name, body in shared.items() if name in names]
    if bodies:
        what = "LibreTranslate, DeepLX, Immersive Translate, KISS Translator: the body's keys say whose request it is."
        found.append(
            Operation(
                method="post",
                path="/translate",
                summary=what,
                body={"anyOf": bodies},
                example=_example(next(name for name in shared if name in names)),
            )
        )
    own = _own(text, texts, source, target, shared)
    return found + [operation for name, some in own.items() if name in names for operation in some]


def _own(
    text: Schema, texts: Schema, source: Schema, target: Schema, shared: Mapping[str, Schema]
) -> dict[str, tuple[Operation, ...]]:
    """The operations that belong to one dialect alone."""

    def post(path: str, summary: str, body: Schema, example: Schema) -> Operation:
        return Operation(method="post", path=path, summary=summary, body=body, example=example)

    deepl_texts = _texts(text, _MOST_DEEPL_TEXTS)
    return {
        "libretranslate": (
            Operation(method="get", path="/languages", summary="LibreTranslate's list of languages."),
            post(
                "/detect",
                "The share of letters in the source language's script.",
                _object({"q": texts}, "q"),
                {"q": "Good morning."},
            ),
        ),
        "deepl": (
            post(
                "/v2/translate",
                "DeepL's translation.",
                _object(
                    {
                        "text": deepl_texts,
                        "source_lang": source,
                        "target_lang": target,
                        "split_sentences": {"enum": ["0", "1", ""]},
                        "tag_handling": {"enum": ["html", "xml", ""]},
                        "formality": {"enum": ["default", "prefer_more", "prefer_less", ""]},
                        "context": {},
                        "preserve_formatting": {},
                        "show_billed_characters": {"enum": [True, False, 0, 1, "0", "1", "true", "false", ""]},
                    },
                    "text",
                    "target_lang",
                ),
                {"text": ["Good morning."], "target_lang": "ZH"},
            ),
            Operation(method="get", path="/v2/languages", summary="DeepL's list of languages."),
            Operation(method="get", path="/v2/usage", summary="DeepL's usage: characters since the server's start."),
        ),
        "google": (
            post(
                "/language/translate/v2",
                "Google's translation, version 2.",
                _object(
                    {"q": texts, "source": source, "target": target, "format": {"enum": ["html", "text", ""]}},
                    "q",
                    "target",
                ),
                {"q": ["Good morning."], "target": "zh", "format": "text"},
            ),
            Operation(method="get", path="/language/translate/v2/languages", summary="Google's list of languages."),
        ),
        "immersive": (
            post("/immersive", "Immersive Translate's custom API.", shared["immersive"], _example("immersive")),
        ),
        "kiss": (post("/kiss", "KISS Translator's custom API.", shared["kiss"], _example("kiss")),),
    }


def _example(name: str) -> Schema:
    examples: Mapping[str, Schema] = {
        "libretranslate": {"q": "Good morning.", "source": "en", "target": "zh"},
        "deeplx": {"text": "Good morning.", "source_lang": "EN", "target_lang": "ZH"},
        "immersive": {"text_list": ["Good morning."], "source_lang": "en", "target_lang": "zh"},
        "kiss": {"texts": ["Good morning."], "from": "en", "to": "zh"},
    }
    return examples[name]


def _object(fields: Schema, *required: str) -> Schema:
    nullable = {name: one if name in required else {"anyOf": [one, {"type": "null"}]} for name, one in fields.items()}
    return {"type": "object", "properties": nullable, "required": list(required), "additionalProperties": False}


def _texts(text: Schema, items: int) -> Schema:
    return {"anyOf": [text, {"type": "array", "items": text, "maxItems": items}]}


def _language(codes: Sequence[str]) -> Schema:
    return {"enum": list(codes)} if codes else _STRING
