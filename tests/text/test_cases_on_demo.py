"""Reported faults (I, S, T2, L) as literal cases, through the Translator and the demo model, as any text goes."""

from __future__ import annotations

import re

import pytest

from onnxmt import Translator
from onnxmt.errors import DoubtfulTranslationError
from onnxmt.runtime.translation import TranslateOptions, Translation
from onnxmt.text.layer import TextOptions
from onnxmt.text.spans import ProtectOptions, find_protected

HAN = "[一-鿿]"


@pytest.fixture(scope="module")
def translator():
    with Translator.load() as loaded:
        yield loaded


def kinds(found: Translation) -> set[str]:
    return {warning.kind for warning in found.warnings}


@pytest.mark.parametrize("word", ["Hello", "Man", "Stop"])
def test_i1_a_fragment_is_not_a_loop(translator, word):
    ids = translator.tokenizer.encode(word)
    assert ids.count(translator.settings.eos_token_ids[0]) == 1
    found = translator.translate_detailed(word)
    assert re.search(HAN, found.text)
    assert found.finished
    assert len(found.tokens) < 8
    assert not kinds(found) & {"repetition", "length_cap"}


def test_i1_a_menu_keeps_its_lines_and_what_is_lost_is_said(translator):
    menu = "18.5 C\nLusaka\n\nMONDAY, 3 MARCH 2025 09:12\nSPORT\n\nMORE"
    found = translator.translate_detailed(menu)
    assert [bool(line) for line in found.text.split("\n")] == [True, True, False, True, True, False, True]
    warned = {menu[slice(*warning.span)] for warning in found.warnings if warning.kind == "number"}
    for number in ("18.5", "3", "2025", "09", "12"):
        assert number in re.findall(r"\d+(?:\.\d+)?", found.text) or number in warned, found.text


def test_i3_capitals_are_translated_like_their_ordinary_form(translator):
    capitals = translator.translate_detailed("PLEASE CLOSE THE DOOR")
    assert capitals.text == translator.translate("Please close the door") == "请关门"
    assert [segment.case for segment in capitals.segments] == ["all_caps"]
    assert capitals.to_dict()["segments"][0]["case"] == "all_caps"
    plain = translator.translate_detailed(
        "PLEASE CLOSE THE DOOR", options=TranslateOptions(text=TextOptions(casing=None))
    )
    assert plain.segments[0].case is None


def test_i3_acronyms_keep_their_capitals(translator):
    assert translator.translate("NASA AND USB") == translator.translate("NASA and USB")


def test_i5_nothing_is_lost_behind_an_emoji(translator):
    found = translator.translate_detailed("It is in the shed. 😀 I will bring it later.")
    before, after = found.text.split("😀")
    assert re.search(HAN, before)
    assert re.search(HAN, after)
    assert found.text.count("😀") == 1
    only = translator.translate_detailed("🌷🌷 🌷")
    assert (only.text, only.score, only.tokens) == ("🌷🌷 🌷", None, ())


I6 = "Hi %1$s, open https://example.org/a_b?x=1&y=2, mail ops@example.org, run `make all` on {count} files."


def test_i6_spans_come_out_once_each(translator):
    found = translator.translate(I6)
    for span in ("%1$s", "https://example.org/a_b?x=1&y=2", "ops@example.org", "`make all`", "{count}"):
        assert found.count(span) == 1
    assert re.search(HAN, found)
    assert re.fullmatch(f"<b>{HAN}+</b>", translator.translate("<b>Save</b>"))


def test_i6_the_users_own_pattern(translator):
    text = "Part ZX-81 fits part ZX-82."
    own = TranslateOptions(text=TextOptions(protect=ProtectOptions(patterns=(r"ZX-\d+",))))
    found = translator.translate(text, options=own)
    assert (found.count("ZX-81"), found.count("ZX-82")) == (1, 1)


def test_s1_abbreviations_do_not_end_sentences(translator):
    text = "1. Dr. J. R. Okafor paid $3.50 at 9 a.m., e.g. for tea. Then he left."
    found = translator.translate_detailed(text)
    assert [text[one.start : one.end] for one in found.segments] == [text[:55], "Then he left."]
    assert found.text.startswith("1. ")


@pytest.mark.parametrize(
    "text",
    [
        "Title\n\n\nOne.\nTwo!\n\n",
        "Title\r\n\r\n\r\nOne.\r\nTwo!\r\n\r\n",
        "  One.\n\t Two!  \n   \nThree.",
        "\n\nOne.\n",
    ],
)
def test_s3_the_line_structure_is_the_sources(translator, text):
    found = translator.translate(text)
    assert re.sub(r"[^\s]+(?: [^\s]+)*", "x", found) == re.sub(r"[^\s]+(?: [^\s]+)*", "x", text)


@pytest.mark.parametrize("target", [None, "zh", "zh-Hans", "zh_CN", "zho_Hans", "zho"])
def test_s4_no_space_between_chinese_sentences(translator, target):
    found = translator.translate("It rained. We stayed in.", options=TranslateOptions(target=target))
    assert found == "雨下了。我们待在原处。"


@pytest.mark.parametrize("text", ["A witch rides a broom.", "The ⅔ ☃ ﷽ zażółć.", "He said “no” — twice…"])
def test_t2_no_piece_of_the_vocabulary_is_left(translator, text):
    found = translator.translate(text)
    assert not re.search("▁|⁇|<unk>|<pad>|</s>", found)
    assert not re.search(f"{HAN} +{HAN}", found)


def test_l1_an_over_long_sentence_is_split_and_a_cap_is_said(translator):
    text = "the black cat sat on the red sofa and " * 100
    assert len(translator.tokenizer.encode(text)) > 700
    options = TranslateOptions(beams=1, max_new_tokens=40)
    found = translator.translate_detailed(text, options=options)
    assert "".join(segment.source for segment in found.segments).replace(" ", "") == text.replace(" ", "")
    assert all(len(translator.tokenizer.encode(segment.source)) <= translator.limit for segment in found.segments)
    assert found.finished or "length_cap" in kinds(found)


def test_l1_a_text_that_grows_on_its_way_is_never_too_long(translator):
    """Placeholders make the longest sentence that fits longer than the limit; so does a span of 3,000 characters."""
    words = "go " * (translator.limit - 1)
    text = " ".join(f"{word}" if i % 70 else f"{{a{i}}}" for i, word in enumerate(words.split()))
    span = f"See `{'x y ' * 800}` now."
    found = translator.translate([text, span], options=TranslateOptions(beams=1, max_new_tokens=20))
    for source, made in zip([text, span], found, strict=True):
        assert all(made.count(one.text) == source.count(one.text) for one in find_protected(source))


def test_l3_a_list_of_4000_characters_beside_short_sentences(translator):
    words = ["apple", "pear", "plum", "lemon", "berry"]
    long = ", ".join(f"{words[i % 5]} {i}" for i in range(400))[:4000]
    short = [f"I have {i} dogs." for i in range(10)]
    options = TranslateOptions(beams=1, max_new_tokens=60)
    found = translator.translate_detailed([long, *short], options=options)
    assert max(len(translator.tokenizer.encode(segment.source)) for segment in found[0].segments) <= translator.limit
    alone = translator.translate_detailed(short, options=options)
    assert [one.tokens for one in found[1:]] == [one.tokens for one in alone]


def test_strict_makes_a_warning_an_error(translator):
    texts = ["Good morning.", "There were 4711 blue elephants in Zanzibar.", "Thank you."]
    plain = translator.translate_detailed(texts)
    assert "number" in kinds(plain[1])
    returned = translator.translate_detailed(texts, options=TranslateOptions(strict=True), errors="return")
    assert [one.error is None for one in returned] == [True, False, True]
    assert returned[1].error.startswith(f"{len(plain[1].warnings)} warnings (number")
    assert [one.text for one in returned] == [one.text for one in plain]
    with pytest.raises(DoubtfulTranslationError, match=r"text 1: .* and strict allows none") as caught:
        translator.translate(texts, options=TranslateOptions(strict=True))
    assert [one.text for one in caught.value.translations] == [one.text for one in plain]
    assert translator.translate(texts[::2], options=TranslateOptions(strict=True)) == [plain[0].text, plain[2].text]


def test_warnings_stand_in_the_whole_text(translator):
    text = "Good morning.\n\n  We saw — “there” — 4711 elephants… Thank you."
    options = TranslateOptions(text=TextOptions(normalize_punctuation=True))
    found = translator.translate_detailed(text, options=options)
    (number,) = [warning for warning in found.warnings if warning.kind == "number"]
    assert text[slice(*number.span)] == "4711"


def test_unwrapped_places_are_those_of_the_source(translator):
    text = "This is a line of text that somebody has wrapped, and we saw\n   4711 elephants on it. Good morning."
    found = translator.translate_detailed(text, options=TranslateOptions(unwrap=True))
    assert "\n" not in found.text
    assert [text[one.start : one.end] for one in found.segments] == [text[:85], "Good morning."]
    assert {text[slice(*one.span)] for one in found.warnings if one.kind == "number"} == {"4711"}
    assert "\n" in translator.translate(text)


def test_no_split_is_the_raw_model(translator):
    for text in ("PLEASE CLOSE THE DOOR", I6, "It rained. We stayed in.", "“Yes”, he said… (No.)"):
        found = translator.translate_detailed(text, options=TranslateOptions(split=False))
        assert found.text == translator.tokenizer.decode(found.tokens)
        assert found.segments[0].method == "plain"
        assert found.segments[0].source == text


def test_overlap_keeps_every_sentence(translator):
    text = "A man is old. He is sleeping. I like water. It is cold."
    found = translator.translate_detailed(text, options=TranslateOptions(overlap=2))
    assert len(found.segments) == 4
    for segment in found.segments:
        assert re.search(HAN, segment.text)
        assert segment.text.rstrip("。").count("。") == 0
        assert translator.tokenizer.decode(segment.tokens).strip().rstrip(".。") in segment.text


def test_equal_sentences_are_translated_once(translator, monkeypatch):
    from onnxmt.runtime.decoding import BatchDecoder

    given: list[int] = []
    decode = BatchDecoder.decode
    monkeypatch.setattr(
        BatchDecoder,
        "decode",
        lambda self, sources, *a, **k: given.append(len(sources)) or decode(self, sources, *a, **k),
    )
    texts = ["Good morning. Thank you.", "Thank you.\nGood morning."] * 20
    found = translator.translate(texts, options=TranslateOptions(beams=1))
    assert given == [2]
    assert found[:2] * 20 == found
