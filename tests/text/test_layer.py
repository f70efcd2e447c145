"""The layer around a sentence, part by part and as a whole, with small models made of functions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.text.casing import CasingOptions
from onnxmt.text.chinese import ChineseOptions
from onnxmt.text.fidelity import CheckOptions, TextWarning, check_translation
from onnxmt.text.layer import TextOptions, translate_sentences
from onnxmt.text.protect import has_prose
from onnxmt.text.segment import join_translations, segment_text
from onnxmt.text.spans import ProtectOptions, find_protected

DATA = Path(__file__).parents[2].parent / "shared" / "data"
BARE = TextOptions(casing=None, protect=None, chinese=None, checks=None, end_marks=False)


def dictionary(entries: dict[str, str | list[str]]):
    """A model that knows these texts; what it was asked is in `.asked`."""

    def translate(texts: list[str]):
        translate.asked.extend(texts)
        return [entries[text] for text in texts]

    translate.asked = []
    return translate


def test_capitals_are_gone_before_the_model_and_reported():  # case I3
    model = dictionary({"Please close the door": "请关门", "NASA and USB": "NASA和USB"})
    first, second = translate_sentences(["PLEASE CLOSE THE DOOR", "NASA AND USB"], model)
    assert (first.text, first.case, first.warnings) == ("请关门", "all_caps", ())
    assert (second.text, second.case) == ("NASA和USB", "all_caps")
    assert model.asked == ["Please close the door", "NASA and USB"]


def test_chinese_form_is_for_chinese_targets():
    model = dictionary({"Yes, sir.": '是的, "先生" .'})
    (chinese,) = translate_sentences(["Yes, sir."], model)
    assert chinese.text == "是的，“先生”。"
    (other,) = translate_sentences(["Yes, sir."], model, options=TextOptions(target_language="ja", checks=None))
    assert other.text == '是的, "先生" .'


def test_spans_and_form_together():  # case I6
    model = dictionary({"Open (1) and (2).": "打开(1), 再打开(2)."})
    (result,) = translate_sentences(["Open `a, b` and https://x.org/a,b."], model)
    assert result.text == "打开`a, b`，再打开 https://x.org/a,b."
    assert (result.method, result.warnings) == ("placeholder", ())


def test_warnings_are_of_the_finished_text():
    (result,) = translate_sentences(["He has 21 cats."], lambda texts: ["他有12只猫."] * len(texts))
    assert [w.kind for w in result.warnings] == ["number", "number_added"]
    assert result.warnings[0].span == (7, 9)
    assert result.text == "他有12只猫。"


def test_the_next_candidate_that_passes_is_taken():
    model = dictionary({"He has 21 cats.": ["他有12只猫.", "他有21只猫."]})
    (result,) = translate_sentences(["He has 21 cats."], model)
    assert (result.text, result.ranks, result.warnings) == ("他有21只猫。", (1,), ())


def test_a_doubted_sentence_is_tried_in_parts():
    source = "He has 21 cats in his house, and they have 12 mice for dinner."
    entries = {
        source: "他家有很多猫。",
        "He has 21 cats in his house,": "他家里有21只猫。",
        "and they have 12 mice for dinner.": "他们晚餐有12只老鼠。",
    }
    model = dictionary(entries)
    (result,) = translate_sentences([source], model)
    assert result.text == "他家里有21只猫，他们晚餐有12只老鼠。"
    assert (result.method, result.inputs, result.warnings) == ("parts", (1, 2), ())
    (kept,) = translate_sentences([source], dictionary(entries), options=TextOptions(retry=False))
    assert (kept.text, kept.method, len(kept.warnings)) == ("他家有很多猫。", "plain", 3)


def test_the_retry_is_not_taken_when_it_is_no_better():
    source = "He has 21 cats in his house, and they have 12 mice for dinner."
    (result,) = translate_sentences([source], lambda texts: ["他家里有猫也有老鼠。" for _ in texts])
    assert (result.text, result.method, result.inputs) == ("他家里有猫也有老鼠。", "plain", (0,))


def test_a_sentence_without_clause_marks_is_not_cut():
    asked: list[str] = []
    translate_sentences(
        ["He has 21 cats and 12 mice in his house"], lambda texts: asked.extend(texts) or ["猫"] * len(texts)
    )
    assert asked == ["He has 21 cats and 12 mice in his house"]


def test_inputs_count_over_all_calls():
    source = "Open {a} now."
    (first, second) = translate_sentences(
        [source, "Hello."], lambda texts: ["你好" for _ in texts], options=TextOptions(checks=None)
    )
    assert first.inputs == (2, 3)
    assert second.inputs == (1,)


def test_every_part_can_be_left_out():
    (result,) = translate_sentences(["SEE {a}, OK"], lambda texts: [text + " , 好 ." for text in texts], options=BARE)
    assert (result.text, result.case, result.method, result.warnings) == ("SEE {a}, OK , 好 .", None, "plain", ())


def test_what_needs_no_model_is_untouched_and_unchecked():
    def never(texts):
        raise AssertionError(texts)

    for text in ("42", "😀", "`x` , {b}", "https://a.org", ""):
        (result,) = translate_sentences([text], never)
        assert (result.text, result.method, result.warnings) == (text, "untouched", ())


def whole_text(source: str, translate, options: TextOptions) -> str:
    """As a translator goes through a text: lines, segments, sentences, and back."""
    spans = find_protected(source, options.protect)
    segments = segment_text(source, language=options.source_language, keep=spans)
    texts = [result.text for result in translate_sentences([s.text for s in segments], translate, options=options)]
    return join_translations(
        texts,
        [s.separator for s in segments],
        target_language=options.target_language,
        sources=[s.text for s in segments],
    )


def fake(texts: list[str]) -> list[str]:
    """A model without a vocabulary for anything but words: 词 for each, numbers copied, the rest lost."""
    return ["".join(m if m.isdigit() else "词" for m in re.findall(r"[A-Za-z']+|\d+", text)) + "。" for text in texts]


def test_case_i5_and_s3():
    source = "  It is in the shed. 😀 I will bring it later.\r\n\r\n🌷🌷 🌷\n\tDone\n"
    assert whole_text(source, fake, TextOptions()) == "  词词词词词。😀词词词词词。\r\n\r\n🌷🌷 🌷\n\t词\n"


PIECES = ["Hello there.", "Open", "%s", "{name}", "https://a.org/b?c=1,2", "`a. b`", "<b>", "</b>", "me@x.org", "5 cats,", "😀", "\n", "  ", "NOW", "\t", "“So”", "and"]  # fmt: skip


@given(source=st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join), target=st.sampled_from(["zh", "de"]))
@settings(max_examples=300, deadline=None)
def test_whole_texts_keep_spans_and_lines(source, target):
    result = whole_text(source, fake, TextOptions(target_language=target))
    for span in find_protected(source):
        assert result.count(span.text) == source.count(span.text)
    assert [bool(line.strip()) for line in result.splitlines()] == [bool(line.strip()) for line in source.splitlines()]


@given(numbers=st.lists(st.integers(0, 99_999), min_size=1, max_size=3), forgetful=st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_number_is_there_or_warned_about(numbers, forgetful):
    source = "We saw " + " and ".join(map(str, numbers)) + " of them."
    model = (lambda texts: [re.sub(r"\d", "", text) for text in fake(texts)]) if forgetful else fake
    (result,) = translate_sentences([source], model, options=TextOptions(retry=False))
    warned = {source[w.span[0] : w.span[1]] for w in result.warnings if w.kind == "number"}
    for number in map(str, numbers):
        assert (number in re.findall(r"\d+", result.text)) != (number in warned)


@pytest.mark.parametrize("name", ["placeholders", "technical", "numbers_dates_units"])
def test_regression_texts_keep_every_span(name):
    path = DATA / "regression" / f"{name}.txt"
    if not path.is_file():
        pytest.skip("the shared regression texts are not beside this checkout")
    source = path.read_text(encoding="utf-8")
    result = whole_text(source, fake, TextOptions())
    assert len(result.splitlines()) == len(source.splitlines())
    for given_line, made_line in zip(source.splitlines(), result.splitlines(), strict=True):
        if has_prose(given_line):
            assert "词" in made_line
        for span in find_protected(given_line):
            assert made_line.count(span.text) == given_line.count(span.text)


def test_options_reach_their_parts():
    options = TextOptions(
        casing=CasingOptions(all_caps=False),
        protect=ProtectOptions(patterns=("ABC",)),
        chinese=ChineseOptions(quotes="corner"),
        checks=CheckOptions(kinds=frozenset({"number"})),
    )
    (result,) = translate_sentences(["SEE ABC 5"], lambda texts: ['"好" (1)'] * len(texts), options=options)
    assert (result.text, result.case) == ("「好」ABC", None)
    assert [w.kind for w in result.warnings] == ["number"]
    assert check_translation("SEE ABC 5", result.text, options=options.checks)[0].kind == "number"


def test_inputs_tell_which_sentence_they_are_for_and_whether_they_are_a_retry():
    source = "He has 21 cats in his house, and they have 12 mice for dinner."
    seen = []

    def model(texts):
        seen.append((list(texts), texts.owners, texts.again))
        return ["猫" for _ in texts]

    translate_sentences(["Hello.", source, "Open {a} now."], model, options=TextOptions(target_language="zh"))
    assert [(len(texts), owners, again) for texts, owners, again in seen] == [
        (3, (0, 1, 2), False),
        (2, (2, 2), False),  # the pieces of the sentence whose placeholder was lost
        (2, (1, 1), True),
    ]


def test_other_candidates_are_finished_too():
    model = dictionary({"He has (1) cats.": ["他有(1)只猫.", "他有猫.", "他的猫有(1)只."]})
    (result,) = translate_sentences(["He has {n} cats."], model, others=True, options=TextOptions(checks=None))
    assert result.text == "他有{n}只猫。"
    assert [(other.text, other.number, other.rank) for other in result.others] == [("他的猫有{n}只。", 0, 2)]
    assert translate_sentences(["He has {n} cats."], model)[0].others == ()


def test_what_the_tokens_tell_counts_as_a_warning():
    loop = TextWarning(kind="repetition", span=(0, 0), message="a loop")
    model = dictionary({"He has 21 cats.": ["他有21只猫.", "他有猫21只."]})
    (second,) = translate_sentences(["He has 21 cats."], model, doubts=lambda number, rank: [loop] if rank == 0 else [])
    assert (second.text, second.warnings) == ("他有猫21只。", ())
    (both,) = translate_sentences(["He has 21 cats."], model, doubts=lambda number, rank: [loop])
    assert (both.text, [(w.kind, w.span) for w in both.warnings]) == ("他有21只猫。", [("repetition", (0, 15))])


def test_no_retry_for_what_it_cannot_mend():
    source = "He has 21 cats in his house, and they have 12 mice for dinner."
    asked: list[str] = []
    (result,) = translate_sentences([source], lambda texts: asked.extend(texts) or ["жуж " * 30 for _ in texts])
    assert {"wrong_script", "repetition"} <= {warning.kind for warning in result.warnings}
    assert asked == [source]


def test_plain_punctuation_is_for_the_model_alone():
    model = dictionary({'He said "no" - 12 times...': "他说了“不”……"})
    source = "He said “no” – 12 times…"
    (result,) = translate_sentences([source], model, options=TextOptions(normalize_punctuation=True, retry=False))
    assert result.source == source
    (number,) = result.warnings
    assert source[slice(*number.span)] == "12"


@pytest.mark.parametrize(
    ("source", "given", "made"),
    [
        ("- one thing", "one thing", "- 好"),
        ("2. One thing", "One thing", "2. 好"),
        ("(a) one thing", "one thing", "(a) 好"),
        ("## One thing", "One thing", "## 好"),
        ("* <b>one thing</b>", "one thing", "* <b>好</b>"),
    ],
)
def test_a_lists_marker_is_no_text(source, given, made):
    (result,) = translate_sentences([source], dictionary({given: "好"}), options=TextOptions(checks=None))
    assert result.text == made


def test_a_marker_without_text_is_untouched():
    (result,) = translate_sentences(["- 5"], dictionary({}))
    assert (result.text, result.method) == ("- 5", "untouched")
