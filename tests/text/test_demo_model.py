"""The text layer with the demo model: real output, weak and full of surprises, 300 generated inputs of each kind."""

from __future__ import annotations

import random
import re

import pytest

from onnxmt import Translator
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.text.layer import TextOptions, translate_sentences
from onnxmt.text.spans import find_protected

SPANS = [
    "%s", "%1$s", "{name}", "{0}", "{{ user.name }}", "https://example.org/a_b?x=1&y=2", "ops@example.org", "`make all`", "<b>", "</b>",
    "&nbsp;", "src/main.py", "😀", "${HOME}", "[here](https://a.org)",
]  # fmt: skip
SUBJECTS = ["A man", "The little girl", "My friend", "A black dog", "Everyone", "Tom"]
VERBS = ["is looking at", "likes", "has", "is playing with", "wants", "can see"]
OBJECTS = ["the red car", "a big house", "the sea", "an old book", "some water", "the children"]
OPTIONS = TranslateOptions(split=False, max_new_tokens=40)


@pytest.fixture(scope="module")
def translate():
    translator = Translator.load()
    return lambda texts: translator.translate(texts, options=OPTIONS)


def sentences(seed: int, pieces: list[str], count: int = 300) -> list[str]:
    generator = random.Random(seed)
    made = []
    for _ in range(count):
        words = [generator.choice(SUBJECTS), generator.choice(VERBS), generator.choice(OBJECTS)]
        for piece in generator.choices(pieces, k=generator.randint(1, 2)):
            words.insert(generator.randint(0, 3), piece)
        made.append(" ".join(words) + generator.choice([".", "!", ""]))
    return made


def test_every_span_is_there_once_each(translate):
    texts = sentences(1, SPANS)
    results = translate_sentences(texts, translate)
    for text, result in zip(texts, results, strict=True):
        assert result.text != text
        for span in find_protected(text):
            assert result.text.count(span.text) == text.count(span.text), (text, result.text)
    assert {"split", "plain", "placeholder"} <= {result.method for result in results}


def test_every_number_is_there_or_warned_about(translate):
    generator = random.Random(2)
    numbers = [f"{generator.randint(0, 10 ** generator.randint(1, 6)):,}" for _ in range(200)]
    texts = sentences(3, numbers)
    results = translate_sentences(texts, translate, options=TextOptions(retry=False))
    for text, result in zip(texts, results, strict=True):
        warned = {text[w.span[0] : w.span[1]] for w in result.warnings if w.kind == "number"}
        made = re.sub("[,，]", "", result.text)
        for number in re.findall(r"[0-9][0-9,]*", text):
            in_characters = re.search("[零一二三四五六七八九十百千万两]", made)
            assert number in warned or number.replace(",", "") in made or in_characters, (text, result.text)
    assert any(result.warnings for result in results)


def test_capitals_are_translated(translate):  # case I3
    texts = [text.upper() for text in sentences(4, ["today"], 50)]
    for result in translate_sentences(texts, translate):
        assert result.case == "all_caps"
        assert re.search("[一-鿿]", result.text)
        assert "repetition" not in {warning.kind for warning in result.warnings}, result.text


def test_output_is_in_chinese_form(translate):
    for result in translate_sentences(sentences(5, ["today,"], 100), translate):
        assert not re.search("[一-鿿][,.!?;:]|[一-鿿] [一-鿿]", result.text), result.text
