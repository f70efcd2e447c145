"""Glossaries with the demo model: 300 generated entries, half of them words that no model would say there."""

from __future__ import annotations

import random

import pytest

from onnxmt import Translator
from onnxmt.runtime.flags import repeated_run
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.text.glossary import Glossary

SUBJECTS = ["A man", "The little girl", "My friend", "A black dog", "The teacher", "Tom"]
VERBS = ["is looking at", "likes", "has", "is playing with", "wants", "can see"]
OBJECTS = ["the red car", "a big house", "the sea", "an old book", "some water", "the children", "the doctor"]
TERMS = {
    "man": "男子", "girl": "女孩", "friend": "朋友", "dog": "犬只", "teacher": "老师", "Tom": "汤姆", "car": "汽车",
    "house": "房屋", "sea": "大海", "book": "图书", "water": "水", "children": "孩子", "doctor": "医生",
}  # fmt: skip
NAMES = ["云舟平台", "蓝鲸", "GitHub", "微信支付", "OpenAI", "数据湖", "Pro 版", "3D 打印机", "C++", "Ω系统"]


@pytest.fixture(scope="module")
def translator():
    return Translator.load()


def generated(count: int, seed: int = 11) -> list[tuple[str, dict[str, str]]]:
    generator = random.Random(seed)
    made = []
    for _ in range(count):
        sentence = " ".join(map(generator.choice, (SUBJECTS, VERBS, OBJECTS))) + generator.choice([".", "!"])
        words = [word for word in TERMS if word in sentence.rstrip(".!").split()]
        chosen = generator.sample(words, generator.randint(1, len(words)))
        made.append((sentence, {word: generator.choice([TERMS[word], generator.choice(NAMES)]) for word in chosen}))
    return made


@pytest.mark.slow
def test_generated_entries_are_applied_or_reported(translator):
    cases = generated(300)
    total = applied = loops = 0
    for sentence, terms in cases:
        result = translator.translate_detailed(sentence, options=TranslateOptions(glossary=Glossary.from_dict(terms)))
        assert {use.source for use in result.glossary} == set(terms), sentence
        for use in result.glossary:
            assert use.target == terms[use.source]
            assert use.applied == (use.target in result.text), (sentence, result.text)
        missed = [use for use in result.glossary if not use.applied]
        assert len(missed) == sum(warning.kind == "glossary" for warning in result.warnings)
        total, applied = total + len(terms), applied + len(terms) - len(missed)
        loops += repeated_run([ord(character) for character in result.text]) > 0
    assert total >= 300
    assert applied >= 0.95 * total, f"{applied} of {total}"
    assert loops <= 3


def test_the_term_is_where_the_word_was(translator):
    glossary = Glossary.from_dict({"friend": "GitHub", "book": "图书"})
    assert translator.translate("My friend likes this book.", options=TranslateOptions(glossary=glossary)) == (
        "我的GitHub喜欢图书。"
    )


def test_other_sentences_are_as_without_a_glossary(translator):
    sentences = [sentence for sentence, _ in generated(40, seed=5)]
    plain = translator.translate_detailed(sentences, options=TranslateOptions(alternatives=1))
    glossary = Glossary.from_dict({"sea": "云舟平台"})
    told = translator.translate_detailed(sentences, options=TranslateOptions(alternatives=1, glossary=glossary))
    touched = 0
    for sentence, before, after in zip(sentences, plain, told, strict=True):
        if "sea" in sentence:
            touched += 1
            assert "云舟平台" in after.text
        else:
            assert after == before
    assert 0 < touched < len(sentences)


def test_a_sentence_that_has_its_term_is_as_without_a_glossary(translator):
    plain = translator.translate_detailed("My friend likes this book.")
    assert "朋友" in plain.text
    told = translator.translate_detailed(
        "My friend likes this book.", options=TranslateOptions(glossary=Glossary.from_dict({"friend": "朋友"}))
    )
    assert (told.text, told.tokens, told.score) == (plain.text, plain.tokens, plain.score)
    assert told.glossary[0].applied


@pytest.mark.parametrize(
    "options", [{"beams": 1}, {"beams": 2}, {"sample": True, "seed": 3}, {"split": False}, {"alternatives": 3}]
)
def test_with_every_way_of_searching(translator, options):
    glossary = Glossary.from_dict({"car": "云舟平台"})
    result = translator.translate_detailed(
        "Tom wants the red car.", options=TranslateOptions(glossary=glossary, **options)
    )
    assert "云舟平台" in result.text
    assert result.glossary[0].applied
    assert len(result.alternatives) == options.get("alternatives", 0)
    for other in result.alternatives:
        assert "云舟平台" in other.text


def test_a_batch_says_what_single_calls_say(translator):
    cases = generated(12, seed=8)
    terms = {source: "蓝鲸" for _, entry in cases for source in entry}
    options = TranslateOptions(glossary=Glossary.from_dict(terms))
    sentences = [sentence for sentence, _ in cases]
    assert translator.translate(sentences, options=options) == [
        translator.translate(sentence, options=options) for sentence in sentences
    ]


def test_terms_stay_out_of_protected_spans(translator):
    glossary = Glossary.from_dict({"car": "云舟平台"})
    result = translator.translate_detailed(
        "Tom likes `car` and http://car/x.", options=TranslateOptions(glossary=glossary)
    )
    assert "`car`" in result.text
    assert "http://car/x" in result.text
    assert result.glossary == ()


def test_json(translator):
    glossary = Glossary.from_dict({"car": "云舟平台"})
    result = translator.translate_detailed("Tom wants the red car.", options=TranslateOptions(glossary=glossary))
    assert result.to_dict()["glossary"] == [{"source": "car", "target": "云舟平台", "applied": True}]
