from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxmt.runtime.cpu import CpuLimit, cgroup_quota, cpu_limit

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
V1_MOUNT = "33 32 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct"


def tree(root: Path, *, cgroup: str, mountinfo: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
        ({"sys/fs/cgroup/cpu.max": "50000 100000"}, 0.5),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"sys/fs/cgroup/cpu.max": "nonsense"}, None),
        ({"sys/fs/cgroup/cpu.max": "100000"}, None),
        ({}, None),
    ],
)
def test_version_2_in_a_container(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    root = tree(tmp_path, cgroup="0::/", mountinfo=V2_MOUNT, files=files)

    assert cgroup_quota(root=root) == quota


@pytest.mark.parametrize(
    ("own", "parent", "quota"),
    [("400000 100000", "150000 100000", 1.5), ("100000 100000", "max 100000", 1.0), ("max 100000", "max 100000", None)],
)
def test_version_2_obeys_its_parents(tmp_path: Path, own: str, parent: str, quota: float | None) -> None:
    files = {
        "sys/fs/cgroup/kubepods/pod1/box/cpu.max": own,
        "sys/fs/cgroup/kubepods/pod1/cpu.max": parent,
        "sys/fs/cgroup/other/cpu.max": "1000 100000",
    }
    root = tree(tmp_path, cgroup="0::/kubepods/pod1/box", mountinfo=V2_MOUNT, files=files)

    assert cgroup_quota(root=root) == quota


@pytest.mark.parametrize(("text", "quota"), [("250000", 2.5), ("-1", None), ("0", None)])
@pytest.mark.parametrize("shown", ["/", "/docker/abc"])  # with a cgroup namespace, and with the host's path
def test_version_1(tmp_path: Path, text: str, quota: float | None, shown: str) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct" + ("/docker/abc" if shown == "/" else "")
    root = tree(
        tmp_path,
        cgroup="7:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/system.slice",
        mountinfo=V1_MOUNT.format(root=shown) + "\n34 32 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        files={f"{folder}/cpu.cfs_quota_us": text, f"{folder}/cpu.cfs_period_us": "100000"},
    )

    assert cgroup_quota(root=root) == quota


def test_the_hosts_path_is_not_followed_out_of_the_mount(tmp_path: Path) -> None:
    root = tree(
        tmp_path, cgroup="0::/../../elsewhere", mountinfo=V2_MOUNT, files={"sys/fs/cgroup/cpu.max": "300000 100000"}
    )

    assert cgroup_quota(root=root) == 3.0


def test_a_mount_point_with_a_space(tmp_path: Path) -> None:
    mount = r"30 23 0:26 / /mnt/c\040groups rw - cgroup2 cgroup2 rw"
    root = tree(tmp_path, cgroup="0::/", mountinfo=mount, files={"mnt/c groups/cpu.max": "100000 50000"})

    assert cgroup_quota(root=root) == 2.0


def test_no_proc_means_no_limit(tmp_path: Path) -> None:
    assert cgroup_quota(root=tmp_path) is None


@pytest.mark.parametrize(
    ("affinity", "quota", "threads"),
    [(8, None, 8), (8, 2.0, 2), (2, 8.0, 2), (8, 2.9, 2), (8, 0.5, 1), (1, None, 1), (64, 1.0, 1)],
)
def test_threads_are_the_smaller_rounded_down(affinity: int, quota: float | None, threads: int) -> None:
    assert CpuLimit(affinity=affinity, quota=quota).threads == threads


def test_affinity_is_this_processs_own() -> None:
    """Case R1: what `taskset` or `--cpuset-cpus` leaves, not what the host has."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cpu_limit().affinity == 1
        assert cpu_limit().threads == 1
    finally:
        os.sched_setaffinity(0, before)
    assert cpu_limit().affinity == len(before)
