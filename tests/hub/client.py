"""Resolving a model in a fresh process: huggingface_hub reads its environment once, when it is imported."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = """
import json, sys
from onnxmt import hub
from onnxmt.checkpoint import read_checkpoint
from onnxmt.errors import OnnxmtError
model, files, action = sys.argv[1:4]
assert "huggingface_hub" not in sys.modules
try:
    found = hub.resolve(model, files=files)
    answer = {"folder": str(found.folder), "name": found.name, "revision": found.revision, "origin": found.origin}
    answer["present"] = sorted(path.name for path in found.folder.iterdir())
    if action == "read":
        checkpoint = read_checkpoint(found)
        answer["weights"] = {name: checkpoint.weights.read(name).tolist() for name in sorted(checkpoint.weights.names())}
        answer["config"] = dict(checkpoint.config)
        answer["licence"] = checkpoint.licence
    if action == "look":
        listing = hub.model_files(found)
        answer["files"] = {file.name: file.size for file in listing}
        answer["weight_files"] = [file.name for file in hub.weights_among(found, listing)]
        answer["shapes"] = hub.weight_shapes(found)
except OnnxmtError as error:
    answer = {"error": type(error).__name__, "message": str(error)}
print(json.dumps(answer))
"""
ROOT = Path(__file__).parents[2]
SWITCHES = ("HF_", "HUGGING", "TRANSFORMERS_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http", "all_proxy")


@dataclass
class Client:
    """A machine: its cache (HF_HOME) and its environment."""

    home: Path
    environment: dict[str, str]

    def resolve(self, model: str, *, files: str = "all", action: str = "none", **changes: str | None) -> dict[str, Any]:
        """Run `resolve` in a process of its own; nothing may appear on standard error."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(SWITCHES)}
        environment = {
            **inherited,
            "HF_HOME": str(self.home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            **self.environment,
            **changes,
        }
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, model, files, action],
            env={key: value for key, value in environment.items() if value is not None},
            cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert run.stderr == "", run.stderr
        assert run.returncode == 0
        return json.loads(run.stdout.splitlines()[-1])  # huggingface_hub prints when its own import fails

    def watch(self, model: str) -> str:
        """What a terminal shows on standard error while the model is fetched."""
        terminal, end = pty.openpty()
        termios.tcsetwinsize(end, (24, 100))
        command = [sys.executable, "-c", SCRIPT, model, "all", "none"]
        with subprocess.Popen(
            command, env=self._environment({}), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=end
        ) as run:
            os.close(end)
            shown = b""
            with contextlib.suppress(OSError):  # Linux answers EIO when the other end of a terminal is closed
                while piece := os.read(terminal, 4096):
                    shown += piece
            assert run.wait(timeout=120) == 0
        os.close(terminal)
        return shown.decode()

    def _environment(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(SWITCHES)}
        ours = {"HF_HOME": str(self.home), "HF_HUB_DISABLE_TELEMETRY": "1", **self.environment}
        return {key: value for key, value in {**inherited, **ours, **changes}.items() if value is not None}

    def error(self, model: str, **options: Any) -> str:
        """The message of the DownloadError that resolving must end in, on one line."""
        answer = self.resolve(model, **options)
        assert answer.get("error") == "DownloadError", answer
        assert "\n" not in answer["message"]
        return answer["message"]

    def cached(self) -> list[str]:
        """The names of the files that the cache offers as whole, of all models and commits."""
        snapshots = self.home.glob("hub/models--*/snapshots/*/*")
        return sorted(path.name for path in snapshots if path.exists())
