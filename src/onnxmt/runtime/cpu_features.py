"""Which instructions for 8-bit sums this CPU has, and what that means for the files that we write.

ONNX Runtime multiplies unsigned by signed bytes. Without VNNI, x86 does so by an instruction that adds two products in
16 bits and saturates (onnxruntime issue 6004). What we write is right with and without VNNI, so no file depends on the
CPU that made it: docs/precision.md has the bounds and where they come from.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Our name of a feature → its names in /proc/cpuinfo (Linux, x86 "flags" and ARM "Features").
_LINUX = {
    "avx2": ("avx2",),
    "avx512": ("avx512bw",),  # byte and word instructions: what 8-bit kernels need of AVX-512
    "avx512_vnni": ("avx512_vnni",),
    "avx_vnni": ("avx_vnni",),
    "amx_int8": ("amx_int8",),
    "arm_dotprod": ("asimddp",),
    "arm_i8mm": ("i8mm",),
}
_MACOS = {
    "avx2": "hw.optional.avx2_0",
    "avx512": "hw.optional.avx512bw",
    "avx512_vnni": "hw.optional.avx512vnni",
    "arm_dotprod": "hw.optional.arm.FEAT_DotProd",
    "arm_i8mm": "hw.optional.arm.FEAT_I8MM",
}
FEATURES = tuple(_LINUX)
_X86 = ("x86_64", "amd64", "i386", "i686")


@dataclass(frozen=True, kw_only=True)
class CpuFeatures:
    """A CPU's architecture, its model where the system tells, and which of FEATURES it has (None: not known here)."""

    architecture: str
    model: str | None
    features: tuple[str, ...] | None

    @property
    def saturates(self) -> bool | None:
        """True where sums of 8-bit products may saturate at 16 bits (x86 without VNNI); None where nobody knows."""
        if self.architecture.lower() not in _X86:
            return False
        if self.features is None:
            return None
        return not {"avx512_vnni", "avx_vnni"} & set(self.features)

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest's entry."""
        return {
            "architecture": self.architecture,
            "model": self.model,
            "features": None if self.features is None else list(self.features),
            "saturates": self.saturates,
        }


def cpu_features(*, root: Path = Path("/")) -> CpuFeatures:
    """Read this machine's features; `root` is where /proc is looked for."""
    architecture = platform.machine()
    if sys.platform == "darwin":
        return CpuFeatures(architecture=architecture, model=None, features=_macos_features())
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux, or not mounted
        return CpuFeatures(architecture=architecture, model=None, features=None)
    return parse_cpuinfo(text, architecture=architecture)


def parse_cpuinfo(text: str, *, architecture: str) -> CpuFeatures:
    """Read the text of /proc/cpuinfo; a feature counts when every processor has it (those of a big.LITTLE differ)."""
    flags: list[set[str]] = []
    model = None
    for line in text.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            continue
        if key in ("flags", "Features"):
            flags.append(set(value.split()))
        elif key == "model name" and model is None:
            model = value or None
    if not flags:
        return CpuFeatures(architecture=architecture, model=model, features=None)
    common = set.intersection(*flags)
    found = tuple(name for name, names in _LINUX.items() if common.intersection(names))
    return CpuFeatures(architecture=architecture, model=model, features=found)


def _macos_features() -> tuple[str, ...] | None:
    library = ctypes.util.find_library("c")
    if library is None:
        return None
    sysctl = getattr(ctypes.CDLL(library), "sysctlbyname", None)
    if sysctl is None:
        return None

    def has(name: str) -> bool:
        value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
        failed = sysctl(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
        return not failed and value.value == 1

    return tuple(feature for feature, name in _MACOS.items() if has(name))
