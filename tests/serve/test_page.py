"""The web page in a real browser: what a person types, sees, hears and presses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from starlette.testclient import TestClient

from onnxmt.runtime.translator import Translator
from onnxmt.serve import ServeOptions, create_app
from onnxmt.text.pair import WarningKind
from tests.serve.browser import CONTROL, ENTER, TAB, Browser, browser
from tests.serve.live import listening

needs_browser = pytest.mark.skipif(
    shutil.which("chromedriver") is None, reason="Debian's chromium-driver is not installed"
)
CONTROLS = ("#tongue", "#source", "#go", "#clear", "#file", "#copy", "#more", "#target")


def test_the_page_needs_nothing_from_outside(client: TestClient) -> None:
    for path in ("/", "/page.css", "/page.js", "/docs"):
        found = client.get(path)
        assert found.status_code == 200
        assert "http://" not in found.text
        assert "https://" not in found.text
        assert "<script>" not in found.text
        assert " style=" not in found.text


def test_the_page_can_be_left_out(translator: Translator) -> None:
    with TestClient(create_app(translator, options=ServeOptions(page=False))) as client:
        assert client.get("/").status_code == client.get("/docs").status_code == 404
        assert client.get("/openapi.json").status_code == 200


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(translator: Translator) -> Iterator[str]:
    with listening(create_app(translator)) as found:
        yield found


@pytest.fixture
def page(window: Browser, address: str) -> Browser:
    window.size(1200, 900)
    window.open(address)
    window.wait(lambda: window.text("#model"))
    return window


@pytest.mark.browser
@needs_browser
class TestPage:
    def test_what_is_typed_is_translated(self, page: Browser, translator: Translator) -> None:
        page.type("#source", "Yes. It rained.\nThe library opens at nine.")
        page.wait(lambda: page.text("#timing"))

        assert page.text("#target") == "是的。下雨了。\n图书馆九点开门。"
        assert page.text("#model") == f"{translator.bundle.manifest.name} · {translator.bundle.manifest.recipe}"
        assert page.text("#timing").endswith(" ms")
        assert page.text("#status") == "Done: 16 characters."
        assert page.run("return document.querySelectorAll('#target span').length") == 3
        assert page.log() == []

    def test_alternatives_copy_and_clear(self, page: Browser) -> None:
        page.type("#source", "Yes.")
        page.wait(lambda: page.text("#timing"))
        page.click("#more")
        page.wait(lambda: page.text("#status") != "Translating …" and page.text("#others ol"))
        page.click("#copy")
        page.wait(lambda: page.text("#status") == "Copied.")
        page.click("#clear")
        assert page.text("#target") == page.run("return document.querySelector('#source').value") == ""
        assert not page.shown("#others")

    def test_warnings_are_marked_and_told(self, page: Browser) -> None:
        warned = {"kind": "length_cap", "message": "cut", "span": [0, 4]}
        page.run("document.querySelector('#source').value = 'Yes. No.'; warn([arguments[0]], 'Yes. No.')", warned)
        assert page.text("#warnings li") == "「Yes.」 cut off: too long"
        page.click("#tongue")
        assert page.text("#warnings li") == "「Yes.」 译文过长被截断"
        page.click("#tongue")

    def test_every_kind_of_warning_has_words_in_both_languages(self, page: Browser) -> None:
        kinds = page.run("return Object.values(KINDS).map((words) => Object.keys(words).sort())")
        assert kinds[0] == kinds[1]
        assert {*get_args(WarningKind), "structure", "error"} <= {*kinds[0]}

    def test_warnings_of_a_document_have_their_line(self, page: Browser, tmp_path: Path) -> None:
        (tmp_path / "a.md").write_text("# Yes.\n\nThe 17 boats.\n")
        page.type("#file", str(tmp_path / "a.md"))
        page.wait(lambda: page.shown("#warnings"))
        assert "line 3: a number is missing" in page.text("#warnings ul")

    @pytest.mark.parametrize(
        ("name", "content", "translation"),
        [
            ("a.txt", "Yes.\n\nIt rained.\n", "是的。\n\n下雨了。\n"),
            ("b.html", "<p>Yes.</p>", "<p>是的。</p>"),
            ("c.md", "`Yes.`\n\nYes.\n", "`Yes.`\n\n是的。\n"),
        ],
    )
    def test_a_file_comes_back(self, page: Browser, tmp_path: Path, name: str, content: str, translation: str) -> None:
        (tmp_path / name).write_text(content)
        page.type("#file", str(tmp_path / name))
        page.wait(lambda: page.shown("#save"))
        assert page.text("#save") == f"Save the translation of {name}"
        saved = page.run(
            "return fetch(document.querySelector('#save').href).then((r) => r.text()).catch((e) => '' + e)"
        )
        assert page.text("#target") == translation
        assert saved == translation or "Failed to fetch" in saved  # the page's own policy allows no fetch of blobs
        assert page.run("return document.querySelector('#save').download") == name.replace(".", ".zh.")

    def test_files_that_cannot_be_read_are_refused_in_words(self, page: Browser, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
        page.type("#file", str(tmp_path / "a.txt"))
        page.wait(lambda: page.text("#error"))
        assert page.text("#error") == "This file is not UTF-8 text."

    def test_by_keyboard_alone(self, page: Browser) -> None:
        assert page.run("return document.activeElement.id") == "source"
        page.press("It rained.")
        page.press(CONTROL + ENTER, together=True)
        page.wait(lambda: page.text("#target") == "下雨了。" and page.text("#timing"))
        visited = []
        for _ in range(5):
            page.press(TAB)
            visited.append(page.run("return document.activeElement.id"))
        assert visited == ["go", "clear", "file", "target", "copy"]

    def test_a_screen_reader_hears_a_name_for_each_control(self, page: Browser) -> None:
        for selector in CONTROLS:
            found = page.ask("POST", "element", {"using": "css selector", "value": selector})
            assert page.ask("GET", f"element/{next(iter(found.values()))}/computedlabel"), selector
        assert page.run("return document.querySelector('#status').getAttribute('aria-live')") == "polite"
        assert page.run("return document.querySelector('#target').lang") == "zh"

    def test_it_fits_a_phone(self, page: Browser) -> None:
        metrics = {"width": 360, "height": 780, "deviceScaleFactor": 1, "mobile": True}
        page.ask("POST", "goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})
        page.run("document.querySelector('#target').textContent = 'x'.repeat(500)")
        widths = page.run("return [document.documentElement.scrollWidth, innerWidth]")
        heights = page.run(
            "return [...document.querySelectorAll('button')].map((b) => b.getBoundingClientRect().height)"
        )
        page.ask("POST", "goog/cdp/execute", {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}})
        assert widths == [360, 360]
        assert min(heights) >= 40

    def test_its_interface_speaks_chinese_and_remembers(self, page: Browser) -> None:
        page.click("#tongue")
        assert page.text("#go") == "翻译"
        assert page.run("return document.documentElement.lang") == "zh-Hans"
        page.open(page.run("return location.href"))
        assert page.text("#go") == "翻译"
        page.click("#tongue")
        assert page.text("#go") == "Translate"
        words = page.run("return Object.values(WORDS).map((words) => Object.keys(words).sort().join())")
        assert words[0] == words[1]

    def test_where_a_key_is_needed_it_is_asked_for(self, page: Browser, translator: Translator) -> None:
        key = "a-key-of-some-length"
        with listening(create_app(translator, options=ServeOptions(keys=frozenset({key})))) as locked:
            page.open(locked)
            page.wait(lambda: page.shown("#key"))
            page.type("#key", key + ENTER)
            page.wait(lambda: page.text("#model"))
            page.type("#source", "Yes.")
            page.wait(lambda: page.text("#target") == "是的。")

    def test_the_server_that_is_gone_is_told(self, page: Browser, translator: Translator) -> None:
        with listening(create_app(translator)) as soon_gone:
            page.open(soon_gone)
            page.wait(lambda: page.text("#model"))
        page.type("#source", "Yes.")
        page.wait(lambda: page.text("#error"))
        assert page.text("#error") == "The server cannot be reached."


@pytest.mark.browser
@needs_browser
def test_a_chinese_browser_finds_the_page_in_chinese(address: str) -> None:
    with browser(tongue="zh-CN") as window:
        window.open(address)
        window.wait(lambda: window.text("#model"))
        assert window.text("#go") == "翻译"
