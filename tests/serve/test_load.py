"""Under load: no answer is lost, crossed or changed, memory levels off, and an idle service rests (cases L3, R2, R4)."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from tests.cli.harness import started
from tests.runtime.test_translator import KNOWN
from tests.serve.test_process import SERVE, port_of

pytestmark = pytest.mark.load
_WORDS = random.Random(3)
# Lists of words without an end; no two alike, since equal parts are translated once.
LONG_LINES = [
    ", ".join("".join(_WORDS.choices("abcdefghijklmnoprstuvwy", k=7)) for _ in range(450))[:4000] for _ in range(6)
]


@pytest.fixture(params=[("1", "1"), ("1", "2")], ids=["one-worker", "two-workers"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """Port and process id."""
    threads, workers = request.param
    with started(*SERVE[:-1], threads, "--workers", workers, "--quiet") as process:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        found = re.search(r":(\d+)$", line)
        assert found, line
        yield int(found[1]), process.pid


class Client:
    """One connection, kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, body: dict[str, Any]) -> tuple[int, Any]:
        self._connection.request("POST", "/v1/translate", json.dumps(body), {"content-type": "application/json"})
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def get(self, path: str) -> tuple[int, str]:
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        return response.status, response.read().decode()


@pytest.mark.parametrize("clients", [8, 32])
def test_every_client_gets_its_own_answer(server: tuple[int, int], translator: Translator, clients: int) -> None:
    port, _ = server
    texts = [*KNOWN, "Nothing that it knows.", "Yes. It rained.\n\nYes.", "", "42", " ".join(KNOWN)]
    expected = {
        beams: dict(zip(texts, translator.translate(texts, options=TranslateOptions(beams=beams)), strict=True))
        for beams in (1, 2)
    }

    def client(number: int) -> None:
        draw, connection = random.Random(number), Client(port)
        for _ in range(12):
            asked, beams = draw.choices(texts, k=draw.randint(1, 6)), draw.choice((1, 2))
            status, found = connection.ask({"text": asked, "beams": beams})
            assert status == 200, found
            assert [one["text"] for one in found["translations"]] == [expected[beams][text] for text in asked]

    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(client, number) for number in range(clients)]:
            done.result()


def test_one_unbroken_line_leaves_the_others_and_the_health_alone(server: tuple[int, int]) -> None:
    """Case L3: the answers to ten short ones and to /livez come while the long one is still at work."""
    port, _ = server
    order: list[str] = []

    def long() -> None:
        status, found = Client(port).ask({"text": LONG_LINES, "beams": 4})
        order.append("long")
        assert status == 200, found

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(long)
        connection = Client(port)
        while "onnxmt_requests_in_flight 2.0" not in connection.get("/metrics")[1]:
            assert not running.done(), running.result()
        for text, translation in KNOWN.items():
            assert connection.ask({"text": text})[1]["translations"][0]["text"] == translation
            assert connection.get("/livez")[0] == 200
            order.append("short")
        running.result()
    assert order == ["short"] * len(KNOWN) + ["long"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_levels_off_whatever_the_shapes(server: tuple[int, int]) -> None:
    """Case R4: lengths 1 to 400, batches of 1 to 32."""
    port, process = server
    draw, connection = random.Random(4), Client(port)
    held = []
    for _ in range(6):
        for _ in range(20):
            count, length = draw.randint(1, 32), draw.randint(1, 400)
            words = " ".join(draw.choices(["yes", "it", "rained", "nine", "library", "opens", "umbrella"], k=length))
            status, found = connection.ask(
                {"text": [words[: 40_000 // count]] * count, "beams": 1, "max_new_tokens": 2}
            )
            assert status == 200, found
        held.append(resident(process))
    assert max(held[3:]) < 1.15 * max(held[:3]), held


@pytest.mark.skipif(sys.platform != "linux", reason="CPU time is read from /proc")
def test_an_idle_service_rests(server: tuple[int, int]) -> None:
    """Case R2: well under 2 % of a core."""
    port, process = server
    assert Client(port).ask({"text": "Yes."})[0] == 200
    time.sleep(0.5)
    before = cpu_ticks(process)
    time.sleep(3)
    assert cpu_ticks(process) - before <= 6  # hundredths of a second


def test_a_client_that_hangs_up_stops_costing(server: tuple[int, int]) -> None:
    port, _ = server
    body = json.dumps({"text": LONG_LINES, "beams": 4}).encode()
    head = f"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    connection = Client(port)
    with socket.create_connection(("127.0.0.1", port)) as leaving:
        leaving.sendall(head.encode() + body)
        while "onnxmt_requests_in_flight 2.0" not in connection.get("/metrics")[1]:
            pass
    page = ""
    until = time.monotonic() + 30
    while "onnxmt_stopped_total 1.0" not in page and time.monotonic() < until:
        page = connection.get("/metrics")[1]
    assert "onnxmt_stopped_total 1.0" in page
    assert 'onnxmt_requests_total{code="499",route="/v1/translate"} 1.0' in page


def test_killed_under_load_and_ready_again() -> None:
    with started(*SERVE) as first:
        port = port_of(first)
        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(Client(port).ask, {"text": "no, " * 3000, "beams": 8}) for _ in range(4)]
            connection = Client(port)
            while "onnxmt_requests_in_flight 5.0" not in connection.get("/metrics")[1]:
                pass
            first.kill()
            assert all(isinstance(one.exception(), (OSError, http.client.HTTPException)) for one in asking)
        with started(*SERVE[:-4], "--port", str(port), "--threads", "1") as second:
            assert port_of(second) == port
            assert Client(port).ask({"text": "Yes."})[1]["translations"][0]["text"] == "是的。"


def resident(process: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1])


def cpu_ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
