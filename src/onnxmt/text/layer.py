"""The text layer around a sentence: case → protected spans → model → case, Chinese form → checks → one retry."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from onnxmt.runtime.languages import is_chinese
from onnxmt.text.casing import CaseChange, CasingOptions, restore_case, to_ordinary_case
from onnxmt.text.chinese import ChineseOptions, to_chinese_form
from onnxmt.text.endings import end_like_source
from onnxmt.text.fidelity import CheckOptions, TextWarning, WarningKind, check_translation
from onnxmt.text.glossary import Glossary, Term, TermUse, any_case, masked, missed, uses_of
from onnxmt.text.normalize import normalize_punctuation
from onnxmt.text.patterns import is_cjk
from onnxmt.text.places import original_span
from onnxmt.text.protect import Candidate, Inputs, Method, ProtectedTranslation, Translate, translate_protected
from onnxmt.text.segment import Segment, join_translations, split_to_limit
from onnxmt.text.spans import ProtectOptions, Span, find_protected

__all__ = ["Doubts", "Inputs", "SentenceTranslation", "TextOptions", "translate_sentences"]

# What is wrong with candidate `rank` of input `number`, as far as its tokens tell; spans do not count.
Doubts = Callable[[int, int], Sequence[TextWarning]]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The parts of the layer; None leaves a part out. A Translator fills the languages in.

    glossary: terms that `translate` is trusted to write; the layer keeps them as they are, and says which are missed.
    end_marks: no full stop behind a translation whose source (a heading, a menu's entry) has none.
    normalize_punctuation: the model gets plain punctuation: straight quotes, ASCII dashes and dots.
    retry: a sentence with warnings is translated once more in two or three parts, cut at its clause marks, and the
        result is taken when it has fewer warnings.
    """

    source_language: str = "en"
    target_language: str = "zh"
    casing: CasingOptions | None = field(default_factory=CasingOptions)
    protect: ProtectOptions | None = field(default_factory=ProtectOptions)
    chinese: ChineseOptions | None = field(default_factory=ChineseOptions)
    checks: CheckOptions | None = field(default_factory=CheckOptions)
    glossary: Glossary | None = None
    normalize_punctuation: bool = False
    end_marks: bool = True
    retry: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceTranslation:
    """One sentence, translated.

    method: how the spans were carried, as in ProtectedTranslation; `parts` where the retry in parts was taken.
    case: what was done to the source's case before the model saw it.
    inputs, ranks: which of all texts given to the model make up this translation, and which candidate of each.
    warnings: what the checks miss; a span is a place in this sentence.
    others: further translations, best first, finished like `text`; only where they were asked for.
    terms: the glossary terms in this sentence, and whether the text has their targets.
    """

    source: str
    text: str
    method: Method | Literal["parts"]
    case: Literal["all_caps", "title_case"] | None
    inputs: tuple[int, ...]
    ranks: tuple[int, ...]
    warnings: tuple[TextWarning, ...]
    others: tuple[Candidate, ...] = ()
    terms: tuple[TermUse, ...] = ()


def translate_sentences(
    sentences: Sequence[str],
    translate: Translate,
    *,
    options: TextOptions | None = None,
    doubts: Doubts | None = None,
    others: bool = False,
) -> list[SentenceTranslation]:
    """Translate sentences (single lines, within the model's limit), in order.

    `translate` gives for each text its translation or several candidates, best first; the first that passes the checks
    is taken. It is called at most once for the sentences, once a placeholder style, once for the pieces of split ones,
    and the same again for the retries. `doubts` adds what the tokens of a candidate tell to the checks.
    """
    layer = _Layer(translate, options or TextOptions(), doubts, others=others)
    changes = [layer.prepared(sentence) for sentence in sentences]
    answers = layer.translate([change.text for change in changes], owners=range(len(changes)))
    results = [layer.finish(*parts) for parts in zip(sentences, changes, answers, strict=True)]
    results = layer.retried(results, changes)
    return [layer.placed(result, change) for result, change in zip(results, changes, strict=True)]


# A retry in parts may mend these; the others are the model's vocabulary or a rule that nothing on its side changes. A
# loop in another script is mended by nothing: a model without training writes such, and would take twice the time.
_MENDABLE: frozenset[WarningKind] = frozenset(
    {"number", "number_added", "date", "currency", "name", "length_ratio", "repetition", "untranslated",
     "wrong_script", "length_cap", "glossary"}
)  # fmt: skip


class _Layer:
    """One call: its options, and how many texts the model has been given."""

    def __init__(self, translate: Translate, options: TextOptions, doubts: Doubts | None, *, others: bool) -> None:
        self._translate, self._options, self._doubts, self._others = translate, options, doubts, others
        # with nothing protected the layer still keeps its hands off URLs and code in the output
        self._protect = options.protect or ProtectOptions(kinds=frozenset())
        self._given = 0
        self._checked: dict[tuple[str, str], tuple[TextWarning, ...]] = {}
        self._found: dict[str, tuple[Term, ...]] = {}

    def prepared(self, sentence: str) -> CaseChange:
        """The sentence as the model gets it: plain punctuation and ordinary case, where asked for."""
        options = self._options
        text = normalize_punctuation(sentence, protect=options.protect) if options.normalize_punctuation else sentence
        if options.casing is None:
            return CaseChange(text=text, kind=None)
        change = to_ordinary_case(
            text, language=options.source_language, options=options.casing, protect=options.protect
        )
        if options.glossary is None or change.kind is None:
            return change
        return replace(change, text=any_case(options.glossary, change.text, protected=self._spans(change.text)))

    def _spans(self, text: str) -> tuple[Span, ...]:
        return find_protected(text, self._protect)

    def _terms(self, source: str) -> tuple[Term, ...]:
        """The glossary terms of a source as the model gets it."""
        if self._options.glossary is None:
            return ()
        if source not in self._found:
            self._found[source] = self._options.glossary.find(source, protected=self._spans(source))
        return self._found[source]

    def translate(
        self, texts: Sequence[str], *, owners: Sequence[int], again: bool = False
    ) -> list[tuple[ProtectedTranslation, int]]:
        """Protected translations, each with the number of the model's first input in this round."""
        first = self._given

        def counted(asked: Inputs) -> Sequence[str | Sequence[str]]:
            self._given += len(asked)
            return self._translate(Inputs(asked, owners=[owners[number] for number in asked.owners], again=again))

        def passes(source: str, text: str, number: int, rank: int) -> bool:
            return not self._doubted([(first + number, rank)]) and not self._warnings(source, self._form(source, text))

        found = translate_protected(
            texts,
            counted,
            options=self._protect,
            passes=None if self._options.checks is None else passes,
            others=self._others,
        )
        return [(answer, first) for answer in found]

    def _doubted(self, used: Sequence[tuple[int, int]]) -> list[TextWarning]:
        """What the tokens of these candidates tell, each kind once."""
        if self._doubts is None:
            return []
        found = [warning for number, rank in used for warning in self._doubts(number, rank)]
        return list({warning.kind: warning for warning in found}.values())

    def _all_warnings(self, source: str, text: str, used: Sequence[tuple[int, int]]) -> tuple[TextWarning, ...]:
        told = [replace(warning, span=(0, len(source))) for warning in self._doubted(used)]
        kinds = {warning.kind for warning in told}
        return (*told, *(warning for warning in self._warnings(source, text) if warning.kind not in kinds))

    def _form(self, source: str, text: str) -> str:
        options = self._options
        if options.chinese is None or not is_chinese(options.target_language):
            return text
        formed = to_chinese_form(text, options.chinese, protect=options.protect)
        # A mark behind a span stays as it is: only terms that the form would change are made one.
        changed = [target for target in self._targets(source, text) if formed.count(target) < text.count(target)]
        if not changed:
            return formed
        return to_chinese_form(text, options.chinese, protect=self._protecting(changed))

    def _targets(self, source: str, text: str) -> list[str]:
        """The glossary's targets that a translation has, the longest first."""
        found = {term.target for term in self._terms(source) if term.target in text}
        return sorted(found, key=lambda target: (-len(target), target))

    def _protecting(self, targets: Sequence[str]) -> ProtectOptions | None:
        """What is protected anyway, and these."""
        if not targets:
            return self._options.protect
        protect = self._options.protect or ProtectOptions(kinds=frozenset({"pattern"}))
        return replace(protect, patterns=(*protect.patterns, *map(re.escape, targets)))

    def _warnings(self, source: str, text: str) -> tuple[TextWarning, ...]:
        if self._options.checks is None:
            return ()
        if (source, text) not in self._checked:
            terms = self._terms(source)
            kinds = self._options.checks.kinds
            asked, made = masked(source, text, terms) if terms else (source, text)
            self._checked[source, text] = tuple(
                check_translation(
                    asked,
                    made,
                    source_language=self._options.source_language,
                    target_language=self._options.target_language,
                    options=self._options.checks,
                    protect=self._protect,
                )
                if made.strip()  # else the terms are all that it says
                else ()
            )
            if "glossary" in kinds:
                self._checked[source, text] += tuple(missed(uses_of(terms, text)))
        return self._checked[source, text]

    def finish(self, source: str, change: CaseChange, answer: tuple[ProtectedTranslation, int]) -> SentenceTranslation:
        translation, first = answer
        inputs = tuple(first + number for number in translation.inputs)
        warnings: tuple[TextWarning, ...] = ()
        text = source
        if translation.method == "source":
            message = "left as it was: a translation of its parts would have repeated what is protected"
            warnings = (TextWarning(kind="untranslated", span=(0, len(change.text)), message=message),)
        elif translation.method != "untouched":
            text = self._finished(translation.text, change)
            used = list(zip(inputs, translation.ranks, strict=True))
            warnings = self._all_warnings(change.text, text, used)
        return SentenceTranslation(
            source=source,
            text=text,
            method=translation.method,
            case=change.kind,
            inputs=inputs,
            ranks=translation.ranks,
            warnings=warnings,
            others=tuple(
                Candidate(text=self._finished(other.text, change), number=first + other.number, rank=other.rank)
                for other in translation.others
            ),
        )

    def _finished(self, text: str, change: CaseChange) -> str:
        options = self._options
        protect = self._protecting(self._targets(change.text, text))
        text = end_like_source(text, change.text) if options.end_marks else text
        restored = restore_case(text, change, target_language=options.target_language, protect=protect)
        return self._form(change.text, restored)

    def placed(self, result: SentenceTranslation, change: CaseChange) -> SentenceTranslation:
        """The result with its terms, and its warnings' places in the sentence as it was given."""
        if result.method not in ("untouched", "source"):
            result = replace(result, terms=self._uses(result, change))
        if not result.warnings or change.text == result.source:
            return result
        warnings = tuple(
            replace(one, span=original_span(one.span, changed=change.text, original=result.source))
            for one in result.warnings
        )
        return replace(result, warnings=warnings)

    def _uses(self, result: SentenceTranslation, change: CaseChange) -> tuple[TermUse, ...]:
        placed = []
        for use in uses_of(self._terms(change.text), result.text):
            start, end = original_span((use.start, use.end), changed=change.text, original=result.source)
            placed.append(replace(use, start=start, end=end, source=result.source[start:end]))
        return tuple(placed)

    def retried(self, results: list[SentenceTranslation], changes: Sequence[CaseChange]) -> list[SentenceTranslation]:
        """The results, with those doubted replaced where a translation in parts is doubted less."""
        doubted = [i for i, result in enumerate(results) if self._mendable(result)]
        parts = {i: self._parts(changes[i].text) for i in doubted}
        parts = {i: pieces for i, pieces in parts.items() if len(pieces) > 1}
        texts = [piece.text for pieces in parts.values() for piece in pieces]
        owners = [i for i, pieces in parts.items() for _ in pieces]
        answers = iter(self.translate(texts, owners=owners, again=True) if texts else ())
        for i, pieces in parts.items():
            again = self._joined(results[i], changes[i], pieces, [next(answers) for _ in pieces])
            if len(again.warnings) < len(results[i].warnings):
                results[i] = again
        return results

    def _mendable(self, result: SentenceTranslation) -> bool:
        kinds = {warning.kind for warning in result.warnings}
        hopeless = "wrong_script" in kinds and not kinds.isdisjoint({"repetition", "length_cap"})
        return self._options.retry and not kinds.isdisjoint(_MENDABLE) and not hopeless

    def _parts(self, text: str) -> tuple[Segment, ...]:
        """The sentence cut at its clause marks into parts of about half its length; itself where it has none."""
        whole = Segment(text=text, start=0, end=len(text), separator="")
        spans = find_protected(text, self._protect)
        pieces = split_to_limit(whole, fits=lambda part: len(part) <= 0.65 * len(text) or len(part) < 24, keep=spans)
        at_marks = all(piece.text[-1] in _CLAUSE_MARKS for piece in pieces[:-1])
        clauses = all(len(piece.text) >= 8 or is_cjk(piece.text[0]) for piece in pieces)  # no mere "Dr."
        return pieces if at_marks and clauses else (whole,)

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
        text = self._finished(joined, change)
        inputs = tuple(first + number for answer, first in answers for number in answer.inputs)
        ranks = tuple(rank for answer, _ in answers for rank in answer.ranks)
        return SentenceTranslation(
            source=result.source,
            text=text,
            method="parts",
            case=result.case,
            inputs=inputs,
            ranks=ranks,
            warnings=self._all_warnings(change.text, text, list(zip(inputs, ranks, strict=True))),
        )


_CLAUSE_MARKS = ",;:—–.!?，；：、。！？…)）"
_END_MARKS = "。．.!！?？"


def _clause(source: str, translation: str) -> str:
    """A clause's translation with the source's mark behind it, not the full stop that models put there."""
    if source[-1] in _END_MARKS:
        return translation
    bare = translation.rstrip(_END_MARKS + ",，;；:：")
    return bare + source[-1] if bare else translation
