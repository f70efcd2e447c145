"""A load generator: so many clients, each with a connection of its own, ask and check every answer for a while.

python -m tests.serve.loadgen PORT CLIENTS SECONDS EXPECTED.json   only ever sends to 127.0.0.1; prints one JSON object.
EXPECTED.json maps each text to its translation.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

SETTINGS = {"beams": 1, "max_new_tokens": 32}


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes | None
) -> tuple[int, bytes]:
    """One request over a connection that stays open."""
    method = "GET" if body is None else "POST"
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body or b'')}\r\n\r\n"
    writer.write(head.encode() + (body or b""))
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(length)


async def client(port: int, until: float, number: int, expected: dict[str, str], found: dict[str, Any]) -> None:
    draw, texts = random.Random(number), list(expected)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        text = draw.choice(texts)
        began = time.monotonic()
        status, answer = await ask(reader, writer, "/v1/translate", json.dumps({"text": text, **SETTINGS}).encode())
        found["codes"][status] += 1
        if status == 200:
            found["seconds"].append(time.monotonic() - began)
            if (got := json.loads(answer)["translations"][0]["text"]) != expected[text]:
                found["wrong"].append((text, expected[text], got))
        else:
            await asyncio.sleep(0.2)
    writer.close()


async def health(port: int, until: float, found: dict[str, Any]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        began = time.monotonic()
        status, _ = await ask(reader, writer, "/livez", None)
        assert status == 200
        found["health"].append(time.monotonic() - began)
        await asyncio.sleep(0.05)
    writer.close()


async def main(port: int, clients: int, seconds: float, expected: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"codes": Counter(), "seconds": [], "health": [], "wrong": []}
    began = time.monotonic()
    until = began + min(seconds, 120)
    await asyncio.gather(
        health(port, until, found), *(client(port, until, number, expected, found) for number in range(clients))
    )
    took, times = time.monotonic() - began, sorted(found["seconds"])
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "clients": clients,
        "codes": dict(found["codes"]),
        "wrong": found["wrong"],
        "qps": round(len(times) / took, 1),
        "p50_ms": round(1000 * times[len(times) // 2]) if times else None,
        "p99_ms": round(1000 * times[int(len(times) * 0.99)]) if times else None,
        "health_max_ms": round(1000 * max(found["health"])),
        "generator_cpu_share": round((used.ru_utime + used.ru_stime) / took, 2),
    }


if __name__ == "__main__":
    port, clients, seconds, path = sys.argv[1:]
    answers = json.loads(Path(path).read_text(encoding="utf-8"))
    print(json.dumps(asyncio.run(main(int(port), int(clients), float(seconds), answers))))
