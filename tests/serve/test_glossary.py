"""Glossaries over HTTP: what the library does with them, told term by term."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from onnxmt.text.glossary import Glossary

TERMS: dict[str, Any] = {"library": "书馆", "umbrella": {"target": "雨伞", "forms": True}, "Yes": "是"}


@pytest.mark.parametrize("text", ["The library opens at nine.", "I will bring the umbrella because it may rain."])
def test_the_librarys_answer(client: TestClient, translator: Translator, text: str) -> None:
    expected = translator.translate_detailed(text, options=TranslateOptions(glossary=Glossary.from_dict(TERMS)))
    found = client.post("/v1/translate", json={"text": text, "glossary": TERMS}).json()["translations"][0]
    assert found["text"] == expected.text
    assert found["glossary"] == [use.to_dict() for use in expected.glossary]
    assert len(found["glossary"]) == 1
    assert [one["kind"] for one in found["warnings"]] == [one.kind for one in expected.warnings]


def test_in_documents_and_streams(client: TestClient) -> None:
    asked = {"text": "<p>Yes. The library opens at nine.</p>", "format": "html", "glossary": TERMS}
    found = client.post("/v1/translate", json=asked).json()["translations"][0]
    assert [one["source"] for one in found["glossary"]] == ["Yes", "library"]
    streamed = client.post("/v1/translate/stream", json={"text": "Yes. It rained.", "glossary": TERMS})
    assert streamed.status_code == 200
    assert "是的。下雨了。" in streamed.text


def test_without_a_glossary_nothing_is_told_of_one(client: TestClient) -> None:
    assert "glossary" not in client.post("/v1/translate", json={"text": "Yes."}).json()["translations"][0]
    found = client.post("/v1/translate", json={"text": "Yes.", "glossary": {"umbrella": "雨伞"}}).json()
    assert found["translations"][0]["glossary"] == []


def test_requests_with_one_glossary_share_it(client: TestClient) -> None:
    service = client.app.state.onnxmt.service  # type: ignore[attr-defined]
    assert service.glossary({"a": "b", "c": "d"}) is service.glossary({"a": "b", "c": "d"})
    for number in range(100):
        service.glossary({"a": str(number)})
    assert len(service._glossaries) <= 32


def test_wrong_terms_are_named(client: TestClient) -> None:
    refused = client.post("/v1/translate", json={"text": "Yes.", "glossary": {"a\nb": "c"}})
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "bad_glossary"
    assert "holds a control character or a line break" in refused.json()["error"]["message"]
