"""Verification: run graphs, tokenizer and search beside a judge, layer by layer, and say where they first part."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from onnxmt.errors import DecodingError, TokenizerError, UsageError
from onnxmt.measure.comparison import (
    BEAM_TOKENS,
    GREEDY_TOKENS,
    MIXED,
    SOURCE_TOKENS,
    START_TOKEN,
    TEXT,
    Tally,
    cross_layer,
    describe_tokens,
    logits_layer,
    present_layer,
)
from onnxmt.measure.expected import (
    BEAMS,
    STEPS,
    ExpectedSentence,
    Floats,
    Reference,
    Samples,
    SourceLine,
    batches,
    forced_tokens,
    pad_batch,
)
from onnxmt.measure.sentences import SentenceSet
from onnxmt.measure.verdict import SentenceCounts, VerificationReport
from onnxmt.runtime.search import Step, search
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction, Tokenizer

Ids = NDArray[np.int64]
Found: TypeAlias = tuple[int, ...] | str
"""The tokens of a sentence, or why there are none."""
MIXED_ROWS = 8
"""Sentences in the batch of mixed lengths that is compared with one sentence at a time."""


_NOTHING_TOLD = Direction()


class Graphs(Protocol):
    """The part of `runtime.decoder.Seq2SeqModel` that verification runs."""

    def encode(self, input_ids: Ids, attention_mask: Ids) -> Mapping[str, Floats]:
        """Run the encoder graph; returns its outputs by name (`cross.{i}.key|value`)."""

    def run_decoder(self, feeds: Mapping[str, Ids | Floats]) -> Mapping[str, Floats]:
        """Run the decoder graph once on exactly these feeds; returns its outputs by name."""

    def empty_past(self, rows: int) -> Mapping[str, Floats]:
        """Return the decoder's `past.{i}.key|value` of length 0, for the first step."""

    def start(self, input_ids: Ids, attention_mask: Ids) -> Step:
        """Encode, and return the step that search drives."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is verified: the graphs, the tokenizer and the generation settings that a bundle would run with.

    `direction` is what the tokenizer is told, and what the settings are for (`runtime.direction.settings_for`).
    """

    graphs: Graphs
    tokenizer: Tokenizer
    settings: GenerationSettings
    direction: Direction = _NOTHING_TOLD


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """`limit` on a tensor's absolute error (of values up to 100, in proportion above); `expected` is float32's own."""

    limit: float = 1e-3
    expected: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 < self.expected <= self.limit:
            raise UsageError(
                f"limits of verification: 0 < expected ({self.expected}) <= limit ({self.limit}) must hold"
            )


def verify(
    candidate: Candidate,
    reference: Reference,
    sentences: SentenceSet,
    *,
    options: VerifyOptions | None = None,
    notes: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> VerificationReport:
    """Compare every layer on every sentence that fits the model; the report says whether all of them are equal.

    `notes` go into the report. `progress` is called with sentences done and sentences in all. Raises UsageError when no
    sentence fits the model, and whatever the session or the judge raise; a difference is never raised, it is in the
    report.
    """
    options = options or VerifyOptions()
    facts = reference.facts()
    tally = Tally(sentences, limit=options.limit, expected=options.expected)
    lines = reference.tokenize([sentence.text for sentence in sentences.sentences])
    groups = batches(lines, positions=facts.positions)
    total = sum(len(group) for group in groups)
    if not total:
        raise UsageError(f"no sentence of {sentences.name} fits the {facts.positions} positions of {facts.model}")
    verifier = _Verifier(candidate, tally, max_new_tokens=facts.max_new_tokens)
    if facts.own_tokens is None:
        verifier.check_source_tokens(lines)
    done = 0
    greedy: dict[str, tuple[int, ...]] = {}
    for group in groups:
        expected = reference.judge(group)
        verifier.check_batch(group, expected)
        greedy.update((line.text, sentence.greedy) for line, sentence in zip(group, expected, strict=True))
        done += len(group)
        if progress is not None:
            progress(done, total)
    verifier.check_mixed([line for group in groups for line in group], greedy)
    counts = SentenceCounts(
        name=sentences.name,
        sha256=sentences.sha256,
        lines=len(sentences.sentences),
        skipped=len(sentences.sentences) - total,
    )
    return tally.report(facts, counts, notes=notes)


class _Verifier:
    """Runs the candidate batch by batch and hands each comparison to the tally."""

    def __init__(self, candidate: Candidate, tally: Tally, *, max_new_tokens: int) -> None:
        self._graphs, self._tokenizer, self._tally = candidate.graphs, candidate.tokenizer, tally
        self._direction = candidate.direction
        self._greedy, self._beam = (
            dataclasses.replace(
                candidate.settings, num_beams=beams, do_sample=False, num_return_sequences=1,
                max_new_tokens=max_new_tokens, max_length=None,
            )
            for beams in (1, BEAMS)
        )  # fmt: skip

    def check_source_tokens(self, lines: Sequence[SourceLine]) -> None:
        """Compare our tokenizer's ids with the judge's; what follows then runs on the judge's ids."""
        for line in lines:
            try:
                told = self._direction
                tokens = self._tokenizer.encode(line.text, source=told.source, target=told.target)
                problem = describe_tokens(tokens, line.tokens)
            except TokenizerError as error:
                problem = f"the tokenizer refused it: {error}"
            self._tally.tokens(SOURCE_TOKENS, line.text, problem)

    def check_batch(self, lines: Sequence[SourceLine], expected: Sequence[ExpectedSentence]) -> None:
        """Compare cross K/V, then logits and present K/V step by step, then tokens and text, of one batch."""
        start, pad = self._greedy.decoder_start_token_id, self._greedy.pad_token_id or 0
        ids, mask = pad_batch([line.tokens for line in lines], pad=pad)
        for line, sentence in zip(lines, expected, strict=True):
            problem = describe_tokens([start], [sentence.start_token])
            self._tally.tokens(START_TOKEN, line.text, problem)
        cross = self._graphs.encode(ids, mask)
        self._check_states(cross, "cross", lines, [sentence.cross for sentence in expected], step=None)
        steps = max(sentence.steps for sentence in expected)
        fed = np.array([forced_tokens(start, s.greedy, steps=steps, filler=pad) for s in expected], dtype=np.int64)
        self._check_logits(ids, mask, fed, lines, expected)
        self._check_present(cross, mask, fed, lines, expected)
        self._check_tokens(ids, mask, lines, expected)

    def _check_states(
        self,
        outputs: Mapping[str, Floats],
        kind: str,
        lines: Sequence[SourceLine],
        expected: Sequence[Sequence[Samples] | None],
        *,
        step: int | None,
    ) -> None:
        """Compare `kind.{i}.key|value` [B, h, length, d] of every layer with each line's samples (None: skip it)."""
        row_of = cross_layer if kind == "cross" else present_layer
        layers = max(len(samples) // 2 for samples in expected if samples is not None)
        for index, (part, half) in itertools.product(range(layers), enumerate(("key", "value"))):
            name = f"{kind}.{index}.{half}"
            output = outputs.get(name)
            for row, (line, samples) in enumerate(zip(lines, expected, strict=True)):
                if samples is None:
                    continue
                wanted = samples[2 * index + part]
                found = None if output is None else output[row]
                if found is not None and found.ndim == 3:
                    found = found[:, : wanted.shape[1]]  # padding behind the sentence is nobody's business
                self._tally.tensor(row_of(index), name, line.text, wanted, found, step=step)
        if surplus := [name for name in outputs if name.startswith(f"{kind}.") and int(name.split(".")[1]) >= layers]:
            layer = row_of(int(surplus[0].split(".")[1]))
            self._tally.tokens(layer, lines[0].text, f"the reference has no {surplus[0]}", step=step)

    def _check_logits(
        self,
        ids: Ids,
        mask: Ids,
        fed: Ids,
        lines: Sequence[SourceLine],
        expected: Sequence[ExpectedSentence],
    ) -> None:
        """Drive the step that search uses with the judge's tokens; `fed` is [B, steps]."""
        step_of = self._graphs.start(ids, mask)
        for step in range(fed.shape[1]):
            logits = step_of(fed[:, step : step + 1], None)
            for row, (line, sentence) in enumerate(zip(lines, expected, strict=True)):
                if step >= sentence.steps:
                    continue
                wanted = sentence.logits[step]
                self._tally.tensor(logits_layer(step + 1), "logits", line.text, wanted, logits[row], step=step + 1)
                if _lead(wanted, sentence.greedy[step]) < self._tally.limit:
                    self._tally.near_tie(line.text, step)

    def _check_present(
        self,
        cross: Mapping[str, Floats],
        mask: Ids,
        fed: Ids,
        lines: Sequence[SourceLine],
        expected: Sequence[ExpectedSentence],
    ) -> None:
        """Run the decoder graph itself and compare all it hands back at each step: a mangled past shows here."""
        past = self._graphs.empty_past(len(mask))
        for step in range(fed.shape[1]):
            token = fed[:, step : step + 1]
            outputs = self._graphs.run_decoder({"input_ids": token, "attention_mask": mask, **cross, **past})
            wanted = [
                [samples.until(step + 1) for samples in sentence.present] if step < sentence.steps else None
                for sentence in expected
            ]
            self._check_states(outputs, "present", lines, wanted, step=step + 1)
            past = {name: outputs[f"present.{name.removeprefix('past.')}"] for name in past}

    def _check_tokens(
        self, ids: Ids, mask: Ids, lines: Sequence[SourceLine], expected: Sequence[ExpectedSentence]
    ) -> None:
        """Translate the batch with greedy search and with 4 beams, and compare tokens and text."""
        greedy, beam = (self._search(ids, mask, settings) for settings in (self._greedy, self._beam))
        for row, (line, sentence) in enumerate(zip(lines, expected, strict=True)):
            clean = self._tally.clean(line.text)
            for layer, gap_of, have, want in (
                (GREEDY_TOKENS, self._greedy_gap, greedy[row], sentence.greedy),
                (BEAM_TOKENS, self._beam_gap, beam[row], sentence.beam),
            ):
                problem = _describe(have, want)
                tie = False
                if problem is not None and clean and not isinstance(have, str):
                    tie = gap_of(line.tokens, have, want) < self._tally.limit
                self._tally.tokens(layer, line.text, problem, near_tie=tie)
            texts = ((greedy[row], sentence.greedy_text), (beam[row], sentence.beam_text))
            problem = next((p for have, text in texts if (p := self._describe_text(have, text))), None)
            self._tally.tokens(TEXT, line.text, problem)

    def check_mixed(self, lines: Sequence[SourceLine], greedy: Mapping[str, tuple[int, ...]]) -> None:
        """Compare one batch of very different lengths, in two orders, with the same sentences one at a time."""
        chosen = _spread(lines, MIXED_ROWS)
        alone = {line.text: self._observe([line], greedy)[0] for line in chosen}
        for order in (chosen, chosen[::-1]):
            for line, seen in zip(order, self._observe(order, greedy), strict=True):
                single = alone[line.text]
                for name, tensor in seen.tensors.items():
                    wanted = single.tensors[name]
                    samples = Samples(shape=wanted.shape, values=wanted.reshape(-1))
                    self._tally.tensor(MIXED, name, line.text, samples, tensor)
                problem = single.tokens if isinstance(single.tokens, str) else _describe(seen.tokens, single.tokens)
                self._tally.tokens(MIXED, line.text, problem)

    def _observe(self, lines: Sequence[SourceLine], greedy: Mapping[str, tuple[int, ...]]) -> list[_Observation]:
        """Run a batch, and cut each sentence's own part out of what comes back."""
        pad = self._greedy.pad_token_id or 0
        ids, mask = pad_batch([line.tokens for line in lines], pad=pad)
        cross = self._graphs.encode(ids, mask)
        tensors: list[dict[str, Floats]] = [
            {name: output[row][:, : len(line.tokens)] for name, output in cross.items()}
            for row, line in enumerate(lines)
        ]
        forced = [greedy[line.text][:STEPS] for line in lines]
        steps = max(len(tokens) for tokens in forced)
        start = self._greedy.decoder_start_token_id
        fed = np.array([forced_tokens(start, row, steps=steps, filler=pad) for row in forced], dtype=np.int64)
        step_of = self._graphs.start(ids, mask)
        for step in range(steps):
            logits = step_of(fed[:, step : step + 1], None)
            for row, tokens in enumerate(forced):
                if step < len(tokens):
                    tensors[row][f"logits at step {step + 1}"] = logits[row]
        found = self._search(ids, mask, self._greedy)
        return [_Observation(tensors=part, tokens=tokens) for part, tokens in zip(tensors, found, strict=True)]

    def _search(self, ids: Ids, mask: Ids, settings: GenerationSettings) -> list[Found]:
        """Return the best tokens of each row, or for every row why no token could be chosen (scores that are NaN)."""
        try:
            answers = search(self._graphs.start(ids, mask), rows=len(ids), settings=settings)
        except DecodingError as error:
            return [f"the search stopped: {error}"] * len(ids)
        return [hypotheses[0].tokens for hypotheses in answers]

    def _describe_text(self, tokens: Found, expected: str) -> str | None:
        if isinstance(tokens, str):
            return tokens
        try:
            text = self._tokenizer.decode(tokens)
        except TokenizerError as error:
            return f"the tokens cannot be decoded: {error}"
        return None if text == expected else f"{text!r} should be {expected!r}"

    def _greedy_gap(self, source: Sequence[int], found: Sequence[int], expected: Sequence[int]) -> float:
        """Return by how much our own logits prefer one of the two tokens at which the translations part."""
        place = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
        if place is None:
            return float("inf")
        logits = self._forced_logits(source, expected[: place + 1])[-1]
        return abs(float(logits[found[place]]) - float(logits[expected[place]]))

    def _beam_gap(self, source: Sequence[int], found: Sequence[int], expected: Sequence[int]) -> float:
        """Return how far apart the scores of two translations are under our own logits."""
        scores = []
        for tokens in (found, expected):
            logits = np.stack(self._forced_logits(source, tokens)).astype(np.float64)
            shifted = logits - logits.max(axis=1, keepdims=True)
            chosen = shifted[np.arange(len(tokens)), list(tokens)] - np.log(np.exp(shifted).sum(axis=1))
            scores.append(float(chosen.sum()) / float(len(tokens) ** self._beam.length_penalty))
        return abs(scores[0] - scores[1])

    def _forced_logits(self, source: Sequence[int], tokens: Sequence[int]) -> list[Floats]:
        """Return the logits [V] from which each of `tokens` was chosen, for one sentence."""
        ids, mask = pad_batch([source], pad=0)
        step_of = self._graphs.start(ids, mask)
        fed = [self._greedy.decoder_start_token_id, *tokens[:-1]]
        return [step_of(np.array([[token]], dtype=np.int64), None)[0] for token in fed]


@dataclass(frozen=True, kw_only=True)
class _Observation:
    """What one sentence got out of a batch: tensors by name without padding, and greedy tokens."""

    tensors: Mapping[str, Floats]
    tokens: Found


def _describe(found: Found, expected: Sequence[int]) -> str | None:
    return found if isinstance(found, str) else describe_tokens(found, expected)


def _lead(logits: Samples, token: int) -> float:
    """Return by how much `token` leads all other sampled logits; infinite where it does not (a processor chose it)."""
    ids = np.arange(logits.shape[0]) if logits.positions is None else logits.positions
    chosen = ids == token
    if not chosen.any() or chosen.all():
        return float("inf")
    lead = float(logits.values[chosen].max() - logits.values[~chosen].max())
    return lead if lead >= 0 else float("inf")


def _spread(lines: Sequence[SourceLine], count: int) -> list[SourceLine]:
    """Return up to `count` lines from the shortest to the longest, long and short ones in turn."""
    ordered = sorted(lines, key=lambda line: len(line.tokens))
    if len(ordered) > count:
        ordered = [ordered[round(i * (len(ordered) - 1) / (count - 1))] for i in range(count)]
    half = (len(ordered) + 1) // 2
    pairs = itertools.zip_longest(ordered[:half], reversed(ordered[half:]))
    return [line for pair in pairs for line in pair if line is not None]
