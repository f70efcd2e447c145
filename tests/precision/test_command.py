"""onnxmt quantize, and recipes in migrate and export, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.harness import invoke


def test_quantize_prints_sizes_leftovers_and_the_folder(demo: Path, tmp_path: Path) -> None:
    done = invoke("quantize", demo, "--gate", "off", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert done.lines[-3].startswith("28.8 MB in fp32, 8.0 MB in int8")
    assert done.lines[-2].startswith("still in fp32: model.decoder.embed_positions.weight 0.26 MB")
    assert done.lines[-1] == str(tmp_path / "out")
    assert done.err == ""


def test_json_holds_all_of_it_and_warnings_go_to_standard_error(demo: Path, tmp_path: Path) -> None:
    done = invoke("quantize", demo, "--precision", "int8-dynamic", "--gate", "off", "-o", tmp_path / "out", "--json")
    found = json.loads(done.text)
    assert found["precision"] == "int8-dynamic"
    assert found["bytes"] < 0.4 * found["fp32_bytes"]
    assert found["quality"] is None
    assert "neighbours in the batch" in found["warnings"][0]


def test_the_default_folder_is_named_after_the_recipe(demo: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = ("--keep-fp32", "decoder.layers.1.*")
    done = invoke("quantize", demo, "--precision", "encoder=fp32,decoder=int8", *kept, "--gate", "off")
    assert done.code == 0, done.err
    folder = Path(done.lines[-1])
    assert folder.name == "fp32-int8-encoder-fp32-keep_fp32-decoder.layers.1"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["recipe"] == "int8,encoder=fp32,keep_fp32=decoder.layers.1.*"
    assert manifest["precision"]["keep_fp32"] == ["decoder.layers.1.*"]


def test_explain_prints_layers_and_the_command_without_the_worst(demo: Path) -> None:
    done = invoke("quantize", demo, "--precision", "int4", "--explain", "--keep-fp32", "encoder.*")
    assert done.code == 0, done.err
    assert "lm_head" in done.text
    assert done.lines[-1].startswith(
        f"Without the worst: onnxmt quantize {demo} --precision 'int4,keep_fp32=encoder.*'"
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--precision", "int3"), "precision 'int3' is not known"),
        (("--search", "--explain"), "leave --explain out"),
        (("--search", "--precision", "int8"), "leave --precision out"),
        (("--calibration-method", "mean"), "allowed: minmax, percentile, entropy"),
        (("--calibration", "x.txt"), "--calibration has no effect on int8"),
        (("--keep-fp32", "nothing.*"), "no layer of this model is called 'nothing.*'"),
        (("--search", "--gate", "off"), "leave --gate off out"),
    ],
)
def test_wrong_use_is_one_line(demo: Path, tmp_path: Path, arguments: tuple[str, ...], named: str) -> None:
    extra = () if "--gate" in arguments or "--search" in arguments else ("--gate", "off")
    assert named in invoke("quantize", demo, *arguments, *extra, "-o", tmp_path / "out").error()
    assert list(tmp_path.iterdir()) == []


def test_export_takes_mixtures_and_warns_of_fp16(tmp_path: Path) -> None:
    done = invoke("export", "demo", "--precision", "fp16", "-o", tmp_path / "fp16")
    assert done.code == 0, done.err
    assert "fp16 is for GPU providers" in done.err
    assert "slower" in done.err
    done = invoke(
        "export", "demo", "--precision", "int8,lm_head=int4", "--keep-fp32", "lm_head", "-o", tmp_path / "kept"
    )
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "kept" / "manifest.json").read_text())["precision"]["lm_head"] == "int4"
    assert (
        "--calibration has no effect" in invoke("migrate", "demo", "--calibration", "x", "-o", tmp_path / "no").error()
    )
