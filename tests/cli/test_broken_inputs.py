"""Each broken input is one clear line and exit code 2, without a traceback, and nothing half-written is left."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.checkpoints import change_config, change_weights, write_malicious_pickle
from tests.cli.harness import invoke, run, started

EMBEDDING = "model.shared.weight"


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _set_nan(tensors: dict[str, np.ndarray]) -> None:
    tensors[EMBEDDING][3, 5] = np.nan


def _reshape(tensors: dict[str, np.ndarray]) -> None:
    tensors[EMBEDDING] = tensors[EMBEDDING][:, :-1].copy()
    del tensors["model.encoder.layers.0.fc1.bias"]
    tensors["stray"] = np.zeros(3, np.float32)


BROKEN: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no config": (lambda f: (f / "config.json").unlink(), ("has no config.json",)),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), ("is incomplete", "model.safetensors")),
    "no vocabulary": (lambda f: (f / "vocab.json").unlink(), ("it lacks vocab.json",)),
    "truncated weights": (lambda f: _truncate(f / "model.safetensors"), ("model.safetensors",)),
    "empty weights": (lambda f: (f / "model.safetensors").write_bytes(b""), ("model.safetensors",)),
    "truncated tokenizer": (lambda f: _truncate(f / "source.spm"), ("source.spm",)),
    "wrong JSON": (lambda f: (f / "config.json").write_text('{"model_type": '), ("config.json is not valid JSON",)),
    "JSON of another kind": (lambda f: (f / "config.json").write_text("[1]"), ("config.json", "list")),
    "NaN": (lambda f: change_weights(f, _set_nan), (EMBEDDING, "not finite", "nan, at (3, 5)")),
    "wrong shapes": (
        lambda f: change_weights(f, _reshape),
        (
            "3 problems",
            "'model.encoder.layers.0.fc1.bias' is missing",
            "'stray' is not a weight",
            "expected (",
            EMBEDDING,
        ),
    ),
    "unknown architecture": (lambda f: change_config(f, model_type="pegasus"), ("model_type is 'pegasus'", "marian")),
    "refused setting": (lambda f: change_config(f, normalize_before=True), ("normalize_before=True",)),
    "no start token": (lambda f: change_config(f, decoder_start_token_id=None), ("decoder_start_token_id is missing",)),
    "vocabulary too large": (lambda f: change_config(f, vocab_size=20), ("shape", "expected (20, 16)")),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_checkpoint(fault: str, checkpoint: Path, tmp_path: Path) -> None:
    break_it, said = BROKEN[fault]
    break_it(checkpoint)
    before = sorted(tmp_path.rglob("*"))
    message = invoke("migrate", checkpoint, "-o", tmp_path / "new" / "out", "--verify", "none").error()
    for words in said:
        assert words in message
    assert sorted(tmp_path.rglob("*")) == before


def test_a_malicious_pickle_is_refused_and_does_nothing(checkpoint: Path, tmp_path: Path) -> None:
    write_malicious_pickle(checkpoint, tmp_path / "trace")
    message = invoke("migrate", checkpoint, "-o", tmp_path / "out", "--verify", "none").error()
    assert "posix.mkdir" in message or "nt.mkdir" in message or "os.mkdir" in message
    assert not (tmp_path / "trace").exists()
    assert not (tmp_path / "out").exists()


def _fill(folder: Path) -> Path:
    folder.mkdir()
    (folder / "mine.txt").write_text("keep me")
    return folder


def test_an_existing_output_is_kept(checkpoint: Path, tmp_path: Path) -> None:
    mine = _fill(tmp_path / "out")
    assert "exists and is not empty" in invoke("migrate", checkpoint, "-o", mine, "--verify", "none").error()
    message = invoke("migrate", checkpoint, "-o", mine, "--verify", "none", "--overwrite").error()
    assert "is not a bundle" in message
    assert (mine / "mine.txt").read_text() == "keep me"
    assert [path.name for path in mine.iterdir()] == ["mine.txt"]


def test_an_output_that_is_a_file(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file" in invoke("export", checkpoint, "-o", tmp_path / "file").error()
    assert "is not a folder" in invoke("export", checkpoint, "-o", tmp_path / "file" / "below").error()


def test_a_read_only_output(checkpoint: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:  # nothing that root may not write to, but the kernel's own file systems
        locked = Path("/proc/onnxmt")
    else:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o555)
    message = invoke("export", checkpoint, "-o", locked / "out").error()
    assert str(locked / "out") in message
    assert "cannot be" in message


def test_a_full_output(checkpoint: Path, tmp_path: Path) -> None:
    """No file may grow over 20,000 bytes: what a full disk does, without one."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    before = sorted(tmp_path.rglob("*"))
    message = run("export", checkpoint, "-o", tmp_path / "new" / "out", preexec_fn=limit).error()
    assert "cannot" in message
    assert "File too large" in message
    assert sorted(tmp_path.rglob("*")) == before


# Runs the real command, and stops in the middle of the work, after a file is written, for the signal to find it there.
INTERRUPTED = """
import sys, time
import onnxmt.migration
from onnxmt.cli import main

real = onnxmt.migration.export_graphs

def export_graphs(checkpoint, folder, **options):
    result = real(checkpoint, folder, **options)
    print("in the middle", flush=True)
    time.sleep(60)
    return result

onnxmt.migration.export_graphs = export_graphs
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_migration_leaves_nothing(number: signal.Signals, checkpoint: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    command = [
        sys.executable,
        "-c",
        INTERRUPTED,
        "migrate",
        checkpoint,
        "-o",
        tmp_path / "new" / "out",
        "--verify",
        "none",
    ]
    with started(*command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in the middle\n"
        assert any("onnxmt-partial" in path.name for path in (tmp_path / "new").iterdir())
        process.send_signal(number)
        if number == signal.SIGINT:  # an impatient second Ctrl-C does not break off the cleaning up
            time.sleep(0.01)
            process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == b""
    assert err.decode() == f"onnxmt: error: interrupted by {number.name}; nothing half-written is left\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interrupted_overwrite_keeps_the_bundle_that_was_there(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert invoke("export", checkpoint, "-o", out).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with started(sys.executable, "-c", INTERRUPTED, "export", checkpoint, "-o", out, "--overwrite") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "tiny-en-zh"]


@pytest.mark.parametrize("verb", ["verify", "translate", "inspect"])
def test_a_bundle_that_is_not_there(verb: str, tmp_path: Path) -> None:
    place = tmp_path / "none"
    message = invoke(*(("translate", "x", "--model", place) if verb == "translate" else (verb, place))).error()
    assert str(place) in message
