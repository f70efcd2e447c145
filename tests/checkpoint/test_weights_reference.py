"""The weights room against torch itself: the same names, shapes and numbers from every format that torch can write."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from onnxmt.errors import CheckpointError, UnsafePickleError
from onnxmt.weights import Weights, open_weights
from tests.tiny import build_marian

FORMATS = ["safetensors", "sharded", "zip", "legacy"]


def as_arrays(weights: Weights) -> dict[str, np.ndarray]:
    return {name: weights.read(name) for name in sorted(weights.names())}


@pytest.mark.reference
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_four_formats_of_one_model_give_the_same_numbers(tmp_path: Path, dtype: str) -> None:
    from transformers import MarianMTModel

    folders = {kind: build_marian(tmp_path / kind, weights=kind, dtype=dtype, logits_bias=5.0) for kind in FORMATS}
    assert (folders["sharded"] / "model.safetensors.index.json").exists()
    assert not (folders["legacy"] / "pytorch_model.bin").read_bytes().startswith(b"PK")
    opened = {kind: open_weights(folder) for kind, folder in folders.items()}
    arrays = {kind: as_arrays(weights) for kind, weights in opened.items()}
    # A .bin holds the tied and the non-persistent weights too: compare what every file has.
    shared = arrays["safetensors"].keys()
    assert len(shared) > 60
    for kind in FORMATS:
        assert shared <= arrays[kind].keys()
        for name in shared:
            assert arrays[kind][name].dtype == np.float32
            assert arrays[kind][name].flags.c_contiguous
            assert arrays[kind][name].tobytes() == arrays["safetensors"][name].tobytes(), (kind, name)
            assert opened[kind].dtype(name) == dtype
            assert opened[kind].shape(name) == arrays["safetensors"][name].shape
    judge = MarianMTModel.from_pretrained(folders["legacy"], dtype="float32").state_dict()
    assert judge.keys() == arrays["legacy"].keys() == arrays["zip"].keys()
    for name, value in judge.items():
        assert np.array_equal(value.numpy(), arrays["legacy"][name]), name
    for kind in ("zip", "legacy"):
        assert opened[kind].same_storage("model.shared.weight", "lm_head.weight")
        assert not opened[kind].same_storage("model.shared.weight", "final_logits_bias")


def odd_tensors():
    """Tensors as no model has them, but as state_dicts may: views, steps, scalars, nothing at all."""
    import torch

    torch.manual_seed(3)
    large = torch.randn(40, 30)
    table = torch.randn(9, 4)
    return {
        "transposed": torch.randn(5, 7).t(),
        "middle": large[10:13, 4:9],
        "steps": large[::3, 1::2],
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 4),
        "one": torch.randn(1, 1, 6),
        "tied": table,
        "tied again": table,
        "row of tied": table[3],
        "half": torch.randn(3, 5).half().t(),
        "brain": torch.randn(3, 5).bfloat16().t(),
        "brain scalar": torch.tensor(-1.5, dtype=torch.bfloat16),
        "double": torch.randn(4, 2, dtype=torch.float64)[:, 1],
        "repeated": torch.randn(1, 3).expand(4, 3),
        "special": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45, 65504.0]),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
    }


@pytest.mark.reference
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_views_strides_offsets_and_scalars(tmp_path: Path, *, new: bool, protocol: int) -> None:
    import torch

    tensors = odd_tensors()
    path = tmp_path / "pytorch_model.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=new, pickle_protocol=protocol)
    with open_weights(tmp_path) as weights:
        assert weights.names() == tensors.keys()
        for name, value in tensors.items():
            expected = value.detach().float().contiguous().numpy()
            assert weights.shape(name) == tuple(value.shape), name
            assert weights.read(name).tobytes() == expected.tobytes(), name
            pieces = [piece.copy() for piece in weights.chunks(name, limit=5)]
            assert all(piece.size <= 5 for piece in pieces)
            assert np.concatenate(pieces).tobytes() == expected.tobytes(), name
        assert weights.same_storage("tied", "tied again")
        assert not weights.same_storage("tied", "row of tied")
        # Stored as it is read, and aligned, which torch sees to in a zip alone: no copy. Everything else is one.
        assert weights.read("tied").flags.owndata is not new
        assert weights.read("tied").flags.aligned
        assert weights.read("transposed").flags.owndata


@pytest.mark.reference
def test_a_state_dict_of_a_module_with_version_metadata(tmp_path: Path) -> None:
    import torch

    state = torch.nn.Linear(3, 2).state_dict()
    assert state._metadata
    for new in (True, False):
        torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=new)
        with open_weights(tmp_path) as weights:
            assert np.array_equal(weights.read("weight"), state["weight"].numpy())


@pytest.mark.reference
def test_integers_are_listed_and_refused_only_when_read(tmp_path: Path) -> None:
    import torch

    kinds = ["int64", "int32", "int16", "int8", "uint8", "bool"]
    torch.save({kind: torch.ones(3).to(getattr(torch, kind)) for kind in kinds}, tmp_path / "pytorch_model.bin")
    with open_weights(tmp_path) as weights:
        for kind in kinds:
            assert weights.dtype(kind) == kind
            with pytest.raises(CheckpointError, match=f"'{kind}' holds {kind}; allowed are float32, float16, bfloat16"):
                weights.read(kind)


@pytest.mark.reference
def test_sharded_bin(tmp_path: Path) -> None:
    import torch

    parts = {
        "pytorch_model-00001-of-00002.bin": {"a": torch.ones(2)},
        "pytorch_model-00002-of-00002.bin": {"b": torch.zeros(3)},
    }
    for file, state in parts.items():
        torch.save(state, tmp_path / file)
    index = {"weight_map": {name: file for file, state in parts.items() for name in state}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with open_weights(tmp_path) as weights:
        assert weights.names() == {"a", "b"}
        assert weights.read("b").tolist() == [0, 0, 0]
        assert weights.source.endswith(
            "(2 files, pytorch_model-00001-of-00002.bin to pytorch_model-00002-of-00002.bin)"
        )


@pytest.mark.reference
@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_what_is_not_a_state_dict_is_refused(tmp_path: Path, *, new: bool) -> None:
    import torch

    path = tmp_path / "pytorch_model.bin"
    cases = {
        "a tensor, where a dictionary": torch.ones(2),
        "entry 'epoch' is a int": {"model": torch.ones(2), "epoch": 3},
        "entry 'state_dict' is a dict": {"state_dict": {"a": torch.ones(1)}},
        "holds no tensors at all": {},
    }
    for message, value in cases.items():
        torch.save(value, path, _use_new_zipfile_serialization=new)
        with pytest.raises(CheckpointError, match=message):
            open_weights(tmp_path)
    torch.save(torch.nn.Linear(1, 1), path, _use_new_zipfile_serialization=new)
    with pytest.raises(UnsafePickleError, match=r"names 'torch\.nn\.modules\.linear\.Linear'"):
        open_weights(tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("kind", FORMATS)
def test_opening_copies_nothing_and_reading_float32_neither(tmp_path: Path, kind: str) -> None:
    import torch
    from safetensors.torch import save_file

    state = {f"w{i}": torch.zeros(1024, 1024) for i in range(8)}
    if kind in ("zip", "legacy"):
        torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=kind == "zip")
    elif kind == "safetensors":
        save_file(state, tmp_path / "model.safetensors")
    else:
        for name, value in state.items():
            save_file({name: value}, tmp_path / f"{name}.safetensors")
        index = {"weight_map": {name: f"{name}.safetensors" for name in state}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    tracemalloc.start()
    try:
        with open_weights(tmp_path) as weights:
            assert tracemalloc.get_traced_memory()[1] < 2**20
            held = [weights.read(name) for name in weights.names() if kind != "legacy"]
            assert all(array.nbytes == 4 * 2**20 for array in held)
            assert sum(float(piece.sum()) for name in state for piece in weights.chunks(name, limit=2**16)) == 0
            assert tracemalloc.get_traced_memory()[1] < 2 * 2**20
    finally:
        tracemalloc.stop()
