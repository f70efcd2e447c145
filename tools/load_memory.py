"""A memory cgroup for one process, version 1 or 2, made below this process's own; and what /proc says of a process."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_LEAVE_SECONDS = 5.0


@dataclass(frozen=True)
class Room:
    """A cgroup with a limit; `kind` is its version."""

    folder: Path
    kind: str

    def command(self, *command: str) -> list[str]:
        """The command that begins its life inside."""
        return ["sh", "-c", f'echo $$ > "{self.folder}/cgroup.procs" && exec "$@"', "sh", *command]

    def peak(self) -> int | None:
        """The most bytes that were charged to it, the page cache included."""
        name = "memory.max_usage_in_bytes" if self.kind == "v1" else "memory.peak"
        text = _read(self.folder / name).strip()
        return int(text) if text.isdigit() else None

    def kills(self) -> int:
        """How often the kernel ended a process in it for want of memory."""
        name = "memory.oom_control" if self.kind == "v1" else "memory.events"
        found = re.search(r"^oom_kill (\d+)$", _read(self.folder / name), re.MULTILINE)
        return int(found[1]) if found else 0


@contextlib.contextmanager
def room(megabytes: int) -> Iterator[Room | None]:
    """Make a cgroup of so many MiB while the block runs; None where this machine does not let us."""
    made = None
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "memory":
            parent, kind, limit = Path("/sys/fs/cgroup/memory" + group), "v1", "memory.limit_in_bytes"
        elif controllers == "":
            parent, kind, limit = Path("/sys/fs/cgroup" + group), "v2", "memory.max"
        else:
            continue
        folder = parent / f"onnxmt-load-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(megabytes << 20))
            made = Room(folder, kind)
            break
        except OSError:  # a version 2 tree without the memory controller has no such file
            folder.rmdir()
    try:
        yield made
    finally:
        until = time.monotonic() + _LEAVE_SECONDS
        while made is not None and made.folder.exists() and time.monotonic() < until:
            with contextlib.suppress(OSError):  # a process that has just been killed may still be leaving
                made.folder.rmdir()
            time.sleep(0.05)


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_of(pid: int) -> dict[str, int]:
    """RSS and its peak, and the part of it that the kernel cannot take back, in bytes."""
    status = dict(re.findall(r"^(\w+):\s+(\d+) kB", _read(Path(f"/proc/{pid}/status")), re.MULTILINE))
    return {
        "rss": 1024 * int(status.get("VmRSS", 0)),
        "peak": 1024 * int(status.get("VmHWM", 0)),
        "held": 1024 * (int(status.get("RssAnon", 0)) + int(status.get("RssShmem", 0))),
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
