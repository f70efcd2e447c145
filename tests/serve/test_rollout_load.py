"""Under load, as a process: a damaged canary is returned by itself, aliases move, and no client ever sees it."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxmt.bundle import BundleWriter, read_bundle
from onnxmt.measure.sentences import verification_sentences
from onnxmt.precision import PRESETS
from onnxmt.quantization import QuantizeOptions, quantize
from onnxmt.store.adding import AddOptions, add
from onnxmt.store.promoting import PromoteOptions, promote, rollback
from onnxmt.store.shelf import Shelf, shelf_of
from tests.cli.harness import environment, started
from tests.measure.damage import multiply_scales
from tests.precision.conftest import demo  # noqa: F401  a trained model, in fp32

pytestmark = [pytest.mark.load, pytest.mark.slow]
CLIENTS = 8
MOST = 100


@pytest.fixture(scope="module")
def bundles(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:  # noqa: F811
    """The demo model, the same in int8, and that with one layer 8 times too large."""
    folder = tmp_path_factory.mktemp("bundles")
    int8, damaged = folder / "int8", folder / "damaged"
    quantize(demo, int8, options=QuantizeOptions(precision=PRESETS["int8"], gate="off"))
    found = read_bundle(int8, check="size")
    with BundleWriter(damaged) as writer:
        for entry in found.manifest.files:
            shutil.copyfile(int8 / entry.path, writer.folder / entry.path)
        multiply_scales(writer.folder, by=8)
        writer.commit(found.manifest)  # its hashes are right
    return demo, int8, damaged


@pytest.fixture
def shelf(bundles: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """The bundles as m:1, m:2 and m:3; m:production is 1."""
    monkeypatch.setenv("ONNXMT_STORE", str(tmp_path / "store"))
    for folder in bundles:
        add(folder, options=AddOptions(name="m", run=False))
    model = shelf_of("m")
    promote(model, "1")
    return model


class Load:
    """Clients that ask without a pause, and all that they were answered."""

    def __init__(self, port: int) -> None:
        self._port, self._stop = port, threading.Event()
        self.seen: Counter[tuple[int, str]] = Counter()
        self.failures: list[Any] = []
        self._lock = threading.Lock()

    def _client(self, number: int) -> None:
        draw, texts = random.Random(number), [one.text for one in verification_sentences().sentences]
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        count = 0
        while not self._stop.is_set():
            count += 1
            headers = {"content-type": "application/json", "x-request-id": f"{number}-{count}"}
            body = json.dumps({"text": draw.choice(texts), "beams": 1})
            try:
                connection.request("POST", "/v1/translate", body, headers)
                response = connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                return
            with self._lock:
                self.seen[response.status, response.headers.get("x-onnxmt-version", "")] += 1
                if response.status != 200:
                    self.failures.append(answer)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(60)


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[int]:
    """The port of a service that follows m:production."""
    command = (sys.executable, "-m", "onnxmt", "serve", "--model", "m:production", "--port", "0", "--threads", "1")
    store = {"ONNXMT_STORE": str(shelf_of("m").root)}
    with started(*command, "--quiet", "--poll", "0.1", *arguments, env=environment(**store)) as process:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        found = re.search(r":(\d+)$", line)
        assert found, line
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield int(found[1])


def until(true: Callable[[], Any], *, seconds: float = 100.0) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "this did not happen"
        time.sleep(0.05)


def models(port: int) -> list[tuple[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/v1/models")
    return [(one["version"], one["role"]) for one in json.loads(connection.getresponse().read())["models"]]


@pytest.mark.parametrize("mode", [(), ("--shadow",)], ids=["canary", "shadow"])
def test_a_damaged_canary_under_load(shelf: Shelf, mode: tuple[str, ...]) -> None:
    promote(shelf, "3", options=PromoteOptions(alias="canary"))
    with served("--canary", "m:canary", "--canary-percent", "20", *mode) as port:
        load = Load(port)
        with load.running():
            until(lambda: shelf.history()[-1].action == "return")
            time.sleep(1)
        assert models(port) == [("1", "production")]
    assert load.failures == []
    assert {status for status, _ in load.seen} == {200}
    event = shelf.history()[-1]
    assert (event.alias, event.before) == ("canary", "3")
    assert event.evidence["requests"] <= MOST, event
    assert load.seen[200, "3"] == 0 if mode else 0 < load.seen[200, "3"] <= MOST, load.seen
    assert "canary" not in shelf.state().aliases


def test_a_healthy_canary_is_promoted_and_rolled_back_under_load(shelf: Shelf) -> None:
    promote(shelf, "2", options=PromoteOptions(alias="canary"))
    with served("--canary", "m:canary", "--canary-percent", "30") as port:
        load = Load(port)
        with load.running():
            until(lambda: load.seen[200, "2"] >= 40)
            assert shelf.state().version_of("canary") == "2"
            promote(shelf, "2")
            until(lambda: models(port) == [("2", "production")])
            rollback(shelf)
            until(lambda: models(port)[0] == ("1", "production"))
    assert load.failures == []
    assert {status for status, _ in load.seen} == {200}
    assert [event.action for event in shelf.history()].count("return") == 0
