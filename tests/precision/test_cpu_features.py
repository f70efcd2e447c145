"""CPU features out of /proc/cpuinfo, and which sums may saturate."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxmt.runtime.cpu_features import FEATURES, cpu_features, parse_cpuinfo

ZEN4 = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512bw avx512_vnni avx512f\n"
HASWELL = "processor : 0\nmodel name : Intel(R) Xeon(R) E5-2680 v3\nflags : fpu sse4_2 avx2\n"
SKYLAKE_X = "flags : avx2 avx512f avx512bw\n"
ALDER_LAKE = "flags : avx2 avx_vnni\n"
SAPPHIRE = "flags : avx2 avx512bw avx512_vnni avx_vnni amx_int8\n"
GRAVITON3 = "processor : 0\nFeatures : fp asimd asimddp i8mm sve\n"
CORTEX_A72 = "Features : fp asimd crc32\n"
BIG_LITTLE = "Features : fp asimd\n\nFeatures : fp asimd asimddp\n"


@pytest.mark.parametrize(
    ("text", "architecture", "features", "saturates"),
    [
        (ZEN4, "x86_64", ("avx2", "avx512", "avx512_vnni"), False),
        (HASWELL, "x86_64", ("avx2",), True),
        (SKYLAKE_X, "AMD64", ("avx2", "avx512"), True),
        (ALDER_LAKE, "x86_64", ("avx2", "avx_vnni"), False),
        (SAPPHIRE, "x86_64", ("avx2", "avx512", "avx512_vnni", "avx_vnni", "amx_int8"), False),
        (GRAVITON3, "aarch64", ("arm_dotprod", "arm_i8mm"), False),
        (CORTEX_A72, "aarch64", (), False),
        (BIG_LITTLE, "aarch64", (), False),
        ("", "x86_64", None, None),
        ("nonsense without a colon\n", "riscv64", None, False),
    ],
)
def test_features(text: str, architecture: str, features: tuple[str, ...] | None, saturates: bool | None) -> None:
    found = parse_cpuinfo(text, architecture=architecture)
    assert found.features == features
    assert found.saturates is saturates


def test_the_model_is_named_where_the_system_names_it() -> None:
    assert parse_cpuinfo(HASWELL, architecture="x86_64").model == "Intel(R) Xeon(R) E5-2680 v3"
    assert parse_cpuinfo(GRAVITON3, architecture="aarch64").model is None


def test_this_machine_and_one_without_proc(tmp_path: Path) -> None:
    found = cpu_features().to_dict()
    assert list(found) == ["architecture", "model", "features", "saturates"]
    assert found["architecture"]
    assert set(found["features"] or ()) <= set(FEATURES)
    assert cpu_features(root=tmp_path).features is None or found["features"] is not None
