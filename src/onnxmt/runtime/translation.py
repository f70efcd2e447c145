"""What goes into and comes out of a Translator: options, translations, segments, alternatives and warnings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from onnxmt.errors import UsageError
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.text.glossary import Glossary, TermUse
from onnxmt.text.layer import TextOptions
from onnxmt.text.pair import WarningKind
from onnxmt.text.protect import Method

# How a segment came about: as the text layer tells it, or straight from the model (`plain`).
SegmentMethod = Method | Literal["parts"]

# TranslateOptions field → GenerationSettings field, for what is passed on as it is.
_PASSED_ON = {
    "beams": "num_beams",
    "max_new_tokens": "max_new_tokens",
    "min_new_tokens": "min_new_tokens",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "sample": "do_sample",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
}
_LEAST = {
    "beams": 1, "max_new_tokens": 1, "min_new_tokens": 0, "alternatives": 0, "batch_tokens": 1, "seed": 0, "overlap": 0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """How to translate. None = as the bundle's generation_config.json says, and the languages chosen when it was made.

    `alternatives` asks for so many further candidates beside the best. `sample` draws tokens at random, by `seed` the
    same ones again. `split` cuts a text into sentences, and what is too long into parts that fit; without it a text
    goes to the model exactly as it is. `batch_tokens` bounds a batch: sentences × beams × the longest one's tokens
    (None: 1,024, or 2,560 where batches run side by side). Without `scores` greedy search leaves them None, which saves
    up to a tenth of the time of large batches.

    `text` says what is done around each sentence (docs/text.md); the languages in it are filled in by the Translator.
    None: sentences go to the model as they stand. `glossary`: terms and what they must become (docs/glossary.md); a
    sentence whose best translation lacks one is searched again, with four beams or more. `strict` makes every warning
    an error. `overlap` shows the model so many sentences before each; `unwrap` joins the lines of hard-wrapped
    paragraphs first. Without `split` there is none of this but `glossary` and `strict`.
    """

    beams: int | None = None
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    alternatives: int = 0
    source: str | None = None
    target: str | None = None
    split: bool = True
    text: TextOptions | None = field(default_factory=TextOptions)
    glossary: Glossary | None = None
    strict: bool = False
    overlap: int = 0
    unwrap: bool = False
    batch_tokens: int | None = None
    scores: bool = True

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}; a whole number of {least} or more is allowed"
            for name, least in _LEAST.items()
            if (value := getattr(self, name)) is not None and not (type(value) is int and value >= least)
        ]
        if not self.split:
            problems += [
                f"{name} has no effect with split=False, which gives the model each text as it is"
                for name in ("overlap", "unwrap")
                if getattr(self, name)
            ]
        if problems:
            raise UsageError(f"translate options: {'; '.join(problems)}")

    def apply_to(self, settings: GenerationSettings) -> GenerationSettings:
        """Return a bundle's settings with these options over them.

        Raises GenerationSettingsError for values out of range, UsageError for more candidates than beams.
        """
        changes: dict[str, Any] = {
            name: value for field, name in _PASSED_ON.items() if (value := getattr(self, field)) is not None
        }
        if self.sample and self.beams is None:
            changes["num_beams"] = 1  # a model that searches with beams by default: sampling replaces that
        if (self.beams or 1) > 1 and self.sample is None:
            changes["do_sample"] = False  # and the other way round
        changes["num_return_sequences"] = self.alternatives + 1
        sampling = changes.get("do_sample", settings.do_sample)
        beams = changes.get("num_beams", settings.num_beams)
        if self.alternatives >= beams and not sampling:
            raise UsageError(
                f"{self.alternatives} alternatives need {self.alternatives + 1} beams, and there "
                f"{'is' if beams == 1 else 'are'} {beams}: raise beams, or ask for fewer"
            )
        return dataclasses.replace(settings, **changes)


@dataclass(frozen=True, kw_only=True)
class TranslationWarning:
    """Something a reader of the translation should know; `span` is where in the source text (start, end)."""

    kind: WarningKind
    message: str
    span: tuple[int, int] | None


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """One candidate: text, tokens after the start token without EOS, and the search's score of it."""

    text: str
    score: float
    tokens: tuple[int, ...]
    finished: bool


@dataclass(frozen=True, kw_only=True)
class SegmentTranslation:
    """One segment, at start:end of the source text; score None and no tokens where it did not go to the model.

    `method` tells how its translation came about: `untouched` (nothing in it to translate), `plain`, `placeholder` (the
    model carried the protected spans), `split` (the prose between them was translated piece by piece), `parts` (the
    second try, in parts, was better) or `source` (left as it was, with a warning). `case`: what was done to the
    source's capitals before the model saw it. `terms`: the glossary's terms in it, and whether they were applied.
    """

    source: str
    start: int
    end: int
    text: str
    score: float | None
    tokens: tuple[int, ...]
    finished: bool
    alternatives: tuple[Alternative, ...]
    method: SegmentMethod = "plain"
    case: Literal["all_caps", "title_case"] | None = None
    terms: tuple[TermUse, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Translation:
    """The translation of one text.

    `score`: beam search's sequence score, or the mean log-probability of greedy search and sampling; of several
    segments the mean weighted by tokens; None where nothing went to the model. `tokens` are those of all segments,
    after the start token, EOS not counted. `finished` is False where a length limit cut the output. `error` says why
    there is no translation, or that `strict` does not allow its warnings, and only with `errors="return"`.
    """

    source: str
    text: str
    score: float | None
    tokens: tuple[int, ...]
    finished: bool
    warnings: tuple[TranslationWarning, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    segments: tuple[SegmentTranslation, ...] = ()
    error: str | None = None

    @property
    def glossary(self) -> tuple[TermUse, ...]:
        """The glossary's terms in the source, in order, and whether each was applied."""
        return tuple(use for segment in self.segments for use in segment.terms)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; alternatives and error where there are any, segments of several or of a changed one."""
        plain: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": self.score,
            "tokens": list(self.tokens),
            "finished": self.finished,
            "warnings": [
                {"kind": w.kind, "message": w.message, "span": None if w.span is None else list(w.span)}
                for w in self.warnings
            ],
        }
        if self.glossary:
            plain["glossary"] = [use.to_dict() for use in self.glossary]
        if self.alternatives:
            plain["alternatives"] = [_plain_alternative(alternative) for alternative in self.alternatives]
        if len(self.segments) > 1 or any(one.case or one.method not in ("plain", "untouched") for one in self.segments):
            plain["segments"] = [
                {
                    "source": segment.source,
                    "start": segment.start,
                    "end": segment.end,
                    "text": segment.text,
                    "score": segment.score,
                    "tokens": list(segment.tokens),
                    "finished": segment.finished,
                    "method": segment.method,
                    "case": segment.case,
                    **({"glossary": [use.to_dict() for use in segment.terms]} if segment.terms else {}),
                }
                for segment in self.segments
            ]
        if self.error is not None:
            plain["error"] = self.error
        return plain


def _plain_alternative(alternative: Alternative) -> dict[str, Any]:
    return {
        "text": alternative.text,
        "score": alternative.score,
        "tokens": list(alternative.tokens),
        "finished": alternative.finished,
    }
