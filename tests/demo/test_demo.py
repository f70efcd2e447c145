"""The demo model that ships: its bundle is what its checkpoint gives, and the base install translates with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnxmt
from onnxmt import Translator
from onnxmt.bundle import read_bundle
from onnxmt.migration import MigrateOptions, migrate
from onnxmt.precision import PRESETS

BUNDLE = Path(__file__).parents[2] / "src" / "onnxmt" / "demo" / "bundle"
# protobuf bytes may differ between onnx releases, and the page shows dates; what they hold may not differ
MADE_ANEW = {"encoder.onnx", "decoder.onnx", "report.html"}


def test_the_shipped_bundle_is_what_its_checkpoint_gives(tmp_path: Path) -> None:
    shipped = read_bundle(BUNDLE)
    options = MigrateOptions(precision=PRESETS["fp32"], verify="recording")
    built = migrate("demo", tmp_path / "built", options=options).bundle
    assert {entry.path: entry.sha256 for entry in shipped.manifest.files if entry.path not in MADE_ANEW} == {
        entry.path: entry.sha256 for entry in built.manifest.files if entry.path not in MADE_ANEW
    }
    assert shipped.manifest.graphs == built.manifest.graphs
    assert shipped.manifest.verification.passed
    assert shipped.manifest.verification.status == "recording"


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("A black cat is sleeping on the red sofa.", "一只黑猫在红色的沙发上睡觉。"),  # the model card's example
        ("The library opens at nine.", "图书馆九点开门。"),
    ],
)
def test_the_packaged_model_translates(english: str, chinese: str) -> None:
    with Translator.load() as translator:
        assert translator.translate(english) == chinese


def test_verify_and_inspect_as_functions() -> None:
    done = onnxmt.verify(BUNDLE)
    assert done.report.passed
    assert done.bundle.manifest.source.model == "demo"
    facts = onnxmt.inspect("demo")
    assert facts["supported"] is True
