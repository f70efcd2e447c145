"""What a judge can say of a bundle that is not fp32: which of its tokens agree. Only the tokenizer's have to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from onnxmt import records
from onnxmt.errors import DecodingError, TokenizerError, UsageError
from onnxmt.measure.expected import BEAMS, JudgeFacts, Reference, SourceLine, batches, pad_batch
from onnxmt.measure.sentences import SentenceSet
from onnxmt.measure.verify import Candidate
from onnxmt.runtime.search import search

if TYPE_CHECKING:
    from rich.console import Console

NOTE = (
    "this precision differs from PyTorch by nature, so no limit of fp32 applies to its tokens: they are counted. What "
    "was verified are the fp32 graphs of the same weights, when the bundle was made; what the precision costs in "
    "quality, `onnxmt evaluate` says"
)
_SOURCE, _START, _GREEDY, _BEAM = "source tokens", "start token", "greedy tokens", f"beam {BEAMS} tokens"
_REQUIRED = (_SOURCE, _START)


@dataclass(frozen=True, kw_only=True)
class AgreementRow:
    """How many of the compared sentences have exactly the judge's tokens; `required` ones all must."""

    name: str
    compared: int
    identical: int
    required: bool


@dataclass(frozen=True, kw_only=True)
class AgreementReport:
    """Token by token beside the judge; `problem` is the first required row that differs, or a search that broke off."""

    judge: JudgeFacts
    sentences: str
    rows: tuple[AgreementRow, ...]
    problem: str | None

    @property
    def passed(self) -> bool:
        """True when all that has to be equal is, and every sentence could be decoded."""
        return self.problem is None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        plain: dict[str, Any] = records.to_json(self)
        return {"status": self.judge.kind, "passed": self.passed, **plain, "notes": [NOTE]}

    def print_to(self, console: Console) -> None:
        """Print the table, the note and the verdict."""
        when = "" if self.judge.kind == "live" else f"a recording of {self.judge.date} of "
        versions = ", ".join(f"{name} {version}" for name, version in self.judge.versions.items())
        table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
        table.add_column("compared")
        for heading in ("sentences", "identical", "share"):
            table.add_column(heading, justify="right")
        table.add_column("verdict")
        for row in self.rows:
            verdict = "counted" if not row.required else "passed" if row.identical == row.compared else "FAILED"
            share = f"{row.identical / row.compared:.0%}" if row.compared else "-"
            table.add_row(row.name, str(row.compared), str(row.identical), share, verdict)
        for text in (f"Tokens of {self.judge.model} beside {when}{versions}", table, f"Note: {NOTE}"):
            console.print(text, highlight=False, markup=False, soft_wrap=True)
        if self.problem is not None:
            console.print(f"First problem: {self.problem}", highlight=False, markup=False, soft_wrap=True)
        verdict = "passed: the tokenizer's tokens are the judge's" if self.passed else "FAILED"
        console.print(f"Verification {verdict}", highlight=False, markup=False, soft_wrap=True)


def token_agreement(
    candidate: Candidate,
    reference: Reference,
    sentences: SentenceSet,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> AgreementReport:
    """Tokenize and translate the sentences as the judge did, and count where the tokens are its own.

    Raises UsageError when no sentence fits the model, and whatever the session or the judge raise.
    """
    facts = reference.facts()
    tally = _Tally()
    lines = reference.tokenize([sentence.text for sentence in sentences.sentences])
    told = candidate.direction
    for line in lines:
        try:
            encoded = candidate.tokenizer.encode(line.text, source=told.source, target=told.target)
            tally.add(_SOURCE, encoded, line.tokens, line.text)
        except TokenizerError as error:
            tally.fail(_SOURCE, f"the tokenizer refused {line.text[:60]!r}: {error}")
    groups = batches(lines, positions=facts.positions)
    total = sum(len(group) for group in groups)
    if not total:
        raise UsageError(f"no sentence of {sentences.name} fits the {facts.positions} positions of {facts.model}")
    done = 0
    for group in groups:
        expected = reference.judge(group)
        for line, sentence in zip(group, expected, strict=True):
            tally.add(_START, [candidate.settings.decoder_start_token_id], [sentence.start_token], line.text)
        for name, beams in ((_GREEDY, 1), (_BEAM, BEAMS)):
            found = _decode(candidate, group, beams=beams, max_new_tokens=facts.max_new_tokens)
            for line, tokens, sentence in zip(group, found, expected, strict=True):
                wanted = sentence.greedy if beams == 1 else sentence.beam
                if isinstance(tokens, str):
                    tally.fail(name, f"{line.text[:60]!r} cannot be decoded: {tokens}")
                else:
                    tally.add(name, tokens, wanted, line.text)
        done += len(group)
        if progress is not None:
            progress(done, total)
    return AgreementReport(judge=facts, sentences=sentences.name, rows=tally.rows(), problem=tally.problem)


def _decode(
    candidate: Candidate, lines: Sequence[SourceLine], *, beams: int, max_new_tokens: int
) -> Sequence[tuple[int, ...] | str]:
    settings = dataclasses.replace(
        candidate.settings,
        num_beams=beams,
        do_sample=False,
        num_return_sequences=1,
        max_new_tokens=max_new_tokens,
        max_length=None,
    )
    ids, mask = pad_batch([line.tokens for line in lines], pad=settings.pad_token_id or 0)
    try:
        answers = search(candidate.graphs.start(ids, mask), rows=len(ids), settings=settings)
    except DecodingError as error:
        return [str(error)] * len(lines)
    return [hypotheses[0].tokens for hypotheses in answers]


class _Tally:
    """Counts by row, and keeps the first problem."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {name: [0, 0] for name in (_SOURCE, _START, _GREEDY, _BEAM)}
        self.problem: str | None = None

    def add(self, name: str, found: Sequence[int], wanted: Sequence[int], text: str) -> None:
        same = list(found) == list(wanted)
        self._counts[name][0] += 1
        self._counts[name][1] += same
        if not same and name in _REQUIRED:
            self._keep(f"{name} of {text[:60]!r} are {list(found)[:8]} and should be {list(wanted)[:8]}")

    def fail(self, name: str, problem: str) -> None:
        self._counts[name][0] += 1
        self._keep(problem)

    def _keep(self, problem: str) -> None:
        if self.problem is None:
            self.problem = problem

    def rows(self) -> tuple[AgreementRow, ...]:
        return tuple(
            AgreementRow(name=name, compared=compared, identical=identical, required=name in _REQUIRED)
            for name, (compared, identical) in self._counts.items()
        )
