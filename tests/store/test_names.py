from __future__ import annotations

from pathlib import Path

import pytest

from onnxmt.bundle import read_bundle
from onnxmt.errors import BundleError, ModelNotFoundError, StoreError, UsageError
from onnxmt.hub import resolve
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
from onnxmt.store.adding import AddOptions, add
from onnxmt.store.cleaning import collect, remove
from onnxmt.store.names import parse_name, required_name, store_root, usable_part
from onnxmt.store.promoting import promote
from onnxmt.store.resolving import find, opened, stored_version
from onnxmt.store.shelf import Shelf
from tests.store.bundles import make_bundle


@pytest.mark.parametrize("text", ["en-zh:3", "a:production", "opus-mt_en.zh:2026-01", "demo:1"])
def test_names(text: str) -> None:
    found = parse_name(text)
    assert str(found) == text


@pytest.mark.parametrize(
    "text", ["", "demo", "a/b", "a/b:c", "./a:b", "a:", ":b", "a:b:c", "a b:c", ".a:b", "C:\\models", "a:-b", "a:" + "b" * 65, "模型:1"]
)  # fmt: skip
def test_what_is_no_name(text: str) -> None:
    assert parse_name(text) is None
    with pytest.raises(UsageError, match="NAME:VERSION or NAME:ALIAS"):
        required_name(text)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Helsinki-NLP/opus-mt-en-zh", "opus-mt-en-zh"),
        ("demo", "demo"),
        ("我的", "model"),
        ("a b", "a-b"),
        ("..", "model"),
    ],
)
def test_a_model_gets_a_name_that_can_be_used(model: str, name: str) -> None:
    assert usable_part(model) == name


def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ONNXMT_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert store_root() == tmp_path / "onnxmt" / "store"
    monkeypatch.setenv("ONNXMT_STORE", str(tmp_path / "mine"))
    assert store_root() == tmp_path / "mine"


def test_a_path_wins(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bundle(tmp_path / "bundle", marker="stored")
    add(tmp_path / "bundle", options=AddOptions(name="m"))
    monkeypatch.chdir(tmp_path)
    assert read_bundle("m:1").path("marker.txt").read_text() == "stored"
    make_bundle(tmp_path / "m:1", marker="a path")
    assert find("m:1") is None
    assert read_bundle("m:1").path("marker.txt").read_text() == "a path"


def test_what_is_not_there_is_said_with_what_is(shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"has no model 'm'; it has: none\. Add one with"):
        find("m:1")
    make_bundle(tmp_path / "bundle")
    for _ in range(2):
        add(tmp_path / "bundle", options=AddOptions(name="m", run=False))
    promote(shelf, "1")
    remove(shelf, "2")
    with pytest.raises(
        ModelNotFoundError, match=r"^m:2 .* \(it was removed\); versions of m: 1; aliases: production = 1$"
    ):
        find("m:2")
    with pytest.raises(ModelNotFoundError, match=r"no model 'other'; it has: m\."):
        find("other:1")
    with pytest.raises(ModelNotFoundError, match=r"a bundle in the store .*, and a checkpoint is read here"):
        resolve("m:1")


def test_a_translator_is_loaded_by_name_and_knows_its_version(shelf: Shelf, tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    added = add(tmp_path / "bundle", options=AddOptions(name="m", version="first"))
    promote(shelf, "first")
    with Translator.load("m:production", options=RuntimeOptions(threads=1)) as translator:
        assert translator.translate("Yes.") == "是的。"
        assert translator.bundle.manifest.version == "first"
        assert translator.bundle.folder == added.folder
    assert stored_version(added.folder) == parse_name("m:first")
    assert stored_version(tmp_path / "bundle") is None


def test_a_version_that_goes_away_while_it_is_opened_is_looked_up_again(shelf: Shelf, tmp_path: Path) -> None:
    for marker in ("a", "b"):
        make_bundle(tmp_path / marker, marker=marker)
        add(tmp_path / marker, options=AddOptions(name="m", version=marker, run=False))
    promote(shelf, "a")
    seen = []

    def use(folder: Path) -> str:
        seen.append(folder.name)
        if folder.name == "a":  # found, and not opened yet
            promote(shelf, "b")
            remove(shelf, "a")
            assert collect(shelf, grace=0).versions == ("a",)
        return read_bundle(folder).path("marker.txt").read_text()

    assert opened("m:production", use) == "b"
    assert seen == ["a", "b"]


def test_a_pinned_version_that_goes_away_is_missed_by_name(shelf: Shelf, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a")
    add(tmp_path / "a", options=AddOptions(name="m", run=False))

    def use(folder: Path) -> None:
        remove(shelf, "1")
        collect(shelf, grace=0)
        read_bundle(folder)

    with pytest.raises(ModelNotFoundError, match="it was removed"):
        opened("m:1", use)


def test_within_the_grace_a_removed_version_can_still_be_opened(shelf: Shelf, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a", marker="a")
    added = add(tmp_path / "a", options=AddOptions(name="m", run=False))
    remove(shelf, "1")
    assert collect(shelf).versions == ()
    assert read_bundle(added.folder).path("marker.txt").read_text() == "a"


def test_a_fault_of_the_bundle_itself_is_raised_at_once(shelf: Shelf, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a")
    added = add(tmp_path / "a", options=AddOptions(name="m", run=False))
    file = added.folder / "marker.txt"
    file.chmod(0o644)
    file.write_text("x")
    with pytest.raises(BundleError, match=r"was altered: marker\.txt"):
        Translator.load("m:1")


def test_a_folder_that_somebody_deleted_by_hand(shelf: Shelf, tmp_path: Path) -> None:
    import shutil

    make_bundle(tmp_path / "a")
    shutil.rmtree(add(tmp_path / "a", options=AddOptions(name="m", run=False)).folder)
    with pytest.raises(StoreError, match="the store says version 1, and there is no folder"):
        read_bundle("m:1")
