"""quantize: the same files as export, sizes, refusals, the gate, the search, and the layer that does the damage."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxmt.bundle import read_bundle
from onnxmt.errors import OutputError, QualityGateError, SizeLimitError, UsageError
from onnxmt.fp32_weights import BundleWeights, checkpoint_of, float_leftovers
from onnxmt.graph_export import export_graphs
from onnxmt.measure.calibrate import calibration_texts
from onnxmt.measure.calibration_options import CalibrationOptions
from onnxmt.measure.explain import explain
from onnxmt.measure.gate import QualityGate
from onnxmt.measure.quality import translate_set
from onnxmt.measure.texts import shipped_texts
from onnxmt.migration import MigrateOptions, export
from onnxmt.precision import PRESETS, recipe
from onnxmt.quantization import QuantizeOptions, explain_damage, quantize, search
from onnxmt.runtime.decoder import load_model
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.tokenizer import Direction
from onnxmt.runtime.translator import Translator
from tests.models.parity import open_checkpoint
from tests.precision.families import BUILDERS
from tests.tiny import build_marian

GRAPHS = ("encoder.onnx", "decoder.onnx", "weights.bin")
OFF = {"gate": "off"}


def options(text: str = "int8", **changes: Any) -> QuantizeOptions:
    return QuantizeOptions(precision=recipe(text), **{**OFF, **changes})


def size(folder: Path) -> int:
    return sum((folder / name).stat().st_size for name in GRAPHS)


@pytest.mark.parametrize(
    "text", ["int8", "int4", "int8-dynamic", "fp16", "int8,encoder=fp32,keep_fp32=decoder.layers.1.*"]
)
def test_quantize_and_export_write_the_same_files(demo: Path, tmp_path: Path, text: str) -> None:
    result = quantize(demo, tmp_path / "quantized", options=options(text))
    exported = export("demo", tmp_path / "exported", options=MigrateOptions(precision=recipe(text))).bundle
    names = {entry.path for entry in exported.manifest.files}
    assert names == {entry.path for entry in result.bundle.manifest.files}
    for name in names - {"report.html"}:  # it says when it was written
        assert (tmp_path / "quantized" / name).read_bytes() == (tmp_path / "exported" / name).read_bytes(), name
    for part in ("recipe", "precision", "graphs", "tokenizer", "dimensions", "languages", "cpu"):
        assert getattr(result.bundle.manifest, part) == getattr(exported.manifest, part), part
    assert result.bytes == size(tmp_path / "quantized")


@pytest.mark.reference
@pytest.mark.parametrize("family", BUILDERS)
def test_an_fp32_bundle_gives_every_weight_back(family: str, tmp_path: Path) -> None:
    """Also where biases are stacked, tables tied, relative positions stored by distance."""
    folder = BUILDERS[family](tmp_path / "checkpoint")
    checkpoint = open_checkpoint(folder)
    bundle = _bundle(folder, tmp_path / "fp32")
    weights = BundleWeights(bundle)
    for name in weights.names():
        if name in checkpoint.weights:
            found, wanted = weights.read(name), checkpoint.weights.read(name)
            if name.endswith(
                "relative_attention_bias.weight"
            ):  # a bucket that no distance falls into is not in a graph
                used = found.any(axis=1)
                assert used.sum() >= len(used) - 1
                found, wanted = found[used], wanted[used]
            assert np.array_equal(found, wanted), name
    for text in ("int8", "fp32"):
        for source, where in ((checkpoint, "a"), (checkpoint_of(bundle), "b")):
            (tmp_path / (text + where)).mkdir()
            export_graphs(source, tmp_path / (text + where), precision=recipe(text))
        for name in GRAPHS:
            assert (tmp_path / f"{text}a" / name).read_bytes() == (tmp_path / f"{text}b" / name).read_bytes(), name


def _bundle(folder: Path, output: Path) -> Any:
    """What BundleWeights reads of a bundle, for checkpoints without a tokenizer."""
    output.mkdir()
    exported = export_graphs(open_checkpoint(folder), output, precision=PRESETS["fp32"])
    (output / "config.json").write_bytes((folder / "config.json").read_bytes())
    manifest = SimpleNamespace(
        graphs=exported, precision=exported.precision, recipe="fp32", licence=SimpleNamespace(id=None),
        source=SimpleNamespace(model="tiny", revision=None),
    )  # fmt: skip
    return SimpleNamespace(folder=output, manifest=manifest, path=lambda name: output / name)


@pytest.mark.reference
def test_a_vocabulary_heavy_model_shrinks_and_names_what_is_left(tmp_path: Path) -> None:
    """Case Q2: the embedding is quantised too, and stored once with the head."""
    folder = build_marian(tmp_path / "checkpoint", config={"d_model": 64, "max_position_embeddings": 64})
    export(str(folder), tmp_path / "fp32", options=MigrateOptions(precision=PRESETS["fp32"]))
    for text, most in (("int8", 0.6), ("int4", 0.55)):  # graphs weigh 60 KB here; the weights alone:
        result = quantize(tmp_path / "fp32", tmp_path / text, options=options(text))
        assert result.bytes < most * result.fp32_bytes
        weights = [(tmp_path / name / "weights.bin").stat().st_size for name in (text, "fp32")]
        assert weights[0] < 0.4 * weights[1]
        assert result.leftovers == {}
        assert set(float_leftovers([tmp_path / text / "decoder.onnx"], least=4096)) == {
            "model.decoder.embed_positions.weight"
        }


def test_the_demo_model_is_clearly_smaller(demo: Path, tmp_path: Path) -> None:
    sizes = {}
    for text in ("int8", "int4", "int8,lm_head=int4"):
        result = quantize(demo, tmp_path / text, options=options(text))
        sizes[text] = result.bytes / result.fp32_bytes
        assert list(result.leftovers) == [
            "model.decoder.embed_positions.weight",
            "model.encoder.embed_positions.weight",
        ]
    assert sizes["int8"] < 0.3
    assert sizes["int4"] < 0.2
    assert sizes["int8"] < sizes["int8,lm_head=int4"]  # two tables: the tied one is not shared between two formats


def test_a_result_that_is_no_smaller_is_refused(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(SizeLimitError, match=r"takes 30,.* bytes .*and 28,.* in fp32.*one precision"):
        quantize(demo, tmp_path / "out", options=options("fp32,lm_head=int4"))
    assert list(tmp_path.iterdir()) == []


def test_only_an_fp32_bundle_can_be_quantised(demo: Path, tmp_path: Path) -> None:
    quantize(demo, tmp_path / "int8", options=options())
    with pytest.raises(UsageError, match=r"is in int8, and its fp32 weights are gone: quantise the fp32 bundle"):
        quantize(tmp_path / "int8", tmp_path / "int4", options=options("int4"))
    with pytest.raises(OutputError, match="not empty"):
        quantize(demo, tmp_path / "int8", options=options("int4"))


def test_a_pattern_that_keeps_nothing_is_refused(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no layer of this model is called 'decoder\.layers\.9\.\*'"):
        quantize(demo, tmp_path / "out", options=options("int8,keep_fp32=decoder.layers.9.*"))


# --- the gate ------------------------------------------------------------------------------------------------------


class Gate:
    """A judge that passes the recipes it is told to."""

    def __init__(self, *passing: str) -> None:
        self.passing, self.asked = passing, []

    def __call__(self, translator: Translator, found: Any) -> Any:
        assert translator.translate("Good morning.")
        self.asked.append(found.name)
        passed = found.name in self.passing
        misses = () if passed else (f"BLEU fell in {found.name}",)

        def raise_if_missed(*, model: str, fix: str) -> None:
            if misses:
                raise QualityGateError(f"{model}: {misses[0]}. {fix}")

        return SimpleNamespace(passed=passed, misses=misses, raise_if_missed=raise_if_missed)


def test_a_missed_gate_writes_nothing_unless_it_only_reports(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(QualityGateError, match=r"BLEU fell in int4.*--explain.*--keep-fp32"):
        quantize(demo, tmp_path / "out", options=options("int4", gate="enforce"), judge=Gate())
    assert list(tmp_path.iterdir()) == []
    result = quantize(demo, tmp_path / "out", options=options("int4", gate="report"), judge=Gate())
    assert result.warnings == ("a quality limit was missed: BLEU fell in int4",)


def test_a_search_keeps_the_first_that_passes(demo: Path, tmp_path: Path) -> None:
    gate = Gate("int8", "fp32,decoder=int8")
    order = [recipe("int4"), recipe("fp32,lm_head=int4"), recipe("int8"), recipe("int8,encoder=fp32")]
    found = search(demo, tmp_path / "out", options=options(gate="enforce"), recipes=order, judge=gate)
    assert gate.asked == ["int4", "int8"]
    assert [(one.recipe.name, one.misses[:1]) for one in found.tried][::2] == [
        ("int4", ("BLEU fell in int4",)),
        ("int8", ()),
    ]
    assert "quantising it so wins nothing" in found.tried[1].misses[0]
    bundle = read_bundle(tmp_path / "out")
    assert bundle.manifest.recipe == "int8"
    assert all(not path.name.startswith(".") for path in (tmp_path / "out").iterdir())
    with Translator.load(tmp_path / "out") as translator:
        assert translator.translate("Good morning.")


def test_a_search_without_success_names_what_each_missed(demo: Path, tmp_path: Path) -> None:
    gate, order = Gate(), [recipe("int4"), recipe("int8")]
    with pytest.raises(QualityGateError, match=r"none of 2 recipes .*int4: BLEU fell in int4; int8: BLEU fell in int8"):
        search(demo, tmp_path / "out", options=options(gate="enforce"), recipes=order, judge=gate)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="leave --gate off out"):
        search(demo, tmp_path / "out", options=options(), recipes=order, judge=gate)


def test_a_search_keeps_the_layers_that_it_is_told_to(demo: Path, tmp_path: Path) -> None:
    gate = Gate("int8,keep_fp32=lm_head")
    kept = options("fp32,keep_fp32=lm_head", gate="enforce")
    found = search(demo, tmp_path / "out", options=kept, recipes=[recipe("int8")], judge=gate)
    assert found.result.bundle.manifest.precision.keep_fp32 == ("lm_head",)


# --- a layer whose scales are wrong ---------------------------------------------------------------------------------

PLANTED = "model.decoder.layers.0.fc2"


@pytest.fixture(scope="module")
def planted(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An int8 bundle of the demo model with the scales of one layer 8 times too large."""
    folder = tmp_path_factory.mktemp("planted") / "int8"
    quantize(demo, folder, options=options())
    tensor = ir.load(folder / "decoder.onnx").graph.initializers[f"{PLANTED}.weight_scales"].const_value
    data = np.memmap(
        folder / "weights.bin", dtype=np.float32, mode="r+", offset=tensor.offset, shape=tuple(tensor.shape)
    )
    data *= 8
    data.flush()
    return folder


def test_explain_puts_the_wrong_layer_first(fp32: Translator, planted: Path) -> None:
    texts = calibration_texts(CalibrationOptions(), fp32.bundle.manifest.languages).lines
    found = explain(
        fp32, planted, PRESETS["int8"], texts, direction=Direction(), config=checkpoint_of(fp32.bundle).config
    )
    assert found.layers[0].layer == PLANTED
    assert found.layers[0].divergence > 100 * found.layers[1].divergence
    assert found.exclude == (PLANTED.removeprefix("model."),)
    assert found.command("b").endswith("--precision int8 --keep-fp32 decoder.layers.0.fc2")
    assert len(found.layers) == 29
    assert {row.component for row in found.layers} == {"encoder", "decoder", "cross_kv", "lm_head", "embedding"}


def test_the_gate_catches_the_wrong_layer(fp32: Translator, planted: Path) -> None:
    texts = shipped_texts()
    gate = QualityGate(texts, translate_set(fp32, texts), target_language="zh")
    broken = Translator(
        bundle=fp32.bundle, model=load_model(planted, options=RuntimeOptions(threads=1)), tokenizer=fp32.tokenizer,
        settings=fp32.settings, runtime=fp32.runtime,
    )  # fmt: skip
    report = gate.judge(translate_set(broken, texts), label="planted")
    assert not report.passed
    with pytest.raises(QualityGateError):
        report.raise_if_missed(model="demo", fix="")


def test_explain_ranks_an_honest_recipe_and_skips_kept_layers(demo: Path) -> None:
    found = explain_damage(demo, options=options("int4,encoder=fp32,keep_fp32=lm_head"))
    layers = [row.layer for row in found.layers]
    assert "lm_head" not in layers
    assert not any(".encoder.layers" in layer for layer in layers)
    damage = [row.divergence for row in found.layers]
    assert damage == sorted(damage, reverse=True)
    assert damage[-1] > 0
    assert found.whole.divergence < 0.2
    assert 1 <= len(found.exclude) <= 5


@pytest.mark.parametrize(("text", "named"), [("fp16", "no layer alone"), ("fp32", "quantises no layer")])
def test_there_is_nothing_to_explain(demo: Path, text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        explain_damage(demo, options=options(text))
