"""Versions behind one service, in this process: switching, canaries, shadows, returns, restarts."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from starlette.testclient import TestClient

from onnxmt.errors import StoreError
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
from onnxmt.serve import ServeOptions, create_app
from onnxmt.serve.problems import Problem
from onnxmt.serve.rollout import Rollout
from onnxmt.serve.rollout_options import CanaryLimits, rollout_plan
from onnxmt.store.adding import AddOptions, add
from onnxmt.store.promoting import PromoteOptions, clear, promote, rollback
from onnxmt.store.shelf import Shelf, shelf_of
from tests.runtime.test_translator import KNOWN
from tests.store.bundles import damaged_bundle, make_bundle

SENTENCES = list(KNOWN)
QUICK = RuntimeOptions(threads=1)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """m:1 and m:2 are whole and alike, m:3 is damaged; m:production is 1."""
    monkeypatch.setenv("ONNXMT_STORE", str(tmp_path / "store"))
    for number in (1, 2):
        make_bundle(tmp_path / str(number), marker=str(number))
        add(tmp_path / str(number), options=AddOptions(name="m", run=False))
    damaged_bundle(tmp_path / "3")
    add(tmp_path / "3", options=AddOptions(name="m", run=False))
    found = shelf_of("m")
    promote(found, "1")
    return found


@contextlib.contextmanager
def serving(
    canary: str | None = "m:canary",
    *,
    model: str = "m:production",
    options: ServeOptions | None = None,
    **plan: Any,
) -> Iterator[tuple[TestClient, Rollout]]:
    """The service in this process, looking at the store 50 times a second."""
    limits = plan.pop("limits", None)
    found = rollout_plan(model, canary, poll_seconds=0.02, limits=limits, **plan)
    assert found is not None
    translator = Translator.load(model, options=QUICK)
    app = create_app(translator, options=options, rollout=found)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client, app.state.onnxmt.rollout


def until(true: Callable[[], Any], *, seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "this did not happen"
        time.sleep(0.01)


def ask(client: TestClient, text: str = "Yes.", *, request_id: str | None = None, **body: Any) -> tuple[str, str]:
    """The answer and the version that gave it; anything but an answer is a failure."""
    headers = {} if request_id is None else {"x-request-id": request_id}
    response = client.post("/v1/translate", json={"text": text, **body}, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["translations"][0]["text"], response.headers["x-onnxmt-version"]


def metric(client: TestClient, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def make_canary(shelf: Shelf, version: str) -> None:
    promote(shelf, version, options=PromoteOptions(alias="canary"))


def test_an_alias_that_moves_is_followed_without_a_failed_request(shelf: Shelf) -> None:
    stop, seen = threading.Event(), []
    with serving(None) as (client, rollout):
        first = rollout.production

        def load() -> None:
            while not stop.is_set():
                for text in SENTENCES:
                    answer, version = ask(client, text)
                    assert answer == KNOWN[text]
                    seen.append(version)

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: len(seen) > 20)
        promote(shelf, "2")
        until(lambda: seen[-1] == "2")
        rollback(shelf)
        until(lambda: seen[-1] == "1")
        stop.set()
        for thread in threads:
            thread.join()
        assert set(seen) == {"1", "2"}
        until(lambda: metric(client, 'onnxmt_version_switches_total{role="production"}') == 2)
        assert metric(client, 'onnxmt_version_loaded{role="production",version="2"}') == 0
        until(lambda: first.translator.model.encoder._session is None)  # the memory of the first one is given back
        requests = 'onnxmt_version_requests_total{outcome="ok",role="production",version="%s"}'
        assert metric(client, requests % "1") + metric(client, requests % "2") == len(seen)
        (model,) = client.get("/v1/models").json()["models"]
        assert (model["version"], model["role"]) == ("1", "production")
        assert client.get("/readyz").status_code == 200
        assert 'version="2"' not in "".join(
            line for line in client.get("/metrics").text.splitlines() if line.startswith("onnxmt_model_info")
        )


def test_a_canary_gets_a_stable_share(shelf: Shelf) -> None:
    make_canary(shelf, "2")
    with serving(percent=30) as (client, rollout):
        until(lambda: rollout.canary is not None)
        first = {f"id-{number}": ask(client, request_id=f"id-{number}")[1] for number in range(60)}
        again = {name: ask(client, request_id=name)[1] for name in first}
        assert first == again
        share = list(first.values()).count("2") / len(first)
        assert 0.1 < share < 0.5
        assert [(one["version"], one["role"]) for one in client.get("/v1/models").json()["models"]] == [
            ("1", "production"),
            ("2", "canary"),
        ]
        until(lambda: rollout.stats is not None and rollout.stats.compared > 0)
        assert metric(client, "onnxmt_canary_agreement") == 1
        assert rollout.canary is not None


def test_a_damaged_canary_is_returned_by_itself(shelf: Shelf) -> None:
    make_canary(shelf, "3")
    with serving(percent=50) as (client, rollout):
        until(lambda: rollout.canary is not None)
        number = 0
        while rollout.canary is not None:
            ask(client, SENTENCES[number % len(SENTENCES)], request_id=f"r{number}")
            number += 1
            assert number < 400
        asked = sum(
            float(value)
            for value in re.findall(
                r'^onnxmt_version_requests_total\{.*role="canary",version="3"\} (\S+)$',
                client.get("/metrics").text,
                re.MULTILINE,
            )
        )
        assert 0 < asked <= 100
        until(lambda: "canary" not in shelf.state().aliases)
        assert {ask(client, text) for text in SENTENCES} == {(answer, "1") for answer in KNOWN.values()}
        event = shelf.history()[-1]
        assert (event.action, event.alias, event.before) == ("return", "canary", "3")
        assert event.reason is not None
        assert event.reason.startswith("returned by the service: ")
        assert event.evidence["requests"] <= 100
        assert event.evidence["rule"] in ("agreement", "warnings")
        assert (
            sum(
                metric(client, f'onnxmt_canary_returned_total{{reason="{one}"}}')
                for one in ("errors", "warnings", "latency", "agreement")
            )
            == 1
        )
        make_canary(shelf, "2")  # another one may try
        until(lambda: rollout.canary is not None and rollout.canary.version == "2")


def test_what_a_canary_cannot_do_production_does(shelf: Shelf) -> None:
    make_canary(shelf, "2")
    with serving(percent=100) as (client, rollout):
        until(lambda: rollout.canary is not None)
        assert rollout.canary is not None
        service = rollout.canary.service
        for failure in (Problem(500, "model_failed", "x"), RuntimeError("x")):
            with mock.patch.object(service, "translate", side_effect=failure):
                assert ask(client) == ("是的。", "1")
        with mock.patch.object(service, "translate", side_effect=Problem(429, "queue_full", "x", retry_after=1)):
            assert ask(client) == ("是的。", "1")
        assert rollout.stats is not None
        assert (rollout.stats.canary.errors, metric(client, "onnxmt_canary_fallbacks_total")) == (2, 3)
        wrong = client.post("/v1/translate", json={"text": "Yes.", "target": "klingon"})
        assert wrong.status_code == 422
        assert rollout.stats.canary.errors == 2  # production refuses that too
        with mock.patch.object(service, "translate", side_effect=Problem(504, "deadline", "x")):
            assert ask(client) == ("是的。", "1")
        assert rollout.canary is None
        until(lambda: shelf.history()[-1].action == "return")
        assert "3 of 3 requests failed" in str(shelf.history()[-1].reason)
        assert ask(client) == ("是的。", "1")


def test_a_stream_of_a_canary_that_fails_goes_on(shelf: Shelf) -> None:
    make_canary(shelf, "2")
    text = "Yes. It rained. The library opens at nine."
    with serving(percent=100) as (client, rollout):
        until(lambda: rollout.canary is not None)
        whole = client.post("/v1/translate/stream", json={"text": text})
        assert whole.headers["x-onnxmt-version"] == "2"
        assert rollout.canary is not None
        real, count = rollout.canary.service.translate, 0

        async def second_fails(wish: Any) -> Any:
            nonlocal count
            count += 1
            if count > 1:
                raise RuntimeError("x")
            return await real(wish)

        with mock.patch.object(rollout.canary.service, "translate", second_fails):
            broken = client.post("/v1/translate/stream", json={"text": text})
        assert count == 2
        assert re.sub(r'"total_ms": [\d.]+', "", broken.text) == re.sub(r'"total_ms": [\d.]+', "", whole.text)


def test_production_answers_where_a_canary_warns_more(shelf: Shelf) -> None:
    """A strict client would refuse the canary's answer."""
    make_canary(shelf, "2")
    with serving(percent=100) as (client, rollout):
        until(lambda: rollout.canary is not None)
        assert rollout.canary is not None
        real = rollout.canary.service.translate
        warning = {"kind": "repetition", "message": "x", "span": None}

        async def warns(wish: Any) -> Any:
            found = await real(wish)
            changed = tuple(dataclasses.replace(one, warnings=(warning,)) for one in found.results)
            return dataclasses.replace(found, results=changed)

        with mock.patch.object(rollout.canary.service, "translate", warns):
            assert ask(client, strict=True) == ("是的。", "1")
            assert ask(client) == ("是的。", "1")
            with mock.patch.object(rollout.production.quiet, "translate", warns):
                assert ask(client) == ("是的。", "2")
        assert rollout.stats is not None
        assert (rollout.stats.canary.warned, rollout.stats.canary.errors, rollout.stats.compared) == (3, 0, 3)


def test_a_shadow_is_compared_and_never_returned_to_a_client(shelf: Shelf) -> None:
    make_canary(shelf, "3")
    with serving(percent=100, shadow=True) as (client, rollout):
        until(lambda: rollout.canary is not None)
        number = 0
        while rollout.canary is not None:
            text = SENTENCES[number % len(SENTENCES)]
            assert ask(client, text) == (KNOWN[text], "1")
            number += 1
            assert number < 400
        until(lambda: shelf.history()[-1].action == "return")
        assert shelf.history()[-1].evidence["requests"] <= 100
        page = client.get("/metrics").text
        assert 'role="shadow",version="3"' in page
        assert 'role="canary",version="3",outcome' not in page


def test_a_shadow_is_not_asked_when_too_much_waits(shelf: Shelf) -> None:
    make_canary(shelf, "2")
    with serving(percent=100, shadow=True) as (client, rollout):
        until(lambda: rollout.canary is not None)
        rollout._comparing.update(mock.Mock() for _ in range(rollout.plan.pending))
        ask(client)
        rollout._comparing.clear()
        assert metric(client, "onnxmt_canary_not_compared_total") == 1
        rollout.production.users += 1000
        ask(client)
        rollout.production.users -= 1000
        assert metric(client, "onnxmt_canary_not_compared_total") == 2
        ask(client)
        until(lambda: rollout.stats is not None and rollout.stats.canary.requests == 1)


def test_statistics_survive_a_restart(shelf: Shelf) -> None:
    make_canary(shelf, "2")
    with serving(percent=100) as (client, rollout):
        until(lambda: rollout.canary is not None)
        for _ in range(5):
            ask(client)
    with serving(percent=100) as (client, rollout):
        until(lambda: rollout.canary is not None)
        assert rollout.stats is not None
        assert rollout.stats.canary.requests == 5
    clear(shelf, "canary")
    make_canary(shelf, "2")  # a new attempt is counted anew
    with serving(percent=100) as (client, rollout):
        until(lambda: rollout.canary is not None)
        assert rollout.stats is not None
        assert rollout.stats.canary.requests == 0


@pytest.mark.parametrize("canary", ["m:canary", "m:3"])
def test_a_returned_canary_stays_away_after_a_restart(shelf: Shelf, canary: str) -> None:
    """Also where the store could not be told, and where the canary is named by its version, which no alias holds."""
    make_canary(shelf, "3")
    with (
        mock.patch("onnxmt.serve.rollout.clear", side_effect=StoreError("read-only")),
        serving(canary, percent=100) as (client, rollout),
    ):
        until(lambda: rollout.canary is not None)
        while rollout.canary is not None:
            ask(client)
        until(lambda: not rollout._retiring)
    assert shelf.history()[-1].action == ("return" if canary == "m:3" else "promote")
    with serving(canary, percent=100) as (client, rollout):
        until(lambda: rollout._seen is not None)
        time.sleep(0.3)
        assert rollout.canary is None
        assert ask(client) == ("是的。", "1")
    if canary == "m:canary":
        clear(shelf, "canary")
        make_canary(shelf, "3")  # somebody wants it again
        with serving(canary, percent=0) as (client, rollout):
            until(lambda: rollout.canary is not None)


def test_a_canary_that_is_promoted_is_taken_as_it_is(shelf: Shelf) -> None:
    make_canary(shelf, "2")
    with serving(percent=50) as (client, rollout):
        until(lambda: rollout.canary is not None)
        loaded = rollout.canary
        promote(shelf, "2")
        until(lambda: rollout.production is loaded)
        assert rollout.canary is None
        assert ask(client) == ("是的。", "2")
        assert len(client.get("/v1/models").json()["models"]) == 1


def test_too_little_memory_is_said_and_nothing_else_happens(
    shelf: Shelf, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxmt.serve.rollout_loading.free_memory", lambda options, root: 1_000_000)
    make_canary(shelf, "2")
    with serving(percent=100) as (client, rollout):
        until(lambda: metric(client, 'onnxmt_version_refused_total{reason="memory"}') == 1)
        assert rollout.canary is None
        promote(shelf, "2")
        until(lambda: metric(client, 'onnxmt_version_refused_total{reason="memory"}') == 2)
        assert ask(client) == ("是的。", "1")
        assert "version 2 is not loaded, 1 stays: it needs about" in caplog.text
        rollout._retry_at = 0.0
        monkeypatch.undo()
        until(lambda: rollout.production.version == "2")


def test_a_version_that_cannot_be_loaded_leaves_the_old_one(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    with serving(None) as (client, rollout):
        file = shelf.version_folder("2") / "weights.bin"
        promote(shelf, "2", options=PromoteOptions(alias="staging"))
        file.chmod(0o644)
        data = file.read_bytes()
        file.write_bytes(data[:-1] + b"x")
        with shelf.changing() as change:  # promote would see it
            change.commit(change.state.with_alias("production", "2"), "promote", version="2", alias="production")
        until(lambda: metric(client, 'onnxmt_version_refused_total{reason="load"}') == 1)
        assert ask(client) == ("是的。", "1")
        assert "weights.bin has SHA-256" in caplog.text
        file.write_bytes(data)
        rollout._retry_at = 0.0
        until(lambda: rollout.production.version == "2")


def test_a_store_that_goes_away_leaves_what_is_served(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    with serving(None) as (client, rollout):
        until(lambda: rollout._seen is not None)
        away = shelf.root.rename(shelf.root.with_name("away"))
        until(lambda: "the store cannot be followed" in caplog.text)
        assert ask(client) == ("是的。", "1")
        time.sleep(0.2)
        assert caplog.text.count("the store cannot be followed") == 1
        away.rename(shelf.root)
        promote(shelf, "2")
        until(lambda: rollout.production.version == "2")
        assert ask(client) == ("是的。", "2")


def test_a_request_keeps_its_version_for_as_long_as_it_lasts(shelf: Shelf) -> None:
    with serving(None) as (_client, rollout):
        pinned, old = rollout.pin("x"), rollout.production
        promote(shelf, "2")
        until(lambda: rollout.production is not old)
        time.sleep(0.2)
        assert pinned.translator.translate("Yes.") == "是的。"  # not closed, for it is still in use
        pinned.release()
        until(lambda: old not in rollout._all)


def test_characters_are_counted_over_versions(shelf: Shelf) -> None:
    with serving(None) as (client, rollout):
        ask(client)
        promote(shelf, "2")
        until(lambda: rollout.production.version == "2" and len(rollout._all) == 1)
        ask(client)
        assert client.get("/v2/usage").json()["character_count"] == 8


def test_a_pinned_model_is_not_switched(shelf: Shelf) -> None:
    with serving(None, model="m:1") as (client, rollout):
        promote(shelf, "2")
        until(lambda: rollout._seen is not None)
        time.sleep(0.2)
        assert ask(client) == ("是的。", "1")


def test_limits_are_the_operators(shelf: Shelf) -> None:
    make_canary(shelf, "3")
    with serving(percent=100, limits=CanaryLimits(min_agreement=0, max_warnings=1, max_latency=100)) as (
        client,
        rollout,
    ):
        until(lambda: rollout.canary is not None)
        for text in SENTENCES * 4:
            ask(client, text)
        assert rollout.canary is not None


def test_documents_and_other_apis_go_through_a_canary_too(shelf: Shelf) -> None:
    make_canary(shelf, "2")
    body = {"text": "<p>Yes.</p><p>It rained.</p>", "format": "html"}
    with serving(percent=100) as (client, rollout):
        until(lambda: rollout.canary is not None)
        assert rollout.canary is not None
        answer, version = ask(client, **body)
        assert (answer, version) == (f"<p>是的。</p><p>{KNOWN['It rained.']}</p>", "2")
        with mock.patch.object(rollout.canary.service, "translate", side_effect=RuntimeError("x")):
            assert ask(client, **body) == (answer, "1")
        listed = client.post("/v2/translate", json={"text": ["Yes.", "It rained."], "target_lang": "ZH"})
        assert [one["text"] for one in listed.json()["translations"]] == ["是的。", KNOWN["It rained."]]
        assert listed.headers["x-onnxmt-version"] in ("1", "2")
