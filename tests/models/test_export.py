"""The files that export writes: small, the same every time, whatever format the weights came in."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxmt.errors import OutputError, WeightsError
from tests.models.parity import export, load_torch
from tests.models.variants import edit_weights
from tests.tiny import build_bart, build_m2m, build_marian, build_mbart, build_mt5, build_t5, build_umt5

FILES = ("decoder.onnx", "encoder.onnx", "weights.bin")
BUILDERS = {
    "marian": build_marian, "bart": build_bart, "mbart": build_mbart, "m2m_100": build_m2m,
    "t5": build_t5, "mt5": build_mt5, "umt5": build_umt5,
}  # fmt: skip


def _hashes(folder: Path) -> dict[str, str]:
    assert sorted(path.name for path in folder.iterdir()) == list(FILES)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def _with_head(builder: Callable[..., Path], folder: Path, name: str) -> Path:
    """A checkpoint with a head of its own, so that two tables are unique."""
    builder(folder, config={"vocab_size": 32000})
    edit_weights(folder, lambda weights: weights.update({"lm_head.weight": weights[name] * np.float32(1.5)}))
    return folder


@pytest.mark.reference
@pytest.mark.parametrize("family", [*BUILDERS, "marian, own head", "mt5, own head"])
def test_weights_are_stored_once(tmp_path, family):
    """Case E1: a vocabulary far larger than the hidden size, where a second copy of the table would show."""
    builder = BUILDERS[family.partition(",")[0]]
    if family.endswith("own head"):
        _with_head(builder, tmp_path, "shared.weight" if builder is build_mt5 else "model.shared.weight")
    else:
        builder(tmp_path, config={"vocab_size": 32000})
    export(tmp_path)
    unique = sum(parameter.numel() for parameter in load_torch(tmp_path).parameters()) * 4
    assert (tmp_path / "graphs" / "weights.bin").stat().st_size <= 1.05 * unique
    assert sum(path.stat().st_size for path in (tmp_path / "graphs").iterdir()) <= 1.05 * unique


@pytest.mark.reference
@pytest.mark.parametrize("separate", [False, True])
def test_four_weight_formats_give_the_same_files(tmp_path, separate):
    found = {}
    for weights in ("legacy", "zip", "sharded", "safetensors"):
        folder = build_marian(tmp_path / weights, weights=weights, separate_vocabs=separate, logits_bias=1.0)
        export(folder)
        found[weights] = _hashes(folder / "graphs")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    assert found["legacy"] == found["zip"] == found["sharded"] == found["safetensors"]


@pytest.mark.reference
@pytest.mark.parametrize("family", BUILDERS)
def test_export_is_deterministic(tmp_path, family):
    """Twice here, and once in a process with another order of sets."""
    folder = BUILDERS[family](tmp_path)
    for name in ("first", "second"):
        export(folder, tmp_path / name)
    code = "import sys; from pathlib import Path; from tests.models.parity import export; export(Path(sys.argv[1]), Path(sys.argv[2]))"
    env = {**os.environ, "PYTHONHASHSEED": "12345"}
    subprocess.run(
        [sys.executable, "-c", code, str(folder), str(tmp_path / "third")],
        check=True,
        env=env,
        cwd=Path(__file__).parents[2],
    )
    assert _hashes(tmp_path / "first") == _hashes(tmp_path / "second") == _hashes(tmp_path / "third")


@pytest.mark.reference
def test_every_problem_of_the_weights_is_listed_before_anything_is_written(tmp_path):
    build_marian(tmp_path)

    def damage(weights: dict[str, np.ndarray]) -> None:
        del weights["model.encoder.layers.1.fc1.bias"]
        weights["model.decoder.layers.0.encoder_attn.q_proj.weight"] = np.zeros((32, 31), np.float32)
        weights["model.decoder.layers.1.fc2.weight"][3, 5] = np.nan
        weights["model.encoder.layers.2.fc1.bias"] = np.zeros(64, np.float32)

    edit_weights(tmp_path, damage)
    with pytest.raises(WeightsError) as caught:
        export(tmp_path)
    problems = sorted(caught.value.problems)
    assert len(problems) == 4
    for name, what in (
        ("decoder.layers.0.encoder_attn.q_proj.weight", "(32, 31), expected (32, 32)"),
        ("decoder.layers.1.fc2.weight", "finite"),
        ("encoder.layers.1.fc1.bias", "missing"),
        ("encoder.layers.2.fc1.bias", "not a weight of this model"),
    ):
        assert any(name in problem and what in problem for problem in problems), (name, problems)
    assert not list((tmp_path / "graphs").iterdir())


@pytest.mark.reference
def test_a_folder_that_cannot_be_written_is_an_output_error(tmp_path):
    folder = build_marian(tmp_path)
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "weights.bin").mkdir()
    with pytest.raises(OutputError, match="cannot write the graphs to"):
        export(folder)


@pytest.mark.reference
@pytest.mark.parametrize("family", BUILDERS)
def test_graphs_are_described_as_they_are(tmp_path, family):
    import onnxruntime

    exported = export(BUILDERS[family](tmp_path))
    sizes = exported.dimensions
    for info in (exported.encoder, exported.decoder):
        session = onnxruntime.InferenceSession(tmp_path / "graphs" / info.file)
        assert [tensor.name for tensor in info.inputs] == [node.name for node in session.get_inputs()]
        assert [tensor.name for tensor in info.outputs] == [node.name for node in session.get_outputs()]
        assert [list(tensor.axes) for tensor in info.inputs] == [node.shape for node in session.get_inputs()]
        assert (info.opset, info.ir_version) == (18, 10)
        # One cast of the mask; M2M100 counts with another. Any more would be onnxscript filling in for missing types.
        assert info.operators["Cast"] == (2 if family == "m2m_100" else 1)
        assert "CastLike" not in info.operators
    past = next(tensor for tensor in exported.decoder.inputs if tensor.name == "past.0.key")
    assert past.axes == ("batch", sizes.decoder.heads, "past", sizes.decoder.head_dim)
    logits = next(tensor for tensor in exported.decoder.outputs if tensor.name == "logits")
    assert logits.axes == ("batch", sizes.target_vocab_size)
