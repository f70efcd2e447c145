"""Which evaluation texts fit a model: its languages decide the direction, and whether there are references."""

from __future__ import annotations

import dataclasses
from typing import Literal

from onnxmt.errors import UsageError
from onnxmt.manifest import Languages
from onnxmt.measure.texts import EvaluationSet, shipped_texts
from onnxmt.runtime.languages import LanguageChoice, is_chinese, parse_language

_ENGLISH = "eng"


def texts_for(languages: Languages, *, model: str) -> EvaluationSet:
    """Return the shipped set as far as it serves a model of these languages.

    English to Chinese as it is, Chinese to English turned round, from either to another language without references. A
    model that does not say what it translates gets the English sentences without references. Raises UsageError for a
    model that reads neither language.
    """
    texts = shipped_texts()
    source = (languages.default_source,) if languages.default_source else languages.source
    target = (languages.default_target,) if languages.default_target else languages.target
    if not source and not target:
        return texts.without_references()
    if (reads := _english(source)) and (writes := _chinese(target)):
        return _between(texts, reads, writes)
    if (reads := _chinese(source)) and (writes := _english(target)):
        return _between(texts.swapped(), reads, writes)
    if not source:
        sides = {"zh": texts, "en": texts.swapped()}
        return next((sides[code] for code, found in (("zh", _chinese(target)), ("en", _english(target))) if found),
                    texts.without_references())  # fmt: skip
    if reads := _english(source):
        return _between(texts.without_references(), reads, languages.default_target)
    if reads := _chinese(source):
        return _between(texts.swapped().without_references(), reads, languages.default_target)
    raise UsageError(
        f"{model} translates from {', '.join(source[:5])}, and the shipped evaluation set is English and "
        "Chinese: name a file of your own (--evaluation FILE: DOMAIN, tab, SOURCE, tab, REFERENCE), or go without the "
        "comparison (--gate off)"
    )


def requested_language(codes: tuple[str, ...], wanted: str | None) -> str | None:
    """Return what to ask a model for: its own code of the language `wanted`, None where it has one language only or
    does not have this one."""
    if wanted is None or len(codes) < 2:
        return None
    choice = LanguageChoice(codes)
    return choice.resolve(wanted, role="target") if choice.means(wanted) else None


def required_language(codes: tuple[str, ...], wanted: str | None, *, role: Literal["source", "target"]) -> str | None:
    """Return the same for a language that a user named: UnknownLanguageError where the model has several, not this."""
    return None if wanted is None or len(codes) < 2 else LanguageChoice(codes).resolve(wanted, role=role)


def scored_language(texts: EvaluationSet, languages: Languages) -> str | None:
    """Return the language that outputs are in: the set's, or else the model's where it has only one."""
    stated = texts.target_language or languages.default_target
    if stated is not None:
        return stated
    if languages.target and all(is_chinese(code) for code in languages.target):
        return "zh"
    return languages.target[0] if len(languages.target) == 1 else None


def _between(texts: EvaluationSet, source: str, target: str | None) -> EvaluationSet:
    """The set in the model's own codes."""
    return dataclasses.replace(texts, source_language=source, target_language=target)


def _english(codes: tuple[str, ...]) -> str | None:
    """The model's code of English."""
    return next((code for code in codes if (found := parse_language(code)) and found.base == _ENGLISH), None)


def _chinese(codes: tuple[str, ...]) -> str | None:
    """The model's code of Chinese: of Simplified Chinese, as the set is, where it has that."""
    choice = LanguageChoice(codes)
    if choice.means("zh"):
        return choice.resolve("zh", role="target")
    return next((code for code in codes if is_chinese(code)), None)
