"""migrate, export and verify from the command line: what they print, and how they end."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxmt.bundle import read_bundle, update_manifest
from onnxmt.commands._options import DEMO_BUNDLE, bundle_folder
from onnxmt.errors import BundleError
from tests.cli.harness import environment, invoke
from tests.tiny import SENTENCES


@pytest.mark.parametrize(
    ("model", "precision", "expected"),
    [
        ("demo", "fp32", "demo-fp32"),
        ("Helsinki-NLP/opus-mt-en-zh", "fp32", "opus-mt-en-zh-fp32"),
        ("Helsinki-NLP/opus-mt-en-zh@v1.0", "int8", "opus-mt-en-zh-int8"),
        ("no/such/folder", "encoder=fp32,decoder=int8", "folder-encoder-fp32-decoder-int8"),
    ],
)
def test_where_a_bundle_goes_when_nobody_says(model: str, precision: str, expected: str) -> None:
    assert bundle_folder(None, model=model, precision=precision) == Path(expected)
    assert bundle_folder(Path("x"), model=model, precision=precision) == Path("x")


def test_a_folder_gives_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my model").mkdir()
    monkeypatch.chdir(tmp_path / "my model")
    assert bundle_folder(None, model=".", precision="fp32") == Path("my-model-fp32")
    assert bundle_folder(None, model="../my model/", precision="fp32") == Path("my-model-fp32")


def test_demo_where_a_bundle_is_wanted_is_the_packaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_bundle(folder: Path) -> None:
        raise BundleError(f"asked for {folder}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("onnxmt.verification.read_bundle", read_bundle)
    assert invoke("verify", "demo").error() == f"asked for {DEMO_BUNDLE}"
    (tmp_path / "demo").mkdir()
    assert invoke("verify", "demo").error() == "asked for demo"


def test_export_writes_beside_and_says_where(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent)
    outcome = invoke("export", checkpoint)
    assert outcome.code == 0
    assert outcome.text == f"{checkpoint.parent / 'tiny-en-zh-fp32'}\n"
    assert outcome.err.splitlines()[-1] == (
        "onnxmt: warning: the bundle is unverified: nothing has compared its graphs with PyTorch"
    )
    again = invoke("export", checkpoint)
    assert "exists and is not empty: name another one, or pass --overwrite" in again.error()
    assert invoke("export", checkpoint, "--overwrite").code == 0


def test_migrate_without_verification_translates_two_sentences(checkpoint: Path, tmp_path: Path) -> None:
    outcome = invoke("migrate", checkpoint, "-o", tmp_path / "out", "--verify", "none", "--gate", "off", "--no-bench")
    assert outcome.code == 0
    lines = outcome.lines
    assert lines[-1] == str(tmp_path / "out")
    assert sum(line.startswith("  → ") for line in lines) == 2
    assert "Good morning." in lines


def test_migrate_in_json(checkpoint: Path, tmp_path: Path) -> None:
    outcome = invoke(
        "migrate", checkpoint, "-o", tmp_path / "out", "--verify", "none", "--precision", "fp32", "--no-bench", "--json"
    )
    found = json.loads(outcome.text)
    assert outcome.code == 0
    assert outcome.err == ""
    assert found["bundle"] == str(tmp_path / "out")
    assert (found["status"], found["verification"], found["precision"]) == ("unverified", None, "fp32")
    assert found["bytes"] == sum(
        path.stat().st_size for path in (tmp_path / "out").iterdir() if path.name != "manifest.json"
    )
    assert found["samples"][0]["source"] == "Good morning."
    assert any("unverified" in warning for warning in found["warnings"])


def test_no_judge_stops_before_the_work(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxmt.measure import reference

    monkeypatch.setattr(reference, "missing_package", lambda: "torch")
    message = invoke("migrate", checkpoint, "-o", tmp_path / "out").error()
    assert "--verify none" in message
    assert "pip install 'onnxmt[reference]'" in message
    assert not (tmp_path / "out").exists()
    assert (
        "verification.npz is not in its folder"
        in invoke("migrate", checkpoint, "-o", tmp_path / "out", "--verify", "recording").error()
    )


@pytest.fixture(scope="module")
def verified(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small checkpoint migrated live: PyTorch judges it."""
    folder = tmp_path_factory.mktemp("live") / "tiny"
    outcome = invoke("migrate", pristine, "-o", folder, "--verify", "live", "--precision", "fp32", "--no-bench")
    assert outcome.code == 0, outcome.err
    assert "Verification passed: every layer equals the reference" in outcome.text
    assert outcome.lines[-1] == str(folder)
    return folder


@pytest.mark.reference
def test_verify_replays_the_recording_in_the_bundle(verified: Path) -> None:
    outcome = invoke("verify", verified)
    assert (outcome.code, outcome.err) == (0, "")
    assert "against a recording of" in outcome.lines[0]
    rows = [line for line in outcome.lines if line.startswith(("cross K/V layer 0", "greedy tokens", "beam 4 tokens"))]
    assert len(rows) == 3
    assert all(row.rstrip().endswith("passed") for row in rows)
    as_json = json.loads(invoke("verify", verified, "--json").text)
    assert (as_json["status"], as_json["passed"], as_json["bundle"]) == ("recording", True, str(verified))
    assert all(row["passed"] for row in as_json["rows"])


@pytest.mark.reference
def test_a_damaged_bundle_fails_verification_with_exit_code_1(verified: Path, tmp_path: Path) -> None:
    """The manifest agrees with the damaged file: only running it can tell."""
    folder = Path(shutil.copytree(verified, tmp_path / "damaged"))
    weights = np.fromfile(folder / "weights.bin", np.float32)
    weights[len(weights) // 2 :] *= 1.05
    weights.tofile(folder / "weights.bin")
    found = read_bundle(verified)
    update_manifest(dataclasses.replace(found, folder=folder), found.manifest, written=["weights.bin"])
    outcome = invoke("verify", folder)
    assert outcome.code == 1
    assert outcome.err == ""
    assert "First divergence: " in outcome.text
    assert "Verification FAILED" in outcome.text
    as_json = invoke("verify", folder, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.text)["first_divergence"]["problem"]


@pytest.mark.reference
def test_live_verification_is_written_into_an_unverified_bundle(pristine: Path, bundle: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundle, tmp_path / "b"))
    assert "has no recorded reference" in invoke("verify", folder).error()
    assert invoke("verify", folder, "--reference", pristine, "--write").code == 0
    assert invoke("inspect", folder).lines[0].endswith("fp32, verified")
    assert invoke("verify", folder).code == 0


@pytest.mark.reference
def test_of_an_int8_bundle_only_tokens_are_compared(pristine: Path, tmp_path: Path) -> None:
    assert invoke("export", pristine, "-o", tmp_path / "int8", "--precision", "int8").code == 0
    outcome = invoke("verify", tmp_path / "int8", "--reference", pristine)
    assert (outcome.code, outcome.err) == (0, "")
    rows = {line.split("  ")[0]: line.split()[-1] for line in outcome.lines if "tokens" in line or "start" in line}
    assert rows["source tokens"] == rows["start token"] == "passed"
    assert rows["greedy tokens"] == rows["beam 4 tokens"] == "counted"
    assert "no limit of fp32 applies" in outcome.text
    message = invoke("verify", tmp_path / "int8", "--reference", pristine, "--write").error()
    assert "of precision int8" in message
    assert "nothing to --write" in message


def test_the_bundle_translates(bundle: Path) -> None:
    outcome = invoke("translate", "--model", bundle, "--json", *SENTENCES[:2])
    assert outcome.code == 0
    assert all(found["tokens"] for found in outcome.objects)


@pytest.mark.parametrize("watched", [True, False])
def test_progress_is_for_a_person_at_a_terminal_alone(watched: bool, checkpoint: Path, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "onnxmt", "export", checkpoint, "-o", tmp_path / "out"]
    done = subprocess.run(
        command, env=environment(TERM="xterm", COLUMNS="100"), stdout=subprocess.PIPE,
        stderr=terminal if watched else subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    os.close(terminal)
    seen = b"" if not watched else os.read(controller, 1 << 16)
    os.close(controller)
    assert (done.returncode, done.stdout.decode()) == (0, f"{tmp_path / 'out'}\n")
    if watched:
        assert b"find the model" in seen
        assert b"build the graphs" in seen
    else:
        assert all(line.startswith(b"onnxmt: warning: ") for line in done.stderr.splitlines())
