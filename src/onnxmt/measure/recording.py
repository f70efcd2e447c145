"""A recording of the judge: enough of PyTorch's numbers, in at most 1 MB, to verify graphs without torch.

What is kept, for each sentence of a set: source tokens, greedy and beam tokens, both texts; for each of the first 8
steps the 32 largest logits and 224 seeded ones; for the cross and the present keys and values of every decoder layer
up to 64 seeded values (fewer where 1 MB would be passed, the same number in every layer; `RecordingFacts.kv_values`
says how many).

Seeded positions are not stored. Of a tensor with N values the positions are the `count` indices i whose
splitmix64(seed + i) is smallest, in ascending order, where the seed folds (kind, line index from 0, index within the
kind) into SEED, one splitmix64 a number. Kinds: 0 logits (index = step from 0), 1 cross, 2 present (index = 2 *
layer, + 1 for values). splitmix64 is Steele, Lea and Flood's (2014) finaliser; it is written out here because numpy
does not promise that its own generators give the same numbers in later versions.

The file is a NumPy .npz without pickles: `facts` (UTF-8 JSON as bytes) and the arrays of `ARRAYS`.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onnxmt import records
from onnxmt.errors import OutputError, RecordingError
from onnxmt.measure.expected import (
    STEPS,
    ExpectedSentence,
    JudgeFacts,
    Positions,
    Samples,
    SourceLine,
)
from onnxmt.measure.sentences import Sentence, SentenceSet
from onnxmt.runtime.tokenizer import Direction

RECORDING_NAME = "verification.npz"
FORMAT = 1
MAX_BYTES = 1_000_000
TOP_LOGITS, SEEDED_LOGITS, KV_VALUES = 32, 224, 64
SEED = 0x6F6E6E786D74  # "onnxmt" in ASCII
LOGITS, CROSS, PRESENT = 0, 1, 2
ARRAYS = {
    "source_tokens": np.int32, "source_lengths": np.int32, "greedy_tokens": np.int32, "greedy_lengths": np.int32,
    "beam_tokens": np.int32, "beam_lengths": np.int32, "top_ids": np.int32, "top_logits": np.float32,
    "seeded_logits": np.float32, "cross": np.float32, "present": np.float32,
}  # fmt: skip


class ReadableWeights(Protocol):
    """The part of `weights.Weights` that a fingerprint needs."""

    def names(self) -> frozenset[str]:
        """Return the tensors' names."""

    def read(self, name: str) -> NDArray[np.float32]:
        """Return one tensor as float32."""


def checkpoint_identity(weights: ReadableWeights) -> str:
    """Return SHA-256 (hexadecimal) over names, shapes and float32 values, whatever the file format or stored dtype."""
    digest = hashlib.sha256()
    for name in sorted(weights.names()):
        tensor = np.ascontiguousarray(weights.read(name), dtype="<f4")
        digest.update(f"{name}\0{tensor.shape}\0".encode())
        digest.update(tensor.data if tensor.size else b"")
    return digest.hexdigest()


def seeded_positions(count: int, size: int, *key: int) -> Positions:
    """Return `count` different indices below `size` (all where there are no more), ascending; see the module's text."""
    if size <= count:
        return np.arange(size, dtype=np.int64)
    seed = np.array(SEED, dtype=np.uint64)
    for number in key:
        seed = _splitmix64(seed ^ np.uint64(number))
    with np.errstate(over="ignore"):
        hashes = _splitmix64(np.arange(size, dtype=np.uint64) + seed)
    return np.sort(np.argpartition(hashes, count)[:count]).astype(np.int64)


def _splitmix64(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One splitmix64 output for each state; a bijection, so hashes of different numbers differ."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is the algorithm
        z = state + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


@dataclass(frozen=True, kw_only=True)
class RecordingFacts:
    """The JSON part: who judged what, when, under which settings, and the sizes that the arrays follow from.

    `identity` fingerprints the weights (`checkpoint_identity`), `sentence_set` the sentences (`SentenceSet.sha256`);
    `judged` lists the indices (from 0) of the sentences that fitted the model; the texts are theirs. `source`, `target`
    and `own_tokens` are those of JudgeFacts; `categories` holds one a sentence (files of before had none).
    """

    format: int
    versions: Mapping[str, str]
    date: str
    model: str
    revision: str | None
    identity: str
    sentence_set: str
    sentences: tuple[str, ...]
    generation: Mapping[str, Any]
    max_new_tokens: int
    positions: int | None
    start_token: int
    layers: int
    heads: int
    head_size: int
    vocabulary: int
    kv_values: int
    judged: tuple[int, ...]
    greedy_texts: tuple[str, ...]
    beam_texts: tuple[str, ...]
    source: str | None = records.added(None)
    target: str | None = records.added(None)
    own_tokens: str | None = records.added(None)
    categories: tuple[str, ...] = records.added(())


class Recording:
    """A judge that remembers: the `Reference` of a checkpoint without torch. Made by `Recorder` or `read_recording`."""

    def __init__(self, facts: RecordingFacts, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.recorded = facts
        self._arrays = dict(arrays)

    def sentences(self) -> SentenceSet | None:
        """Return the set that it was made for, None where the file is too old to hold the categories."""
        recorded = self.recorded
        if not recorded.categories:
            return None
        pairs = zip(recorded.categories, recorded.sentences, strict=True)
        lines = (
            Sentence(line=number, category=category, text=text) for number, (category, text) in enumerate(pairs, 1)
        )
        return SentenceSet(name="the recorded sentences", sentences=tuple(lines))

    def require(
        self, *, sentences: SentenceSet, identity: str | None = None, direction: Direction | None = None
    ) -> None:
        """Raise RecordingError unless it was made for these sentences and (where given) these weights and languages."""
        remedy = "record it again with torch installed (pip install 'onnxmt[reference]'), or pass --verify none"
        if self.recorded.sentence_set != sentences.sha256:
            raise RecordingError(
                f"the recorded reference of {self.recorded.model} was made for another sentence set "
                f"(sha-256 {self.recorded.sentence_set[:12]}…, {sentences.name} has {sentences.sha256[:12]}…): {remedy}"
            )
        for role in ("source", "target"):
            wanted, found = getattr(direction, role, None), getattr(self.recorded, role)
            if wanted is not None and found is not None and wanted != found:
                raise RecordingError(
                    f"the recorded reference of {self.recorded.model} was made for the {role} language {found!r}, and "
                    f"{wanted!r} is asked for: {remedy}"
                )
        if identity is not None and self.recorded.identity != identity:
            raise RecordingError(
                f"the recorded reference was made for other weights ({self.recorded.model}, sha-256 "
                f"{self.recorded.identity[:12]}…) than the checkpoint's ({identity[:12]}…): {remedy}"
            )

    def facts(self) -> JudgeFacts:
        """Say who judged, when, and under which limits."""
        recorded = self.recorded
        return JudgeFacts(
            kind="recording",
            versions=recorded.versions,
            date=recorded.date,
            model=recorded.model,
            revision=recorded.revision,
            identity=recorded.identity,
            max_new_tokens=recorded.max_new_tokens,
            positions=recorded.positions,
            source=recorded.source,
            target=recorded.target,
            own_tokens=recorded.own_tokens,
        )

    def tokenize(self, texts: Sequence[str]) -> list[SourceLine]:
        """Return the recorded source tokens; raises RecordingError for a text that was not recorded."""
        return [SourceLine(text=text, tokens=self._source[self._index(text)]) for text in texts]

    def judge(self, lines: Sequence[SourceLine]) -> list[ExpectedSentence]:
        """Return what was recorded for each line."""
        return [self._sentence(self._index(line.text)) for line in lines]

    def to_bytes(self) -> bytes:
        """Return the .npz file; the same recording always gives the same bytes. Raises OutputError above 1 MB."""
        buffer = io.BytesIO()
        text = json.dumps(records.to_json(self.recorded), ensure_ascii=False, sort_keys=True)
        facts = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
        np.savez_compressed(buffer, allow_pickle=False, facts=facts, **self._arrays)
        data = buffer.getvalue()
        if len(data) > MAX_BYTES:
            raise OutputError(
                f"the recorded reference of {self.recorded.model} would take {len(data):,} bytes; at most "
                f"{MAX_BYTES:,} are allowed: record fewer than {len(self.recorded.sentences)} sentences"
            )
        return data

    def save(self, path: Path) -> None:
        """Write the file; raises OutputError."""
        data = self.to_bytes()
        try:
            path.write_bytes(data)
        except OSError as error:
            raise OutputError(f"the recorded reference cannot be written to {path}: {error}") from error

    @cached_property
    def _lines(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.recorded.sentences)}

    def _index(self, text: str) -> int:
        if text not in self._lines:
            raise RecordingError(f"the recorded reference of {self.recorded.model} has no sentence {text!r}")
        return self._lines[text]

    @cached_property
    def _source(self) -> list[tuple[int, ...]]:
        return _cut(self._arrays["source_tokens"], self._arrays["source_lengths"])

    @cached_property
    def _greedy(self) -> list[tuple[int, ...]]:
        return _cut(self._arrays["greedy_tokens"], self._arrays["greedy_lengths"])

    @cached_property
    def _beam(self) -> list[tuple[int, ...]]:
        return _cut(self._arrays["beam_tokens"], self._arrays["beam_lengths"])

    @cached_property
    def _offsets(self) -> dict[str, NDArray[np.int64]]:
        """Where each judged sentence begins in `top_ids` (rows), `cross` and `present` (values)."""
        facts, steps = self.recorded, [min(STEPS, len(tokens)) for tokens in self._greedy]
        width, tensors = facts.heads * facts.head_size, 2 * facts.layers
        sizes = {
            "steps": steps,
            "cross": [tensors * min(facts.kv_values, width * len(self._source[i])) for i in facts.judged],
            "present": [tensors * min(facts.kv_values, width * count) for count in steps],
        }
        return {name: np.concatenate(([0], np.cumsum(counts, dtype=np.int64))) for name, counts in sizes.items()}

    def _sentence(self, index: int) -> ExpectedSentence:
        facts = self.recorded
        if index not in facts.judged:
            raise RecordingError(f"sentence {index + 1} was too long for {facts.model} and was not recorded")
        row = facts.judged.index(index)
        first, last = self._offsets["steps"][row : row + 2]
        return ExpectedSentence(
            source=self._source[index],
            start_token=facts.start_token,
            greedy=self._greedy[row],
            beam=self._beam[row],
            greedy_text=facts.greedy_texts[row],
            beam_text=facts.beam_texts[row],
            cross=self._states(CROSS, index, row, len(self._source[index])),
            logits=tuple(self._logits(index, step, int(first) + step) for step in range(int(last - first))),
            present=self._states(PRESENT, index, row, int(last - first)),
        )

    def _logits(self, index: int, step: int, row: int) -> Samples:
        seeded = seeded_logits(self.recorded.vocabulary, index, step)
        return Samples(
            shape=(self.recorded.vocabulary,),
            values=np.concatenate((self._arrays["top_logits"][row], self._arrays["seeded_logits"][row])),
            positions=np.concatenate((self._arrays["top_ids"][row].astype(np.int64), seeded)),
        )

    def _states(self, kind: int, index: int, row: int, length: int) -> tuple[Samples, ...]:
        facts, name = self.recorded, "cross" if kind == CROSS else "present"
        shape = (facts.heads, length, facts.head_size)
        first, last = self._offsets[name][row : row + 2]
        values = self._arrays[name][first:last].reshape(2 * facts.layers, -1)
        return tuple(
            Samples(shape=shape, values=part, positions=state_positions(facts.kv_values, shape, kind, index, tensor))
            for tensor, part in enumerate(values)
        )


def read_recording(path: Path) -> Recording:
    """Read verification.npz, unpickling nothing; raises RecordingError when it is not a recording of this format."""
    try:
        data = path.read_bytes() if path.stat().st_size <= 4 * MAX_BYTES else None
    except OSError as error:
        raise RecordingError(f"the recorded reference {path} cannot be read: {error}") from error
    if data is None:
        raise RecordingError(f"the recorded reference {path} is larger than {4 * MAX_BYTES:,} bytes: it is not one")
    try:
        return _parse(data)
    except (ValueError, KeyError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise RecordingError(
            f"the recorded reference {path} cannot be read: {error}. Record it again, or verify live"
        ) from error


def _parse(data: bytes) -> Recording:
    """Read the file's bytes; whatever is wrong with them is one of the errors that `read_recording` catches."""
    with zipfile.ZipFile(io.BytesIO(data)) as container:
        if sum(member.file_size for member in container.infolist()) > 16 * MAX_BYTES:
            raise ValueError("it unpacks to more than a recording can hold")
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        content = json.loads(stored["facts"].tobytes().decode("utf-8"))
        if isinstance(content, dict) and content.get("format") != FORMAT:
            raise ValueError(f"its format is {content.get('format')!r}; this version reads {FORMAT}")
        facts = records.from_json(RecordingFacts, content)
        arrays = {name: stored[name] for name in ARRAYS}
    recording = Recording(facts, arrays)
    _check_arrays(recording, arrays)
    return recording


def _check_arrays(recording: Recording, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError unless every array has the type and the length that the facts and the token counts ask for."""
    facts = recording.recorded
    wrong = [name for name, kind in ARRAYS.items() if arrays[name].dtype != kind]
    if wrong:
        raise ValueError(f"the type of {', '.join(wrong)} is wrong")
    judged = len(facts.judged)
    if not (len(arrays["greedy_lengths"]) == len(arrays["beam_lengths"]) == judged == len(facts.greedy_texts)):
        raise ValueError("the numbers of recorded sentences differ")
    if facts.categories and len(facts.categories) != len(facts.sentences):
        raise ValueError("the numbers of sentences and categories differ")
    if len(arrays["source_lengths"]) != len(facts.sentences) or judged != len(facts.beam_texts):
        raise ValueError("the numbers of sentences differ")
    if not all(0 <= number < len(facts.sentences) for number in facts.judged):
        raise ValueError("a recorded sentence is not in the set")
    for side in ("source", "greedy", "beam"):
        if arrays[f"{side}_lengths"].sum() != len(arrays[f"{side}_tokens"]) or (arrays[f"{side}_lengths"] < 1).any():
            raise ValueError(f"the lengths of the {side} tokens do not add up")
    offsets = recording._offsets
    steps = int(offsets["steps"][-1])
    shapes = {
        "top_ids": (steps, min(TOP_LOGITS, facts.vocabulary)), "top_logits": (steps, min(TOP_LOGITS, facts.vocabulary)),
        "seeded_logits": (steps, min(SEEDED_LOGITS, facts.vocabulary)),
        "cross": (int(offsets["cross"][-1]),), "present": (int(offsets["present"][-1]),),
    }  # fmt: skip
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} is {arrays[name].shape} and should be {shape}")
    if steps and not 0 <= arrays["top_ids"].min() <= arrays["top_ids"].max() < facts.vocabulary:
        raise ValueError("a recorded token is outside the vocabulary")


def seeded_logits(vocabulary: int, index: int, step: int) -> Positions:
    """Return the seeded token ids of sentence `index` (from 0) at `step` (from 0)."""
    return seeded_positions(SEEDED_LOGITS, vocabulary, LOGITS, index, step)


def state_positions(count: int, shape: tuple[int, ...], kind: int, index: int, tensor: int) -> Positions:
    """Return the seeded positions in a key or value tensor of sentence `index` (from 0)."""
    return seeded_positions(count, int(np.prod(shape)), kind, index, tensor)


def _cut(tokens: NDArray[Any], lengths: NDArray[Any]) -> list[tuple[int, ...]]:
    ends = np.cumsum(lengths)
    return [tuple(tokens[end - length : end].tolist()) for end, length in zip(ends, lengths, strict=True)]
