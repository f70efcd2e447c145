"""Measure the service against what is promised of it: 512 MiB, 2 cores, real clients, every answer checked.

usage: python tools/load_acceptance.py BUNDLE [--checkpoint FOLDER] [--seconds 60] [--idle 60] [--clients 1,8,32,128]
           [--memory 512] [--json FILE] [-- OPTIONS OF onnxmt serve]

Needs Linux and the extra `serve`; with --checkpoint also `reference`, for a plain PyTorch service in the same harness.
The service runs in a memory cgroup (made below this process's own; needs root), the load generator outside it, both on
the CPUs that this process may use. Prints tables in Markdown and a verdict for each promise; exit code 1 if one is
missed. Texts whose translation depends on their batch already in the library (two tokens as likely as each other, which
untrained weights have) are left out and counted; an answer beside the expected one is put to the library again, in many
batches, and is wrong unless the library gives it too.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from load_client import SETTINGS
from load_memory import Room, cpu_seconds, memory_of, room

HERE = Path(__file__).parent
TEXTS = HERE.parent / "src" / "onnxmt" / "measure" / "data"
_COUNT, _SHORTEST, _LONGEST = 240, 40, 160
_READY_SECONDS = 180.0


_LIBRARY = """
import json, sys, time
from onnxmt.runtime.session import options_for
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator

texts, settings = json.loads(sys.stdin.read())
options, small = TranslateOptions(**settings), TranslateOptions(**settings, batch_tokens=256)
with Translator.load(sys.argv[1], options=options_for("throughput")) as translator:
    translator.translate(texts[:8], options=options)
    began, used = time.monotonic(), time.process_time()
    found = translator.translate(texts, options=options)
    took, used = time.monotonic() - began, time.process_time() - used
    other = translator.translate(texts[::-1], options=small)[::-1]
with Translator.load(sys.argv[1]) as translator:
    alone = [translator.translate(text, options=options) for text in texts]
answers = {text: a for text, a, b, c in zip(texts, found, other, alone) if a == b == c}
print(json.dumps({"seconds": took, "cpu_seconds": used, "texts": len(texts), "answers": answers}))
"""


_AGAIN = """
import json, random, sys
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator

texts, settings, asked = json.loads(sys.stdin.read())
draw, options, found = random.Random(0), TranslateOptions(**settings), {text: [] for text in asked}
with Translator.load(sys.argv[1]) as translator:
    for _ in range(30):
        batch = draw.sample(texts, draw.choice((1, 3, 7, 15, 31)))
        for text in found:
            found[text].append(translator.translate([*batch, text], options=options)[-1])
print(json.dumps(found))
"""


@dataclass
class Report:
    """Rows of the table, single figures, and the verdicts."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    verdicts: list[dict[str, Any]] = field(default_factory=list)

    def judge(self, promise: str, found: Any, *, kept: bool) -> None:
        """Add a verdict."""
        self.verdicts.append({"promise": promise, "found": found, "kept": bool(kept)})


def sentences() -> list[str]:
    """Different sentences of about 20 tokens, from the sets that onnxmt ships."""
    lines = [line.split("\t")[1] for line in (TEXTS / "evaluation.tsv").read_text(encoding="utf-8").splitlines()]
    lines += (TEXTS / "calibration.txt").read_text(encoding="utf-8").splitlines()
    fitting = [line for line in dict.fromkeys(lines) if _SHORTEST <= len(line) <= _LONGEST]
    return fitting[:_COUNT]


def library(bundle: str, scratch: Path) -> dict[str, Any]:
    """The library's throughput mode over all texts, in a process of its own: its answers, and texts a second."""
    asked = json.dumps([sentences(), SETTINGS])
    done = subprocess.run(
        [sys.executable, "-c", _LIBRARY, bundle],
        input=asked,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment(),
    )
    found = json.loads(done.stdout)
    answers = found["answers"]
    (scratch / "expected.json").write_text(json.dumps(answers), encoding="utf-8")
    (scratch / "unknown.json").write_text(json.dumps(dict.fromkeys(answers)), encoding="utf-8")
    return {
        "texts": len(answers),
        "left_out": found["texts"] - len(answers),
        "different_answers": len(set(answers.values())),
        "qps": round(found["texts"] / found["seconds"], 2),
        "per_cpu_second": round(found["texts"] / found["cpu_seconds"], 2),
    }


def unconfirmed(bundle: str, answers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of these (text, answer) that the library never gives, whatever it translates them with."""
    if not answers:
        return []
    asked = json.dumps([sentences(), SETTINGS, sorted({text for text, _ in answers})])
    command = [sys.executable, "-c", _AGAIN, bundle]
    done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=True, env=environment())
    found = json.loads(done.stdout)
    return [(text, answer) for text, answer in answers if answer not in found[text]]


def environment() -> dict[str, str]:
    """As the image sets it."""
    return {**os.environ, "MALLOC_ARENA_MAX": "2"}


@contextlib.contextmanager
def serving(command: Sequence[str], port: int, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A service while the block runs, and the seconds from its start until it was ready."""
    began = time.monotonic()
    with log.open("ab") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL, env=environment())
    try:
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() - began > _READY_SECONDS:
                raise SystemExit(f"the service did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.01)
        yield process, time.monotonic() - began
    finally:
        process.kill()
        process.wait()


def _is_ready(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False


def generator(
    port: int, clients: int, seconds: float, expected: Path, *more: str, errors: int | None = None
) -> subprocess.Popen[str]:
    """The load generator."""
    command = [
        sys.executable,
        str(HERE / "load_client.py"),
        str(port),
        str(clients),
        str(seconds),
        str(expected),
        *more,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)


def loaded(process: subprocess.Popen[bytes], port: int, clients: int, seconds: float, expected: Path) -> dict[str, Any]:
    """Load a service for a while, its health asked by another process; returns a row of the table."""
    before, began, highest, stop = cpu_seconds(process.pid), time.monotonic(), [0, 0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            found = memory_of(process.pid)
            highest[:] = max(highest[0], found["rss"]), max(highest[1], found["held"])

    watching = threading.Thread(target=watch)
    watching.start()
    asking = generator(port, clients, seconds, expected)
    polling = generator(port, 0, seconds, expected, "--poll", "/livez")
    row: dict[str, Any] = json.loads(asking.communicate()[0])
    polled = json.loads(polling.communicate()[0])
    stop.set()
    watching.join()
    return {
        **row,
        "poll_p99_ms": polled["poll_p99_ms"],
        "poll_max_ms": polled["poll_max_ms"],
        "poll_codes": polled["codes"],
        "cpu_share": round(row["cpu_share"] + polled["cpu_share"], 3),
        "server_cpu_share": round((cpu_seconds(process.pid) - before) / (time.monotonic() - began), 2),
        "rss_mb": round(highest[0] / 1e6),
        "held_mb": round(highest[1] / 1e6),
    }


def first_requests(port: int) -> tuple[float, float]:
    """The first request's milliseconds, and the median of the twenty after it."""
    body = json.dumps({"text": sentences()[0], **SETTINGS})
    connection, times = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
    for _ in range(21):
        began = time.monotonic()
        connection.request("POST", "/v1/translate", body, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        times.append(1000 * (time.monotonic() - began))
    return times[0], statistics.median(times[1:])


def measure(options: argparse.Namespace, cgroup: Room | None, scratch: Path) -> Report:
    """All of it, in order."""
    report, log, expected = Report(), scratch / "log", scratch / "expected.json"
    cpus = len(os.sched_getaffinity(0))
    report.figures |= {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {_processor()}, {cpus} CPUs",
        "memory_limit": "none: no cgroup can be made here"
        if cgroup is None
        else f"{options.memory} MiB ({cgroup.kind})",
        "seconds": options.seconds,
        "serve_options": " ".join(options.serve) or "defaults",
        "library": library(options.bundle, scratch),
    }
    port = _free_port()
    serve = [sys.executable, "-m", "onnxmt", "serve", "--model", options.bundle, "--port", str(port), "--quiet"]
    command = [*serve, *options.serve]
    command = command if cgroup is None else cgroup.command(*command)
    with serving(command, port, log) as (process, ready):
        first, median = first_requests(port)
        report.figures |= {"ready_seconds": round(ready, 2), "first_ms": round(first, 1), "median_ms": round(median, 1)}
        for clients in options.clients:
            report.rows.append(loaded(process, port, clients, options.seconds, expected))
            _say(report.rows[-1])
        report.figures["peak_rss_mb"] = round(memory_of(process.pid)["peak"] / 1e6)
        killing = generator(port, 8, 4, expected, errors=subprocess.DEVNULL)  # it will have much to complain of
        time.sleep(2)
        process.kill()
    with serving(command, port, log) as (process, again):
        killing.communicate()
        report.figures["ready_after_kill_seconds"] = round(again, 2)
        first_requests(port)
        time.sleep(1)
        before, began = cpu_seconds(process.pid), time.monotonic()
        time.sleep(options.idle)
        share = (cpu_seconds(process.pid) - before) / (time.monotonic() - began)
        report.figures["idle_cpu_percent"] = round(100 * share, 2)
    changed = sorted({(text, got) for row in report.rows for text, got in row["changed"]})
    report.figures["unconfirmed"] = unconfirmed(options.bundle, changed)
    report.figures["ties"] = len({text for text, _ in changed}) - len({t for t, _ in report.figures["unconfirmed"]})
    if cgroup is not None:
        report.figures |= {"cgroup_peak_mb": round((cgroup.peak() or 0) / 1e6), "out_of_memory_kills": cgroup.kills()}
    if options.checkpoint:
        peer = [sys.executable, str(HERE / "torch_service.py"), options.checkpoint, str(port), "--threads", str(cpus)]
        with serving(peer, port, log) as (process, _):
            report.figures["torch"] = loaded(process, port, 8, options.seconds, scratch / "unknown.json")
            _say(report.figures["torch"])
    _judge(report, options, cpus)
    return report


def _judge(report: Report, options: argparse.Namespace, cpus: int) -> None:
    rows, figures = report.rows, report.figures
    codes = {code for row in rows for code in row["codes"]}
    designed = {"200", "429", "503", "504"}
    report.judge("no status but 200, 429, 503 and 504, none lost", sorted(codes), kept=codes <= designed)
    crossed, wrong = sum(row["crossed"] for row in rows), len(figures["unconfirmed"])
    found = f"{crossed} crossed, {wrong} others; {figures['ties']} texts with two answers in the library too"
    report.judge("every answer is the library's", found, kept=not crossed and not wrong)
    health = max(row["poll_max_ms"] for row in rows)
    report.judge("health within 100 ms", f"{health} ms", kept=health < 100)
    if (most := next((row for row in rows if row["clients"] == 32), None)) is not None:
        left = figures["library"]["qps"] * (cpus - most["cpu_share"]) / cpus
        share = most["qps"] / left
        each = most["qps"] / most["server_cpu_share"] / figures["library"]["per_cpu_second"]
        found = f"{100 * share:.0f} % ({100 * each:.0f} % for each second of CPU time)"
        report.judge("at 32 clients 80 % of the library on the cores left", found, kept=share >= 0.8)
    peer, same = figures.get("torch"), next((row for row in rows if row["clients"] == 8), None)
    if peer and same:
        times = peer["p99_ms"] / same["p99_ms"]
        report.judge("P99 at 8 clients a third of PyTorch's", f"{times:.1f} times less", kept=times >= 3)
    first = figures["first_ms"] / figures["median_ms"]
    report.judge("first request within 2 medians", f"{first:.2f}", kept=first <= 2)
    again = figures["ready_after_kill_seconds"]
    report.judge("ready within 3 s after kill -9", f"{again} s", kept=again < 3)
    report.judge("idle CPU below 2 %", f"{figures['idle_cpu_percent']} %", kept=figures["idle_cpu_percent"] < 2)
    if "cgroup_peak_mb" in figures:
        found = f"RSS {figures['peak_rss_mb']} MB, cgroup {figures['cgroup_peak_mb']} MB at most"
        kept = not figures["out_of_memory_kills"] and figures["peak_rss_mb"] * 1e6 < options.memory << 20
        report.judge(f"within {options.memory} MiB", found, kept=kept)


def markdown(report: Report) -> str:
    """The report as Markdown."""
    figures = report.figures
    lines = [
        f"{figures['machine']}; memory {figures['memory_limit']}; {figures['seconds']:g} s each; {figures['date']}",
        "",
        "| clients | requests/s | P50 ms | P99 ms | statuses | health max ms | RSS MB (held) | CPUs | generator's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    named = [(str(row["clients"]), row) for row in report.rows]
    named += [("8, PyTorch", figures["torch"])] if "torch" in figures else []
    for name, row in named:
        codes = ", ".join(f"{count:,} × {code}" for code, count in sorted(row["codes"].items()))
        lines.append(
            f"| {name} | {row['qps']} | {row['p50_ms']} | {row['p99_ms']} | {codes} | {row['poll_max_ms']} | "
            f"{row['rss_mb']} ({row['held_mb']}) | {row['server_cpu_share']} | {row['cpu_share']} |"
        )
    found = figures["library"]
    texts = f"{found['texts']} texts with {found['different_answers']} answers, {found['left_out']} left out"
    lines += ["", f"The library's throughput mode alone: {found['qps']} texts a second ({texts})."]
    lines += ["", "| promise | found | |"]
    lines += ["|---|---|---|"]
    lines += [
        f"| {one['promise']} | {one['found']} | {'kept' if one['kept'] else 'MISSED'} |" for one in report.verdicts
    ]
    return "\n".join(lines)


def _say(row: dict[str, Any]) -> None:
    print(json.dumps(row, ensure_ascii=False), file=sys.stderr)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--checkpoint")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--idle", type=float, default=60)
    parser.add_argument("--clients", type=lambda text: [int(one) for one in text.split(",")], default=[1, 8, 32, 128])
    parser.add_argument("--memory", type=int, default=512)
    parser.add_argument("--json", type=Path)
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:at])
    options.serve = given[at + 1 :]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the services end too
    with tempfile.TemporaryDirectory() as scratch, room(options.memory) as cgroup:
        report = measure(options, cgroup, Path(scratch))
    if options.json:
        options.json.write_text(json.dumps(vars(report), ensure_ascii=False, indent=2), encoding="utf-8")
    print(markdown(report))
    sys.exit(not all(one["kept"] for one in report.verdicts))


if __name__ == "__main__":
    main()
