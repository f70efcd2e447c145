from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from onnxmt.errors import InputTooLongError, SessionError
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.session import RuntimeOptions, Session
from tests.runtime.graphs import write_fake_graphs

ONE = RuntimeOptions(threads=1)
IDS = np.array([[3, 4, 5], [7, 9, 0]])
MASK = np.array([[1, 1, 1], [1, 0, 0]])  # the 9 is padding too: it must not count


def ids(*rows: int) -> np.ndarray:
    return np.array([[row] for row in rows])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fake_graphs(tmp_path_factory.mktemp("fake"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Seq2SeqModel:
    return load_model(folder, positions=6, options=ONE)


def test_the_cache_grows_and_the_mask_follows_the_sentence(model: Seq2SeqModel) -> None:
    step = model.start(IDS, MASK)

    assert step(ids(1, 2), None).tolist() == [[1, 1, 12, 120], [2, 1, 7, 70]]
    assert step(ids(10, 20), None).tolist() == [[11, 2, 12, 120], [22, 2, 7, 70]]


def test_the_first_call_may_spread_sentences_over_rows(model: Seq2SeqModel) -> None:
    step = model.start(IDS, MASK)

    found = step(ids(1, 1, 1, 1), np.array([0, 0, 1, 1]))

    assert found.tolist() == [[1, 1, 12, 120], [1, 1, 12, 120], [1, 1, 7, 70], [1, 1, 7, 70]]


def test_beams_change_places_within_their_sentence(model: Seq2SeqModel) -> None:
    step = model.start(IDS, MASK)
    step(ids(1, 2, 3, 4), np.array([0, 0, 1, 1]))

    found = step(ids(10, 20, 30, 40), np.array([1, 1, 3, 2]))

    assert found.tolist() == [[12, 2, 12, 120], [22, 2, 12, 120], [34, 2, 7, 70], [43, 2, 7, 70]]


def test_rows_leave_and_take_their_sentence_with_them(model: Seq2SeqModel) -> None:
    step = model.start(np.array([[1], [2], [3]]), np.ones((3, 1), np.int64))
    step(ids(10, 20, 30), None)

    assert step(ids(1, 1), np.array([0, 2])).tolist() == [[11, 2, 1, 10], [31, 2, 3, 30]]
    assert step(ids(1), np.array([1])).tolist() == [[32, 3, 3, 30]]
    assert step(ids(1), None).tolist() == [[33, 4, 3, 30]]


def test_sentences_may_swap_and_multiply_at_any_step(model: Seq2SeqModel) -> None:
    step = model.start(np.array([[1], [2]]), np.ones((2, 1), np.int64))
    step(ids(10, 20), None)

    assert step(ids(1, 1, 1), np.array([1, 0, 1])).tolist() == [[21, 2, 2, 20], [11, 2, 1, 10], [21, 2, 2, 20]]


def test_cross_keys_are_not_copied_when_only_beams_move(model: Seq2SeqModel) -> None:
    step = model.start(IDS, MASK)
    step(ids(1, 2, 3, 4), np.array([0, 0, 1, 1]))
    before = step._cross["cross.0.key"]  # type: ignore[attr-defined]

    step(ids(1, 2, 3, 4), np.array([1, 0, 3, 2]))
    assert step._cross["cross.0.key"] is before  # type: ignore[attr-defined]
    step(ids(1, 2), np.array([0, 3]))
    assert step._cross["cross.0.key"] is not before  # type: ignore[attr-defined]


def test_a_prefix_of_several_tokens_is_one_step(model: Seq2SeqModel) -> None:
    step = model.start(IDS, MASK)

    assert step(np.array([[1, 2, 3], [4, 5, 6]]), None).tolist() == [[6, 3, 12, 120], [15, 3, 7, 70]]
    assert step(ids(1, 1), None).tolist() == [[7, 4, 12, 120], [16, 4, 7, 70]]


def test_steps_of_two_batches_do_not_touch_each_other(model: Seq2SeqModel) -> None:
    first, second = model.start(IDS, MASK), model.start(IDS[::-1].copy(), MASK[::-1].copy())
    first(ids(1, 2), None)
    second(ids(100, 200), None)

    assert first(ids(1, 1), None).tolist() == [[2, 2, 12, 120], [3, 2, 7, 70]]
    assert second(ids(1, 1), None).tolist() == [[101, 2, 7, 70], [201, 2, 12, 120]]


def test_logits_belong_to_the_caller(model: Seq2SeqModel) -> None:
    step = model.start(IDS, MASK)
    logits = step(ids(1, 2), None)
    logits[:] = np.nan

    assert logits.dtype == np.float32
    assert np.isfinite(step(ids(1, 2), None)).all()


def test_the_position_table_is_never_left(model: Seq2SeqModel) -> None:
    """Case L1: an error of ours, not a Gather error, on either side."""
    with pytest.raises(InputTooLongError, match="7 tokens long and the model takes at most 6"):
        model.start(np.ones((1, 7), np.int64), np.ones((1, 7), np.int64))
    step = model.start(IDS, MASK)
    step(np.ones((2, 5), np.int64), None)
    step(ids(1, 1), None)
    with pytest.raises(SessionError, match="would reach position 7 of a model with 6 positions"):
        step(ids(1, 1), None)


def test_rows_without_parents_are_refused(model: Seq2SeqModel) -> None:
    step = model.start(IDS, MASK)
    with pytest.raises(SessionError, match="3 rows of tokens for 2 rows of the cache"):
        step(ids(1, 2, 3), None)


def test_encode_and_run_decoder_give_outputs_by_name(model: Seq2SeqModel) -> None:
    cross = model.encode(IDS, MASK)
    out = model.run_decoder({"input_ids": ids(1, 2), "attention_mask": MASK, **cross, **model.empty_past(2)})

    assert set(cross) == {"cross.0.key", "cross.0.value"}
    assert cross["cross.0.value"][0, 0, :, 0].tolist() == [30, 40, 50]
    assert set(out) == {"logits", "present.0.key", "present.0.value"}
    assert out["present.0.key"].shape == (2, 1, 1, 1)


def test_half_precision_stays_in_the_cache_and_logits_are_float32(tmp_path: Path) -> None:
    model = load_model(write_fake_graphs(tmp_path, half=True), options=ONE)
    step = model.start(IDS, MASK)

    first = step(ids(1, 2), None)

    assert first.dtype == np.float32
    assert first.tolist() == [[1, 1, 12, 120], [2, 1, 7, 70]]
    assert step(ids(10, 20), np.array([1, 0])).tolist() == [[12, 2, 7, 70], [21, 2, 12, 120]]
    assert {value.dtype for value in model.empty_past(1).values()} == {np.dtype(np.float16)}


def test_graphs_that_do_not_fit_are_named(folder: Path, tmp_path: Path) -> None:
    shutil.copyfile(folder / "encoder.onnx", tmp_path / "decoder.onnx")
    shutil.copyfile(folder / "encoder.onnx", tmp_path / "encoder.onnx")

    with pytest.raises(SessionError) as caught:
        load_model(tmp_path, options=ONE)

    message = str(caught.value)
    assert "these are not the two graphs of a bundle" in message
    assert "decoder.onnx has no inputs past.N.key and past.N.value" in message
    assert "encoder.onnx has the outputs cross.0.key, cross.0.value; needed: " in message


def test_a_closed_model_says_so(folder: Path) -> None:
    model = load_model(folder, options=ONE)
    model.close()

    with pytest.raises(SessionError, match=r"the session of encoder\.onnx was closed"):
        model.start(IDS, MASK)


def test_a_missing_weights_file_is_one_line(tmp_path: Path) -> None:
    golden = Path(__file__).parent.parent / "golden" / "format1" / "bundle"
    shutil.copyfile(golden / "encoder.onnx", tmp_path / "encoder.onnx")

    with pytest.raises(SessionError, match=r"could not load encoder\.onnx") as caught:
        Session(tmp_path / "encoder.onnx", options=ONE)

    assert "\n" not in str(caught.value)
