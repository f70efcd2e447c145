"""The process of one engine: a command a line on standard input, an answer a line on standard output, both JSON.

Started by its path with the engine's name: a peer's environment has no onnxmt, so nothing here imports it, and the
engine's own module (`engine_NAME`) is found beside this file.

Commands: `convert` (what the engine's `convert` takes), where the engine has files of its own; `load` (what the
engine's `load` takes) → versions; `run` (groups of token ids with the number of tokens to generate, beams) → seconds of
each group, of all, and tokens generated for each sentence; `outputs` (groups of token ids, beams, generation settings)
→ seconds and tokens of each group; `memory` → bytes.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TextIO, cast


class Engine(Protocol):
    """What an engine module offers by its function `load`."""

    def versions(self) -> dict[str, str]:
        """Return the packages that compute, and their versions."""

    def translate(self, ids: list[list[int]], *, beams: int, tokens: int | None) -> list[int]:
        """Translate one batch; generate exactly `tokens` tokens a sentence (None: the model's own length).

        Returns how many tokens each sentence got.
        """


class SpeakingEngine(Engine, Protocol):
    """An engine that also says what it translated."""

    def outputs(self, ids: list[list[int]], *, beams: int, told: dict[str, int]) -> list[list[int]]:
        """Translate one batch at the model's own length, with `told` of its generation settings changed.

        Returns the tokens of each sentence, without the start token, up to the end.
        """


def run(engine: Engine, groups: list[Any], beams: int, workers: int) -> dict[str, Any]:
    """Translate the groups, `workers` of them at a time."""

    def one(group: Any) -> tuple[float, list[int]]:
        begin = time.perf_counter()
        lengths = engine.translate(group["ids"], beams=beams, tokens=group["tokens"])
        return time.perf_counter() - begin, lengths

    begin = time.perf_counter()
    if workers == 1:
        done = [one(group) for group in groups]
    else:
        with ThreadPoolExecutor(workers) as pool:
            done = list(pool.map(one, groups))
    whole = time.perf_counter() - begin
    return {"seconds": [seconds for seconds, _ in done], "whole": whole, "lengths": [lengths for _, lengths in done]}


def outputs(engine: SpeakingEngine, groups: list[Any], beams: int, told: dict[str, int]) -> dict[str, Any]:
    """Translate the groups one after another, and return what came out beside the times."""
    seconds, tokens = [], []
    for group in groups:
        begin = time.perf_counter()
        tokens.append(engine.outputs(group, beams=beams, told=told))
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds, "tokens": tokens}


def memory() -> dict[str, int | None]:
    """Return the resident memory now and its peak, in bytes; now is None where the system does not tell."""
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    found: dict[str, int | None] = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale, "now": None}
    status = Path("/proc/self/status")
    if status.exists():
        values = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        # ru_maxrss is inherited from the parent at the start; VmHWM is this program's own.
        found = {"peak": int(values["VmHWM"].split()[0]) * 1024, "now": int(values["VmRSS"].split()[0]) * 1024}
    return found


def serve(name: str, commands: TextIO, answers: TextIO) -> None:
    """Answer commands until the input ends."""
    engine: Engine | None = None
    workers = 1
    for line in commands:
        command = json.loads(line)
        try:
            if command["do"] == "load":
                workers = command.pop("pool", 1)
                engine = importlib.import_module(f"engine_{name}").load(**command["options"])
                answer: dict[str, Any] = {"versions": engine.versions()}
            elif command["do"] == "convert":
                importlib.import_module(f"engine_{name}").convert(**command["options"])
                answer = {}
            elif command["do"] == "run":
                assert engine is not None
                answer = run(engine, command["groups"], command["beams"], workers)
            elif command["do"] == "outputs":
                answer = outputs(cast(SpeakingEngine, engine), command["groups"], command["beams"], command["told"])
            else:
                answer = dict(memory())
        except ModuleNotFoundError as error:
            answer = {"missing": error.name or str(error)}
        except Exception as error:  # noqa: BLE001 (another library's code: whatever it raises is told, not lost)
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Keep standard output for answers: what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin, answers)


if __name__ == "__main__":
    main()
