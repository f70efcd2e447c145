"""fp16: what is half and what is not, a T5 whose feed-forward passes 65504, bans, and values fp16 cannot hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxmt.errors import UsageError
from onnxmt.graph_export import export_graphs
from onnxmt.measure.hybrid import layer_of
from onnxmt.precision import PRESETS, recipe
from onnxmt.runtime.decoder import load_model
from tests.models.parity import open_checkpoint
from tests.models.variants import edit_weights
from tests.precision.families import ONE, Tiny, build, distance, logits, opened
from tests.tiny import build_marian, build_t5

pytestmark = pytest.mark.reference
HALF, FULL = ir.DataType.FLOAT16, ir.DataType.FLOAT


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build("marian", tmp_path_factory.mktemp("marian"), logits_bias=2.0)


def graphs(tiny: Tiny, folder: Path, text: str = "fp16") -> list[ir.Model]:
    tiny.export(recipe(text), folder)
    return [ir.load(folder / name) for name in ("encoder.onnx", "decoder.onnx")]


def test_cache_is_half_on_both_sides_and_scores_are_not(marian: Tiny, tmp_path: Path) -> None:
    encoder, decoder = graphs(marian, tmp_path / "fp16")
    types = {value.name: value.dtype for g in (encoder.graph, decoder.graph) for value in (*g.inputs, *g.outputs)}
    kinds = {name.partition(".")[0]: dtype for name, dtype in types.items()}
    assert kinds == {
        "input_ids": ir.DataType.INT64, "attention_mask": ir.DataType.INT64, "cross": HALF, "past": HALF,
        "present": HALF, "logits": FULL,
    }  # fmt: skip
    model = load_model(tmp_path / "fp16", options=ONE)
    assert {value.dtype for value in model.empty_past(2).values()} == {np.dtype(np.float16)}
    assert {value.dtype for value in model.encode(marian.batch.ids, marian.batch.mask).values()} == {
        np.dtype(np.float16)
    }


def test_products_and_attention_are_half_and_sensitive_parts_are_not(marian: Tiny, tmp_path: Path) -> None:
    for model in graphs(marian, tmp_path / "fp16"):
        types: dict[str, set[ir.DataType]] = {}
        for node in model.graph:
            for value in node.inputs:
                if value is not None and value.is_initializer() and value.const_value.dtype in (HALF, FULL):
                    types.setdefault(node.op_type, set()).add(value.const_value.dtype)
        assert types["MatMul"] == {HALF}
        assert types["LayerNormalization"] == {FULL}
        tables = {layer_of(n): n.inputs[0].const_value.dtype for n in model.graph if n.op_type == "Gather" and n.inputs[0].is_initializer()}  # fmt: skip
        assert {dtype for path, dtype in tables.items() if path.endswith("embed_tokens")} == {HALF}
        assert {dtype for path, dtype in tables.items() if path.endswith("embed_positions")} == {FULL}


def test_every_weight_is_stored_once_and_half_as_large(marian: Tiny, tmp_path: Path) -> None:
    graphs(marian, tmp_path / "fp16")
    half, full = ((folder / "weights.bin").stat().st_size for folder in (tmp_path / "fp16", marian.fp32))
    assert half < 0.6 * full


def test_a_kept_layer_stays_in_fp32(marian: Tiny, tmp_path: Path) -> None:
    _, decoder = graphs(marian, tmp_path / "kept", "fp16,keep_fp32=decoder.layers.1.*")
    kept = {
        layer_of(node): node.inputs[1].const_value.dtype
        for node in decoder.graph
        if node.op_type == "MatMul" and node.inputs[1].is_initializer()
    }
    assert {dtype for path, dtype in kept.items() if ".layers.1." in path} == {FULL}
    assert {dtype for path, dtype in kept.items() if ".layers.0." in path} == {HALF}
    wanted = logits(marian.fp32, marian.batch)
    assert 0 < distance(logits(tmp_path / "kept", marian.batch), wanted) < 0.01


def test_a_bias_that_bans_a_token_stays_a_number(tmp_path: Path) -> None:
    folder = build_marian(tmp_path / "checkpoint")
    edit_weights(folder, lambda weights: weights["final_logits_bias"].__setitem__((0, 5), -1e9))
    tiny = opened(folder, tmp_path)
    found = logits(tiny.export(recipe("fp16"), tmp_path / "fp16"), tiny.batch)
    assert np.isfinite(found).all()
    assert (found[..., 5] == np.float32(-1e9)).all()


@pytest.mark.parametrize("gated", [False, True])
def test_a_t5_whose_feed_forward_passes_65504_gives_numbers(tmp_path: Path, gated: bool) -> None:
    """Case Q7: transformers keeps `wo` in float32 for it; the residual stream grows as far."""
    config = {"feed_forward_proj": "gated-gelu"} if gated else {}
    folder = build_t5(tmp_path / "checkpoint", config=config)

    def grow(weights: dict[str, np.ndarray]) -> None:
        for name in weights:
            if name.endswith("DenseReluDense.wo.weight"):
                weights[name] *= 3e4

    edit_weights(folder, grow)
    tiny = opened(folder, tmp_path)
    wanted = logits(tiny.fp32, tiny.batch)
    found = logits(tiny.export(recipe("fp16"), tmp_path / "fp16"), tiny.batch)
    assert np.isfinite(found).all()
    assert distance(found, wanted) < 0.05
    assert _largest_feed_forward(tiny) > 65504  # the case is what it claims to be


def _largest_feed_forward(tiny: Tiny) -> float:
    import torch
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(tiny.folder, dtype=torch.float32).eval()
    seen: list[float] = []
    for name, module in model.named_modules():
        if name.endswith("DenseReluDense.wo"):
            module.register_forward_hook(lambda _m, _i, output: seen.append(float(output.abs().max())))
    with torch.no_grad():
        batch = tiny.batch
        model(
            input_ids=torch.tensor(batch.ids), attention_mask=torch.tensor(batch.mask),
            decoder_input_ids=torch.tensor(batch.decoder),
        )  # fmt: skip
    return max(seen)


def test_a_weight_beyond_fp16_is_refused_by_name_and_can_be_kept(tmp_path: Path) -> None:
    folder = build_marian(tmp_path / "checkpoint")
    edit_weights(folder, lambda weights: weights["model.decoder.layers.0.fc1.weight"].__setitem__((0, 0), 1e5))
    checkpoint = open_checkpoint(folder)
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match=r"model\.decoder\.layers\.0\.fc1.* holds values beyond 65504.*--keep-fp32"):
        export_graphs(checkpoint, tmp_path / "out", precision=PRESETS["fp16"])
    export_graphs(checkpoint, tmp_path / "out", precision=recipe("fp16", keep_fp32=["decoder.layers.0.fc1"]))
