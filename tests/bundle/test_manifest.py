from __future__ import annotations

import json
import re
from typing import Any

import pytest

from onnxmt.errors import BundleFormatError
from onnxmt.manifest import FileEntry, Manifest, Verification, VerificationRow, check_relative


def test_golden_manifest_goes_through_unchanged(plain: dict[str, Any]) -> None:
    manifest = Manifest.from_dict(plain)

    assert json.loads(manifest.to_text()) == plain
    assert next(iter(plain)) == "format_version"
    assert manifest.dimensions.decoder_layers == 1
    assert manifest.graphs.decoder.inputs[0].name == "input_ids"
    assert manifest.required_files == (
        "encoder.onnx", "decoder.onnx", "weights.bin", "config.json", "generation_config.json",
    )  # fmt: skip


def test_no_path_of_the_machine_is_in_the_manifest(plain: dict[str, Any]) -> None:
    assert not re.search(r'"(/|[A-Za-z]:\\)', json.dumps(plain))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "is of format 2; this onnxmt reads formats 1 to 1: install onnxmt 9.1 or newer"),
        ({"format_version": 0}, "format_version is 0; a whole number from 1 to 1 was expected"),
        ({"format_version": "1"}, "format_version is '1'; a whole number"),
        ({"format_version": True}, "format_version is True; a whole number"),
        ({"surprise": 1}, "the key surprise is unknown"),
        ({"languages": {"source": "en", "target": []}}, "languages.source is 'en'; a list was expected"),
        ({"created": None}, "created is None; a string was expected"),
        ({"files": []}, "its list of files lacks encoder.onnx, decoder.onnx, weights.bin, config.json, generation_config.json"),
    ],
)  # fmt: skip
def test_wrong_manifests_are_refused(plain: dict[str, Any], change: dict[str, Any], message: str) -> None:
    plain["tools"]["onnxmt"] = "9.1"

    with pytest.raises(BundleFormatError) as caught:
        Manifest.from_dict({**plain, **change})

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_newer_format_without_a_writer_still_says_what_to_do() -> None:
    with pytest.raises(BundleFormatError, match="install a newer onnxmt"):
        Manifest.from_dict({"format_version": 3})


@pytest.mark.parametrize("key", ["name", "graphs", "tokenizer", "quality", "files", "licence"])
def test_every_key_is_needed(plain: dict[str, Any], key: str) -> None:
    del plain[key]

    with pytest.raises(BundleFormatError, match=f"the key {key} is missing"):
        Manifest.from_dict(plain)


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_a_manifest_is_an_object(value: object) -> None:
    with pytest.raises(BundleFormatError, match="a JSON object was expected"):
        Manifest.from_dict(value)


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "a/../../b",
        "/etc/passwd",
        "",
        ".",
        "a//b",
        "./a",
        "a/",
        "C:\\x",
        "a\\b",
        "C:x",
        "a\0b",
        "..",
        "a/..",
    ],
)
def test_paths_outside_the_bundle_are_refused(plain: dict[str, Any], path: str) -> None:
    plain["files"].append({"path": path, "bytes": 1, "sha256": "0" * 64})

    with pytest.raises(BundleFormatError, match=r"files\[\d+\]: the path"):
        Manifest.from_dict(plain)


@pytest.mark.parametrize("path", ["a", "a.b", "sub/a", "模型.onnx", "..a", "a b"])
def test_paths_inside_the_bundle_are_taken(path: str) -> None:
    check_relative(path)


def test_a_graph_can_only_name_a_listed_file(plain: dict[str, Any]) -> None:
    plain["graphs"]["decoder"]["file"] = "../other.onnx"

    with pytest.raises(BundleFormatError, match=r"list of files lacks \.\./other\.onnx"):
        Manifest.from_dict(plain)


@pytest.mark.parametrize(
    "entry",
    [
        {"path": "manifest.json", "bytes": 1, "sha256": "0" * 64},
        {"path": "a", "bytes": -1, "sha256": "0" * 64},
        {"path": "a", "bytes": 1, "sha256": "0" * 63},
        {"path": "a", "bytes": 1, "sha256": "A" * 64},
    ],
)
def test_file_entries_are_checked(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"manifest cannot list itself|is not valid"):
        FileEntry(**entry)


def test_a_file_is_listed_once(plain: dict[str, Any]) -> None:
    plain["files"].append(plain["files"][0])

    with pytest.raises(BundleFormatError, match=r"files lists \S+ more than once"):
        Manifest.from_dict(plain)


def row(*, passed: bool) -> VerificationRow:
    return VerificationRow(
        layer="logits",
        compared=4,
        different=0 if passed else 1,
        max_abs_error=1e-6,
        cosine=1.0,
        limit=1e-3,
        passed=passed,
    )


@pytest.mark.parametrize(
    ("status", "rows", "passed"),
    [
        ("live", (row(passed=True),), True),
        ("recording", (row(passed=True), row(passed=False)), False),
        ("unverified", (), False),
    ],
)
def test_only_a_verified_bundle_passed(status: Any, rows: tuple[VerificationRow, ...], passed: bool) -> None:
    assert Verification(status=status, judge={}, rows=rows).passed is passed
