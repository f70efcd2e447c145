from __future__ import annotations

import contextlib
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any, ClassVar

import deepl
import pytest
from starlette.testclient import TestClient

from onnxmt.runtime.translator import Translator
from onnxmt.serve import ServeOptions, create_app
from onnxmt.serve.files import KeptFiles
from tests.serve.live import listening

KEY = "a-key-of-some-length"
TWO, BOTH = ["Yes.", "It rained."], ["是的。", "下雨了。"]


@pytest.fixture(scope="module")
def address(translator: Translator) -> Iterator[str]:
    with listening(create_app(translator, options=ServeOptions(keys=frozenset({KEY})))) as found:
        yield found


class TestDeepL:
    @pytest.fixture
    def official(self, address: str) -> Iterator[deepl.DeepLClient]:
        client = deepl.DeepLClient(KEY, server_url=address)
        yield client
        client.close()

    def test_the_official_client_translates(self, official: deepl.DeepLClient) -> None:
        one = official.translate_text("Yes.", target_lang="ZH")
        many = official.translate_text(TWO, source_lang="EN", target_lang="ZH-HANS")

        assert (one.text, one.detected_source_lang, one.billed_characters) == ("是的。", "EN", 4)
        assert [found.text for found in many] == BOTH

    def test_the_official_client_with_its_options(self, official: deepl.DeepLClient) -> None:
        marked = official.translate_text(
            "<p>Yes.</p> <b>It rained.</b>", target_lang="ZH", tag_handling="html", formality="prefer_less", context="x"
        )
        assert marked.text == "<p>是的。</p> <b>下雨了。</b>"
        assert official.translate_text("Yes.", target_lang="ZH", split_sentences="0").text == "是的。"

    def test_the_official_client_lists_languages_and_usage(self, official: deepl.DeepLClient) -> None:
        assert [(one.code, one.name) for one in official.get_source_languages()] == [("EN", "English")]
        targets = official.get_target_languages()
        assert "ZH" in [one.code for one in targets]
        assert targets[0].supports_formality is False
        usage = official.get_usage()
        assert usage.character.count > 0
        assert not usage.any_limit_reached

    def test_the_official_client_hears_of_faults(self, official: deepl.DeepLClient, address: str) -> None:
        with pytest.raises(deepl.DeepLException, match="not one of this model's"):
            official.translate_text("Yes.", target_lang="FR")
        with pytest.raises(deepl.DeepLException, match="formality is 'more'; allowed"):
            official.translate_text("Yes.", target_lang="ZH", formality="more")
        with pytest.raises(deepl.DeepLException, match="not supported: glossary_id"):
            official.translate_text("Yes.", source_lang="EN", target_lang="ZH", glossary="some-glossary")
        stranger = deepl.DeepLClient("another-key", server_url=address)
        with contextlib.closing(stranger), pytest.raises(deepl.AuthorizationException):
            stranger.translate_text("Yes.", target_lang="ZH")

    def test_a_form_as_older_clients_send_it(self, client: TestClient) -> None:
        form = {"text": TWO, "target_lang": "ZH", "split_sentences": "1"}
        found = client.post("/v2/translate", data=form).json()
        assert [one["text"] for one in found["translations"]] == BOTH

    def test_what_has_no_effect_is_told(self, client: TestClient) -> None:
        found = client.post("/v2/translate", json={"text": ["Yes."], "target_lang": "ZH", "context": "x"})
        assert found.headers["x-onnxmt-ignored"] == "context"

    def test_limits_and_faults(self, client: TestClient) -> None:
        many = client.post("/v2/translate", json={"text": ["Yes."] * 51, "target_lang": "ZH"})
        assert (many.status_code, many.json()["message"]) == (413, "items in text: 51 in this request; at most 50")
        assert (
            client.post("/v2/translate", json={"text": ["Yes."]}).json()["message"].startswith("target_lang is missing")
        )


class TestGoogle:
    PATH = "/language/translate/v2"

    def test_html_is_the_default(self, client: TestClient) -> None:
        found = client.post(self.PATH, json={"q": ["<b>Yes.</b>"], "source": "en", "target": "zh-CN"}).json()
        assert found == {"data": {"translations": [{"translatedText": "<b>是的。</b>"}]}}

    def test_text_and_a_form_and_the_address(self, client: TestClient) -> None:
        asked = {"q": TWO, "target": "zh", "format": "text", "model": "nmt"}
        expected = [{"translatedText": text, "detectedSourceLanguage": "en"} for text in BOTH]
        for found in (
            client.post(self.PATH, json=asked),
            client.post(self.PATH, data=asked),
            client.post(self.PATH, params=asked),
        ):
            assert found.json()["data"]["translations"] == expected
            assert found.headers["x-onnxmt-ignored"] == "model"

    def test_languages(self, client: TestClient) -> None:
        found = client.get(self.PATH + "/languages", params={"target": "en"}).json()["data"]["languages"]
        assert found[0] == {"language": "en", "name": "English"}

    def test_errors_in_googles_form(self, client: TestClient) -> None:
        found = client.post(self.PATH, json={"q": "Yes.", "target": "xx-yy"})
        assert found.status_code == found.json()["error"]["code"] == 400
        assert found.json()["error"]["status"] == "INVALID_ARGUMENT"


class TestLibreTranslate:
    ASKED: ClassVar = {"q": "Yes.", "source": "en", "target": "zh"}

    def test_as_its_python_client_asks(self, address: str) -> None:
        """libretranslatepy sends forms by urllib, and reads translatedText."""
        form = urllib.parse.urlencode({**self.ASKED, "api_key": KEY}).encode()
        with urllib.request.urlopen(f"{address}/translate", data=form, timeout=20) as response:
            assert response.read().decode() == '{"translatedText":"是的。"}'

    def test_a_list_alternatives_and_a_guessed_language(self, client: TestClient) -> None:
        found = client.post("/translate", json={"q": TWO, "source": "auto", "target": "zh", "alternatives": 2}).json()
        assert found["translatedText"] == BOTH
        assert [len(others) for others in found["alternatives"]] == [2, 2]
        assert found["detectedLanguage"] == [{"language": "en", "confidence": 100.0}] * 2

    def test_html(self, client: TestClient) -> None:
        found = client.post("/translate", json={**self.ASKED, "q": "<i>Yes.</i>", "format": "html"})
        assert found.json() == {"translatedText": "<i>是的。</i>"}

    def test_languages_detection_health(self, client: TestClient) -> None:
        first = client.get("/languages").json()[0]
        assert (first["code"], first["name"]) == ("en", "English")
        assert "zh" in first["targets"]
        assert client.post("/detect", data={"q": "Да, yes"}).json() == [{"language": "en", "confidence": 60.0}]
        assert client.post("/detect", json={"q": "42"}).json() == [{"language": "en", "confidence": 0.0}]
        assert client.get("/health").json() == {"status": "ok"}

    def test_errors_in_its_form(self, client: TestClient) -> None:
        for change, said in (
            ({"target": None}, "target is missing"),
            ({"target": "fr"}, "not one of this model's"),
            ({"format": "xliff"}, "format is 'xliff'; allowed: one of text, html"),
            ({"voice": "loud"}, "not supported: voice"),
        ):
            found = client.post("/translate", json={**self.ASKED, **change})
            assert found.status_code == 400
            assert said in found.json()["error"]

    @pytest.mark.parametrize(
        ("name", "content", "translation", "kind"),
        [
            ("a.txt", "Yes.\n\nIt rained.\n", "是的。\n\n下雨了。\n", "text/plain; charset=utf-8"),
            ("b.HTML", "<p>Yes.</p>\n", "<p>是的。</p>\n", "text/html; charset=utf-8"),
        ],
    )
    def test_a_file_comes_back_translated(
        self, client: TestClient, name: str, content: str, translation: str, kind: str
    ) -> None:
        answer = client.post("/translate_file", files={"file": (name, content)}, data={"source": "en", "target": "zh"})
        found = client.get(answer.json()["translatedFileUrl"])
        assert found.text == translation
        assert found.headers["content-type"] == kind
        assert found.headers["content-disposition"].startswith("attachment; filename=")

    @pytest.mark.parametrize(
        ("files", "said"),
        [
            ({"file": ("../../x.txt", b"\xff\xfe")}, "not UTF-8"),
            ({"file": ("x.docx", b"x")}, "this kind of file is not supported"),
            ({"other": ("x.txt", b"x")}, "the part `file` is missing"),
        ],
    )
    def test_files_that_cannot_be_translated(self, client: TestClient, files: Any, said: str) -> None:
        found = client.post("/translate_file", files=files)
        assert found.status_code == 400
        assert said in found.json()["error"]

    def test_files_go_after_a_while_and_when_there_are_many(self) -> None:
        now = 0.0
        files = KeptFiles(clock=lambda: now)
        first = files.keep(b"x" * (10 << 20), kind="text/plain", name="a.txt")
        assert files.find(first) is not None
        second = files.keep(b"x" * (10 << 20), kind="text/plain", name="a.txt")
        assert files.find(first) is None
        now = 601.0
        assert files.find(second) is None


class TestOneAddress:
    """POST /translate: the body says whose request it is."""

    def test_immersive_translate(self, client: TestClient) -> None:
        asked = {"source_lang": "auto", "target_lang": "zh-CN", "text_list": TWO}
        expected = {"translations": [{"detected_source_lang": "en", "text": text} for text in BOTH]}
        for path in ("/translate", "/immersive"):
            assert client.post(path, json=asked).json() == expected

    def test_kiss_translator(self, client: TestClient) -> None:
        asked = {"texts": TWO, "from": "auto", "to": "zh-CN"}
        for path in ("/translate", "/kiss"):
            assert client.post(path, json=asked).json() == [{"text": text, "src": "en"} for text in BOTH]
            one = client.post(path, json={"text": "Yes.", "from": "en", "to": "zh"})
            assert one.json() == {"text": "是的。", "src": "en"}

    def test_deeplx(self, client: TestClient) -> None:
        found = client.post("/translate", json={"text": "Yes.", "source_lang": "EN", "target_lang": "ZH"}).json()
        assert (found["code"], found["data"], found["method"]) == (200, "是的。", "Free")
        assert (found["source_lang"], found["target_lang"]) == ("EN", "ZH")
        assert isinstance(found["id"], int)
        assert isinstance(found["alternatives"], list)
        wrong = client.post("/translate", json={"text": "Yes.", "target_lang": "FR"})
        assert wrong.status_code == wrong.json()["code"] == 400

    @pytest.mark.parametrize("body", [{}, {"source": "en"}, {"q": "a", "text": "b"}, {"q": "a", "text_list": ["b"]}])
    def test_what_is_nobodys_or_two_peoples_is_refused(self, client: TestClient, body: Any) -> None:
        found = client.post("/translate", json=body)
        assert found.status_code == 400
        assert "the text is read from one of q (LibreTranslate)" in found.json()["error"]


def test_a_dialect_can_be_switched_off(translator: Translator) -> None:
    with TestClient(create_app(translator, options=ServeOptions(dialects=frozenset({"kiss"})))) as client:
        assert client.post("/v2/translate", json={"text": ["Yes."], "target_lang": "ZH"}).status_code == 404
        assert client.get("/languages").status_code == 404
        assert client.post("/translate", json={"texts": ["Yes."], "from": "en", "to": "zh"}).status_code == 200
        off = client.post("/translate", json={"q": "Yes.", "source": "en", "target": "zh"})
        assert off.json()["error"] == "this is a request of libretranslate, which is switched off on this server"
    with TestClient(create_app(translator, options=ServeOptions(dialects=frozenset()))) as client:
        assert client.post("/translate", json={"q": "Yes."}).status_code == 404
