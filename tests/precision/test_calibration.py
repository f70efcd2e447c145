"""Calibration: real decoding, padding left out, files of the user's, bounded memory, and a static model that works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxmt.errors import UsageError
from onnxmt.manifest import Languages
from onnxmt.measure.calibrate import CalibrationTexts, calibrate, calibration_texts, observe
from onnxmt.measure.calibration_options import METHODS, CalibrationOptions, RangeOptions
from onnxmt.migration import MigrateOptions, export
from onnxmt.precision import Calibration, recipe
from onnxmt.quantization import QuantizeOptions, quantize
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from tests.cli.harness import ROOT, environment

ENGLISH = Languages(source=("en",), target=("zh",))
UNRELATED = [
    "The library opens at nine.",
    "A black cat is sleeping on the red sofa.",
    "He paid 45 dollars for three books.",
]


def test_the_shipped_text_has_512_lines_of_mixed_length() -> None:
    found = calibration_texts(CalibrationOptions(), ENGLISH)
    assert len(found.lines) >= 512
    assert len({len(line) // 20 for line in found.lines}) >= 8
    assert (found.name, found.source, found.target) == ("shipped", "en", "zh")


def test_a_file_of_the_users(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("Ein Satz.\n\nNoch einer.\n", encoding="utf-8")
    german = Languages(source=("de", "fr"), target=("zh",))
    found = calibration_texts(CalibrationOptions(file=file, source="de"), german)
    assert found == CalibrationTexts(name="mine.txt", lines=("Ein Satz.", "", "Noch einer."), source="de")
    with pytest.raises(UsageError, match=r"is English, and the model reads de, fr: give text of your own"):
        calibration_texts(CalibrationOptions(), german)
    file.write_text("\n \n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"mine\.txt holds no line"):
        calibration_texts(CalibrationOptions(file=file), german)
    with pytest.raises(UsageError, match="cannot be read"):
        calibration_texts(CalibrationOptions(file=tmp_path / "absent"), german)


def test_every_layer_is_measured_and_padding_is_not(fp32: Translator, tmp_path: Path) -> None:
    watched = observe(fp32.model, tmp_path)
    ids = np.array([fp32.tokenizer.encode("The library opens at nine.")], dtype=np.int64)
    watched.encode(ids, np.ones_like(ids))
    alone = watched.ranges(RangeOptions(method="minmax"))
    (tmp_path / "padded").mkdir()
    padded = observe(fp32.model, tmp_path / "padded")
    wide = np.full((1, ids.shape[1] + 60), 4321, dtype=np.int64)  # real tokens where the mask says padding
    wide[:, : ids.shape[1]] = ids
    padded.encode(wide, (np.arange(wide.shape[1]) < ids.shape[1]).astype(np.int64)[None])
    found = padded.ranges(RangeOptions(method="minmax"))
    assert alone.keys() == found.keys()
    assert len(alone) == 3 * 4 + 2
    for path, span in alone.items():
        assert (found[path].low, found[path].high) == pytest.approx((span.low, span.high), abs=1e-4), path
    assert set(watched.encoder.outputs) == set(fp32.model.encoder.outputs)


def test_the_decoder_is_measured_on_its_own_tokens(fp32: Translator) -> None:
    found = calibrate(fp32, CalibrationTexts(name="two", lines=tuple(UNRELATED)), ranges=RangeOptions(method="minmax"))
    assert len(found.ranges) == 14 + 2 * 6 + 1
    assert found.to_dict() == {"texts": "two", "lines": 3, "method": "minmax", "layers": 27}
    inputs = _recorded(fp32, UNRELATED)
    assert found.ranges["lm_head"].low == pytest.approx(min(values.min() for values in inputs), abs=1e-3)
    assert found.ranges["lm_head"].high == pytest.approx(max(values.max() for values in inputs), abs=1e-3)


def _recorded(fp32: Translator, texts: list[str]) -> list[np.ndarray]:
    """What goes into the head in greedy search, computed from logits: h = logits W+, W of full column rank."""
    from onnxmt.bundle import read_bundle
    from onnxmt.fp32_weights import BundleWeights

    weights = BundleWeights(read_bundle(fp32.bundle.folder, check="size"))
    head, bias = weights.read("lm_head.weight"), weights.read("final_logits_bias")
    inverse = np.linalg.pinv(head.astype(np.float64))
    found: list[np.ndarray] = []
    run = fp32.model.run_decoder

    def record(feeds):
        outputs = run(feeds)
        found.append((outputs["logits"].astype(np.float64) - bias) @ inverse.T)
        return outputs

    fp32.model.run_decoder = record  # type: ignore[method-assign]
    try:
        fp32.translate(texts, options=TranslateOptions(beams=1))
    finally:
        del fp32.model.run_decoder
    return found


@pytest.fixture(scope="module")
def static(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("static") / "static"
    quantize(demo, output, options=QuantizeOptions(precision=recipe("int8-static"), gate="off"))
    return output


def test_unrelated_sentences_have_unrelated_translations(static: Path, fp32: Translator) -> None:
    """Case Q4: calibrated on 590 lines, per channel; every file is loaded and run, and nothing repeats."""
    with Translator.load(static, options=RuntimeOptions(threads=1)) as translator:
        for beams in (1, 4):
            found = translator.translate(UNRELATED, options=TranslateOptions(beams=beams))
            wanted = fp32.translate(UNRELATED, options=TranslateOptions(beams=beams))
            assert len(set(found)) == 3
            assert sum(a == b for a, b in zip(found, wanted, strict=True)) >= 2, (found, wanted)
        manifest = translator.bundle.manifest
    assert manifest.precision.calibration == {
        "texts": "shipped", "lines": 590, "method": "percentile 99.99", "layers": 27,
    }  # fmt: skip
    assert manifest.graphs.decoder.operators["com.microsoft.MatMulIntegerToFloat"] == 13
    assert "MatMul" not in manifest.graphs.decoder.operators


def test_export_and_quantize_calibrate_alike(static: Path, tmp_path: Path) -> None:
    export("demo", tmp_path / "out", options=MigrateOptions(precision=recipe("int8-static")))
    for name in ("encoder.onnx", "decoder.onnx", "weights.bin"):
        assert (tmp_path / "out" / name).read_bytes() == (static / name).read_bytes(), name


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_model_near_fp32(fp32: Translator, method, tmp_path: Path) -> None:
    from onnxmt.fp32_weights import checkpoint_of
    from onnxmt.graph_export import export_graphs
    from onnxmt.runtime.decoder import load_model

    lines = calibration_texts(CalibrationOptions(), ENGLISH).lines[::10]
    found = calibrate(fp32, CalibrationTexts(name="tenth", lines=lines), ranges=RangeOptions(method=method))
    export_graphs(checkpoint_of(fp32.bundle), tmp_path, precision=recipe("int8-static"), calibration=found)
    ids = np.array([fp32.tokenizer.encode(UNRELATED[1])], dtype=np.int64)
    mask, start = np.ones_like(ids), np.array([[fp32.settings.decoder_start_token_id]])
    wanted = fp32.model.start(ids, mask)(start, None)
    values = load_model(tmp_path, options=RuntimeOptions(threads=1)).start(ids, mask)(start, None)
    assert np.abs(values - wanted).max() < 1.5
    assert values.argmax() == wanted.argmax()


def test_a_static_recipe_without_ranges_is_refused(fp32: Translator, tmp_path: Path) -> None:
    from onnxmt.fp32_weights import checkpoint_of
    from onnxmt.graph_export import export_graphs

    empty = Calibration(ranges={}, texts="", lines=0, method="minmax")
    for calibration in (None, empty):
        with pytest.raises(UsageError, match=r"needs the measured ranges of 27 layers"):
            export_graphs(
                checkpoint_of(fp32.bundle), tmp_path, precision=recipe("int8-static"), calibration=calibration
            )


_PEAK = """
import resource, sys
from pathlib import Path
from onnxmt.measure.calibrate import CalibrationTexts, calibrate
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
lines = ["The library opens at nine.", "A black cat is sleeping on the red sofa, and nobody checks the machine."] * 32
fp32 = Translator.load(sys.argv[1], options=RuntimeOptions(threads=1), check="size")
calibrate(fp32, CalibrationTexts(name="x", lines=tuple(lines * int(sys.argv[2]))))
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_lines(demo: Path) -> None:
    peaks = []
    for times in ("1", "12"):
        command = [sys.executable, "-c", _PEAK, str(demo), times]
        done = subprocess.run(command, capture_output=True, check=True, timeout=200, env=environment(), cwd=ROOT)
        peaks.append(int(done.stdout))
    assert peaks[1] < peaks[0] + 30_000, peaks  # kilobytes; 704 further lines stored whole would be over 500 MB
