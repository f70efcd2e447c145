"""Many writers that are killed at any moment, and readers that look on.

python -m tests.store.killing BUNDLES CYCLES SEED   (the store is ONNXMT_STORE) prints one JSON object: what readers and the end showed.
BUNDLES holds folders whose name is also in their marker.txt. Versions are named after them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from onnxmt.bundle import read_bundle
from onnxmt.errors import OnnxmtError
from onnxmt.store.adding import AddOptions, add
from onnxmt.store.cleaning import check, collect, remove
from onnxmt.store.promoting import PromoteOptions, promote, rollback
from onnxmt.store.resolving import find, opened
from onnxmt.store.shelf import shelf_of

WRITERS, READERS = 4, 3
SHELF = shelf_of("m")


def reader(out: int, stop: Path) -> None:
    """Look the alias up and read what it means, over and over again; say what was ever wrong."""
    seen: Counter[str] = Counter()
    while not stop.exists():
        try:
            found = find("m:production")
            assert found is not None
            marker, version = opened("m:production", _read) or ("", "")
            seen["ok" if version.startswith(f"{marker}-") or version == marker else f"mixed {marker} {version}"] += 1
        except Exception as error:  # noqa: BLE001  any of them is the failure that is looked for
            seen[f"{type(error).__name__}: {error}"] += 1
    os.write(out, (json.dumps(seen) + "\n").encode())


def _read(folder: Path) -> tuple[str, str]:
    time.sleep(random.choice((0, 0, 0.02, 0.05)))  # found, and not opened yet: what it was may be collected meanwhile
    bundle = read_bundle(folder)  # every hash
    return bundle.path("marker.txt").read_text(), folder.name


def writer(draw: random.Random, bundles: list[Path]) -> None:
    """Change something until killed."""
    while True:
        with contextlib.suppress(OnnxmtError):  # refused: removed by another, held by an alias, nothing to return to
            action = draw.choice(("promote", "promote", "rollback", "add", "remove", "remove", "gc", "gc"))
            versions = list(SHELF.state().versions)
            if action == "promote":
                promote(SHELF, draw.choice(versions), options=PromoteOptions(alias="production"))
            elif action == "rollback":
                rollback(SHELF)
            elif action == "add" and len(versions) < 8:
                source = draw.choice(bundles)
                name = f"{source.name}-{draw.getrandbits(40)}"
                add(source, options=AddOptions(name="m", version=name, run=False))
            elif action == "remove" and len(versions) > 4:
                remove(SHELF, draw.choice(versions))
            elif action == "gc":
                collect(SHELF, grace=0)


def forked(work: object, *arguments: object) -> int:
    child = os.fork()
    if child == 0:
        try:
            work(*arguments)  # type: ignore[operator]
        finally:
            os._exit(0)
    return child


def main(bundles: Path, cycles: int, seed: int) -> dict[str, object]:
    sources, draw = sorted(bundles.iterdir()), random.Random(seed)
    for source in sources:
        add(source, options=AddOptions(name="m", version=source.name, run=False))
    promote(SHELF, sources[0].name)
    stop = SHELF.root / "stop"
    read, write = os.pipe()
    readers = [forked(reader, write, stop) for _ in range(READERS)]
    running: list[int] = []
    kills = 0
    while kills < cycles:
        while len(running) < WRITERS:
            running.append(forked(writer, random.Random(draw.random()), sources))
        time.sleep(draw.uniform(0.0, 0.06))
        victim = running.pop(draw.randrange(len(running)))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        kills += 1
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    stop.touch()
    for child in readers:
        os.waitpid(child, 0)
    os.close(write)
    seen: Counter[str] = Counter()
    with os.fdopen(read) as pipe:
        for line in pipe:
            seen.update(json.loads(line))
    rollback_works = promote(SHELF, next(iter(SHELF.state().versions))) and True
    history = SHELF.history()
    return {
        "kills": kills,
        "seen": dict(seen),
        "faults": [one.fault for one in check(SHELF) if one.fault],
        "events": dict(Counter(event.action for event in history)),
        "contiguous": [event.revision for event in history] == list(range(1, SHELF.state().revision + 1)),
        "unlocked": rollback_works,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
