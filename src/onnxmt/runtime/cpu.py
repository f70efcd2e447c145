"""How many CPUs this process may use: its affinity mask and its cgroup's quota (versions 1 and 2)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, kw_only=True)
class CpuLimit:
    """What the system allows: `affinity` CPUs to run on, and `quota` CPUs' worth of time (None = no quota)."""

    affinity: int
    quota: float | None

    @property
    def threads(self) -> int:
        """Threads to compute with: the smaller of the two, rounded down, at least 1.

        Down, because a pool larger than its quota is stopped in the middle of a step for the rest of the period
        (100 ms as a rule), while the CPU time that is left over serves Python and the operating system.
        """
        allowed = self.affinity if self.quota is None else min(self.affinity, int(self.quota))
        return max(1, allowed)


def cpu_limit(*, root: Path = Path("/")) -> CpuLimit:
    """Read the limits of this process; `root` is where /proc and the cgroup mounts are looked for."""
    return CpuLimit(affinity=_affinity(), quota=cgroup_quota(root=root))


def cgroup_quota(*, root: Path = Path("/")) -> float | None:
    """Return the smallest CPU quota of this process's cgroup and its ancestors, in CPUs; None where there is none."""
    quotas = [quota for folder in _cpu_folders(root) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class _Mount:
    kind: str  # "cgroup" (version 1) or "cgroup2"
    shown: str  # which folder of the hierarchy is mounted
    place: str
    options: frozenset[str]


def _cpu_folders(root: Path) -> Iterator[Path]:
    """The folders whose limits apply: this process's cgroup in each hierarchy that governs the CPU, and its parents."""
    mounts = list(_mounts(root))
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, cgroup = [*line.split(":", 2), "", ""][:3]
        for mount in mounts:
            if number == "0" and not controllers:
                matches = mount.kind == "cgroup2"
            else:
                matches = mount.kind == "cgroup" and "cpu" in controllers.split(",") and "cpu" in mount.options
            if matches:
                place = root / mount.place.lstrip("/")
                folder = place / _below(cgroup, mount.shown)
                yield folder
                yield from (parent for parent in folder.parents if parent.is_relative_to(place))


def _below(cgroup: str, shown: str) -> str:
    """The cgroup's path below the mount; a container often sees the host's path, whose folder is the mount itself."""
    path, base = PurePosixPath(cgroup or "/"), PurePosixPath(shown)
    if ".." in path.parts or not path.is_relative_to(base):
        return "."
    return str(path.relative_to(base))


def _mounts(root: Path) -> Iterator[_Mount]:
    """The cgroup mounts in mountinfo (see proc(5)): id, parent, device, root, place, …, "-", kind, source, options."""
    for line in _read(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if len(fields) >= 5 and len(tail) >= 3 and tail[0] in ("cgroup", "cgroup2"):
            yield _Mount(
                kind=tail[0],
                shown=_unescaped(fields[3]),
                place=_unescaped(fields[4]),
                options=frozenset(tail[2].split(",")),
            )


def _quota(folder: Path) -> float | None:
    """The quota of one cgroup folder: cpu.max (version 2) or cpu.cfs_quota_us over cpu.cfs_period_us (version 1)."""
    words = _read(folder / "cpu.max").split()
    if not words:
        words = [_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    try:
        quota, period = int(words[0]), int(words[1])
    except (ValueError, IndexError):  # "max", or files that are not there
        return None
    return quota / period if quota > 0 and period > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # no such controller here, or no permission: there is no limit that we can see
        return ""


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
