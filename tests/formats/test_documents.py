"""Documents through a translator: each text once, a second try in pieces, warnings with their line, a journal."""

from __future__ import annotations

import functools
import re

import pytest

from onnxmt import DocumentOptions, TranslateOptions, Translator, translate_document
from onnxmt.errors import DoubtfulTranslationError, UsageError
from onnxmt.runtime.documents import KeptTranslation, KeptWarning
from onnxmt.text.protect import has_prose
from tests.formats.corpus import FORMATS, real_documents
from tests.formats.fakes import Fake, marked
from tests.formats.judges import links, structure


def test_each_text_is_translated_once_and_what_is_no_prose_never() -> None:
    fake = Fake()
    text = "Words\n\nWords\n\n# Words\n\n12345\n\n`code`\n\nhttp://a.b\n"
    result = translate_document(fake, text, format="markdown")
    assert fake.given == ["Words"]
    assert result.text == "汉\n\n汉\n\n# 汉\n\n12345\n\n`code`\n\nhttp://a.b\n"
    assert [(unit.source, unit.text, unit.line) for unit in result.units] == [
        ("Words", "汉", 1), ("Words", "汉", 3), ("Words", "汉", 5),
    ]  # fmt: skip
    assert result.warnings == ()


def test_a_translator_that_loses_markup_is_asked_for_the_pieces() -> None:
    fake = Fake(lambda text: marked(re.sub(r"</?m\d+/?>|`.*?`", "", text)) + "。")
    result = translate_document(fake, "Read *this page* and `code`, [now](http://a.b).\n", format="markdown")
    assert fake.given == ["Read <m1>this page</m1> and `code`, <m3>now</m3>.", "Read", "this page", "and", "now"]
    assert result.text == "汉*汉 汉*汉`code`, [汉](http://a.b).\n"
    assert result.warnings == ()


def test_what_cannot_be_written_stays_and_is_named() -> None:
    fake = Fake(lambda text: "…" if "second" in text else marked(text))
    result = translate_document(fake, "The first.\n\nThe second.\n", format="markdown")
    assert result.text == "汉 汉.\n\nThe second.\n"
    [warning] = result.warnings
    assert (warning.kind, warning.line, warning.unit) == ("structure", 3, 1)
    assert warning.message == "it stays untranslated: the translation holds no word"
    assert result.units[1].text == "The second."


class Memory:
    """A journal in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, KeptTranslation] = {}

    def find(self, text: str) -> KeptTranslation | None:
        return self.kept.get(text)

    def keep(self, text: str, translation: KeptTranslation) -> None:
        self.kept[text] = translation


def test_what_a_journal_has_is_not_translated_again() -> None:
    memory, told = Memory(), []
    memory.kept["One."] = KeptTranslation(text="壹。", warnings=(KeptWarning(kind="name", message="a warning"),))
    fake = Fake()
    result = translate_document(
        fake, "One.\n\nTwo.\n", format="markdown", journal=memory, progress=lambda *done: told.append(done)
    )
    assert (fake.given, result.text) == (["Two."], "壹。\n\n汉.\n")
    assert [(warning.line, warning.message) for warning in result.warnings] == [(1, "a warning")]
    assert memory.kept["Two."] == KeptTranslation(text="汉.")
    assert told == [(1, 2), (2, 2)]


def test_options() -> None:
    with pytest.raises(UsageError, match="alternatives is 2, 0 is allowed"):
        translate_document(Fake(), "x", format="text", options=TranslateOptions(beams=4, alternatives=2))
    with pytest.raises(DoubtfulTranslationError, match="1 warning, and strict allows none: line 1: it stays"):
        translate_document(Fake(lambda _: "…"), "Words", format="text", options=TranslateOptions(strict=True))
    wrapped = "A paragraph that is wrapped at about forty\ncharacters and goes on to the next line.\n"
    result = translate_document(Fake(), wrapped, format="text", options=TranslateOptions(unwrap=True))
    assert result.text.count("\n") == 1
    result = translate_document(
        Fake(), '<img alt="some words">', format="html", document=DocumentOptions(attributes=False)
    )
    assert result.units == ()


@pytest.fixture(scope="module")
def demo() -> Translator:
    with Translator.load() as translator:
        yield translator


SHORT = 45


def _known(translations: dict[str, str], text: str) -> str:
    return translations.get(text, text)


@pytest.mark.parametrize("name", [*FORMATS, "pages"])
def test_real_documents_with_the_demo_model(name: str, demo: Translator) -> None:
    """A short text of each document, with markup where there is one, by the real model; the whole run is in docs/formats.md."""
    translated = 0
    for real in real_documents(name)[:20]:
        chosen = {unit.text for unit in real.document.units if 12 < len(unit.text) < SHORT and has_prose(unit.text)}
        texts = sorted(chosen, key=lambda text: ("<" not in text, len(text)))[:1]
        known = dict(zip(texts, (t.text for t in demo.translate_stream(texts)), strict=True))
        fake = Fake(functools.partial(_known, known))
        result = translate_document(fake, real.text, format=real.format, document=real.options)
        assert structure(result.text, real.format) == structure(real.text, real.format), real.name
        assert links(result.text) == links(real.text) or real.format == "po"
        translated += sum(unit.text != unit.source for unit in result.units)
    assert translated >= 5
