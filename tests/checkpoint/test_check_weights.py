"""All faults of a checkpoint's weights in one error, found in bounded memory; and which weights are one."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxmt.checkpoint import TiedGroup, WeightSpec, check_weights, tied_group
from onnxmt.errors import WeightsError
from onnxmt.weights import Weights, open_weights
from tests.checkpoint.writers import mapping, safetensors, storage, tensor, torch_legacy, torch_zip, with_header, write

NAN, INF = float("nan"), float("inf")


def weights_of(folder: Path, **tensors: np.ndarray) -> Weights:
    write(
        folder / "model.safetensors", safetensors({name.replace("__", "."): value for name, value in tensors.items()})
    )
    return open_weights(folder)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def specs(**shapes: tuple[int, ...]) -> list[WeightSpec]:
    return [WeightSpec(name=name.replace("__", "."), shape=shape) for name, shape in shapes.items()]


def problems(weights: Weights, required: list[WeightSpec], **options: list[str]) -> list[str]:
    with pytest.raises(WeightsError) as caught:
        check_weights(weights, required, **options)
    assert "\n" not in str(caught.value)
    return list(caught.value.problems)


def test_what_is_right_passes(tmp_path: Path) -> None:
    with weights_of(tmp_path, a=ones(2, 3), b=ones(3).astype(np.float16), c=np.array(1.0)) as weights:
        check_weights(weights, specs(a=(2, 3), b=(3,), c=()))


def test_all_faults_are_listed_at_once(tmp_path: Path) -> None:
    bad = ones(4, 5)
    bad[1, 2], bad[3, 0] = NAN, -INF
    weights = weights_of(
        tmp_path,
        model__encoder__fc1__weight=ones(4, 4), shape=ones(2, 3), bad=bad, scalar=np.array(INF, np.float32),
        wide=np.array([1.0, 1e300]), whole=np.ones(3, np.int64), extra=ones(1), both=np.array([NAN], np.float32),
    )  # fmt: skip
    found = problems(
        weights,
        specs(
            encoder__fc1__weight=(4, 4), zzz=(1,), shape=(3, 2), bad=(4, 5), scalar=(), wide=(2,), whole=(3,), both=(2,)
        ),
    )
    assert found == [
        "'encoder.fc1.weight' is missing (nearest is 'model.encoder.fc1.weight')",
        "'zzz' is missing",
        "'extra' is not a weight of this model",
        "'model.encoder.fc1.weight' is not a weight of this model",
        "'shape' has the shape (2, 3), expected (3, 2)",
        "'bad' has 2 of 20 values that are not finite in float32, the first, nan, at (1, 2)",
        "'scalar' has 1 of 1 values that are not finite in float32, it is inf",
        "'wide' has 1 of 2 values that are not finite in float32, the first, inf, at (1,)",
        "'whole' holds int64, allowed are float32, float16, bfloat16, float64",
        "'both' has the shape (1,), expected (2,)",
        "'both' has 1 of 1 values that are not finite in float32, the first, nan, at (0,)",
    ]


def test_the_message_names_the_file_and_counts(tmp_path: Path) -> None:
    weights = weights_of(tmp_path, a=ones(1))
    with pytest.raises(WeightsError) as caught:
        check_weights(weights, specs(**{f"w{i}": (1,) for i in range(12)}, a=(1,)))
    assert str(tmp_path / "model.safetensors") in str(caught.value)
    assert "have 12 problems" in str(caught.value)
    assert str(caught.value).endswith("'w7' is missing; and 4 more")
    assert len(caught.value.problems) == 12


def test_allowed_extras_are_patterns_and_are_not_looked_at(tmp_path: Path) -> None:
    weights = weights_of(
        tmp_path, a=ones(1), model__encoder__version=np.array([3], np.int64),
        model__encoder__embed_positions___float_tensor=np.array([NAN], np.float32), lm_head__weight=ones(2),
    )  # fmt: skip
    allowed = ["*.version", "*.embed_positions._float_tensor", "lm_head.weight"]
    check_weights(weights, specs(a=(1,)), allowed_extra=allowed)
    assert problems(weights, specs(a=(1,)), allowed_extra=allowed[1:]) == [
        "'model.encoder.version' is not a weight of this model"
    ]
    check_weights(weights, specs(a=(1,), lm_head__weight=(2,)), allowed_extra=["model.*"])


def test_missing_is_never_the_present_name_of_another_weight(tmp_path: Path) -> None:
    """A required weight that is present is no candidate: 'layer.1' is not what became of 'layer.2'."""
    weights = weights_of(tmp_path, layer__1=ones(1))
    assert problems(weights, specs(layer__1=(1,), layer__2=(1,))) == ["'layer.2' is missing"]


def test_hundreds_of_missing_weights_are_listed_quickly(tmp_path: Path) -> None:
    weights = weights_of(tmp_path, **{f"model__layers__{i}__weight": ones(1) for i in range(800)})
    found = problems(weights, specs(**{f"layers__{i}__weight": (1,) for i in range(800)}))
    assert len(found) == 1600
    assert sum("nearest" in line for line in found) == 8


def test_finiteness_is_checked_in_bounded_memory(tmp_path: Path) -> None:
    rows = np.zeros((3000, 4000), np.float16)
    rows[2999, 3999] = NAN
    weights = weights_of(tmp_path, a=rows)
    tracemalloc.start()
    try:
        found = problems(weights, specs(a=(3000, 4000)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == ["'a' has 1 of 12000000 values that are not finite in float32, the first, nan, at (2999, 3999)"]
    assert peak < 16 * 2**20, "48 MB in float32, of which only pieces may be in memory"


def test_pages_of_the_file_are_given_back_during_the_check(tmp_path: Path) -> None:
    """A mapped file counts as the process's memory while its pages are held: 128 MB of weights may not."""
    header = {"w": {"dtype": "F32", "shape": [32768, 1024], "data_offsets": [0, 2**27]}}
    path = write(tmp_path / "model.safetensors", with_header(header, b""))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 2**27)
    script = (
        "import pathlib, re, sys\n"
        "from onnxmt.checkpoint import WeightSpec, check_weights\n"
        "from onnxmt.weights import open_weights\n"
        # not ru_maxrss, which a process inherits from the one that started it
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1]) // 1024\n"
        "weights = open_weights(pathlib.Path(sys.argv[1]))\n"
        "before = peak()\n"
        "check_weights(weights, [WeightSpec(name='w', shape=(32768, 1024))])\n"
        "print(peak() - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 64


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_first_index_and_count_are_those_of_numpy(tmp_path: Path, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    strides_from = data.draw(st.permutations(range(len(shape))))
    values = np.zeros(shape, np.float32)
    for flat in data.draw(st.lists(st.integers(0, values.size - 1), min_size=1, max_size=5)):
        values.flat[flat] = data.draw(st.sampled_from([NAN, INF, -INF]))
    stored = np.ascontiguousarray(values.transpose(strides_from))
    steps = [0] * len(shape)
    for position, axis in enumerate(strides_from):
        steps[axis] = stored.strides[position] // 4
    body = mapping({"w": tensor(storage("0", values.size), shape, strides=tuple(steps))})
    write(tmp_path / "pytorch_model.bin", torch_zip(body, {"0": stored.tobytes()}))
    with open_weights(tmp_path) as weights:
        assert np.array_equal(weights.read("w"), values, equal_nan=True)
        bad = np.argwhere(~np.isfinite(values))
        first = tuple(int(i) for i in bad[0])
        (line,) = problems(weights, [WeightSpec(name="w", shape=shape)])
        assert line.startswith(f"'w' has {len(bad)} of {values.size} values")
        assert line.endswith(f"the first, {values[first]}, at {first}")


# Tied weights.


def group(tied: str, untied: str = "", source: str | None = None) -> TiedGroup:
    return TiedGroup(
        source=source or (tied.split()[0] if tied else None), tied=tuple(tied.split()), untied=tuple(untied.split())
    )


A, B = ones(3, 2), ones(3, 2) * 2
TIES = {
    "all absent": ({}, TiedGroup(source=None, tied=(), untied=())),
    "source alone": ({"s": A}, group("s t u")),
    "all equal": ({"s": A, "t": A, "u": A}, group("s t u")),
    "one differs": ({"s": A, "t": B, "u": A}, group("s u", "t")),
    "both differ": ({"s": A, "t": B, "u": B}, group("s", "t u")),
    "source absent": ({"t": A}, group("s t u", source="t")),
    "source absent, targets equal": ({"t": A, "u": A}, group("s t u", source="t")),
    "source absent, targets differ": ({"t": A, "u": B}, group("s t", "u", source="t")),
    "only the last": ({"u": B}, group("s t u", source="u")),
    "another shape": ({"s": A, "t": ones(2, 3)}, group("s u", "t")),
    "another type, equal": ({"s": A, "t": A.astype(np.float16)}, group("s t u")),
    "zeros of either sign": ({"s": A * 0, "t": A * -0.0}, group("s t u")),
    "not a number": ({"s": A * NAN, "t": A * NAN}, group("s u", "t")),
    "last value differs": ({"s": A, "t": np.array([[1, 1], [1, 1], [1, 1.0000001]], np.float32)}, group("s u", "t")),
}  # fmt: skip


@pytest.mark.parametrize(("tensors", "expected"), TIES.values(), ids=TIES.keys())
def test_ties(tmp_path: Path, tensors: dict[str, np.ndarray], expected: TiedGroup) -> None:
    with weights_of(tmp_path, other=ones(1), **tensors) as weights:
        found = tied_group(weights, ["s", "t", "u"])
        assert found == expected
        for name in found.tied:
            assert found.stored(name) == found.source
        for name in found.untied:
            assert found.stored(name) == name
        with pytest.raises(KeyError):
            found.stored("other")


@pytest.mark.parametrize("kind", ["zip", "legacy"])
def test_views_of_one_storage_are_tied_without_reading(tmp_path: Path, kind: str) -> None:
    """They hold NaN, and so would differ if they were compared."""
    data = np.full(6, NAN, np.float32).tobytes()
    view = None if kind == "zip" else b"N"
    body = mapping({name: tensor(storage("0", 6, view=view), (3, 2)) for name in ("s", "t")})
    write(tmp_path / "pytorch_model.bin", (torch_zip if kind == "zip" else torch_legacy)(body, {"0": data}))
    with open_weights(tmp_path) as weights:
        assert tied_group(weights, ["s", "t"]) == group("s t")


def test_ties_are_compared_in_bounded_memory(tmp_path: Path) -> None:
    large = np.zeros((4000, 3000), np.float16)
    with weights_of(tmp_path, s=large, t=large) as weights:
        tracemalloc.start()
        try:
            assert tied_group(weights, ["s", "t"]) == group("s t")
            assert tracemalloc.get_traced_memory()[1] < 24 * 2**20
        finally:
            tracemalloc.stop()


@pytest.mark.reference
@pytest.mark.parametrize("seed", range(12))
def test_ties_are_those_of_transformers(tmp_path: Path, seed: int) -> None:
    """Random selections of the four names of Marian's embedding, equal or not, as from_pretrained loads them."""
    import random

    import torch
    from safetensors.torch import load_file, save_file
    from transformers import MarianMTModel

    from tests.tiny import build_marian

    chosen = random.Random(seed)
    folder = build_marian(tmp_path / "m", seed=seed)
    names = list(MarianMTModel.from_pretrained(folder)._tied_weights_keys)
    names = ["model.shared.weight", *names]
    state = load_file(folder / "model.safetensors")
    table = next(state.pop(name) for name in names if name in state)
    present = chosen.sample(names, chosen.randint(1, 4))
    for name in present:
        state[name] = table.clone() if chosen.random() < 0.6 else table + torch.randn(table.shape)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    judge = MarianMTModel.from_pretrained(folder, dtype="float32").state_dict()
    with open_weights(folder) as weights:
        found = tied_group(weights, names)
        assert sorted((*found.tied, *found.untied)) == sorted(names)
        for name in names:
            assert np.array_equal(weights.read(found.stored(name)), judge[name].numpy()), (present, name)
