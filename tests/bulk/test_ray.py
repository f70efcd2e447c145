"""On a real Ray cluster of this machine: workers and drivers that are killed, and what the cluster listens on."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from tests.cli.harness import GOLDEN, run, started

pytest.importorskip("ray", reason="needs the extra `ray`")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes and sockets are read from /proc"),
]
ROWS = 10_000


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    """What comes out: each row once, in order, translated as the library does it."""
    rows = [{"id": number, "text": f"Number {number} rained."} for number in range(ROWS)]
    with Translator.load(GOLDEN, options=RuntimeOptions(threads=1)) as translator:
        found = translator.translate([str(row["text"]) for row in rows], options=TranslateOptions(max_new_tokens=8))
    return [{**row, "translation": text} for row, text in zip(rows, found, strict=True)]


@pytest.fixture
def command(tmp_path: Path, expected: list[dict[str, Any]]) -> Iterator[list[str | Path]]:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"id": row["id"], "text": row["text"]}) + "\n" for row in expected))
    options = ("--model", GOLDEN, "--max-new-tokens", "8", "--workers", "1", "--json")
    yield ["translate", source, "-o", output, "--ray", *options]
    assert waited(lambda: not leftovers(tmp_path)), leftovers(tmp_path)


def test_a_worker_that_is_killed_costs_a_shard_and_no_row(
    command: list[str | Path], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    with driver(command) as process:
        assert waited(lambda: begun(tmp_path) and finished(tmp_path) >= 1)
        assert listens_elsewhere(tree(process.pid)) == []
        worker = worker_of(process.pid)
        os.kill(worker, signal.SIGKILL)
        assert waited(lambda: finished(tmp_path) >= 3 or process.poll() is not None)
        assert process.poll() is not None or worker_of(process.pid) != worker
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert json.loads(out)["rows"] == ROWS
    assert b"Traceback" not in err
    assert rows_of(tmp_path) == expected
    assert not (tmp_path / "out.jsonl.parts").exists()
    assert not (tmp_path / "out.jsonl.errors.jsonl").exists()


def test_a_driver_that_is_stopped_and_one_that_is_killed(
    command: list[str | Path], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = 5_000
    source = tmp_path / "in.jsonl"
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:rows]))
    with driver(command) as process:
        assert waited(lambda: finished(tmp_path) >= 1)
        process.terminate()
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err.decode()) == (
        2,
        "onnxmt: error: interrupted by SIGTERM; nothing half-written is left\n",
    )
    first = finished(tmp_path)
    with driver(command) as process:
        assert waited(lambda: finished(tmp_path) > first)
        processes = tree(process.pid)
        process.kill()
        assert waited(lambda: not [one for one in processes if alive(one)])
    second = finished(tmp_path)
    assert 1 <= first < second < rows // 1000
    assert not (tmp_path / "out.jsonl").exists()

    done = run(*command)
    assert done.code == 0, done.err
    assert json.loads(done.text)["kept"] == second
    assert rows_of(tmp_path) == expected[:rows]


def test_no_cluster_at_the_address(command: list[str | Path]) -> None:
    done = run(*command, "127.0.0.1:9")
    assert done.code == 2
    assert done.err.startswith("onnxmt: error: a Ray cluster could not be reached at '127.0.0.1:9' (")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ray",), "--ray translates one file (.txt, .jsonl, .parquet); found: none"),
        (("a.txt", "b.txt", "--ray"), "--ray translates one file (.txt, .jsonl, .parquet); found: a.txt, b.txt"),
        (("a.txt", "h:1", "h:2", "--ray"), "--ray takes one address; found h:1, h:2"),
        (("a.txt", "--ray"), "--ray needs -o FILE: finished shards are kept beside it"),
        (("a.txt", "--ray", "auto", "-o", "b.txt"), "cannot read a.txt: no such file"),
        (("a.txt", "--field", "b"), "--field has no effect without --ray"),
        (("a.txt", "--workers", "2"), "--workers has no effect without --ray"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert run("translate", *arguments, cwd=tmp_path).error() == said


def driver(command: list[str | Path]) -> Any:
    return started(sys.executable, "-m", "onnxmt", *command)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()]


def finished(folder: Path) -> int:
    return len(list(folder.glob("out.jsonl.parts/*/[0-9]*[0-9].json")))


def begun(folder: Path) -> bool:
    return bool(list(folder.glob("out.jsonl.parts/*/*.tries")))


def waited(done: Callable[[], Any], seconds: float = 90) -> bool:
    """Whether it came true in time."""
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and alive(int(entry.name)):
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def worker_of(pid: int) -> int:
    def workers() -> list[int]:
        return [one for one in tree(pid) if b"ray::MapWorker" in command_line(one)]

    assert waited(workers)
    (worker,) = workers()
    return worker


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def leftovers(folder: Path) -> list[bytes]:
    """Processes of Ray that know of this test's cluster: their session's folder is in what they were started with."""
    return [
        command_line(int(one.name))
        for one in Path("/proc").iterdir()
        if one.name.isdigit() and str(folder).encode() in command_line(int(one.name))
    ]


def listens_elsewhere(pids: list[int]) -> list[str]:
    """The addresses beside 127.0.0.1 that these processes listen on."""
    sockets: dict[str, str] = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and not fields[1].startswith(("0100007F:", "0000000000000000FFFF00000100007F:")):
                sockets[fields[9]] = fields[1]
    found = []
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inode = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
            except OSError:
                continue
            if inode and inode[1] in sockets:
                found.append(sockets[inode[1]])
    return found
