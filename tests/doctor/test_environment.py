"""What doctor says of an installation."""

from __future__ import annotations

import dataclasses

import onnxruntime
import pytest

from onnxmt.doctor.environment import Installation, Requirement, examine_installation, installation
from onnxmt.runtime.cpu_features import CpuFeatures
from tests.cli.harness import invoke

HEALTHY = Installation(
    versions={"onnxmt": "0.1.0", "onnxruntime": "1.32.0", "numpy": "2.4.6", "torch": "2.13.0+cpu"},
    requirements=(
        Requirement(name="onnxruntime", least="1.23", extra=""),
        Requirement(name="torch", least="2.4", extra="reference"),
        Requirement(name="starlette", least="0.46", extra="serve"),
    ),
    providers=("CPUExecutionProvider",),
    cpu=CpuFeatures(architecture="x86_64", model="a CPU", features=("avx2", "avx_vnni")),
    threads=2,
    threads_reason="2: this process may run on 2 CPUs, and no cgroup quota is below that",
    variables={"HF_ENDPOINT": "https://hub.example", "OMP_NUM_THREADS": "2"},
)


def found(**changes: object) -> list[str]:
    return [finding.found for finding in examine_installation(dataclasses.replace(HEALTHY, **changes)).findings]


def test_nothing_is_wrong_with_a_healthy_one() -> None:
    examination = examine_installation(HEALTHY)
    assert examination.healthy
    assert "extra serve: not installed (starlette)" in examination.notes
    assert "HF_ENDPOINT=https://hub.example" in examination.notes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"versions": {"onnxruntime": "1.22.1"}}, "version 1.22.1 is installed; onnxmt needs 1.23 or newer"),
        ({"versions": {"torch": "2.3.0+cu118"}}, "version 2.3.0+cu118 is installed; onnxmt[reference] needs 2.4 or newer"),
        (
            {"versions": {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.32.0"}},
            "they hold the same module, and which files are in use depends on the order of installation",
        ),
        ({"providers": ("CUDAExecutionProvider",)}, "it has no CPU provider, only CUDAExecutionProvider"),
        (
            {"variables": {"OMP_NUM_THREADS": "64"}},
            ("it asks for 64 threads, and the system allows 2: this process may run on 2 CPUs, and no cgroup quota is "
            "below that"),
        ),
        ({"variables": {"HF_ENDPOINT": "hub.example"}}, "'hub.example' is not the address of a hub"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together(changes: dict[str, object], said: str) -> None:
    assert found(**changes) == [said]


def test_old_cpus_are_a_note() -> None:
    cpu = CpuFeatures(architecture="x86_64", model=None, features=("avx2",))
    notes = examine_installation(dataclasses.replace(HEALTHY, cpu=cpu)).notes
    assert any(note.startswith("CPU without VNNI") for note in notes)


def test_this_installation_and_the_command() -> None:
    here = installation()
    assert here.versions["onnxruntime"] == onnxruntime.__version__
    assert {(r.name, r.extra) for r in here.requirements} >= {
        ("numpy", ""),
        ("starlette", "serve"),
        ("torch", "reference"),
    }
    outcome = invoke("doctor")
    assert outcome.lines[0].startswith("this installation: ")
    assert "threads " in outcome.text
