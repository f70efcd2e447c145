"""Verification of right graphs: everything passes, live and replayed, and the report says what was done."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from onnxmt import records
from onnxmt.errors import UsageError
from onnxmt.manifest import Verification
from onnxmt.measure.reference import TorchReference
from onnxmt.measure.sentences import parse_sentences, verification_sentences
from onnxmt.measure.verify import VerifyOptions, verify
from onnxmt.runtime.decoder import load_model
from onnxmt.runtime.session import RuntimeOptions
from tests.measure.marian import SENTENCES, Case, build_case, candidate_of, edited_copy
from tests.tiny import build_marian

pytestmark = pytest.mark.reference

ROWS = [
    "source tokens", "start token", "cross K/V layer 0", "cross K/V layer 1", "logits step 1", "logits step 2",
    "logits step 3", "logits step 4", "logits step 5", "logits step 6", "logits step 7", "logits step 8",
    "present K/V layer 0", "present K/V layer 1", "greedy tokens", "beam 4 tokens", "text", "batch against single",
]  # fmt: skip


@pytest.mark.lowest
def test_right_graphs_pass_every_layer(marian: Case) -> None:
    report = marian.verify()
    report.raise_if_failed()
    assert report.status == "live"
    assert [row.layer for row in report.rows] == ROWS
    assert report.passed
    assert report.first_divergence is None
    by_name = {row.layer: row for row in report.rows}
    assert by_name["source tokens"].compared == 8  # a line that the model cannot take is still tokenised alike
    assert by_name["greedy tokens"].compared == 7
    assert by_name["batch against single"].compared == 7
    for name in ROWS[2:14]:
        assert by_name[name].max_abs_error < 1e-3
        assert by_name[name].cosine > 0.999999
        assert by_name[name].limit == 1e-3
    for name in ("source tokens", "start token", "greedy tokens", "beam 4 tokens", "text"):
        assert by_name[name].max_abs_error is None
        assert by_name[name].different == 0


def test_a_recording_gives_the_same_verdicts(marian: Case) -> None:
    recorder = marian.recorder()
    live = verify(marian.candidate, recorder, SENTENCES)
    replayed = verify(marian.candidate, recorder.recording(), SENTENCES)
    replayed.raise_if_failed()
    assert replayed.status == "recording"
    assert replayed.judge.versions == live.judge.versions
    for row, other in zip(live.rows, replayed.rows, strict=True):
        assert (row.layer, row.compared, row.different) == (other.layer, other.compared, other.different)
        if row.max_abs_error is not None:
            assert other.max_abs_error <= row.max_abs_error  # a sample of the same tensors
    assert replayed.near_ties == live.near_ties


def test_recorded_on_the_way_or_on_its_own_is_the_same(marian: Case) -> None:
    recorder = marian.recorder()
    verify(marian.candidate, recorder, SENTENCES)
    alone, passed_on = marian.recording(), recorder.recording()
    assert alone.recorded.judged == passed_on.recorded.judged
    assert alone.recorded.greedy_texts == passed_on.recorded.greedy_texts
    lines = alone.tokenize([sentence.text for sentence in SENTENCES.sentences[:7]])
    for one, other in zip(alone.judge(lines), passed_on.judge(lines), strict=True):
        assert (one.source, one.greedy, one.beam) == (other.source, other.greedy, other.beam)
        assert [tuple(samples.positions) for samples in one.cross] == [tuple(s.positions) for s in other.cross]


def test_half_precision_checkpoints_are_judged_in_float32(tmp_path: Path) -> None:
    case = build_case(tmp_path, dtype="float16", seed=3)
    import torch

    assert case.judge._model.dtype is torch.float32
    report = case.verify()
    report.raise_if_failed()
    worst = max(row.max_abs_error for row in report.rows if row.max_abs_error is not None)
    assert worst < 2e-4  # a judge in fp16 would be off by some 1e-2


def test_separate_vocabularies_and_an_untied_head(tmp_path: Path) -> None:
    build_case(tmp_path, separate_vocabs=True, config={"tie_word_embeddings": False}, seed=5).verify().raise_if_failed()


def test_the_number_of_threads_changes_no_verdict(marian: Case) -> None:
    """Case M3: last digits may move within the limit, tokens may not."""
    recording = marian.recording()
    for threads in (1, 4, 8):
        graphs = load_model(marian.graphs, options=RuntimeOptions(threads=threads))
        verify(dataclasses.replace(marian.candidate, graphs=graphs), recording, SENTENCES).raise_if_failed()
        graphs.close()


def test_large_values_are_held_to_a_limit_in_proportion(tmp_path: Path) -> None:
    case = build_case(tmp_path / "a", seed=2)

    def enlarge(weights: dict[str, np.ndarray]) -> None:
        for name in weights:
            if name.endswith("v_proj.weight"):
                weights[name] *= 2000

    candidate = edited_copy(case, tmp_path / "b", enlarge)
    large = dataclasses.replace(case, folder=tmp_path / "b" / "model", candidate=candidate)
    report = large.verify()
    report.raise_if_failed()
    rows = {row.layer: row for row in report.rows}
    assert rows["cross K/V layer 0"].limit > 0.02
    assert rows["logits step 1"].limit == 1e-3
    assert any("values above 100 occur" in note for note in report.notes)


@pytest.mark.slow
def test_the_demo_checkpoint_equals_torch_on_the_shipped_sentences(tmp_path: Path) -> None:
    from onnxmt.hub import resolve

    folder = resolve("demo").folder
    _, candidate = candidate_of(folder, tmp_path / "graphs")
    report = verify(candidate, TorchReference(folder, name="demo"), verification_sentences())
    report.raise_if_failed()
    assert report.sentences.skipped == 0
    assert [row.category for row in report.categories] == [
        "short", "long", "numbers", "names", "colloquial", "technical",
    ]  # fmt: skip
    assert {row.greedy_identical for row in report.categories} == {11}


def test_lines_longer_than_the_position_table_are_counted(marian: Case) -> None:
    report = marian.verify()
    assert (report.sentences.lines, report.sentences.skipped) == (8, 1)
    assert "1 of 8 sentences have more tokens than the model's 128 positions and were skipped" in report.notes


def test_a_set_of_which_nothing_fits_is_refused(marian: Case) -> None:
    only_long = parse_sentences(f"long\t{'the cat ' * 400}", name="mine.tsv")
    with pytest.raises(UsageError, match=r"no sentence of mine\.tsv fits the 128 positions of tiny"):
        verify(marian.candidate, marian.judge, only_long)


def test_generation_stops_at_the_smallest_of_the_limits(tmp_path: Path) -> None:
    for name, generation, config, expected in (
        ("own", {"max_length": 12}, {}, 11),
        ("new", {"max_length": None, "max_new_tokens": 9}, {}, 9),
        ("cap", {"max_length": 500}, {"max_position_embeddings": 512}, 64),
        ("table", {"max_length": 200}, {"max_position_embeddings": 50}, 49),
    ):
        folder = build_marian(tmp_path / name, generation=generation, config=config)
        assert TorchReference(folder, name=name).facts().max_new_tokens == expected


def test_progress_counts_sentences(marian: Case) -> None:
    seen: list[tuple[int, int]] = []
    verify(marian.candidate, marian.judge, SENTENCES, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(7, 7)]


def test_the_report_is_json_and_fits_the_manifest(marian: Case) -> None:
    report = marian.verify()
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (plain["status"], plain["passed"], plain["first_divergence"]) == ("live", True, None)
    assert [row["layer"] for row in plain["rows"]] == ROWS
    assert plain["sentences"] == {"name": "lines.tsv", "sha256": SENTENCES.sha256, "lines": 8, "skipped": 1}
    assert set(plain["judge"]["versions"]) == {"torch", "transformers"}
    kept = report.for_manifest()
    assert records.from_json(Verification, json.loads(json.dumps(records.to_json(kept)))) == kept
    assert kept.passed


def test_near_ties_are_reported_though_nothing_flipped(marian: Case) -> None:
    options = VerifyOptions(limit=0.5, expected=1e-5)  # half a logit: the tiny model has such pairs
    report = verify(marian.candidate, marian.judge, SENTENCES, options=options)
    assert report.near_ties > 0
    assert any(note.startswith(f"{report.near_ties} decoder step(s) are near ties") for note in report.notes)


@pytest.mark.parametrize(("limit", "expected"), [(1e-3, 0.0), (1e-5, 1e-3), (-1.0, -2.0)])
def test_limits_that_make_no_sense_are_refused(limit: float, expected: float) -> None:
    with pytest.raises(UsageError, match="must hold"):
        VerifyOptions(limit=limit, expected=expected)
