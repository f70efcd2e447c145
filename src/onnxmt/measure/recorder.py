"""Making a recording: a judge that passes on what another one says and keeps the samples that go into the file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxmt.errors import UsageError
from onnxmt.measure.expected import STEPS, ExpectedSentence, JudgeFacts, Reference, Samples, SourceLine, batches
from onnxmt.measure.recording import (
    ARRAYS,
    CROSS,
    FORMAT,
    KV_VALUES,
    MAX_BYTES,
    PRESENT,
    SEEDED_LOGITS,
    TOP_LOGITS,
    Recording,
    RecordingFacts,
    seeded_logits,
    state_positions,
)
from onnxmt.measure.sentences import SentenceSet


class Recorder:
    """A judge that passes on what another one says and keeps the samples that a recording holds."""

    def __init__(
        self, judge: Reference, *, sentences: SentenceSet, identity: str, generation: Mapping[str, Any]
    ) -> None:
        self._judge, self._sentences = judge, sentences
        self._identity, self._generation = identity, generation
        self._source: dict[str, tuple[int, ...]] = {}
        self._samples: dict[str, _SampledSentence] = {}

    def facts(self) -> JudgeFacts:
        """Say who judges."""
        return self._judge.facts()

    def tokenize(self, texts: Sequence[str]) -> list[SourceLine]:
        """Return the texts with their source tokens."""
        lines = self._judge.tokenize(texts)
        self._source.update((line.text, line.tokens) for line in lines)
        return lines

    def judge(self, lines: Sequence[SourceLine]) -> list[ExpectedSentence]:
        """Return what is expected for each line, and keep a sample of it."""
        index = {sentence.text: number for number, sentence in enumerate(self._sentences.sentences)}
        expected = self._judge.judge(lines)
        for line, sentence in zip(lines, expected, strict=True):
            if line.text in index:  # other lines (a mixed batch made up by the caller) are not part of the set
                kept = kv_values_that_fit(len(index), layers=len(sentence.cross) // 2)
                self._samples[line.text] = _SampledSentence.of(sentence, index=index[line.text], kv_values=kept)
        return expected

    def recording(self) -> Recording:
        """Return the recording; raises UsageError while no sentence of the set was judged."""
        texts = tuple(sentence.text for sentence in self._sentences.sentences)
        judged = tuple(number for number, text in enumerate(texts) if text in self._samples)
        facts = self._judge.facts()
        open_lines = [n + 1 for n, text in enumerate(texts) if text not in self._source or (
            text not in self._samples and len(self._source[text]) <= (facts.positions or len(self._source[text]))
        )]  # fmt: skip
        if open_lines or not judged:
            raise UsageError(
                f"nothing can be recorded: {len(open_lines) or len(texts)} sentence(s) of {self._sentences.name} "
                "were not judged"
            )
        samples = [self._samples[texts[number]] for number in judged]
        source = [self._source[text] for text in texts]
        greedy = [sample.sentence.greedy for sample in samples]
        beam = [sample.sentence.beam for sample in samples]
        heads, _, head_size = samples[0].sentence.cross[0].shape
        arrays = {
            **_joined("source", source), **_joined("greedy", greedy), **_joined("beam", beam),
            "top_ids": np.concatenate([sample.top_ids for sample in samples]),
            "top_logits": np.concatenate([sample.top for sample in samples]),
            "seeded_logits": np.concatenate([sample.seeded for sample in samples]),
            "cross": np.concatenate([sample.cross for sample in samples]),
            "present": np.concatenate([sample.present for sample in samples]),
        }  # fmt: skip
        return Recording(
            RecordingFacts(
                format=FORMAT,
                versions=facts.versions,
                date=facts.date,
                model=facts.model,
                revision=facts.revision,
                identity=self._identity,
                sentence_set=self._sentences.sha256,
                sentences=texts,
                generation=json.loads(json.dumps(self._generation, default=str)),
                max_new_tokens=facts.max_new_tokens,
                positions=facts.positions,
                start_token=samples[0].sentence.start_token,
                layers=len(samples[0].sentence.cross) // 2,
                heads=heads,
                head_size=head_size,
                vocabulary=samples[0].sentence.logits[0].shape[0],
                kv_values=samples[0].kv_values,
                judged=judged,
                greedy_texts=tuple(sample.sentence.greedy_text for sample in samples),
                beam_texts=tuple(sample.sentence.beam_text for sample in samples),
                source=facts.source,
                target=facts.target,
                own_tokens=facts.own_tokens,
                categories=tuple(sentence.category for sentence in self._sentences.sentences),
            ),
            {name: array.astype(ARRAYS[name]) for name, array in arrays.items()},
        )


def kv_values_that_fit(sentences: int, *, layers: int) -> int:
    """Return how many values of each key and value tensor a sentence may keep in 1 MB, from 1 to KV_VALUES.

    Counted uncompressed: random floats shrink by some 8 % only, which is left as the margin with 60 kB for tokens and
    texts.
    """
    logits = sentences * STEPS * (TOP_LOGITS * 8 + SEEDED_LOGITS * 4)
    left = MAX_BYTES - logits - 60_000
    return max(1, min(KV_VALUES, left // (sentences * layers * 4 * 4)))


def record(judge: Reference, sentences: SentenceSet, *, identity: str, generation: Mapping[str, Any]) -> Recording:
    """Ask the judge for every sentence that fits the model, and return the recording; nothing else is run."""
    recorder = Recorder(judge, sentences=sentences, identity=identity, generation=generation)
    lines = recorder.tokenize([sentence.text for sentence in sentences.sentences])
    for batch in batches(lines, positions=recorder.facts().positions):
        recorder.judge(batch)
    return recorder.recording()


@dataclass(frozen=True, kw_only=True)
class _SampledSentence:
    """The numbers of one sentence that go into the file; `sentence` keeps tokens, texts and shapes, no tensors."""

    sentence: ExpectedSentence
    kv_values: int
    top_ids: NDArray[np.int64]
    top: NDArray[np.float32]
    seeded: NDArray[np.float32]
    cross: NDArray[np.float32]
    present: NDArray[np.float32]

    @classmethod
    def of(cls, sentence: ExpectedSentence, *, index: int, kv_values: int) -> _SampledSentence:
        top_ids = np.stack([_largest(logits.values, TOP_LOGITS) for logits in sentence.logits])
        seeded = [
            logits.values[seeded_logits(logits.shape[0], index, step)] for step, logits in enumerate(sentence.logits)
        ]
        states = {
            kind: np.concatenate(
                [
                    samples.values[state_positions(kv_values, samples.shape, kind, index, tensor)]
                    for tensor, samples in enumerate(tensors)
                ]
            )
            for kind, tensors in ((CROSS, sentence.cross), (PRESENT, sentence.present))
        }
        return cls(
            sentence=_without_values(sentence),
            kv_values=kv_values,
            top_ids=top_ids,
            top=np.stack([logits.values[ids] for logits, ids in zip(sentence.logits, top_ids, strict=True)]),
            seeded=np.stack(seeded),
            cross=states[CROSS],
            present=states[PRESENT],
        )


def _without_values(sentence: ExpectedSentence) -> ExpectedSentence:
    """Drop the tensors, which take a hundred times the memory of what is kept."""
    nothing = np.empty(0, dtype=np.float32)

    def emptied(tensors: tuple[Samples, ...]) -> tuple[Samples, ...]:
        return tuple(Samples(shape=samples.shape, values=nothing) for samples in tensors)

    return ExpectedSentence(
        source=sentence.source,
        start_token=sentence.start_token,
        greedy=sentence.greedy,
        beam=sentence.beam,
        greedy_text=sentence.greedy_text,
        beam_text=sentence.beam_text,
        cross=emptied(sentence.cross),
        logits=emptied(sentence.logits),
        present=emptied(sentence.present),
    )


def _largest(values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Return the indices of the `count` largest values, largest first, lower index first among equals."""
    candidates = np.argpartition(-values, count - 1)[:count] if len(values) > count else np.arange(len(values))
    return candidates[np.lexsort((candidates, -values[candidates]))].astype(np.int64)


def _joined(side: str, rows: Sequence[Sequence[int]]) -> dict[str, NDArray[Any]]:
    return {
        f"{side}_tokens": np.concatenate([np.asarray(row, dtype=np.int32) for row in rows]),
        f"{side}_lengths": np.array([len(row) for row in rows], dtype=np.int32),
    }
