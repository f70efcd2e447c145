from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from onnxmt.serve import ServeOptions, create_app
from tests.runtime.test_translator import KNOWN

LONG = "Yes. It rained.\n\nThe library opens at nine. Yes.\r\n  It rained. 18.5\n"


def post(client: TestClient, body: Any, path: str = "/v1/translate") -> Any:
    return client.post(path, json=body)


def test_a_text_and_a_list_one_answer_each_in_order(client: TestClient) -> None:
    one = post(client, {"text": "Yes."}).json()
    many = post(client, {"text": list(KNOWN)}).json()

    assert [t["text"] for t in one["translations"]] == ["是的。"]
    assert [t["text"] for t in many["translations"]] == list(KNOWN.values())
    assert one["translations"][0]["finished"] is True
    assert one["translations"][0]["warnings"] == []
    assert set(one["timing"]) == {"queue_ms", "compute_ms", "total_ms"}


@pytest.mark.parametrize("beams", [None, 1, 4])
def test_answers_are_the_librarys(client: TestClient, translator: Translator, beams: int | None) -> None:
    """Case M3: the same text through library and HTTP."""
    texts = [*KNOWN, LONG, "", " ", "42", "Nothing that it knows, and rather long.", "🌷🌷 🌷"]
    expected = translator.translate_detailed(texts, options=TranslateOptions(beams=beams))

    found = post(client, {"text": texts} | ({} if beams is None else {"beams": beams})).json()["translations"]

    assert [t["text"] for t in found] == [t.text for t in expected]
    assert [t["score"] for t in found] == [
        None if t.score is None else pytest.approx(t.score, abs=1e-5) for t in expected
    ]
    assert [[w["kind"] for w in t["warnings"]] for t in found] == [[w.kind for w in t.warnings] for t in expected]


def test_alternatives_raise_the_beams_that_they_need(client: TestClient, translator: Translator) -> None:
    expected = translator.translate_detailed("Yes.", options=TranslateOptions(beams=6, alternatives=5))

    found = post(client, {"text": "Yes.", "alternatives": 5}).json()["translations"][0]

    assert [other["text"] for other in found["alternatives"]] == [other.text for other in expected.alternatives]
    assert len(found["alternatives"]) == 5


@pytest.mark.parametrize("text", [LONG, "Yes.", "", "  ", "Yes. 🌷 It rained.\nYes.", "no, " * 300])
def test_a_stream_adds_up_to_the_whole(client: TestClient, translator: Translator, text: str) -> None:
    events = streamed(post(client, {"text": text}, "/v1/translate/stream"))
    whole = ""
    for name, data in events[:-1]:
        assert name == "segment"
        whole = whole + data["append"] if "append" in data else data["replace"]

    assert events[-1][0] == "done"
    assert events[-1][1]["text"] == whole == translator.translate(text)


def test_a_stream_sends_its_segments_one_by_one(client: TestClient) -> None:
    events = streamed(post(client, {"text": "Yes. It rained.\nYes."}, "/v1/translate/stream"))

    assert [data["append"] for name, data in events if name == "segment"] == ["是的。", "下雨了。", "\n是的。"]
    assert [data["span"] for name, data in events if name == "segment"] == [[0, 4], [5, 15], [16, 20]]


def test_a_stream_that_is_refused_has_the_status_of_it(client: TestClient) -> None:
    assert post(client, {"text": ["Yes."]}, "/v1/translate/stream").status_code == 422
    assert post(client, {"text": "Yes.", "target": "fr"}, "/v1/translate/stream").status_code == 422
    assert post(client, {"text": "Yes.", "format": "html"}, "/v1/translate/stream").status_code == 422


def test_html_keeps_its_tags(client: TestClient) -> None:
    found = post(client, {"text": '<p class="a">Yes.</p>\n<code>Yes.</code><br/>It rained.', "format": "html"}).json()

    assert found["translations"][0]["text"] == '<p class="a">是的。</p>\n<code>Yes.</code><br/>下雨了。'


def test_strict_turns_a_warning_into_an_error(client: TestClient) -> None:
    body = {"text": ["Yes.", "The library opens at nine."], "max_new_tokens": 1}
    allowed = post(client, body)
    refused = post(client, {**body, "strict": True})

    assert [t["warnings"][0]["kind"] for t in allowed.json()["translations"]] == ["length_cap"] * 2
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "warnings"
    assert {w["text"] for w in refused.json()["error"]["warnings"]} == {0, 1}


def test_languages_in_any_spelling_and_no_others(client: TestClient) -> None:
    assert post(client, {"text": "Yes.", "source": "en-US", "target": "zh_CN"}).status_code == 200
    refused = post(client, {"text": "Yes.", "target": "fr"})
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "unknown_language"


def test_what_is_served_and_its_limits(client: TestClient, translator: Translator) -> None:
    (model,) = client.get("/v1/models").json()["models"]

    assert model["name"] == translator.bundle.manifest.name
    assert (model["default_source"], model["default_target"]) == ("en", "zh")
    assert model["limits"]["items"] == 256


def test_health_and_metrics(client: TestClient, translator: Translator) -> None:
    assert client.get("/livez").json() == client.get("/readyz").json() == {"status": "ok"}
    page = client.get("/metrics").text
    assert "onnxmt_ready 1.0" in page
    assert f'name="{translator.bundle.manifest.name}"' in page


def test_not_ready_before_it_is_started(translator: Translator) -> None:
    cold = TestClient(create_app(translator))  # without `with` it is never started
    assert cold.get("/livez").status_code == 200
    assert cold.get("/readyz").status_code == 503
    refused = cold.post("/v1/translate", json={"text": "Yes."})
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "2"


def test_starting_and_stopping_again(translator: Translator) -> None:
    app = create_app(translator, options=ServeOptions())
    for _ in range(2):
        with TestClient(app) as started:
            assert started.post("/v1/translate", json={"text": "Yes."}).status_code == 200


def streamed(response: Any) -> list[tuple[str, dict[str, Any]]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in response.text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events
