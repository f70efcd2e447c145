"""Documents over HTTP are the library's, to the letter; what cannot be written in them is said with its line."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from onnxmt.runtime.documents import translate_document
from onnxmt.runtime.translator import Translator

DOCUMENTS = {
    "markdown": "# It rained.\n\n- Yes.\n- `no` *Yes.*\n\n```\nYes.\n```\n",
    "html": '<p>It rained.</p><pre>Yes.</pre>\n<p translate="no">Yes.</p><img alt="Yes."><p>5 &lt; 6 <b>It rained.</b></p>',
    "srt": "1\n00:00:01,000 --> 00:00:02,000\nIt rained.\n\n2\n00:00:03,000 --> 00:00:04,000\n<i>Yes.</i>\n",
    "po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n#: a.c:1\nmsgid "It rained."\nmsgstr ""\n',
    "json": '{"a": "It rained.", "n": [1, "Yes."]}',
}


@pytest.mark.parametrize("form", DOCUMENTS)
def test_a_document_is_the_librarys(client: TestClient, translator: Translator, form: str) -> None:
    text = DOCUMENTS[form]
    expected = translate_document(translator, text, format=form)
    found = client.post("/v1/translate", json={"text": text, "format": form}).json()["translations"][0]
    assert found["text"] == expected.text
    assert "下雨了" in found["text"]
    assert found["alternatives"] == []
    assert [(one["kind"], one["message"], one["line"]) for one in found["warnings"]] == [
        (one.kind, one.message, one.line) for one in expected.warnings
    ]


def test_documents_in_a_list_are_translated_together_and_apart(client: TestClient, translator: Translator) -> None:
    texts = ["<p>Yes.</p>", "", "It rained.", "<hr>", "<p>Yes.</p>"]
    found = client.post("/v1/translate", json={"text": texts, "format": "html"}).json()["translations"]
    assert [one["text"] for one in found] == [translate_document(translator, t, format="html").text for t in texts]
    assert found[3]["score"] is None
    assert client.post("/v1/translate", json={"text": [], "format": "html"}).json()["translations"] == []


def test_warnings_of_documents_have_their_line(client: TestClient) -> None:
    asked = {"text": "<p>Yes.</p>\n<p>The 17 boats.</p>", "format": "html", "max_new_tokens": 3}
    found = client.post("/v1/translate", json=asked).json()["translations"][0]
    assert found["finished"] is False
    warnings = found["warnings"]
    assert {"length_cap"} <= {one["kind"] for one in warnings}
    assert {one["line"] for one in warnings} == {1, 2}
    assert all(one["span"] is None for one in warnings)
    refused = client.post("/v1/translate", json={**asked, "strict": True})
    assert refused.status_code == 409
    assert len(refused.json()["error"]["warnings"]) == len(warnings)
    assert 'onnxmt_warnings_total{kind="length_cap"}' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ({"text": "{", "format": "json"}, "bad_document", "line 1"),
        ({"text": "[" * 5000, "format": "json"}, "bad_document", ""),
        ({"text": "no srt", "format": "srt"}, "bad_document", "no line gives times"),
        ({"text": "<p>Yes.", "format": "html", "alternatives": 1}, "bad_option", "a document has one translation"),
        ({"text": "Yes.", "format": "docx"}, "bad_field", "format: Input should be 'text', 'markdown', 'html'"),
    ],
)
def test_what_cannot_be_a_document(client: TestClient, asked: dict[str, Any], code: str, said: str) -> None:
    refused = client.post("/v1/translate", json=asked)
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == code
    assert said in refused.json()["error"]["message"]


@pytest.mark.parametrize("name", ["a.md", "A.HTML", "a.srt", "a.po", "a.json", "a.txt"])
def test_files_by_their_name(client: TestClient, translator: Translator, name: str) -> None:
    suffix = name.lower().partition(".")[2]
    form = {"md": "markdown", "txt": "text"}.get(suffix, suffix)
    text = DOCUMENTS.get(form, "Yes.\nIt rained.\n")
    made = client.post("/translate_file", data={"source": "en", "target": "zh"}, files={"file": (name, text.encode())})
    assert made.status_code == 200, made.text
    found = client.get(made.json()["translatedFileUrl"])
    whole = translate_document(translator, text, format=form).text if form != "text" else translator.translate(text)
    assert found.text == whole
    assert found.headers["content-disposition"] == f'attachment; filename="translated.{suffix}"'


def test_markup_in_other_services_apis(client: TestClient) -> None:
    text = "<p>It rained. <x id='1'/></p>"
    deepl = {"text": [text], "target_lang": "ZH"}
    for found in (
        client.post("/v2/translate", json={**deepl, "tag_handling": "html"}).json()["translations"][0]["text"],
        client.post("/v2/translate", json={**deepl, "tag_handling": "xml"}).json()["translations"][0]["text"],
        client.post("/translate", json={"q": text, "source": "en", "target": "zh", "format": "html"}).json()[
            "translatedText"
        ],
        client.post("/language/translate/v2", json={"q": text, "target": "zh"}).json()["data"]["translations"][0][
            "translatedText"
        ],
    ):
        assert found.startswith("<p>")
        assert found.endswith("</p>")
        assert found.count("<x id='1'/>") == 1
        assert "下雨了" in found


@pytest.mark.parametrize("text", ["It rained {0}.", "<b0>It rained.</b0> Yes.", "Yes. <b0></b0>{1}"])
def test_placeholders_of_immersive_translate_stay(client: TestClient, text: str) -> None:
    body = {"text_list": [text], "source_lang": "en", "target_lang": "zh-CN"}
    found = client.post("/immersive", json=body).json()["translations"][0]["text"]
    for mark in ("{0}", "{1}", "<b0>", "</b0>"):
        assert found.count(mark) == text.count(mark), found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet=st.sampled_from("ab <>/&;!-\"'?[]=#*`\n{}:,|\\1")),
    form=st.sampled_from(["markdown", "html", "srt", "po", "json"]),
)
def test_no_document_is_a_fault_of_the_server(client: TestClient, text: str, form: str) -> None:
    found = client.post("/v1/translate", json={"text": text, "format": form, "max_new_tokens": 4})
    assert found.status_code in (200, 422), found.text


def test_a_document_that_takes_long_to_read_has_a_deadline_too(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr("onnxmt.serve.documents.translate_document", lambda *_, **__: gate.wait(30))
    late = client.post("/v1/translate", json={"text": "<p>Yes.</p>", "format": "html", "timeout_ms": 50})
    gate.set()
    assert late.status_code == 504
    assert late.json()["error"]["code"] == "deadline"
