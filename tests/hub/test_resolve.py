"""What a person may call a MODEL: folders, the demo and hub ids; everything else is refused with the allowed forms."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnxmt import hub
from onnxmt.errors import ModelNotFoundError
from onnxmt.hub import ModelFile, ResolvedModel, model_files, resolve, weight_shapes, weights_among
from tests.checkpoint.writers import marian_folder, write

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "opus-mt"
    folder.mkdir()
    expected = ResolvedModel(folder=folder, name="opus-mt", revision=None, origin="folder")
    assert resolve(folder) == expected
    assert resolve(str(folder) + "/") == expected
    monkeypatch.chdir(tmp_path)
    assert resolve("opus-mt") == resolve("./opus-mt") == resolve(Path("opus-mt")) == expected
    monkeypatch.chdir(folder)
    assert resolve(".") == expected


def test_a_folder_comes_before_a_hub_id_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve("org/name") == ResolvedModel(
        folder=tmp_path / "org/name", name="name", revision=None, origin="folder"
    )


def test_a_folder_of_the_hubs_cache_says_what_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "models--Helsinki-NLP--opus-mt-en-zh" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    found = resolve(folder)
    assert (found.name, found.revision, found.origin) == ("Helsinki-NLP/opus-mt-en-zh", COMMIT, "folder")


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", b"")
    with pytest.raises(ModelNotFoundError, match=r"model\.safetensors is a file; name the folder that holds"):
        resolve(path)


def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "DEMO", tmp_path / "packaged")
    with pytest.raises(ModelNotFoundError, match="the demo model is not in this installation"):
        resolve("demo")
    (tmp_path / "packaged").mkdir()
    assert resolve("demo") == ResolvedModel(folder=tmp_path / "packaged", name="demo", revision=None, origin="demo")
    (tmp_path / "demo").mkdir()
    assert resolve("demo").origin == "folder", "an existing path comes first"


NOT_MODELS = [
    "", " ", "missing", "./missing", "/nowhere/at/all", "a/b/c", "org/", "/name", "org/name@", "org/name@a b", "org/na me",
    "org/name@../../x", "org/name@/x", "-org/name", "org/name.", "org/na--me", "org/na..me", "org/name.git", "opus:latest",
    "https://huggingface.co/org/name", "org/" + "x" * 100, "x" * 5000, "org/name\n", "a\0b", "图书/馆", "org/name@-x",
]  # fmt: skip


@pytest.mark.parametrize("name", NOT_MODELS, ids=range(len(NOT_MODELS)))
def test_anything_else_is_answered_with_the_allowed_forms(name: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(name)
    message = str(caught.value)
    assert (
        "names no model: there is no such file or folder; allowed are an existing folder, 'demo', and the ORG/NAME"
        in message
    )
    assert "@REVISION" in message
    assert "\n" not in message
    assert len(message) < 500
    assert "huggingface_hub" not in message
    assert isinstance(caught.value, FileNotFoundError)


def test_a_path_is_never_a_hub_id() -> None:
    with pytest.raises(ModelNotFoundError, match="'org/name' names no model"):
        resolve(Path("org/name"))


def test_without_huggingface_hub_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "from onnxmt.hub import resolve\n"
        "from onnxmt.errors import MissingExtraError\n"
        "try: resolve('org/name')\n"
        "except MissingExtraError as error: print(error, error.extra)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert run.stderr == ""
    assert run.stdout == (
        "the hub model 'org/name' needs the Python package 'huggingface_hub', which is not installed. "
        "Install it with: pip install 'onnxmt[export]' export\n"
    )


def test_sizes_and_shapes_of_a_local_folder(tmp_path: Path) -> None:
    resolved = resolve(marian_folder(tmp_path))
    (tmp_path / "onnx").mkdir()
    files = model_files(resolved)
    assert ModelFile(name="source.spm", size=2) in files
    assert [file.name for file in files] == [
        "config.json",
        "model.safetensors",
        "source.spm",
        "target.spm",
        "vocab.json",
    ]
    assert [file.name for file in weights_among(resolved, files)] == ["model.safetensors"]
    assert weight_shapes(resolved) == {"a": (2, 3)}
    assert weights_among(resolved, files[2:]) == ()
