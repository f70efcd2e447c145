"""The answers of a bundle to an evaluation set, with all that says how they were made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmt.bundle import Bundle
from onnxmt.errors import UsageError
from onnxmt.manifest import Languages
from onnxmt.measure.direction import required_language, scored_language, texts_for
from onnxmt.measure.evaluate import Answers
from onnxmt.measure.gate_report import FP32
from onnxmt.measure.outputs import MODES, translate_lines
from onnxmt.measure.provenance import described, measuring_versions, model_facts, now, run_facts
from onnxmt.measure.quality import read_evaluation, translate_options
from onnxmt.measure.texts import EvaluationSet
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How bundles translate the set: `beams=None` as each bundle says itself; `split` as in TranslateOptions.

    The languages are asked of models that have several; None: what the bundle was migrated for, or the set's.
    """

    beams: int | None = None
    split: bool = True
    threads: int | None = None
    provider: str = "cpu"
    source_language: str | None = None
    target_language: str | None = None


@dataclass(frozen=True, kw_only=True)
class BundleAnswers:
    """A bundle's answers, the set as it was translated, and fp32's where the bundle holds them for this set."""

    texts: EvaluationSet
    answers: Answers
    fp32: Answers | None


def answer(
    model: str | Path | None,
    texts: EvaluationSet | None,
    options: RunOptions,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> BundleAnswers:
    """Translate `texts` (None: the shipped ones in the model's direction) with the bundle `model` (None: the demo).

    Raises what Translator.load and Translator.translate_detailed raise, and UsageError for a set without sources.
    """
    with Translator.load(
        model, options=RuntimeOptions(threads=options.threads, provider=options.provider)
    ) as translator:
        manifest = translator.bundle.manifest
        languages = _asked(manifest.languages, options)
        texts = texts or texts_for(languages, model=manifest.name)
        sources = texts.sources
        if sources is None:
            raise UsageError(f"the set {texts.name} has no sources to translate: give them with --src")
        texts = dataclasses.replace(
            texts,
            source_language=texts.source_language or options.source_language,
            target_language=scored_language(texts, languages),
        )
        beams = translator.settings.num_beams if options.beams is None else options.beams
        how = dataclasses.replace(translate_options(translator, texts, beams=beams), split=options.split)
        outputs = translate_lines(translator, sources, how, progress=progress)
        facts: dict[str, Any] = {
            **model_facts(manifest),
            "beams": beams,
            "split": options.split,
            "source_language": how.source,
            "target_language": how.target,
            **run_facts(translator.runtime, provider=translator.provider),
            "versions": measuring_versions(),
            "date": now(),
        }
        fp32 = _recorded(translator.bundle, texts, beams=beams) if options.split else None
        return BundleAnswers(
            texts=texts, answers=Answers(label=described(facts), outputs=outputs, facts=facts), fp32=fp32
        )


def _asked(languages: Languages, options: RunOptions) -> Languages:
    """The model's languages with those that were asked for as its defaults, in its own codes."""
    return dataclasses.replace(
        languages,
        default_source=required_language(languages.source, options.source_language, role="source")
        or languages.default_source,
        default_target=required_language(languages.target, options.target_language, role="target")
        or languages.default_target,
    )


def _recorded(bundle: Bundle, texts: EvaluationSet, *, beams: int) -> Answers | None:
    """What fp32 said when a quantised bundle was made, if it was asked for the same texts in the same way."""
    mode = next((name for name, count in MODES.items() if count == beams), None)
    recorded = None if bundle.manifest.precision.exact or mode is None else read_evaluation(bundle)
    if recorded is None or mode is None or recorded.sha256 != texts.sha256:
        return None
    outputs = recorded.of(mode, FP32)
    if outputs is None:
        return None
    facts = {"precision": FP32, "recorded": bundle.manifest.created}
    return Answers(label="fp32, as recorded when the bundle was made", outputs=outputs, facts=facts)
