"""The text layer around a sentence: case → protected spans → model → case, Chinese form → checks → one retry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from onnxmt.runtime.languages import is_chinese
from onnxmt.text.casing import CaseChange, CasingOptions, restore_case, to_ordinary_case
from onnxmt.text.chinese import ChineseOptions, to_chinese_form
from onnxmt.text.fidelity import CheckOptions, TextWarning, check_translation
from onnxmt.text.protect import Method, ProtectedTranslation, Translate, translate_protected
from onnxmt.text.segment import Segment, join_translations, split_to_limit
from onnxmt.text.spans import ProtectOptions, find_protected

__all__ = ["SentenceTranslation", "TextOptions", "translate_sentences"]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The parts of the layer; None leaves a part out.

    retry: a sentence with warnings is translated once more in two or three parts, cut at its clause marks, and the
        result is taken when it has fewer warnings.
    """

    source_language: str = "en"
    target_language: str = "zh"
    casing: CasingOptions | None = field(default_factory=CasingOptions)
    protect: ProtectOptions | None = field(default_factory=ProtectOptions)
    chinese: ChineseOptions | None = field(default_factory=ChineseOptions)
    checks: CheckOptions | None = field(default_factory=CheckOptions)
    retry: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceTranslation:
    """One sentence, translated.

    method: how the spans were carried, as in ProtectedTranslation; `parts` where the retry in parts was taken.
    case: what was done to the source's case before the model saw it.
    inputs, ranks: which of all texts given to the model make up this translation, and which candidate of each.
    warnings: what the checks miss; a span is a place in this sentence.
    """

    source: str
    text: str
    method: Method | Literal["parts"]
    case: Literal["all_caps", "title_case"] | None
    inputs: tuple[int, ...]
    ranks: tuple[int, ...]
    warnings: tuple[TextWarning, ...]


def translate_sentences(
    sentences: Sequence[str], translate: Translate, *, options: TextOptions | None = None
) -> list[SentenceTranslation]:
    """Translate sentences (single lines, within the model's limit), in order.

    `translate` gives for each text its translation or several candidates, best first; the first that passes the checks
    is taken. It is called at most once for the sentences, once a placeholder style, once for the pieces of split ones,
    and the same again for the retries.
    """
    layer = _Layer(translate, options or TextOptions())
    changes = [layer.ordinary_case(sentence) for sentence in sentences]
    answers = layer.translate([change.text for change in changes])
    results = [layer.finish(*parts) for parts in zip(sentences, changes, answers, strict=True)]
    return layer.retried(results, changes)


class _Layer:
    """One call: its options, and how many texts the model has been given."""

    def __init__(self, translate: Translate, options: TextOptions) -> None:
        self._translate, self._options = translate, options
        # with nothing protected the layer still keeps its hands off URLs and code in the output
        self._protect = options.protect or ProtectOptions(kinds=frozenset())
        self._given = 0
        self._checked: dict[tuple[str, str], tuple[TextWarning, ...]] = {}

    def ordinary_case(self, sentence: str) -> CaseChange:
        if self._options.casing is None:
            return CaseChange(text=sentence, kind=None)
        return to_ordinary_case(
            sentence,
            language=self._options.source_language,
            options=self._options.casing,
            protect=self._options.protect,
        )

    def translate(self, texts: Sequence[str]) -> list[tuple[ProtectedTranslation, int]]:
        """Protected translations, each with the number of the model's first input in this round."""
        first = self._given

        def counted(asked: list[str]) -> Sequence[str | Sequence[str]]:
            self._given += len(asked)
            return self._translate(asked)

        passes = (
            None if self._options.checks is None else lambda source, text: not self._warnings(source, self._form(text))
        )
        return [(answer, first) for answer in translate_protected(texts, counted, options=self._protect, passes=passes)]

    def _form(self, text: str) -> str:
        options = self._options
        if options.chinese is None or not is_chinese(options.target_language):
            return text
        return to_chinese_form(text, options.chinese, protect=options.protect)

    def _warnings(self, source: str, text: str) -> tuple[TextWarning, ...]:
        if self._options.checks is None:
            return ()
        if (source, text) not in self._checked:
            self._checked[source, text] = tuple(
                check_translation(
                    source,
                    text,
                    source_language=self._options.source_language,
                    target_language=self._options.target_language,
                    options=self._options.checks,
                    protect=self._protect,
                )
            )
        return self._checked[source, text]

    def finish(self, source: str, change: CaseChange, answer: tuple[ProtectedTranslation, int]) -> SentenceTranslation:
        translation, first = answer
        text = translation.text
        if translation.method != "untouched":
            text = self._form(
                restore_case(text, change, target_language=self._options.target_language, protect=self._options.protect)
            )
        return SentenceTranslation(
            source=source,
            text=text,
            method=translation.method,
            case=change.kind,
            inputs=tuple(first + number for number in translation.inputs),
            ranks=translation.ranks,
            warnings=() if translation.method == "untouched" else self._warnings(change.text, text),
        )

    def retried(self, results: list[SentenceTranslation], changes: Sequence[CaseChange]) -> list[SentenceTranslation]:
        """The results, with those doubted replaced where a translation in parts is doubted less."""
        doubted = [i for i, result in enumerate(results) if result.warnings] if self._options.retry else []
        parts = {i: self._parts(changes[i].text) for i in doubted}
        parts = {i: pieces for i, pieces in parts.items() if len(pieces) > 1}
        answers = iter(self.translate([piece.text for pieces in parts.values() for piece in pieces]))
        for i, pieces in parts.items():
            again = self._joined(results[i], changes[i], pieces, [next(answers) for _ in pieces])
            if len(again.warnings) < len(results[i].warnings):
                results[i] = again
        return results

    def _parts(self, text: str) -> tuple[Segment, ...]:
        """The sentence cut at its clause marks into parts of about half its length; itself where it has none."""
        whole = Segment(text=text, start=0, end=len(text), separator="")
        spans = find_protected(text, self._protect)
        pieces = split_to_limit(whole, fits=lambda part: len(part) <= 0.65 * len(text) or len(part) < 24, keep=spans)
        at_marks = all(piece.text[-1] in _CLAUSE_MARKS for piece in pieces[:-1])
        return pieces if at_marks else (whole,)

    def _joined(
        self,
        result: SentenceTranslation,
        change: CaseChange,
        pieces: Sequence[Segment],
        answers: Sequence[tuple[ProtectedTranslation, int]],
    ) -> SentenceTranslation:
        texts = [answer.text for answer, _ in answers]
        texts[:-1] = [_clause(piece.text, text) for piece, text in zip(pieces[:-1], texts[:-1], strict=True)]
        joined = join_translations(
            texts,
            [piece.separator for piece in pieces],
            target_language=self._options.target_language,
            sources=[piece.text for piece in pieces],
        )
        text = self._form(
            restore_case(joined, change, target_language=self._options.target_language, protect=self._options.protect)
        )
        return SentenceTranslation(
            source=result.source,
            text=text,
            method="parts",
            case=result.case,
            inputs=tuple(first + number for answer, first in answers for number in answer.inputs),
            ranks=tuple(rank for answer, _ in answers for rank in answer.ranks),
            warnings=self._warnings(change.text, text),
        )


_CLAUSE_MARKS = ",;:—–.!?，；：、。！？…)）"
_END_MARKS = "。．.!！?？"


def _clause(source: str, translation: str) -> str:
    """A clause's translation with the source's mark behind it, not the full stop that models put there."""
    if source[-1] in _END_MARKS:
        return translation
    bare = translation.rstrip(_END_MARKS + ",，;；:：")
    return bare + source[-1] if bare else translation
