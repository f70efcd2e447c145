"""safetensors files, whole and damaged: right numbers, or one CheckpointError that names the file and the fault."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxmt.errors import CheckpointError, MissingFileError
from onnxmt.weights import open_weights
from tests.checkpoint.writers import read_or_refuse, safetensors, with_header, write

GOOD = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b.bias": np.array([1.5, -2.0], np.float16),
    "count": np.array(7, np.int64),
    "d": np.array([[1e300, -0.5]], np.float64),
    "empty": np.zeros((0, 5), np.float32),
}


def entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


def test_reads_names_shapes_types_and_numbers(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", safetensors(GOOD, metadata={"format": "pt"}))
    with open_weights(tmp_path) as weights:
        assert weights.names() == GOOD.keys()
        assert len(weights) == 5
        assert "a" in weights
        assert "z" not in weights
        assert weights.source == str(tmp_path / "model.safetensors")
        assert [weights.shape(name) for name in GOOD] == [(2, 3), (2,), (), (1, 2), (0, 5)]
        assert [weights.dtype(name) for name in GOOD] == ["float32", "float16", "int64", "float64", "float32"]
        assert weights.read("a").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert weights.read("b.bias").tolist() == [1.5, -2.0]
        assert weights.read("b.bias").dtype == np.float32
        assert weights.read("d").tolist() == [[float("inf"), -0.5]]
        assert weights.read("empty").shape == (0, 5)


def test_bfloat16_is_the_upper_half_of_a_float32(tmp_path: Path) -> None:
    bits = np.array([0x3FC0, 0xBF80, 0x7F80, 0x0001, 0x4049], np.uint16)
    header = {"w": {"dtype": "BF16", "shape": [5], "data_offsets": [0, 10]}}
    write(tmp_path / "model.safetensors", with_header(header, bits.tobytes()))
    with open_weights(tmp_path) as weights:
        assert weights.dtype("w") == "bfloat16"
        assert weights.read("w").tolist() == [1.5, -1.0, float("inf"), 2.0**-133, 3.140625]


def test_an_unaligned_file_reads_the_same(tmp_path: Path) -> None:
    """Writers before 2023 did not pad the header: then the numbers lie at odd addresses."""
    for padding in range(4):
        header = json.dumps({"w": entry()}).encode() + b" " * padding
        write(tmp_path / "model.safetensors", with_header(header, np.array([1.5, 2.5], np.float32).tobytes()))
        with open_weights(tmp_path) as weights:
            assert weights.read("w").tolist() == [1.5, 2.5]
            assert weights.read("w").flags.aligned


def test_arrays_outlive_close_and_reading_does_not(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", safetensors(GOOD))
    weights = open_weights(tmp_path)
    kept = weights.read("a")
    weights.close()
    weights.close()
    assert kept.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(CheckpointError, match=r"model\.safetensors has been closed"):
        weights.read("a")


def test_the_mapping_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", safetensors({"a": np.zeros(64, np.float32)}))
    with open_weights(tmp_path) as weights, pytest.raises(ValueError, match="read-only"):
        weights.read("a")[0] = 1


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", safetensors({"model.shared.weight": GOOD["a"]}))
    with open_weights(tmp_path) as weights:
        with pytest.raises(
            CheckpointError, match=r"has no weight 'shared\.weight'; nearest is 'model\.shared\.weight'"
        ):
            weights.read("shared.weight")
        with pytest.raises(CheckpointError, match=r"has no weight 'zzz'$"):
            weights.shape("zzz")


DAMAGED = {
    "empty file": (b"", r"is empty \(0 bytes\)"),
    "seven bytes": (b"1234567", r"cut short: it has 7 bytes, and a header needs at least 8"),
    "git lfs pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "is a Git LFS pointer.*git lfs pull",
    ),
    "web page": (b"<!DOCTYPE html><html>404</html>", "it is a web page, probably of a failed download"),
    "other file": (b"GGUF" + bytes(40), r"is not a safetensors file: it starts with b'GGUF"),
    "only a length": (struct.pack("<Q", 2), "is not a safetensors file"),
    "header beyond the file": (struct.pack("<Q", 99) + b"{}", "its header claims 99 bytes and only 2 follow"),
    "huge header": (struct.pack("<Q", 2**62) + b"{}", "its header claims 4611686018427387904 bytes, and 100000000 are"),
    "no JSON": (with_header(b"{oops}", b""), "its header is not valid JSON"),
    "no UTF-8": (with_header(b'{"\xff": 1}', b""), "its header is not valid JSON"),
    "nested": (with_header(b"{" + b'"a":{' * 100_000, b""), "its header is not valid JSON"),
    "endless number": (with_header(b'{"a": ' + b"9" * 5000 + b"}", b""), "its header is not valid JSON"),
    "same name twice": (
        with_header(b'{"w": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}, "w": 3}', bytes(4)),
        "the key 'w' stands in it twice",
    ),
    "entry is a list": (with_header({"w": []}, b""), "the entry 'w' is not a JSON object"),
    "no dtype": (with_header({"w": {"shape": [1]}}, bytes(4)), "'w' has the dtype <NoneType>; known are F32"),
    "odd dtype": (with_header({"w": entry(dtype="F8_E4M3")}, bytes(8)), "'w' has the dtype 'F8_E4M3'; known are F32"),
    "dtype is a list": (with_header({"w": entry(dtype=["F32"])}, bytes(8)), "'w' has the dtype <list>"),
    "no shape": (with_header({"w": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)), "no usable shape"),
    "shape of text": (with_header({"w": entry(shape=["2"])}, bytes(8)), "an impossible shape"),
    "shape of truth": (with_header({"w": entry(shape=[True, 2])}, bytes(8)), "an impossible shape"),
    "negative size": (with_header({"w": entry(shape=[-2])}, bytes(8)), "an impossible shape"),
    "endless size": (with_header({"w": entry(shape=[2**63])}, bytes(8)), "an impossible shape"),
    "endless product": (with_header({"w": entry(shape=[2**40, 2**40])}, bytes(8)), "the impossible shape"),
    "too many axes": (with_header({"w": entry(shape=[1] * 40)}, bytes(8)), "no usable shape"),
    "wrong size": (
        with_header({"w": entry(shape=[3])}, bytes(8)),
        r"has 8 bytes, and float32 of shape \(3,\) takes 12",
    ),
    "offsets reversed": (with_header({"w": entry(data_offsets=[8, 0])}, bytes(8)), r"data_offsets \[8, 0\]"),
    "one offset": (with_header({"w": entry(data_offsets=[8])}, bytes(8)), r"data_offsets \[8\]"),
    "offsets beyond the file": (
        with_header({"w": entry()}, bytes(7)),
        "ends at byte 77 and the file has 76: it is cut short",
    ),
    "overlap": (
        with_header({"v": entry(), "w": entry(data_offsets=[4, 12])}, bytes(12)),
        "the tensor 'w' overlaps 'v'",
    ),
    "same place twice": (with_header({"v": entry(), "w": entry()}, bytes(8)), "the tensor 'w' overlaps 'v'"),
    "hole": (
        with_header({"v": entry(), "w": entry(data_offsets=[12, 20])}, bytes(20)),
        "the tensor 'w' leaves 4 unused bytes after 'v'",
    ),
    "hole at the beginning": (
        with_header({"w": entry(data_offsets=[4, 12])}, bytes(12)),
        "4 unused bytes after the header",
    ),
    "trailing bytes": (with_header({"w": entry()}, bytes(9)), "after its last tensor the file goes on for 1 byte"),
    "no tensors": (with_header({"__metadata__": {"format": "pt"}}, b""), "holds no tensors at all"),
}


@pytest.mark.parametrize(("data", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_one_error_that_names_the_file(tmp_path: Path, data: bytes, message: str) -> None:
    path = write(tmp_path / "model.safetensors", data)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_weights(tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_no_regular_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(CheckpointError, match="is not a regular file"):
        open_weights(tmp_path)
    (tmp_path / "model.safetensors").rmdir()
    os.mkfifo(tmp_path / "model.safetensors")  # opening it would wait for a writer for ever
    with pytest.raises(CheckpointError, match="is not a regular file"):
        open_weights(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        open_weights(tmp_path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = safetensors(GOOD)
    for length in range(len(whole)):
        path = write(tmp_path / "model.safetensors", whole[:length])
        with pytest.raises(CheckpointError, match=str(path)):
            open_weights(tmp_path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_damaged_byte_is_refused_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    whole = bytearray(safetensors(GOOD))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    write(tmp_path / "model.safetensors", bytes(whole))
    read_or_refuse(tmp_path)


# Sharded weights.


def shards(folder: Path, weight_map: object = None) -> Path:
    write(folder / "model-00001-of-00002.safetensors", safetensors({"a": GOOD["a"]}))
    write(folder / "model-00002-of-00002.safetensors", safetensors({"b": GOOD["b.bias"]}))
    plan = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = {"metadata": {"total_size": 28}, "weight_map": plan if weight_map is None else weight_map}
    return write(folder / "model.safetensors.index.json", json.dumps(index).encode())


def test_shards_are_read_together(tmp_path: Path) -> None:
    shards(tmp_path)
    with open_weights(tmp_path) as weights:
        assert weights.names() == {"a", "b"}
        assert weights.read("b").tolist() == [1.5, -2.0]


def test_every_missing_shard_is_named(tmp_path: Path) -> None:
    shards(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(MissingFileError, match=r"lacks model-00002-of-00002\.safetensors, which .* \(1 of 2 shards\)"):
        open_weights(tmp_path)


INDEX_FAULTS = {
    "absent": (
        {"a": "model-00001-of-00002.safetensors", "z": "model-00002-of-00002.safetensors"},
        "'z' is not in model-00002",
    ),
    "elsewhere": (
        {"a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"},
        "'a' is in model-00001-of-00002.safetensors, not in model-00002.*'b' is in",
    ),
    "outside": ({"a": "../model-00001-of-00002.safetensors"}, "not a plain file name"),
    "absolute": ({"a": "/etc/passwd"}, "not a plain file name"),
    "number": ({"a": 1}, "not a plain file name"),
    "no map": ([], "has no weight_map"),
    "empty map": ({}, "has no weight_map"),
}


@pytest.mark.parametrize(("weight_map", "message"), INDEX_FAULTS.values(), ids=INDEX_FAULTS.keys())
def test_an_index_must_describe_its_shards(tmp_path: Path, weight_map: object, message: str) -> None:
    shards(tmp_path, weight_map)
    with pytest.raises(CheckpointError, match=message):
        open_weights(tmp_path)


def test_a_weight_in_two_shards_is_refused(tmp_path: Path) -> None:
    shards(tmp_path)
    write(tmp_path / "model-00002-of-00002.safetensors", safetensors({"a": GOOD["a"], "b": GOOD["b.bias"]}))
    with pytest.raises(CheckpointError, match=r"'a' is both in model-00001-of-00002.safetensors and in model-00002"):
        open_weights(tmp_path)


def test_a_broken_index_names_line_and_column(tmp_path: Path) -> None:
    shards(tmp_path).write_text('{"weight_map": {\n  "a": oops}}')
    with pytest.raises(CheckpointError, match=r"index\.json is not valid JSON: Expecting value at line 2, column 8"):
        open_weights(tmp_path)


# Which file is taken.


def test_formats_are_preferred_as_transformers_prefers_them(tmp_path: Path) -> None:
    shards(tmp_path)
    write(tmp_path / "pytorch_model.bin", b"not even read")
    with open_weights(tmp_path) as weights:
        assert weights.names() == {"a", "b"}
    write(tmp_path / "model.safetensors", safetensors({"single": GOOD["a"]}))
    with open_weights(tmp_path) as weights:
        assert weights.names() == {"single"}


def test_no_weights_says_what_is_there_instead(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"has no weights; expected model\.safetensors, pytorch_model\.bin"):
        open_weights(tmp_path)
    write(tmp_path / "manifest.json", b"{}")
    with pytest.raises(MissingFileError, match="looks like an onnxmt bundle, which is migrated already"):
        open_weights(tmp_path)
    write(tmp_path / "tf_model.h5", b"")
    with pytest.raises(MissingFileError, match=r"only tf_model\.h5: load it with transformers"):
        open_weights(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be listed: No such file"):
        open_weights(tmp_path / "nowhere")
