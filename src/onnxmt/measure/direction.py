"""Which evaluation texts fit a model: its languages decide the direction, and whether there are references."""

from __future__ import annotations

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
    english, chinese = (_has_english(source), _has_chinese(source))
    if not source and not target:
        return texts.without_references()
    if (english or not source) and _has_chinese(target):
        return texts
    if (chinese or not source) and _has_english(target):
        return texts.swapped()
    if english or not source:
        return texts.without_references()
    if chinese:
        return texts.swapped().without_references()
    raise UsageError(
        f"{model} translates from {', '.join(source[:5])}, and the shipped evaluation set is English and "
        "Chinese: name a file of your own (--evaluation FILE: DOMAIN, tab, SOURCE, tab, REFERENCE), or go without the "
        "comparison (--gate off)"
    )


def requested_language(codes: tuple[str, ...], wanted: str | None) -> str | None:
    """Return what to ask a model for: its own code of the language `wanted`, None where it has one language only."""
    if wanted is None or len(codes) < 2:
        return None
    choice = LanguageChoice(codes)
    return choice.resolve(wanted, role="target") if choice.means(wanted) else None


def scored_language(texts: EvaluationSet, languages: Languages) -> str | None:
    """Return the language that outputs are in: the set's, or else the model's where it has only one."""
    stated = texts.target_language or languages.default_target
    if stated is not None:
        return stated
    if languages.target and all(is_chinese(code) for code in languages.target):
        return "zh"
    return languages.target[0] if len(languages.target) == 1 else None


def _has_english(codes: tuple[str, ...]) -> bool:
    return any((parsed := parse_language(code)) is not None and parsed.base == _ENGLISH for code in codes)


def _has_chinese(codes: tuple[str, ...]) -> bool:
    return any(is_chinese(code) for code in codes)
