"""Running the command line: in this process where that is enough, in a process of its own where it is not."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from onnxmt.cli import main

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "format1" / "bundle"
SETTINGS = ("HF_", "HUGGING", "ONNXMT_", "COLUMNS")


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code, standard output as bytes, standard error as text."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def error(self) -> str:
        """The one line of a failed command: exit code 2, nothing else on standard error."""
        assert self.code == 2, self
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("onnxmt: error: "), lines
        return lines[0].removeprefix("onnxmt: error: ")


def invoke(*arguments: str | Path, stdin: bytes | None = None) -> Outcome:
    """Run in this process; without `stdin` standard input is a terminal."""
    source = io.TextIOWrapper(io.BytesIO(stdin or b""), encoding="utf-8")
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]  # main must see to the encoding
    with (
        mock.patch.object(sys, "stdin", source),
        mock.patch.object(source, "isatty", return_value=stdin is None) if stdin is None else contextlib.nullcontext(),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        code = main([str(argument) for argument in arguments])
        for stream in streams:
            stream.flush()
    out, err = (stream.buffer.getvalue() for stream in streams)
    return Outcome(code, out, err.decode("utf-8"))


def environment(**changes: str) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(SETTINGS)}
    return {**inherited, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))), **changes}


def run(*arguments: str | Path, stdin: bytes | None = None, **options: Any) -> Outcome:
    """Run in a process of its own."""
    command = [sys.executable, "-m", "onnxmt", *map(str, arguments)]
    options.setdefault("env", environment())
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False, **options)
    return Outcome(done.returncode, done.stdout, done.stderr.decode("utf-8"))


@contextlib.contextmanager
def started(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process with pipes that is ended with the block."""
    options.setdefault("env", environment())
    pipe = subprocess.PIPE
    process = subprocess.Popen([str(part) for part in command], stdin=pipe, stdout=pipe, stderr=pipe, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
