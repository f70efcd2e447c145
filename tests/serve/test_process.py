"""`onnxmt serve` as a process: it starts, says where, is ready, and ends in good order."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from unittest import mock

import pytest

from onnxmt.errors import MissingExtraError, UsageError
from onnxmt.serve.process import _listen, require_extra
from tests.cli.harness import GOLDEN, environment, run, started

SERVE = (sys.executable, "-m", "onnxmt", "serve", "--model", GOLDEN, "--port", "0", "--threads", "1")


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with started(*SERVE) as process:
        yield process, port_of(process)


def port_of(process: subprocess.Popen[bytes]) -> int:
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    found = re.search(r" ready: \S+ \(CPUExecutionProvider, 1 threads, 1 workers\) on http://127\.0\.0\.1:(\d+)$", line)
    assert found, line
    return int(found[1])


def ask(port: int, text: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"text": text})
    connection.request("POST", "/v1/translate", body, {"content-type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read().decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_finish(server: tuple[subprocess.Popen[bytes], int], number: signal.Signals) -> None:
    process, port = server
    assert "是的。" in ask(port, "Yes.")[1]
    found: list[tuple[int, str]] = []
    asking = threading.Thread(target=lambda: found.append(ask(port, "no, " * 2000)))
    asking.start()
    with socket.create_connection(("127.0.0.1", port)):  # one that says nothing must not hold it up
        metric = ""
        while "onnxmt_requests_in_flight 2.0" not in metric:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/metrics")
            metric = connection.getresponse().read().decode()
            assert asking.is_alive()
        process.send_signal(number)
        asking.join(60)
        assert process.wait(60) == 0
    assert found[0][0] == 200
    out, err = process.communicate()
    assert out == b""
    assert b"Traceback" not in err
    assert b"no, no" not in err


def test_killed_and_started_again_at_the_same_port() -> None:
    with started(*SERVE) as first:
        port = port_of(first)
        first.kill()
        first.wait(30)
        with started(*SERVE[:-4], "--port", str(port), "--threads", "1") as second:
            assert port_of(second) == port
            assert ask(port, "Yes.")[0] == 200


def test_what_is_wrong_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = run("serve", "--model", GOLDEN, "--port", str(port)).error()
    assert message == f"cannot listen on 127.0.0.1:{port} (Address already in use): choose another --host or --port"
    assert "absent" in run("serve", "--model", "absent").error()
    assert "dialect 'bing'" in run("serve", "--model", GOLDEN, "--dialects", "bing").error()
    assert "API keys" in run("serve", "--model", GOLDEN, "--api-keys", os.devnull).error()
    short = run("serve", "--model", GOLDEN, env=environment(ONNXMT_API_KEYS="short"))
    assert "fewer than 8 characters" in short.error()


def test_a_missing_package_is_named_with_its_extra() -> None:
    with (
        mock.patch("importlib.util.find_spec", side_effect=lambda name: None if name == "uvicorn" else object()),
        pytest.raises(MissingExtraError, match=r"'uvicorn', which is not installed.*onnxmt\[serve\]"),
    ):
        require_extra()


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1:0"):
        _listen("192.0.2.1", 0)
