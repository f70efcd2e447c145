from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from onnxmt.bundle import read_bundle
from onnxmt.errors import (
    BundleError,
    BundleFileAlteredError,
    BundleFileMissingError,
    BundleFormatError,
    ModelNotFoundError,
)
from tests.bundle.conftest import GOLDEN

FILES = [entry["path"] for entry in json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8"))["files"]]


@pytest.mark.parametrize("name", FILES)
def test_each_missing_file_is_named(golden: Path, name: str) -> None:
    """Case T1."""
    (golden / name).unlink()

    with pytest.raises(BundleFileMissingError) as caught:
        read_bundle(golden)

    assert str(caught.value) == (
        f"the bundle {golden} lacks a file that its manifest lists: {name}. Copy the whole folder again"
    )


def test_all_missing_files_are_named_at_once(golden: Path) -> None:
    for name in ("source.spm", "vocab.json"):
        (golden / name).unlink()

    with pytest.raises(
        BundleFileMissingError, match=r"lacks 2 files that its manifest lists: source\.spm, vocab\.json"
    ):
        read_bundle(golden)


@pytest.mark.parametrize("name", FILES)
def test_each_altered_file_is_named_with_both_hashes(golden: Path, name: str) -> None:
    content = bytearray((golden / name).read_bytes())
    expected = hashlib.sha256(content).hexdigest()
    content[len(content) // 2] ^= 1
    (golden / name).write_bytes(content)

    with pytest.raises(BundleFileAlteredError) as caught:
        read_bundle(golden)

    found = hashlib.sha256(content).hexdigest()
    assert f"{name} has SHA-256 {found}, the manifest says {expected}" in str(caught.value)
    assert read_bundle(golden, check="size").manifest.name == "tiny-en-zh"  # the quick check cannot see it


@pytest.mark.parametrize("check", ["hash", "size"])
def test_a_truncated_file_is_named_with_both_sizes(golden: Path, check: Any) -> None:
    (golden / "weights.bin").write_bytes(b"short")
    (golden / "vocab.json").write_bytes(b"{}")

    with pytest.raises(BundleFileAlteredError) as caught:
        read_bundle(golden, check=check)

    assert "vocab.json has 2 bytes, the manifest says 1717" in str(caught.value)
    assert "weights.bin has 5 bytes, the manifest says 110592" in str(caught.value)


def test_other_files_in_the_folder_are_ignored(golden: Path) -> None:
    """Case Q6: a second decoder lies there, and nobody reads it."""
    shutil.copyfile(golden / "encoder.onnx", golden / "decoder_int8.onnx")

    bundle = read_bundle(golden)

    assert bundle.path("decoder.onnx") == golden / "decoder.onnx"
    with pytest.raises(BundleFileMissingError, match=r"does not list decoder_int8\.onnx"):
        bundle.path("decoder_int8.onnx")


def test_there_is_no_fallback_to_another_file(golden: Path) -> None:
    """Case Q6."""
    (golden / "decoder.onnx").rename(golden / "decoder_fp32.onnx")

    with pytest.raises(BundleFileMissingError, match=r"decoder\.onnx"):
        read_bundle(golden)


def test_a_folder_in_place_of_a_file_is_missing(golden: Path) -> None:
    (golden / "vocab.json").unlink()
    (golden / "vocab.json").mkdir()

    with pytest.raises(BundleFileMissingError, match=r"vocab\.json"):
        read_bundle(golden)


def test_a_bundle_works_where_it_was_moved(golden: Path, tmp_path: Path) -> None:
    moved = golden.rename(tmp_path / "动 elsewhere")

    assert read_bundle(moved).folder == moved


@pytest.mark.parametrize("folder", ["nowhere", "x" * 5000, "a\0b"])
def test_no_such_folder(folder: str) -> None:
    with pytest.raises(ModelNotFoundError, match="there is no bundle at"):
        read_bundle(folder)


def test_a_file_is_not_a_bundle(golden: Path) -> None:
    with pytest.raises(BundleFormatError, match=r"is a file; a bundle is a folder that holds manifest\.json"):
        read_bundle(golden / "manifest.json")


def test_a_checkpoint_is_told_to_be_migrated(golden: Path) -> None:
    (golden / "manifest.json").unlink()

    with pytest.raises(BundleFormatError, match=f"is not a bundle: it has no manifest.json.*onnxmt migrate {golden}"):
        read_bundle(golden)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe{}",
        b"[" * 200_000,
        b"{}",
        b"[]",
        b"null",
        b'{"format_version": 1}',
        b'{"format_version": NaN}',
    ],
)
def test_a_broken_manifest_is_one_line(golden: Path, text: bytes) -> None:
    (golden / "manifest.json").write_bytes(text)

    with pytest.raises(BundleFormatError) as caught:
        read_bundle(golden)

    assert "manifest.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_manifest_cannot_reach_outside(golden: Path) -> None:
    plain = json.loads((golden / "manifest.json").read_text(encoding="utf-8"))
    (golden.parent / "secret").write_text("secret")
    plain["files"].append({"path": "../secret", "bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()})
    (golden / "manifest.json").write_text(json.dumps(plain))

    with pytest.raises(BundleFormatError, match=r"the path '\.\./secret' is not a plain path inside the bundle"):
        read_bundle(golden)


def test_all_bundle_errors_are_one_family() -> None:
    for kind in (BundleFileAlteredError, BundleFileMissingError, BundleFormatError):
        assert issubclass(kind, BundleError)
