"""How much memory the process holds and may hold: the guard that says 503 before the kernel says SIGKILL."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

_SHARE = 0.9
# cgroup version 1 says "no limit" with a number near 2**63.
_NO_LIMIT = 1 << 60
_FRESH_SECONDS = 0.05


def cgroup_memory_limit(root: Path = Path("/")) -> int | None:
    """Return the smallest memory limit of this process's cgroup and its parents in bytes; None where there is none."""
    found = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        folder = base / group.lstrip("/")  # inside a container the path may be the host's: then only the base exists
        while True:
            text = _read(folder / name).strip()
            if text.isdigit() and int(text) < _NO_LIMIT:
                found.append(int(text))
            if folder == base or base not in folder.parents:
                break
            folder = folder.parent
    return min(found, default=None)


def memory_held(root: Path = Path("/")) -> int:
    """Return the bytes of this process that the kernel cannot take back; mapped weights it can. 0 where unknown."""
    status = _read(root / "proc/self/status")
    return sum(1024 * int(size) for size in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.MULTILINE))


def resident_memory(root: Path = Path("/")) -> int:
    """Return the process's resident set in bytes; 0 where unknown."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", _read(root / "proc/self/status"), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


class MemoryGuard:
    """Says whether another request may begin; reads the process's memory at most 20 times a second."""

    def __init__(self, limit: int | None, *, held: Callable[[], int] = memory_held) -> None:
        cgroup = cgroup_memory_limit() if limit is None else None
        self.limit = limit if limit is not None else None if cgroup is None else int(_SHARE * cgroup)
        self._held, self._read_at, self._last = held, -1.0, 0

    def full(self) -> bool:
        """Whether the process holds more than its limit."""
        if self.limit is None:
            return False
        now = time.monotonic()
        if now - self._read_at > _FRESH_SECONDS:
            self._read_at, self._last = now, self._held()
        return self._last > self.limit


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux, or a file that this kernel does not have
        return ""
