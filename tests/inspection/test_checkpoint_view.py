"""What `inspect` says of a checkpoint before its migration: every obstacle, needs, and nothing large fetched for it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxmt.checkpoint import read_checkpoint
from onnxmt.hub import resolve
from onnxmt.inspection.checkpoint_facts import checkpoint_facts
from onnxmt.inspection.memory import estimate_memory
from tests.cli.checkpoints import change_config, change_weights, write_checkpoint
from tests.cli.harness import Outcome, environment, invoke, run
from tests.hub.standin import Hub, Repository, serving


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("inspect") / "tiny-en-zh")


@pytest.fixture
def checkpoint(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "tiny-en-zh"))


def inspected(folder: Path) -> dict[str, Any]:
    outcome = invoke("inspect", folder, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.text)


def test_a_good_checkpoint(checkpoint: Path) -> None:
    found = inspected(checkpoint)
    assert (found["kind"], found["model"], found["origin"]) == ("checkpoint", "tiny-en-zh", "folder")
    assert (found["supported"], found["reasons"], found["missing"]) == (True, [], [])
    assert found["model_type"] == "marian"
    assert found["languages"] == {"source": ["eng"], "target": ["zho"]}
    assert (found["licence"], found["licence_warning"]) == ("apache-2.0", None)
    assert (found["dimensions"]["d_model"], found["dimensions"]["max_source_positions"]) == (16, 64)
    assert found["generation_file"] == "config.json"
    assert (found["generation"]["num_beams"], found["generation"]["max_length"]) == (2, 12)
    weights = [entry for entry in found["files"] if entry["weights"]]
    assert weights == [
        {"name": "model.safetensors", "bytes": (checkpoint / "model.safetensors").stat().st_size, "weights": True}
    ]
    assert sum(entry["bytes"] for entry in found["files"]) == sum(p.stat().st_size for p in checkpoint.iterdir())


def test_parameters_are_the_arrays_that_a_migration_stores(checkpoint: Path) -> None:
    found = inspected(checkpoint)
    weights = read_checkpoint(resolve(checkpoint)).weights
    count = sum(math.prod(weights.shape(name)) for name in weights.names())
    assert found["parameters"] == count
    estimate = estimate_memory(count)
    assert found["memory"]["weights"] == 4 * count == estimate.weights
    assert 0 < found["memory"]["weights"] < found["memory"]["run"] < found["memory"]["verify_live"]
    assert "measurements" in found["memory"]["basis"]


def test_tied_copies_are_counted_once(checkpoint: Path) -> None:
    before = inspected(checkpoint)["parameters"]

    def copy(tensors: dict[str, np.ndarray]) -> None:
        for name in ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"):
            tensors[name] = tensors["model.shared.weight"]

    change_weights(checkpoint, copy)
    found = inspected(checkpoint)
    assert (found["parameters"], found["supported"], found["reasons"]) == (before, True, [])


def test_the_page_says_it_in_words(checkpoint: Path) -> None:
    (checkpoint / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    outcome = invoke("inspect", checkpoint)
    assert outcome.lines[0] == "tiny-en-zh: a marian checkpoint that can be migrated"
    page = " ".join(outcome.text.split())
    for words in (
        "languages eng → zho",
        "licence cc-by-nc-4.0 warning: the model's licence, cc-by-nc-4.0, does not allow commercial use",
        "encoder 1 layer, 2 heads of 8, feed-forward 32",
        "positions at most 64 tokens",
        "to translate",
        "(the weights that are used)",
        f"Files in {checkpoint}",
    ):
        assert words in page, words
    assert "Why not" not in page


def test_every_reason_is_given_at_once(checkpoint: Path) -> None:
    change_config(
        checkpoint, normalize_before=True, activation_function="snake", d_model=-3, decoder_start_token_id=None,
        num_beam_groups=2, diversity_penalty=0.5,
    )  # fmt: skip
    (checkpoint / "vocab.json").unlink()
    found = inspected(checkpoint)
    assert found["supported"] is False
    reasons = " | ".join(found["reasons"])
    for words in ("normalize_before=True", "snake", "d_model is -3", "decoder_start_token_id is missing", "vocab.json"):
        assert words in reasons, words
    assert found["missing"] == ["vocab.json"]
    page = invoke("inspect", checkpoint).text
    assert page.splitlines()[0].endswith("that cannot be migrated")
    assert "\nWhy not\n  1 " in page


@pytest.mark.parametrize(
    "break_it",
    [
        lambda f: change_config(f, model_type="pegasus"),
        lambda f: change_config(f, add_final_layer_norm=True),
        lambda f: change_config(f, vocab_size=20),
        lambda f: change_config(f, num_beams=0),
        lambda f: (f / "model.safetensors").unlink(),
        lambda f: (f / "source.spm").unlink(),
        lambda f: (f / "source.spm").write_bytes(b"not a model"),
        lambda f: (f / "generation_config.json").write_text("{"),
        lambda f: (f / "model.safetensors").write_bytes(b"\x00" * 7),
        lambda f: change_weights(f, lambda tensors: tensors.pop("model.encoder.layers.0.fc1.bias")),
        lambda f: change_weights(f, lambda tensors: tensors.update(stray=np.zeros(2, np.float32))),
    ],
)
def test_inspect_and_migrate_agree(break_it: Callable[[Path], object], checkpoint: Path, tmp_path: Path) -> None:
    """What inspect calls impossible fails, for a reason that inspect names in the same words."""
    break_it(checkpoint)
    found = inspected(checkpoint)
    assert found["supported"] is False
    message = invoke("export", checkpoint, "-o", tmp_path / "out").error()
    reasons = " ".join(found["reasons"]).replace("'", "")
    name = next((word for word in reasons.split() if word.rstrip(":,;.") in message.replace("'", "").split()), None)
    assert name is not None, (message, reasons)


def test_wrong_weights_are_found_from_their_headers(checkpoint: Path) -> None:
    def change(tensors: dict[str, np.ndarray]) -> None:
        tensors["model.shared.weight"] = tensors["model.shared.weight"][:, :-1].copy()
        del tensors["model.decoder.layers.0.fc2.weight"]
        tensors["stray"] = np.zeros(3, np.float32)

    change_weights(checkpoint, change)
    (reason,) = inspected(checkpoint)["reasons"]
    assert reason.startswith("the weights in model.safetensors have 3 problems: ")
    for words in ("model.decoder.layers.0.fc2.weight is missing", "stray is not a weight", ", 15), expected ("):
        assert words in reason


def test_a_folder_that_is_neither_is_named(tmp_path: Path) -> None:
    assert "has no config.json" in invoke("inspect", tmp_path).error()
    assert "names no model" in invoke("inspect", tmp_path / "none").error()


def test_the_demo_can_be_migrated() -> None:
    facts = checkpoint_facts(resolve("demo"))
    assert facts.supported, facts.reasons
    assert facts.licence is not None


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as standin:
        yield standin


NAME = "Helsinki-NLP/opus-mt-en-zh"


def on_the_hub(hub: Hub, tmp_path: Path, files: dict[str, bytes], **changes: str) -> Outcome:
    hub.repositories[NAME] = Repository()
    hub.repositories[NAME].commit(files)
    settings = environment(
        HF_ENDPOINT=hub.endpoint, HF_HOME=str(tmp_path / "hf"), HF_HUB_DISABLE_TELEMETRY="1", **changes
    )
    return run("inspect", NAME, "--json", env=settings)


def test_a_hub_model_is_judged_before_its_weights_are_fetched(hub: Hub, checkpoint: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    outcome = on_the_hub(hub, tmp_path, {**files, "tf_model.h5": b"other"})
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.text)
    local = inspected(checkpoint)
    assert (found["supported"], found["origin"], found["model"]) == (True, "hub", NAME)
    assert found["parameters"] == local["parameters"]
    sizes = {entry["name"]: entry["bytes"] for entry in found["files"]}
    assert sizes["model.safetensors"] == len(files["model.safetensors"])
    assert sizes["tf_model.h5"] == 5
    cached = sorted(path.name for path in (tmp_path / "hf").glob("hub/models--*/snapshots/*/*"))
    assert "config.json" in cached
    assert not [name for name in cached if name.endswith((".safetensors", ".h5", ".bin"))]


def test_a_hub_model_with_a_pickle_is_estimated_by_its_size(hub: Hub, checkpoint: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.suffix != ".safetensors"}
    found = json.loads(on_the_hub(hub, tmp_path, {**files, "pytorch_model.bin": b"x" * 4000}).text)
    assert found["supported"] is True
    assert found["parameters"] == 1000
    assert found["parameters_basis"] == "the size of pytorch_model.bin at 4 bytes each"


def test_a_hub_model_without_weights_or_vocabulary_is_not_supported(hub: Hub, checkpoint: Path, tmp_path: Path) -> None:
    keep = ("config.json", "source.spm", "target.spm")
    found = json.loads(on_the_hub(hub, tmp_path, {name: (checkpoint / name).read_bytes() for name in keep}).text)
    assert found["supported"] is False
    assert found["missing"] == ["vocab.json", "weights: model.safetensors or pytorch_model.bin"]
    assert found["licence_warning"] is not None


def test_offline_the_cached_small_files_are_enough(hub: Hub, checkpoint: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    on_the_hub(hub, tmp_path, files)
    outcome = on_the_hub(hub, tmp_path, files, HF_HUB_OFFLINE="1")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.text)
    assert found["model_type"] == "marian"
    assert any("HF_HUB_OFFLINE is set" in note for note in found["notes"])
    assert found["supported"] is True
