"""What a sentence becomes does not depend on its neighbours in the batch, nor on threads: in fp32, int8, int4, static."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxmt.measure.texts import shipped_texts
from onnxmt.precision import recipe
from onnxmt.quantization import QuantizeOptions, quantize
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.search import search
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.translator import Translator

INVARIANT = ("fp32", "int8", "int4", "int8-static", "int8,encoder=fp32")
WIDTH = 128
Tokens = list[tuple[int, ...]]
# Two tokens whose logits are this close are a tie: what rounds them apart is noise. The median distance is 1.2.
NEAR_TIE = {"fp32": 1e-4, "int8": 0.05, "int4": 0.05, "int8-static": 0.05, "int8,encoder=fp32": 0.05}
# Tokens of an output: enough to show what happens over the cache.
LONGEST = 24


@pytest.fixture(scope="module")
def built(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("built")

    @functools.cache
    def build(text: str) -> Path:
        if text == "fp32":
            return demo
        quantize(demo, root / text, options=QuantizeOptions(precision=recipe(text), gate="off"))
        return root / text

    return build


def loaded(folder: Path, threads: int = 1) -> Seq2SeqModel:
    return load_model(folder, positions=256, options=RuntimeOptions(threads=threads))


@pytest.fixture(scope="module")
def sources(fp32: Translator) -> list[list[int]]:
    """The shipped evaluation sentences that fit a padded row, as ids; over a hundred, from one word to long ones."""
    found = [fp32.tokenizer.encode(text) for text in shipped_texts().sources or ()]
    return [ids for ids in found if len(ids) <= 64]


@pytest.fixture(scope="module")
def settings(fp32: Translator) -> GenerationSettings:
    return replace(fp32.settings, num_beams=1, max_length=LONGEST)


def decode(model: Seq2SeqModel, rows: list[list[int]], settings: GenerationSettings, *, width: int = 0) -> Tokens:
    """Greedy tokens of rows that are one batch, padded to `width` at least."""
    ids = np.zeros((len(rows), max(width, *map(len, rows))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)], mask[number, : len(row)] = row, 1
    return [best.tokens for best, *_ in search(model.start(ids, mask), rows=len(rows), settings=settings)]


def batches(
    model: Seq2SeqModel, rows: list[list[int]], settings: GenerationSettings, *, size: int, width: int = 0
) -> Tokens:
    cut = [rows[first : first + size] for first in range(0, len(rows), size)]
    return [tokens for part in cut for tokens in decode(model, part, settings, width=width)]


def in_every_company(model: Seq2SeqModel, rows: list[list[int]], settings: GenerationSettings) -> dict[str, Tokens]:
    order = np.random.default_rng(3).permutation(len(rows))
    shuffled = batches(model, [rows[i] for i in order], settings, size=16)
    longest = max(rows, key=len)
    beside = [decode(model, [row, longest, longest], settings)[0] for row in rows[::4]]
    return {
        "in batches": batches(model, rows, settings, size=16),
        "in another order": [shuffled[i] for i in np.argsort(order)],
        "padded": batches(model, rows, settings, size=8, width=WIDTH),
        "beside long ones": [tokens for tokens in beside for _ in range(4)][: len(rows)],
    }


def gaps(
    model: Seq2SeqModel, rows: list[list[int]], alone: Tokens, others: dict[str, Tokens], settings: GenerationSettings
) -> dict[str, list[float]]:
    """For each sentence that became another: how far apart, alone, the two tokens are where the outputs part."""
    found: dict[str, list[float]] = {name: [] for name in others}
    for name, tokens in others.items():
        for number in range(0, len(rows), 4 if name == "beside long ones" else 1):
            if tokens[number] != alone[number]:
                found[name].append(_gap(model, rows[number], alone[number], tokens[number], settings))
    return found


def _gap(
    model: Seq2SeqModel, row: list[int], one: tuple[int, ...], other: tuple[int, ...], settings: GenerationSettings
) -> float:
    place = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    ids = np.array([row], dtype=np.int64)
    step, logits = model.start(ids, np.ones_like(ids)), np.empty(0)
    for token in (settings.decoder_start_token_id, *one[:place]):
        logits = step(np.array([[token]]), None)[0]
    return float(abs(logits[one[place]] - logits[other[place]]))


@pytest.mark.slow
@pytest.mark.parametrize("text", INVARIANT)
def test_tokens_do_not_depend_on_the_batch(text: str, built, sources, settings) -> None:
    """But for ties: attention over a padded row differs in the last bit, and 8-bit steps make a thousandth of it."""
    assert len(sources) >= 100
    assert recipe(text).batch_invariant
    model = loaded(built(text))
    alone = [decode(model, [row], settings)[0] for row in sources]
    assert len(set(alone)) > 90
    found = gaps(model, sources, alone, in_every_company(model, sources, settings), settings)
    assert list(found) == ["in batches", "in another order", "padded", "beside long ones"]
    assert all(len(near) <= len(sources) // 100 for near in found.values()), found
    assert all(gap < NEAR_TIE[text] for near in found.values() for gap in near), found


@pytest.mark.slow
def test_tokens_of_dynamic_int8_do(built, sources, settings) -> None:
    """One scale for the whole batch: this is why int8-dynamic is not the default."""
    assert not recipe("int8-dynamic").batch_invariant
    model = loaded(built("int8-dynamic"))
    alone = [decode(model, [row], settings)[0] for row in sources]
    (found,) = gaps(
        model, sources, alone, {"in batches": batches(model, sources, settings, size=16)}, settings
    ).values()
    assert len(found) > len(sources) // 20, found
    assert max(found) > 0.1, found


@pytest.mark.parametrize("text", INVARIANT)
def test_twenty_runs_at_several_thread_counts_are_one(text: str, built, sources, settings) -> None:
    """Case M3: bits may differ with the number of threads, within 1e-4 of logits of order 10; tokens do not."""
    rows = sorted(sources, key=len)[:: len(sources) // 4]
    first_logits, found = [], []
    for threads in (1, 4, 8):
        model = loaded(built(text), threads)
        found += [decode(model, rows, replace(settings, max_length=9)) for _ in range(20)]
        ids = np.array([rows[-1]], dtype=np.int64)
        step = model.start(ids, np.ones_like(ids))
        first_logits.append(step(np.array([[settings.decoder_start_token_id]]), None))
        model.close()
    assert all(tokens == found[0] for tokens in found)
    assert max(float(np.abs(values - first_logits[0]).max()) for values in first_logits) < 1e-4


@pytest.mark.parametrize("text", ["int8", "int4", "int8-static", "int8-dynamic"])
def test_weights_are_safe_for_16_bit_sums_of_two_products(text: str, built) -> None:
    """Case Q1: without VNNI, x86 adds two products of an unsigned and a signed byte in 16 bits, and saturates.

    MatMulInteger's kernels do so with activations up to 255: weights of at most 63 keep 2 · 255 · 63 below 32768.
    MatMulNBits multiplies 4-bit weights (15 · 127 · 2) or takes even and odd bytes apart (docs/precision.md).
    """
    import onnx_ir as ir

    for name in ("encoder.onnx", "decoder.onnx"):
        graph = ir.load(built(text) / name).graph
        for node in graph:
            if node.op_type in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
                values = node.inputs[1].const_value.numpy()
                assert values.dtype == np.int8
                assert 2 * 255 * int(np.abs(values.astype(np.int16)).max()) < 2**15
            if node.op_type == "MatMulNBits":
                assert node.attributes["bits"].value in (4, 8)
        operators = {node.op_type for node in graph}
        assert not operators & {"QLinearMatMul", "MatMulInteger", "QGemm", "QAttention"}


@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_largest_sums_are_exact_on_this_cpu(bits: int, block: int, tmp_path: Path) -> None:
    """Case Q1, wherever the tests run: weights at the ends of their range, activations at ±127, one row and several."""
    import onnx_ir as ir

    from onnxmt.runtime.session import Session

    rows, columns = 37, 100
    blocks, width = -(-columns // block), block * bits // 8
    packed = np.full((rows, blocks, width), 255, dtype=np.uint8)
    packed[1::2] = 0
    x = ir.Value(name="x", shape=ir.Shape(["rows", columns]), type=ir.TensorType(ir.DataType.FLOAT))
    weights = [
        ir.Value(name=name, const_value=ir.tensor(array, name=name), shape=ir.Shape(array.shape), type=ir.TensorType(kind))
        for name, array, kind in (
            ("w", packed, ir.DataType.UINT8), ("s", np.ones((rows, blocks), dtype=np.float32), ir.DataType.FLOAT)
        )
    ]  # fmt: skip
    attributes = {"K": columns, "N": rows, "bits": bits, "block_size": block, "accuracy_level": 4}
    node = ir.node("MatMulNBits", [x, *weights], attributes, domain="com.microsoft")
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [x], node.outputs, nodes=[node], initializers=weights, opset_imports={"": 18, "com.microsoft": 1}, name="g"
    )
    ir.save(ir.Model(graph, ir_version=10), tmp_path / "g.onnx")
    session = Session(tmp_path / "g.onnx", options=RuntimeOptions(threads=1))
    whole = packed if bits == 8 else np.stack([packed & 15, packed >> 4], axis=-1)
    values = whole.reshape(rows, -1)[:, :columns].astype(np.float64) - 2 ** (bits - 1)
    for sign in (1, -1):
        for count in (1, 2, 5):
            given = np.full((count, columns), 127 * sign, dtype=np.float32)
            found = session.run({"x": given})["y"]
            assert found == pytest.approx(given @ values.T, rel=1e-6)
