"""The recorded reference: what it holds, how large it gets, what it refuses, and that it is read without trust."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.errors import OutputError, RecordingError, UsageError
from onnxmt.measure.expected import JudgeFacts
from onnxmt.measure.recorder import Recorder, kv_values_that_fit, record
from onnxmt.measure.recording import (
    MAX_BYTES,
    Recording,
    checkpoint_identity,
    read_recording,
    seeded_positions,
)
from onnxmt.measure.sentences import SentenceSet, parse_sentences, verification_sentences
from onnxmt.runtime.tokenizer import Direction
from tests.measure.random_judge import RandomJudge

FEW = parse_sentences("short\tOne.\nlong\tTwo or three.\nnames\tAda and Oskar.\n", name="few.tsv")


def _judge(**changes: int) -> RandomJudge:
    return RandomJudge(**{"vocabulary": 500, "layers": 2, "heads": 2, **changes})


@pytest.fixture
def recording() -> Recording:
    return record(_judge(), FEW, identity="a" * 64, generation={"num_beams": 4})


@pytest.fixture
def path(recording: Recording, tmp_path: Path) -> Path:
    recording.save(tmp_path / "verification.npz")
    return tmp_path / "verification.npz"


@pytest.mark.parametrize(
    ("vocabulary", "layers", "heads", "kept"),
    [(65_001, 6, 8, 52), (65_001, 12, 8, 26), (256_206, 12, 16, 26), (65_001, 24, 16, 13)],
)
def test_the_shipped_sentences_of_large_models_fit_in_a_megabyte(
    vocabulary: int, layers: int, heads: int, kept: int
) -> None:
    judge = RandomJudge(vocabulary=vocabulary, layers=layers, heads=heads)
    made = record(judge, verification_sentences(), identity="a" * 64, generation={})
    assert made.recorded.kv_values == kept  # of each key and value tensor of a sentence: far over 64 a layer
    assert len(made.to_bytes()) <= MAX_BYTES


def test_the_number_of_kept_values_never_reaches_zero() -> None:
    assert kv_values_that_fit(66, layers=2) == 64
    assert kv_values_that_fit(66, layers=400) == 1
    assert kv_values_that_fit(5000, layers=6) == 1


def test_too_many_sentences_are_refused_when_written(tmp_path: Path) -> None:
    many = parse_sentences("\n".join(f"short\tSentence number {i}." for i in range(150)), name="many.tsv")
    made = record(_judge(vocabulary=65_001), many, identity="a" * 64, generation={})
    with pytest.raises(OutputError, match=r"would take 1,\d{3},\d{3} bytes; at most 1,000,000 are allowed"):
        made.save(tmp_path / "verification.npz")
    assert not list(tmp_path.iterdir())


def test_what_is_read_is_what_was_written(recording: Recording, path: Path) -> None:
    again = read_recording(path)
    assert again.recorded == recording.recorded
    assert again.to_bytes() == recording.to_bytes() == path.read_bytes()
    texts = [sentence.text for sentence in FEW.sentences]
    lines = recording.tokenize(texts)
    assert again.tokenize(texts) == lines
    for one, other in zip(recording.judge(lines), again.judge(lines), strict=True):
        assert (one.source, one.greedy, one.beam, one.greedy_text) == (
            other.source,
            other.greedy,
            other.beam,
            other.greedy_text,
        )
        for kind in ("cross", "logits", "present"):
            for a, b in zip(getattr(one, kind), getattr(other, kind), strict=True):
                assert a.shape == b.shape
                np.testing.assert_array_equal(a.values, b.values)
                np.testing.assert_array_equal(a.positions, b.positions)


def test_the_samples_are_the_judges_own_values() -> None:
    heard: dict[str, object] = {}

    class Listening(RandomJudge):
        def judge(self, lines):  # type: ignore[no-untyped-def]
            sentences = super().judge(lines)
            heard.update(zip([line.text for line in lines], sentences, strict=True))
            return sentences

    made = record(Listening(vocabulary=1000, layers=2, heads=2), FEW, identity="a" * 64, generation={})
    for line, kept in zip(made.tokenize(list(heard)), made.judge(made.tokenize(list(heard))), strict=True):
        said = heard[line.text]
        for kind, count in (("cross", 64), ("present", 64), ("logits", 256)):
            for whole, samples in zip(getattr(said, kind), getattr(kept, kind), strict=True):
                assert len(samples.values) == count
                np.testing.assert_array_equal(samples.values, whole.values[samples.positions])
        for whole, samples in zip(said.logits, kept.logits, strict=True):
            top = samples.positions[:32]
            assert sorted(top) == sorted(np.argsort(whole.values)[-32:])
            assert list(samples.values[:32]) == sorted(samples.values[:32], reverse=True)


def test_a_small_vocabulary_is_kept_whole() -> None:
    made = record(_judge(vocabulary=20), FEW, identity="a" * 64, generation={})
    lines = made.tokenize([FEW.sentences[0].text])
    assert sorted(made.judge(lines)[0].logits[0].positions) == sorted([*range(20), *range(20)])


def test_the_file_holds_facts_a_person_can_read(path: Path) -> None:
    with np.load(path, allow_pickle=False) as stored:
        facts = json.loads(stored["facts"].tobytes())
    assert facts["format"] == 1
    assert facts["versions"] == {"torch": "2.13.0", "transformers": "5.24.0"}
    assert (facts["model"], facts["revision"], facts["identity"]) == ("org/name", "c" * 40, "a" * 64)
    assert (facts["date"], facts["generation"]) == ("2025-01-01", {"num_beams": 4})
    assert facts["sentence_set"] == FEW.sha256
    assert facts["judged"] == [0, 1, 2]


def test_the_facts_say_who_judged(recording: Recording) -> None:
    assert recording.facts() == JudgeFacts(
        kind="recording", versions={"torch": "2.13.0", "transformers": "5.24.0"}, date="2025-01-01", model="org/name",
        revision="c" * 40, identity="a" * 64, max_new_tokens=64, positions=512,
    )  # fmt: skip


def test_other_weights_and_other_sentences_are_refused(recording: Recording) -> None:
    recording.require(sentences=FEW, identity="a" * 64)
    recording.require(sentences=FEW)
    with pytest.raises(
        RecordingError, match=r"made for other weights \(org/name, sha-256 aaaaaaaaaaaa…\) than .*bbbb"
    ) as caught:
        recording.require(sentences=FEW, identity="b" * 64)
    assert "onnxmt[reference]" in str(caught.value)
    with pytest.raises(RecordingError, match=r"another sentence set .* verification\.tsv has"):
        recording.require(sentences=verification_sentences(), identity="a" * 64)


def test_it_brings_its_own_sentences_and_is_held_to_its_languages(recording: Recording, path: Path) -> None:
    again = read_recording(path)
    own = again.sentences()
    assert own is not None
    assert (own.sha256, own.categories) == (FEW.sha256, FEW.categories)
    again.require(sentences=own, direction=Direction(source="en", target="zh"))  # recorded without languages

    facts = dataclasses.replace(recording.recorded, source="en", target="zh")
    told = Recording(facts, recording._arrays)
    told.require(sentences=FEW, direction=Direction(target="zh"))
    told.require(sentences=FEW, direction=Direction())
    with pytest.raises(RecordingError, match="was made for the target language 'zh', and 'fr' is asked for"):
        told.require(sentences=FEW, direction=Direction(source="en", target="fr"))
    assert Recording(dataclasses.replace(facts, categories=()), recording._arrays).sentences() is None


def test_a_sentence_that_was_not_recorded_is_refused(recording: Recording) -> None:
    with pytest.raises(RecordingError, match=r"has no sentence 'Four\.'"):
        recording.tokenize(["Four."])


def test_sentences_that_do_not_fit_keep_their_tokens_only() -> None:
    made = record(_OneLong(vocabulary=500, layers=2, heads=2, positions=50), FEW, identity="a" * 64, generation={})
    assert made.recorded.judged == (0, 2)
    long = made.tokenize([FEW.sentences[1].text])
    assert len(long[0].tokens) == 60
    with pytest.raises(RecordingError, match="sentence 2 was too long for org/name"):
        made.judge(long)


class _OneLong(RandomJudge):
    def tokenize(self, texts):  # type: ignore[no-untyped-def]
        lines = super().tokenize(texts)
        return [
            dataclasses.replace(line, tokens=line.tokens * 5) if line.text.startswith("Two") else line for line in lines
        ]


def test_nothing_is_recorded_before_all_was_judged() -> None:
    recorder = Recorder(_judge(), sentences=FEW, identity="a" * 64, generation={})
    with pytest.raises(UsageError, match=r"3 sentence\(s\) of few\.tsv were not judged"):
        recorder.recording()
    lines = recorder.tokenize([sentence.text for sentence in FEW.sentences])
    recorder.judge(lines[:2])
    with pytest.raises(UsageError, match=r"1 sentence\(s\)"):
        recorder.recording()
    recorder.judge(lines[2:])
    assert recorder.recording().recorded.judged == (0, 1, 2)


def _rewritten(path: Path, **changes: object) -> Path:
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    facts = json.loads(arrays["facts"].tobytes())
    for name, change in changes.items():
        if callable(change):
            arrays[name] = change(arrays[name])
        elif change is None:
            del arrays[name]
        else:
            facts[name] = change
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format": 2}, "its format is 2; this version reads 1"),
        ({"cross": None}, "cross"),
        ({"greedy_tokens": lambda array: array[:-1]}, "the lengths of the greedy tokens do not add up"),
        ({"top_logits": lambda array: array.astype(np.float64)}, "the type of top_logits is wrong"),
        ({"seeded_logits": lambda array: array[:-1]}, "seeded_logits is"),
        ({"present": lambda array: array[1:]}, "present is"),
        ({"top_ids": lambda array: array + 500}, "a recorded token is outside the vocabulary"),
        ({"judged": [0, 1, 7]}, "a recorded sentence is not in the set"),
        ({"greedy_texts": []}, "the numbers of recorded sentences differ"),
        ({"surprise": 1}, "the key surprise is unknown"),
    ],
)
def test_an_altered_file_is_refused(path: Path, changes: dict[str, object], problem: str) -> None:
    with pytest.raises(RecordingError, match=problem):
        read_recording(_rewritten(path, **changes))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-400])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _not_a_container(path: Path) -> None:
    path.write_bytes(b"not a recording" * 99)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


def _pickled(path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([_Bomb()], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as container:
        container.writestr("facts.npy", buffer.getvalue())


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pickle.loads, ("a pickle was opened",)


def _huge(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as container:
        container.writestr("facts.npy", bytes(40 * MAX_BYTES))


@pytest.mark.parametrize("damage", [_truncate, _empty, _not_a_container, _directory, _flip, _pickled, _huge])
def test_a_damaged_or_hostile_file_is_one_clear_error(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with pytest.raises(RecordingError, match=r"the recorded reference .* cannot be read"):
        read_recording(path)


def test_a_file_that_cannot_be_written_is_an_output_error(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        recording.save(tmp_path / "nowhere" / "verification.npz")


def test_seeded_positions_stay_what_they_are() -> None:
    """Written into the format: a change of these numbers makes every recording useless."""
    assert seeded_positions(5, 1000, 0, 0, 0).tolist() == [640, 663, 690, 907, 932]
    assert seeded_positions(5, 1000, 0, 0, 1).tolist() == [118, 176, 476, 608, 646]
    assert seeded_positions(5, 3, 0, 0, 1).tolist() == [0, 1, 2]


@given(st.integers(1, 300), st.integers(1, 5000), st.integers(0, 2), st.integers(0, 10_000), st.integers(0, 50))
def test_seeded_positions_are_different_ordered_and_inside(
    count: int, size: int, kind: int, line: int, index: int
) -> None:
    positions = seeded_positions(count, size, kind, line, index)
    assert len(positions) == min(count, size)
    assert (np.diff(positions) > 0).all()
    assert 0 <= positions.min() <= positions.max() < size


def test_seeded_positions_spread_over_the_tensor() -> None:
    chosen = np.concatenate([seeded_positions(64, 4096, 1, line, 0) for line in range(200)])
    counts = np.bincount(chosen // 512, minlength=8)
    assert counts.min() > 0.85 * counts.mean()


class _Tensors:
    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self._tensors = tensors

    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def read(self, name: str) -> np.ndarray:
        return self._tensors[name].astype(np.float32)


def test_the_identity_follows_names_shapes_and_values_and_nothing_else() -> None:
    one = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.float32)}
    identity = checkpoint_identity(_Tensors(one))
    assert identity == "ebc35556a832b23dea83f03183dabb1c4c8ddf15fe2bcd45e70efdca2608f74c"
    assert identity == checkpoint_identity(_Tensors({"b": one["b"], "a": one["a"].astype(np.float16)}))
    assert identity == checkpoint_identity(_Tensors({**one, "a": np.asfortranarray(one["a"])}))
    others = (
        {**one, "a": one["a"].reshape(3, 2)}, {**one, "a": one["a"] + 1}, {"A": one["a"], "b": one["b"]},
        {"a": one["a"]}, {**one, "c": np.zeros(0, np.float32)},
    )  # fmt: skip
    assert identity not in {checkpoint_identity(_Tensors(other)) for other in others}


def test_the_shipped_demo_recording_belongs_to_the_demo_weights() -> None:
    from onnxmt.checkpoint import read_checkpoint
    from onnxmt.hub import resolve

    checkpoint = read_checkpoint(resolve("demo"))
    file = checkpoint.folder / "verification.npz"
    assert file.stat().st_size <= MAX_BYTES
    sentences: SentenceSet = verification_sentences()
    read_recording(file).require(sentences=sentences, identity=checkpoint_identity(checkpoint.weights))
