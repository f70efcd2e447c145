"""Which engines a bench compares, and the process that each of them runs in."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from onnxmt.errors import BenchError, UsageError

PEERS = ("torch", "ctranslate2", "optimum")
# What a peer computes in unless the user says otherwise, and what may be said.
_PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "torch": ("float32",),
    "ctranslate2": ("int8", "int8_float32", "int16", "float32"),
    "optimum": ("float32",),
}
_CONVERTED = ("ctranslate2", "optimum")
_MANY_WORKERS = ("onnxmt", "ctranslate2")


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """One engine to measure: `model` is a bundle for onnxmt and a checkpoint for a peer."""

    engine: str
    precision: str
    model: Path
    python: str = sys.executable

    @property
    def takes_workers(self) -> bool:
        """Whether several batches can be translated side by side."""
        return self.engine in _MANY_WORKERS

    @property
    def label(self) -> str:
        """The engine and its precision, for people."""
        return f"{self.engine} {self.precision}"


def parse_peers(text: str, *, checkpoint: Path | None, pythons: Sequence[str] = ()) -> list[EngineSpec]:
    """Read `torch,ctranslate2:int8` and `ENGINE=PATH` of their Pythons. Raises UsageError that names every fault."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    problems, found = [], []
    python_of: dict[str, str] = {}
    for pair in pythons:
        engine, equals, path = pair.partition("=")
        if not equals or engine not in PEERS or not path:
            problems.append(f"--peer-python {pair!r} is not ENGINE=PATH with an engine of {', '.join(PEERS)}")
        elif not Path(path).is_file():
            problems.append(f"--peer-python {pair!r}: there is no file {path}")
        python_of[engine] = path
    for name in names:
        engine, _, precision = name.partition(":")
        if engine not in PEERS:
            problems.append(f"{engine!r} is no peer; allowed: {', '.join(PEERS)}")
        elif precision and precision not in _PRECISIONS[engine]:
            problems.append(f"{name!r}: {engine} is measured in {', '.join(_PRECISIONS[engine])}")
        elif checkpoint is not None:
            found.append(
                EngineSpec(
                    engine=engine,
                    precision=precision or _PRECISIONS[engine][0],
                    model=checkpoint,
                    python=python_of.get(engine, sys.executable),
                )
            )
    if names and checkpoint is None:
        problems.append("peers need the checkpoint that the bundle was made of: name it with --checkpoint")
    if problems:
        raise UsageError(f"peers: {'; '.join(problems)}")
    return found


class MissingPeer(Exception):  # noqa: N818 (not a fault of the bench: the report names it)
    """A peer's package is not installed in its Python."""


class EngineProcess:
    """One engine, loaded in a process of its own with a number of threads and workers.

    `ready_seconds` is the time from the start of the process until the model was loaded. Raises MissingPeer, and
    BenchError for whatever else goes wrong there.
    """

    def __init__(self, spec: EngineSpec, *, threads: int, workers: int, scratch: Path) -> None:
        self.spec, self.threads, self.workers = spec, threads, workers
        options: dict[str, Any] = {"model": str(spec.model), "threads": threads, "workers": workers}
        if spec.engine in _CONVERTED:
            options["converted"] = str(scratch / f"{spec.engine}-{spec.precision}")
        if spec.engine == "ctranslate2":
            options["precision"] = spec.precision
        if spec.engine in _CONVERTED and not Path(options["converted"]).exists():
            # In a process of its own: what a conversion takes is no part of what the engine takes.
            self._process = self._start()
            try:
                self._ask({"do": "convert", "options": options})
            finally:
                self.close()
        self._started = time.perf_counter()
        self._process = self._start()
        try:
            answer = self._ask({"do": "load", "options": options, "pool": workers})
        except BaseException:
            self.close()
            raise
        self.versions: dict[str, str] = answer["versions"]
        self.ready_seconds = time.perf_counter() - self._started

    def _start(self) -> subprocess.Popen[str]:
        script = Path(__file__).parent / "worker" / "run.py"
        return subprocess.Popen(
            [self.spec.python, str(script), self.spec.engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    @property
    def age_seconds(self) -> float:
        """Time since the process was started."""
        return time.perf_counter() - self._started

    def run(self, groups: Sequence[Mapping[str, Any]], beams: int) -> Mapping[str, Any]:
        """Translate groups ({"ids", "tokens"}); returns seconds of each, of the whole, and lengths."""
        return self._ask({"do": "run", "groups": list(groups), "beams": beams})

    def outputs(
        self, groups: Sequence[Sequence[Sequence[int]]], beams: int, told: Mapping[str, int]
    ) -> Mapping[str, Any]:
        """Translate groups of token ids at the model's own length; returns seconds and tokens of each.

        `told`: generation settings that differ from the model's own. onnxmt and torch can do it.
        """
        return self._ask({"do": "outputs", "groups": [list(group) for group in groups], "beams": beams, "told": told})

    def memory(self) -> Mapping[str, int | None]:
        """Return the bytes resident now, and at the peak so far."""
        return self._ask({"do": "memory"})

    def _ask(self, command: Mapping[str, Any]) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            line = ""
        else:
            line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise BenchError(f"the process of {self.spec.label} ended with exit code {code} while it was measured")
        answer: Mapping[str, Any] = json.loads(line)
        if "missing" in answer:
            raise MissingPeer(f"{self.spec.engine}: the package {answer['missing']!r} is not in {self.spec.python}")
        if "error" in answer:
            raise BenchError(f"{self.spec.label}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
