"""Evaluation: one translation of a set scored against its references, and beside another translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmt.errors import UsageError
from onnxmt.measure.evaluation import Comparison, Evaluation, EvaluationRow
from onnxmt.measure.outputs import Output, count_faults
from onnxmt.measure.scores import TER_CHARACTERS, Difference, Scorer, Tokenization, choose_tokenization
from onnxmt.measure.texts import EvaluationSet, Part, parts_of, read_lines


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What one system made of a set: a line each, and where they come from.

    `facts` say how they were made (model, revision, precision, beams, threads, versions), or name the file.
    """

    label: str
    outputs: tuple[Output, ...]
    facts: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """The texts alone."""
        return [output.text for output in self.outputs]


def answers_in(path: Path) -> Answers:
    """Read a file of translations, one a line; raises UsageError."""
    lines = read_lines(path)
    return Answers(label=path.name, outputs=tuple(Output(text=line) for line in lines), facts={"file": path.name})


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """How to score. `ter=None` computes TER where it takes seconds, and says so where it does not.

    `target_language` is the language of the texts; None: seen from the script of the references. `tokenizer` is one of
    sacrebleu's by name, for figures that have to compare with others made so.
    """

    target_language: str | None = None
    tokenizer: str | None = None
    ter: bool | None = None


def evaluate(
    texts: EvaluationSet,
    answers: Answers,
    *,
    against: Answers | None = None,
    options: EvaluateOptions | None = None,
) -> Evaluation:
    """Score `answers` on every part of `texts`, and beside `against` with a paired bootstrap.

    Without references the two are compared with each other alone, and the result says so. Raises UsageError where the
    numbers of lines differ, or where there is nothing to compare with; MissingExtraError without sacrebleu.
    """
    options = options or EvaluateOptions()
    for side in (answers, against):
        if side is not None and len(side.outputs) != texts.lines:
            raise UsageError(
                f"line n of {side.label} belongs to line n of {texts.name}, and their numbers differ: "
                f"{side.label} has {len(side.outputs):,} and {texts.name} {texts.lines:,} lines"
            )
    if not texts.references and against is None:
        raise UsageError(
            f"the set {texts.name} has no references, and there is nothing to compare with: "
            "give references (--ref), or another translation (--against an fp32 bundle or a file)"
        )
    samples = texts.references[0] if texts.references else answers.texts
    tokenization = choose_tokenization(
        options.target_language or texts.target_language, samples, tokenizer=options.tokenizer
    )
    ter = _wants_ter(options.ter, texts, answers, against)
    return _Evaluator(texts, answers, against, tokenization, ter=ter).run(notes=_notes(texts, ter, options.ter))


class _Evaluator:
    """Counts once, and scores every part from the counts."""

    def __init__(
        self,
        texts: EvaluationSet,
        answers: Answers,
        against: Answers | None,
        tokenization: Tokenization,
        *,
        ter: bool,
    ) -> None:
        self._texts, self._answers, self._against = texts, answers, against
        self._scorer = Scorer(tokenization, ter=ter)
        self._scores = self._scorer.count(answers.texts, texts.references) if texts.references else None
        self._others = (
            self._scorer.count(against.texts, texts.references) if texts.references and against is not None else None
        )
        self._agreement = None if against is None else self._scorer.count(answers.texts, [against.texts])

    def run(self, *, notes: Sequence[str]) -> Evaluation:
        """Return the evaluation."""
        scorer, tokenization = self._scorer, self._scorer.tokenization
        rows = tuple(self._row(part) for part in parts_of(self._texts))
        whole = rows[0]
        signatures: dict[str, str] = {}
        if whole.score is not None:
            signatures = scorer.signatures(whole.score)
        elif self._agreement is not None:
            signatures = {"chrf": scorer.signatures(scorer.score(self._agreement))["chrf"]}
        found = list(notes)
        if tokenization.note is not None and self._texts.references:
            found.append(tokenization.note)
        if short := [row.name for row in rows if row.score is not None and row.score.orders < 4]:
            found.append(
                f"no line of {', '.join(short)} has 4 tokens: BLEU counts the n-grams that there are (eff:yes)"
            )
        return Evaluation(
            texts=self._texts,
            tokenization=tokenization,
            signatures=signatures,
            label=self._answers.label,
            facts=self._answers.facts,
            faults=count_faults(self._answers.outputs, self._texts.sources),
            against=None if self._against is None else self._against.label,
            against_facts=None if self._against is None else self._against.facts,
            rows=rows,
            notes=tuple(found),
        )

    def _row(self, part: Part) -> EvaluationRow:
        score = None if self._scores is None else self._scorer.score(self._scores, part.lines)
        return EvaluationRow(
            kind=part.kind, name=part.name, lines=len(part.lines), score=score, against=self._beside(part)
        )

    def _beside(self, part: Part) -> Comparison | None:
        if self._against is None or self._agreement is None:
            return None
        differences: Mapping[str, Difference] = {}
        other = None
        if self._scores is not None and self._others is not None:
            differences = self._scorer.differences(self._scores, self._others, part.lines)
            other = self._scorer.score(self._others, part.lines)
        ours, theirs = self._answers.texts, self._against.texts
        return Comparison(
            identical=sum(ours[line] == theirs[line] for line in part.lines) / len(part.lines),
            agreement=self._scorer.score(self._agreement, part.lines).chrf,
            score=other,
            differences=differences,
        )


def _wants_ter(wanted: bool | None, texts: EvaluationSet, answers: Answers, against: Answers | None) -> bool:
    if wanted is not None or not texts.references:
        return bool(wanted) and bool(texts.references)
    sides = [answers, *([] if against is None else [against])]
    characters = sum(len(text) for side in sides for text in side.texts) * len(texts.references)
    return characters <= TER_CHARACTERS


def _notes(texts: EvaluationSet, ter: bool, wanted: bool | None) -> list[str]:
    notes = []
    if not texts.references:
        notes.append(
            f"the set {texts.name} has no references: the two translations were compared with each other, which says "
            "how far they differ and not which is better"
        )
    elif not ter and wanted is None:
        notes.append("TER was left out: on so much text it takes minutes (--ter computes it)")
    return notes
