"""Graphs, weights, settings and tokenizers broken on purpose: each fails, live and replayed, and is named where it began."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from onnxmt.errors import VerificationError
from onnxmt.measure.recording import Recording
from onnxmt.measure.verdict import VerificationReport
from onnxmt.measure.verify import Candidate, verify
from onnxmt.runtime.decoder import Seq2SeqModel
from tests.measure import marian as faults
from tests.measure.marian import SENTENCES, Case, broken, build_case, candidate_of, edited_copy

pytestmark = pytest.mark.reference


@pytest.fixture(scope="module")
def recording(marian: Case) -> Recording:
    return marian.recording()


def _both(marian: Case, recording: Recording, candidate: Candidate) -> tuple[VerificationReport, VerificationReport]:
    """The live and the replayed report; both must fail at the same place."""
    live, replayed = (verify(candidate, judge, SENTENCES) for judge in (marian.judge, recording))
    assert not live.passed
    assert not replayed.passed
    first, again = live.first_divergence, replayed.first_divergence
    assert (first.layer, first.tensor, first.step, first.near_tie) == (
        again.layer,
        again.tensor,
        again.step,
        again.near_tie,
    )
    return live, replayed


def _failed(report: VerificationReport) -> set[str]:
    return {row.layer for row in report.rows if not row.passed}


def _bump(name: str, amount: float = 0.5) -> Callable[[dict[str, np.ndarray]], None]:
    def edit(weights: dict[str, np.ndarray]) -> None:
        weights[name] = weights[name] + np.float32(amount)

    return edit


@pytest.mark.parametrize(
    ("weight", "layer", "tensor", "step"),
    [
        ("model.encoder.layers.1.fc1.weight", "cross K/V layer 0", "cross.0.key", None),
        ("model.decoder.layers.1.encoder_attn.v_proj.bias", "cross K/V layer 1", "cross.1.value", None),
        ("model.decoder.layers.0.self_attn.v_proj.bias", "present K/V layer 0", "present.0.value", 1),
        ("model.decoder.layers.0.fc1.bias", "present K/V layer 1", "present.1.key", 1),
        ("model.decoder.layers.1.final_layer_norm.bias", "logits step 1", "logits", 1),
    ],
)
def test_a_perturbed_weight(
    marian: Case, recording: Recording, tmp_path: Path, weight: str, layer: str, tensor: str, step: int | None
) -> None:
    live, _ = _both(marian, recording, edited_copy(marian, tmp_path, _bump(weight)))
    first = live.first_divergence
    assert (first.layer, first.tensor, first.step) == (layer, tensor, step)
    assert "off by" in first.problem
    assert "limit 0.001" in first.problem


def test_one_value_of_one_weight(marian: Case, tmp_path: Path) -> None:
    """Live, the whole tensor is compared: a single element is enough."""

    def edit(weights: dict[str, np.ndarray]) -> None:
        weights["model.decoder.layers.1.encoder_attn.k_proj.weight"][3, 5] += 0.02

    report = verify(edited_copy(marian, tmp_path, edit), marian.judge, SENTENCES)
    assert report.first_divergence.layer == "cross K/V layer 1"
    assert report.first_divergence.tensor == "cross.1.key"
    assert "head 0" in report.first_divergence.problem  # row 3 of 32 belongs to the first of 4 heads
    assert "value 3" in report.first_divergence.problem


def test_the_logits_bias_left_out(marian: Case, recording: Recording, tmp_path: Path) -> None:
    """Case G1."""

    def edit(weights: dict[str, np.ndarray]) -> None:
        weights["final_logits_bias"] = weights["final_logits_bias"] * 0

    live, _ = _both(marian, recording, edited_copy(marian, tmp_path, edit))
    assert live.first_divergence.layer == "logits step 1"
    assert {"greedy tokens", "beam 4 tokens", "text"} <= _failed(live)
    assert not {"cross K/V layer 0", "present K/V layer 1", "batch against single"} & _failed(live)


def test_a_wrong_start_token(marian: Case, recording: Recording) -> None:
    """Case G1: decoding began at id 0."""
    settings = dataclasses.replace(marian.candidate.settings, decoder_start_token_id=0)
    live, replayed = _both(marian, recording, dataclasses.replace(marian.candidate, settings=settings))
    for report in (live, replayed):
        first, right = report.first_divergence, marian.candidate.settings.decoder_start_token_id
        assert (first.layer, first.problem) == ("start token", f"token 1 is 0 and should be {right}")
        assert {"present K/V layer 0", "logits step 1", "greedy tokens"} <= _failed(report)


@pytest.mark.parametrize(
    ("kind", "layer", "step"),
    [
        (faults.SourceMaskLost, "cross K/V layer 0", None),
        (faults.CrossMaskLost, "present K/V layer 1", 1),
        (faults.PastOfTheWrongLayer, "present K/V layer 0", 2),
        (faults.StepForgets, "logits step 2", 2),
    ],
)
def test_graphs_or_steps_wired_wrongly(
    marian: Case, recording: Recording, kind: type[Seq2SeqModel], layer: str, step: int | None
) -> None:
    candidate = dataclasses.replace(marian.candidate, graphs=broken(marian, kind))
    for report in _both(marian, recording, candidate):
        assert (report.first_divergence.layer, report.first_divergence.step) == (layer, step)
        assert ("batch against single" in _failed(report)) == (kind in (faults.SourceMaskLost, faults.CrossMaskLost))


@pytest.mark.parametrize(
    ("kind", "layer", "tensor", "step", "found"),
    [
        (faults.NanInPresent, "present K/V layer 1", "present.1.value", 3, "it holds nan"),
        (faults.NanInLogits, "logits step 2", "logits", 2, "it holds nan"),
        (faults.InfinityInCross, "cross K/V layer 1", "cross.1.key", None, "it holds infinite values"),
    ],
)
def test_nan_and_infinity_are_named(
    marian: Case, recording: Recording, kind: type[Seq2SeqModel], layer: str, tensor: str, step: int | None, found: str
) -> None:
    candidate = dataclasses.replace(marian.candidate, graphs=broken(marian, kind))
    for report in _both(marian, recording, candidate):
        first = report.first_divergence
        assert (first.layer, first.tensor, first.step, first.problem) == (layer, tensor, step, found)
        row = next(row for row in report.rows if row.layer == layer)
        assert row.max_abs_error is None
        assert row.cosine is None
        report.to_dict()


def test_a_search_that_stops_is_a_failed_row_and_not_a_crash(marian: Case, recording: Recording) -> None:
    candidate = dataclasses.replace(marian.candidate, graphs=broken(marian, faults.NanInLogits))
    report = verify(candidate, recording, SENTENCES)
    assert {"greedy tokens", "beam 4 tokens", "text", "batch against single"} <= _failed(report)
    assert all(row.greedy_identical == 0 for row in report.categories)


def test_a_row_that_depends_on_its_neighbours(marian: Case) -> None:
    report = marian.verify(graphs=broken(marian, faults.NeighboursMatter))
    row = {row.layer: row for row in report.rows}["batch against single"]
    assert not row.passed
    assert row.different == 7
    assert row.max_abs_error >= 6 * 2e-4  # 7 rows against 1


class _WithoutEnd:
    """A tokenizer that forgets EOS, or gives text back in capitals."""

    def __init__(self, inner: Any, *, encode: bool) -> None:
        self._inner, self._breaks_encoding = inner, encode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, text: str, **languages: Any) -> list[int]:
        ids = self._inner.encode(text, **languages)
        return ids[:-1] if self._breaks_encoding else ids

    def decode(self, ids: Any) -> str:
        return self._inner.decode(ids) if self._breaks_encoding else self._inner.decode(ids) + " "


def test_a_wrong_tokenizer(marian: Case, recording: Recording) -> None:
    inner = marian.candidate.tokenizer
    for encode, layer in ((True, "source tokens"), (False, "text")):
        candidate = dataclasses.replace(marian.candidate, tokenizer=_WithoutEnd(inner, encode=encode))
        live, _ = _both(marian, recording, candidate)
        assert live.first_divergence.layer == layer
        assert _failed(live) == {layer}


def test_a_ban_that_got_lost(tmp_path: Path) -> None:
    """Case G2: the padding token has the highest bias, and is only ever kept out by bad_words_ids."""

    case = build_case(tmp_path / "a", logits_bias=1.0)

    def favour_padding(weights: dict[str, np.ndarray]) -> None:
        weights["final_logits_bias"][0, -1] = 1000.0

    candidate = edited_copy(case, tmp_path / "b", favour_padding)
    judged = dataclasses.replace(case, folder=tmp_path / "b" / "model", candidate=candidate)
    right = judged.verify()
    right.raise_if_failed()
    lost = dataclasses.replace(candidate.settings, bad_words_ids=())
    report = judged.verify(settings=lost)
    assert report.first_divergence.layer == "greedy tokens"
    assert _failed(report) == {"greedy tokens", "beam 4 tokens", "text"}


def test_other_generation_settings_show_in_the_beams(marian: Case, recording: Recording) -> None:
    settings = dataclasses.replace(marian.candidate.settings, length_penalty=-8.0)
    live, _ = _both(marian, recording, dataclasses.replace(marian.candidate, settings=settings))
    assert live.first_divergence.layer == "beam 4 tokens"
    assert "greedy tokens" not in _failed(live)
    assert not live.first_divergence.near_tie


def test_another_number_of_layers(tmp_path: Path) -> None:
    three = build_case(tmp_path / "three", config={"decoder_layers": 3})
    two = _without_last_layer(three, tmp_path / "two")
    missing = three.verify(graphs=two.candidate.graphs).first_divergence
    assert (missing.layer, missing.tensor) == ("cross K/V layer 2", "cross.2.key")
    assert missing.problem == "the graph has no such output"
    surplus = two.verify(graphs=three.candidate.graphs).first_divergence
    assert (surplus.layer, surplus.problem) == ("cross K/V layer 2", "the reference has no cross.2.key")


def _without_last_layer(case: Case, folder: Path) -> Case:
    """The same checkpoint, cut down to its first two decoder layers."""
    shutil.copytree(case.folder, folder / "model")
    path = folder / "model" / "model.safetensors"
    weights = {name: value for name, value in load_file(path).items() if "decoder.layers.2." not in name}
    save_file(weights, path, metadata={"format": "pt"})
    config = folder / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "decoder_layers": 2}))
    checkpoint, candidate = candidate_of(folder / "model", folder / "graphs")
    return Case(folder=folder / "model", graphs=folder / "graphs", checkpoint=checkpoint, candidate=candidate)


def test_a_flip_at_a_near_tie_is_explained_and_still_fails(tmp_path: Path) -> None:
    """Case M3: two tokens get the same embedding and bias, so that their logits tie; then one of them gets 1e-5 more."""

    case = build_case(tmp_path / "a", logits_bias=1.0, config={"tie_word_embeddings": True})
    greedy = case.judge.judge(case.judge.tokenize([SENTENCES.sentences[1].text]))[0].greedy
    favourite, twin = greedy[0], 20

    def tie(weights: dict[str, np.ndarray]) -> None:
        table, bias = weights["model.shared.weight"], weights["final_logits_bias"]
        table[twin], bias[0, twin] = table[favourite], bias[0, favourite] - 1e-4

    def flip(weights: dict[str, np.ndarray]) -> None:
        tie(weights)
        weights["final_logits_bias"][0, twin] += 2e-4

    judged = edited_copy(case, tmp_path / "judge", tie)
    candidate = edited_copy(case, tmp_path / "ours", flip)
    judge = dataclasses.replace(case, folder=tmp_path / "judge" / "model", candidate=judged)
    report = judge.verify(graphs=candidate.graphs)
    first = report.first_divergence
    assert first.layer == "greedy tokens"
    assert first.near_tie
    assert f"is {twin} and should be {favourite}" in first.problem
    assert not [
        row.layer for row in report.rows if row.layer.startswith(("cross", "logits", "present")) and not row.passed
    ]
    with pytest.raises(VerificationError, match="this is a near tie"):
        report.raise_if_failed()


def test_the_error_names_judge_layer_step_and_sentence(marian: Case, tmp_path: Path) -> None:
    candidate = edited_copy(marian, tmp_path, _bump("model.decoder.layers.1.final_layer_norm.bias"))
    report = verify(candidate, marian.judge, SENTENCES)
    with pytest.raises(VerificationError) as caught:
        report.raise_if_failed()
    message = str(caught.value)
    assert caught.value.exit_code == 1
    assert message.startswith("tiny failed verification against torch ")
    assert "First divergence: logits step 1 (logits), line 1 (short, 'Yes.'): off by " in message
    assert "\n" not in message
