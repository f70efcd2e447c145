"""The quality gate: a candidate's outputs beside fp32's, part by part, against limits. It sees texts, never a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxmt.errors import UsageError
from onnxmt.measure.gate_report import Drop, GateLimits, GateReport, GateRow, ModeFaults, WorstLine
from onnxmt.measure.outputs import Output, count_faults
from onnxmt.measure.scores import Counted, Difference, Scorer, choose_tokenization
from onnxmt.measure.texts import EvaluationSet, Part, parts_of

Outputs = Mapping[str, Sequence[Output]]
"""The outputs of one precision in each mode (outputs.MODES), a line of the set each."""
_WORST = 10


@dataclass(frozen=True, kw_only=True)
class _Mode:
    """One mode, counted: both sides against the references (None without), and the candidate against fp32."""

    fp32: Counted | None
    candidate: Counted | None
    agreement: Counted


class QualityGate:
    """Judges candidates against one fp32 baseline: what the baseline costs is paid once.

    Without references the candidate is compared with fp32's own output, and the report says so. `target_language` is
    the language of the outputs, None where it is not known. Raises UsageError where the outputs do not fit the set,
    MissingExtraError without sacrebleu.
    """

    def __init__(
        self,
        texts: EvaluationSet,
        baseline: Outputs,
        *,
        target_language: str | None,
        limits: GateLimits | None = None,
    ) -> None:
        self._texts, self._baseline = texts, baseline
        self.limits = limits or GateLimits()
        self._parts = parts_of(texts)
        for mode, outputs in baseline.items():
            _require_lines(texts, mode, outputs)
        samples = texts.references[0] if texts.references else [o.text for o in next(iter(baseline.values()))]
        self._scorer = Scorer(choose_tokenization(target_language, samples), ter=False)
        self._counted = {mode: self._against_references(outputs) for mode, outputs in baseline.items()}

    def judge(self, candidate: Outputs, *, label: str) -> GateReport:
        """Compare a candidate, called `label` in what is reported; a miss is not raised, it is in the report."""
        if set(candidate) != set(self._baseline):
            raise UsageError(
                f"the candidate has outputs in {', '.join(candidate)}; fp32 in {', '.join(self._baseline)}"
            )
        rows: list[GateRow] = []
        worst: list[WorstLine] = []
        faults = {}
        signatures: dict[str, str] = {}
        for mode, outputs in candidate.items():
            _require_lines(self._texts, mode, outputs)
            fp32 = self._baseline[mode]
            agreement = self._scorer.count([o.text for o in outputs], [[o.text for o in fp32]])
            counted = _Mode(fp32=self._counted[mode], candidate=self._against_references(outputs), agreement=agreement)
            if counted.candidate is not None:
                signatures = self._scorer.signatures(self._scorer.score(counted.candidate))
            else:
                signatures = {"chrf": self._scorer.signatures(self._scorer.score(agreement))["chrf"]}
            rows += [self._row(mode, part, counted, outputs) for part in self._parts]
            faults[mode] = ModeFaults(
                fp32=count_faults(fp32, self._texts.sources),
                candidate=count_faults(outputs, self._texts.sources),
                lines=len(outputs),
                new_loops=sum(now.repeating and not was.repeating for was, now in zip(fp32, outputs, strict=True)),
                ended_loops=sum(was.repeating and not now.repeating for was, now in zip(fp32, outputs, strict=True)),
            )
            worst += self._worst(mode, counted, outputs)
        return GateReport(
            label=label,
            texts=self._texts,
            tokenization=self._scorer.tokenization,
            signatures=signatures,
            limits=self.limits,
            rows=tuple(rows),
            faults=faults,
            worst=_distinct(worst)[:_WORST],
        )

    def _against_references(self, outputs: Sequence[Output]) -> Counted | None:
        if not self._texts.references:
            return None
        return self._scorer.count([output.text for output in outputs], self._texts.references)

    def _row(self, mode: str, part: Part, counted: _Mode, outputs: Sequence[Output]) -> GateRow:
        fp32 = self._baseline[mode]
        pairs = [(outputs[line].text, fp32[line].text) for line in part.lines]
        lengths = [sum(len(text) for text in side) for side in zip(*pairs, strict=True)]
        scored = counted.fp32 is not None and counted.candidate is not None
        drops = {}
        if counted.fp32 is not None and counted.candidate is not None:
            drops = self._scorer.differences(counted.candidate, counted.fp32, part.lines)
        return GateRow(
            mode=mode,
            kind=part.kind,
            name=part.name,
            lines=len(part.lines),
            fp32=self._scorer.score(counted.fp32, part.lines) if scored and counted.fp32 else None,
            candidate=self._scorer.score(counted.candidate, part.lines) if scored and counted.candidate else None,
            bleu_drop=_drop(drops.get("bleu")),
            chrf_drop=_drop(drops.get("chrf")),
            agreement=self._scorer.score(counted.agreement, part.lines).chrf,
            identical=sum(a == b for a, b in pairs) / len(pairs),
            length_ratio=lengths[0] / lengths[1] if lengths[1] else 1.0 if not lengths[0] else float(len(pairs)),
        )

    def _worst(self, mode: str, counted: _Mode, outputs: Sequence[Output]) -> list[WorstLine]:
        """The lines that lost most, a new loop before everything else."""
        fp32, sources = self._baseline[mode], self._texts.sources
        agreement = self._scorer.line_chrf(counted.agreement)
        if counted.fp32 is not None and counted.candidate is not None:
            sides = (self._scorer.line_chrf(counted.fp32), self._scorer.line_chrf(counted.candidate))
            losses = [before - after for before, after in zip(*sides, strict=True)]
        else:
            losses = [100 - share for share in agreement]
        found = []
        for line, (output, before) in enumerate(zip(outputs, fp32, strict=True)):
            looped = output.repeating and not before.repeating
            if output.text != before.text and (losses[line] > 0 or looped):
                found.append(
                    WorstLine(
                        line=line + 1,
                        mode=mode,
                        domain=self._texts.domains[line],
                        source="" if sources is None else sources[line],
                        fp32=before.text,
                        candidate=output.text,
                        chrf_loss=losses[line],
                        looped=looped,
                    )
                )
        return found


def _drop(difference: Difference | None) -> Drop | None:
    """Turn candidate minus fp32 into a loss."""
    if difference is None:
        return None
    lower, value, upper = (0.0 - gain for gain in (difference.upper, difference.value, difference.lower))
    return Drop(value=value, lower=lower, upper=upper, p_value=difference.p_value)  # 0.0 - 0.0, for -0.0 looks wrong


def _distinct(worst: Sequence[WorstLine]) -> tuple[WorstLine, ...]:
    """The worst first, each line of the set once."""
    ordered = sorted(worst, key=lambda line: (not line.looped, -line.chrf_loss, line.line))
    chosen: dict[int, WorstLine] = {}
    for line in ordered:
        chosen.setdefault(line.line, line)
    return tuple(chosen.values())


def _require_lines(texts: EvaluationSet, mode: str, outputs: Sequence[Output]) -> None:
    if len(outputs) != texts.lines:
        raise UsageError(f"{texts.name} has {texts.lines} lines, and there are {len(outputs)} outputs ({mode})")
