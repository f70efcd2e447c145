"""One loaded version: whether there is memory for it, its service, who uses it, and how it ends."""

from __future__ import annotations

import asyncio
import copy
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from onnxmt.bundle import Bundle, read_bundle
from onnxmt.errors import OnnxmtError
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
from onnxmt.serve.guard import MemoryGuard, memory_held
from onnxmt.serve.metrics import Metrics
from onnxmt.serve.options import ServeOptions
from onnxmt.serve.rollout_metrics import of_one_version
from onnxmt.serve.service import Service
from onnxmt.store.shelf import Shelf

# Measured: a loaded model holds 1.05 times its graphs and weights and some 25 MB (opus-mt in int8: 84 MB of files and
# 118 MB held; in fp32 311 and 341), and while it translates its batches on top.
_HELD_SHARE, _HELD_BYTES = 1.1, 96_000_000
_DRAIN_SECONDS = 120.0
_POLL_SECONDS = 0.02


class NoMemoryError(OnnxmtError, MemoryError):
    """There is not enough memory for another model; what is served stays."""


@dataclass(eq=False, kw_only=True)
class Loaded:
    """A version and the service around it; `users` are requests and comparisons that may still ask it."""

    version: str
    translator: Translator
    service: Service
    metrics: Metrics
    quiet: Service = field(init=False)
    users: int = 0

    def __post_init__(self) -> None:
        # For comparisons: the same queue and model, and nothing counted as a client's request.
        self.quiet = copy.copy(self.service)

    async def warm(self) -> None:
        """Translate a little; raises what translating raises."""
        await self.service.warm()
        self.quiet = copy.copy(self.service)
        self.quiet.metrics = Metrics()

    async def retire(self) -> None:
        """Wait for its users, then give its memory back."""
        until = time.monotonic() + _DRAIN_SECONDS
        while self.users and time.monotonic() < until:
            await asyncio.sleep(_POLL_SECONDS)
        await self.service.close()
        await asyncio.to_thread(self.translator.close)


def loaded_version(version: str, translator: Translator, options: ServeOptions, metrics: Metrics) -> Loaded:
    """Put a service around a translator; it is not warm yet."""
    own = of_one_version(metrics)
    return Loaded(version=version, translator=translator, service=Service(translator, options, own), metrics=own)


async def load_version(
    shelf: Shelf, version: str, *, options: ServeOptions, runtime: RuntimeOptions, metrics: Metrics
) -> Loaded:
    """Load and warm a version beside what is loaded already.

    Raises NoMemoryError before anything is loaded, and what reading, loading and translating raise.
    """
    folder = shelf.version_folder(version)
    bundle = await asyncio.to_thread(read_bundle, folder)
    require_memory(bundle, options)
    translator = await asyncio.to_thread(Translator.load, folder, options=runtime, check="size")
    try:
        loaded = loaded_version(version, translator, options, metrics)
        try:
            await loaded.warm()
        except BaseException:
            await loaded.service.close()
            raise
    except BaseException:
        translator.close()
        raise
    return loaded


def require_memory(bundle: Bundle, options: ServeOptions, *, root: Path = Path("/")) -> None:
    """Raise NoMemoryError where a second model would not fit into the container or the machine."""
    graphs = bundle.manifest.graphs
    names = (*(graph.file for graph in graphs.all), *graphs.weights)
    model = sum(entry.bytes for entry in bundle.manifest.files if entry.path in names)
    needed, free = int(_HELD_SHARE * model) + _HELD_BYTES, free_memory(options, root=root)
    if free is not None and needed > free:
        raise NoMemoryError(
            f"it needs about {needed / 1e6:.0f} MB beside what is loaded, and {free / 1e6:.0f} MB are free: raise the "
            "container's limit (or --memory), or restart the service, which then loads it alone"
        )


def free_memory(options: ServeOptions, *, root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take: by its limit, and by what the machine has; None where nobody says."""
    limit = MemoryGuard(options.memory_bytes).limit
    free = [] if limit is None else [limit - memory_held(root)]
    try:
        text = (root / "proc/meminfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        text = ""
    if found := re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE):
        free.append(1024 * int(found[1]))
    return max(0, min(free)) if free else None
