"""Load from the client's side: clients that each keep a connection, ask, and check every answer.

Runs in a process of its own.

usage: python tools/load_client.py PORT CLIENTS SECONDS EXPECTED.json [--path /v1/translate] [--poll /livez]

EXPECTED.json maps texts to translations (or to null, where answers are not compared). With 0 clients only --poll is
asked, 20 times a second. Sends to 127.0.0.1 only, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SETTINGS = {"beams": 1, "max_new_tokens": 32}
_LONGEST = 600.0
_POLL_SECONDS = 0.05
# What a polite client does when it is told to come back: it waits a moment.
_PAUSE_SECONDS = 0.2


@dataclass
class Seen:
    """What the clients saw."""

    codes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    polls: list[float] = field(default_factory=list)
    crossed: int = 0  # another text's answer
    changed: list[tuple[str, str, str]] = field(default_factory=list)  # an answer that is no text's


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes | None
) -> tuple[int, bytes]:
    """One request over a connection that stays open."""
    method, content = ("GET", b"") if body is None else ("POST", body)
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    writer.write(f"{head}\r\n\r\n".encode() + content)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(length)


async def client(port: int, path: str, until: float, number: int, expected: dict[str, str | None], seen: Seen) -> None:
    """Ask one text after the other until the time is up; the last answer is waited for."""
    texts = list(expected)
    random.Random(number).shuffle(texts)
    answers = set(expected.values())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    at = 0
    while time.monotonic() < until:
        text = texts[at % len(texts)]
        at += 1
        began = time.monotonic()
        try:
            status, answer = await ask(reader, writer, path, json.dumps({"text": text, **SETTINGS}).encode())
        except (OSError, asyncio.IncompleteReadError):  # no answer is the one thing that must not be
            seen.codes["lost"] += 1
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        seen.codes[str(status)] += 1
        if status != 200:
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        seen.seconds.append(time.monotonic() - began)
        got, right = json.loads(answer)["translations"][0]["text"], expected[text]
        if right is not None and got != right:
            if got in answers:
                seen.crossed += 1
            else:
                seen.changed.append((text, right, got))
    writer.close()


async def poll(port: int, path: str, until: float, seen: Seen) -> None:
    """Ask how the server is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        began = time.monotonic()
        status, _ = await ask(reader, writer, path, None)
        seen.polls.append(time.monotonic() - began)
        if status != 200:
            seen.codes[f"poll {status}"] += 1
        await asyncio.sleep(_POLL_SECONDS)
    writer.close()


async def load(options: argparse.Namespace, expected: dict[str, str | None]) -> dict[str, Any]:
    """Run the clients, and return what they saw in JSON values."""
    seen, began = Seen(), time.monotonic()
    until = began + min(options.seconds, _LONGEST)
    work = [client(options.port, options.path, until, number, expected, seen) for number in range(options.clients)]
    if options.poll:
        work.append(poll(options.port, options.poll, until, seen))
    await asyncio.gather(*work)
    took, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "clients": options.clients,
        "seconds": round(took, 1),
        "requests": sum(seen.codes.values()),
        "codes": dict(seen.codes),
        "crossed": seen.crossed,
        "changed": sorted({(text, got) for text, _, got in seen.changed}),
        "changed_count": len(seen.changed),
        "qps": round(len(seen.seconds) / took, 2),
        "p50_ms": percentile(seen.seconds, 0.5),
        "p99_ms": percentile(seen.seconds, 0.99),
        "poll_p99_ms": percentile(seen.polls, 0.99),
        "poll_max_ms": percentile(seen.polls, 1.0),
        "cpu_share": round((used.ru_utime + used.ru_stime) / took, 3),
    }


def percentile(seconds: list[float], share: float) -> float | None:
    """In milliseconds, by nearest rank; None where there is nothing."""
    if not seconds:
        return None
    return round(1000 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("clients", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("expected", type=Path)
    parser.add_argument("--path", default="/v1/translate")
    parser.add_argument("--poll")
    options = parser.parse_args()
    expected = json.loads(options.expected.read_text(encoding="utf-8"))
    print(json.dumps(asyncio.run(load(options, expected)), ensure_ascii=False))


if __name__ == "__main__":
    main()
