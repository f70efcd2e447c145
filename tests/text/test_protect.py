"""Protected spans through faithful, forgetful, inventive and plainly wrong translate functions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.text.protect import has_prose, translate_protected
from onnxmt.text.segment import segment_text, split_to_limit
from onnxmt.text.spans import ProtectOptions, find_protected

CASE_I6 = "Hi %1$s, open https://example.org/a_b?x=1&y=2, mail ops@example.org, run `make all` on {count} files."


def one(text: str, translate, **options):
    (result,) = translate_protected([text], translate, options=ProtectOptions(**options))
    return result


def upper(texts: list[str]) -> list[str]:
    """A model that copies placeholders such as (1)."""
    return [text.upper() for text in texts]


def forgetful(texts: list[str]) -> list[str]:
    """A model that drops whatever is no word, and ends each output with a full stop, as models do."""
    return [" ".join(re.findall(r"[A-Za-z]+", re.sub(r"\(\d+\)", "", text))).upper() + "。" for text in texts]


def test_copied_placeholders_are_replaced():
    result = one("Please see https://a.org/x and ask me@b.org now.", upper)
    assert (result.text, result.method) == ("PLEASE SEE https://a.org/x AND ASK me@b.org NOW.", "placeholder")
    assert result.inputs == (0,)


def test_lost_placeholders_split_the_text():
    result = one("Please see https://a.org/x and ask me@b.org now.", forgetful)
    assert (result.text, result.method) == ("PLEASE SEE https://a.org/x AND ASK me@b.org NOW。", "split")
    assert result.inputs == (1, 2, 3)


def test_case_i6():
    result = one(CASE_I6, forgetful)
    assert result.text == (
        "HI %1$s, OPEN https://example.org/a_b?x=1&y=2, MAIL ops@example.org, RUN `make all` ON {count} FILES。"
    )
    assert one("<b>Save</b>", forgetful).text == "<b>SAVE</b>"
    assert one("<b>Save</b>", forgetful).method == "plain"


def test_markup_at_the_edges_stays_outside_the_model():
    asked: list[str] = []

    def translate(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return texts

    assert one("<p><b>Hello there.</b></p> 😀", translate).text == "<p><b>Hello there.</b></p> 😀"
    assert one("See <b>this</b>", translate, placeholders=()).text == "See <b>this</b>"
    assert asked == ["Hello there.", "See", "this"]


def test_a_word_like_span_at_the_edge_goes_along():
    asked: list[str] = []
    one("{name} left https://a.org.", lambda texts: asked.extend(texts) or texts)
    assert asked == ["(1) left (2)."]


@pytest.mark.parametrize(
    "output",
    [
        "（1）打开 ( 2 )",  # full-width, spaces
        "先打开(2)，再打开(1)。",  # another order is fine for things
    ],
)
def test_placeholders_may_change_their_look_and_order(output):
    result = one("Open {a} and {b}.", lambda texts: [output])
    assert result.method == "placeholder"
    assert result.text == output.replace("（1）", "{a}").replace("( 2 )", "{b}").replace("(2)", "{b}").replace(
        "(1)", "{a}"
    )


@pytest.mark.parametrize("output", ["打开(1)。", "(1)(1)(2)", "(1)(2)(3)", "(1) (2)", "", "(1)好{c}(2)", "(11)好(2)"])
def test_untrue_answers_are_refused(output):
    answers = iter([[output], ["打开", "和"]])
    result = one("Open {a} and {b}.", lambda texts: next(answers))
    assert (result.method, result.text) == ("split", "打开 {a} 和 {b}.")


def test_markup_must_keep_its_order():
    answers = iter([["很(2)高(1)的他"], ["他很", "高", "的"]])
    result = one("He is <b>tall</b> indeed.", lambda texts: next(answers))
    assert (result.method, result.text) == ("split", "他很 <b>高</b> 的")


def test_words_do_not_run_into_a_url():
    result = one("Open https://a.org now.", lambda texts: ["打开(1)现在。"])
    assert result.text == "打开 https://a.org 现在。"
    assert one("Give {a} to me.", lambda texts: ["把(1)给我。"]).text == "把{a}给我。"
    assert one("The file {a} is.", lambda texts: ["THE FILE(1)IS"]).text == "THE FILE {a} IS"
    assert one("Wait %ss for it.", lambda texts: ["WAIT (1)s FOR IT"]).text == "WAIT %ss FOR IT"


def test_numbers_in_the_text_are_not_taken_for_placeholders():
    asked: list[str] = []
    result = one("Now (1) open {a} and (3) close.", lambda texts: asked.extend(texts) or texts)
    assert asked == ["Now (1) open (2) and (3) close."]
    assert result.text == "Now (1) open {a} and (3) close."


def test_several_styles_are_tried_in_turn():
    def translate(texts: list[str]) -> list[str]:
        return [text.upper().replace("(1)", "") for text in texts]

    result = one("Open {a} now.", translate, placeholders=("({n})", "X{n}"))
    assert (result.text, result.inputs, result.method) == ("OPEN {a} NOW.", (1,), "placeholder")


def test_many_spans_are_split_at_once():
    calls: list[list[str]] = []
    one("a {1} b {2} c {3} d", lambda texts: calls.append(texts) or texts, most_placeholders=2)
    assert calls == [["a", "b", "c", "d"]]


def test_a_batch_is_one_call_and_one_more_for_the_splits():
    calls: list[list[str]] = []

    def translate(texts: list[str]) -> list[str]:
        calls.append(texts)
        return forgetful(texts)

    results = translate_protected(["Hello.", "42", "Open {a} now.", "<i>Yes</i>", "Close {b}."], translate)
    assert calls == [["Hello.", "Open (1) now.", "Yes", "Close (1)."], ["Open", "now.", "Close"]]
    assert [r.text for r in results] == ["HELLO。", "42", "OPEN {a} NOW。", "<i>YES</i>", "CLOSE {b}."]
    assert [r.inputs for r in results] == [(0,), (), (4, 5), (2,), (6,)]
    assert [r.method for r in results] == ["plain", "untouched", "split", "plain", "split"]


def test_nothing_to_translate_asks_nobody():
    def never(texts: list[str]) -> list[str]:
        raise AssertionError(texts)

    for text in ("", "{a} %s: 5", "`code here`", "https://a.org", "<b>5</b>", "😀"):
        assert one(text, never).text == text
        assert not has_prose(text)
    assert has_prose("a {b}")
    assert has_prose("`code` here")


def test_a_plain_sentence_is_the_model_s_own_answer():
    assert one("Hello", lambda texts: [" 你好。 "]).text == "你好。"
    assert one("Hello", lambda texts: [""]).text == ""


def test_a_piece_without_a_translation_keeps_its_source():
    assert one("Open {a} now.", lambda texts: ["" for _ in texts]).text == "Open {a} now."


def test_an_invented_copy_of_a_span_is_not_let_through():
    result = one("Open {a} now.", lambda texts: ["打开{a}" for _ in texts])
    assert result.text == "Open {a} now."
    result = one("<b>Save</b>", lambda texts: ["<b>保存" for _ in texts])
    assert result.text == "<b>Save</b>"


def test_unclear_pieces_give_the_source_back():
    # {a} stands in the prose as well, as a part of something longer: the counts cannot be kept by translating
    result = one(
        "Open b.com or xb.commune now",
        lambda texts: [text.replace("xb.commune", "") for text in texts],
        placeholders=(),
    )
    assert (result.method, result.text, result.inputs) == ("source", "Open b.com or xb.commune now", ())


def test_the_first_candidate_that_passes_is_taken():
    candidates = [["打开 now", "打开 (1) now", "打开 (1) 现在", "(1)"], ["你好", "您好"]]
    texts = ["Open {a} now.", "Hello."]
    results = translate_protected(
        texts, lambda asked: candidates, passes=lambda source, text, number, rank: "现在" in text or "您" in text
    )
    assert [(r.text, r.inputs, r.ranks) for r in results] == [("打开 {a} 现在", (0,), (2,)), ("您好", (1,), (1,))]
    results = translate_protected(texts, lambda asked: candidates, passes=lambda source, text, number, rank: False)
    assert [(r.text, r.ranks) for r in results] == [("打开 {a} now", (1,)), ("你好", (0,))]
    assert [r.ranks for r in translate_protected(texts, lambda asked: candidates)] == [(1,), (0,)]


FILLER = st.sampled_from(
    ["Hello there", "open", "the file", "and", ",", ".", "(see", ")", "it's 5", "好。", "X1", "(2)"]
)
SPAN = st.sampled_from(
    ["%s", "%1$s", "{name}", "{0}", "{{ x }}", "https://a.org/b?c=1", "me@x.org", "`a b`", "<b>", "</b>", "&amp;", "src/a.py", "😀", "[t](u.v)"]
)  # fmt: skip
LINES = st.lists(st.one_of(FILLER, SPAN), max_size=9).map(" ".join)


@given(texts=st.lists(LINES, max_size=4), data=st.data())
@settings(max_examples=400, deadline=None)
def test_every_span_survives_any_model(texts, data):
    """Whatever the model answers, each span of the source is in the result as often as in the source."""
    noise = st.sampled_from(["{name}", "(1)", "(2)", "好", "X1", "%s", "<b>", "", "。", "https://a.org/b?c=1"])

    def translate(asked: list[str]) -> list[str]:
        answers = []
        for text in asked:
            kind = data.draw(st.sampled_from(["copy", "drop", "noise", "upper"]))
            answers.append(
                {"copy": text, "drop": re.sub(r"\(\d+\)", "", text), "upper": text.upper()}.get(kind)
                or " ".join(data.draw(st.lists(noise, max_size=4)))
            )
        return answers

    for text, result in zip(texts, translate_protected(texts, translate), strict=True):
        for span in find_protected(text):
            assert result.text.count(span.text) == text.count(span.text)
        assert result.spans == find_protected(text)


def test_sentences_and_splits_leave_spans_whole():
    source = "Run `a. B   c\td` now. See {n, plural, one {A. B} other {C. D}}! Then\n```\ncode. Here.\n\n   x\n```\nEnd. Bye."
    spans = find_protected(source)
    segments = segment_text(source, keep=spans)
    assert "".join(s.text + s.separator for s in segments) == source
    assert [s.text for s in segments] == [
        "Run `a. B   c\td` now.", "See {n, plural, one {A. B} other {C. D}}!", "Then", "End.", "Bye.",
    ]  # fmt: skip
    assert segments[2].separator == "\n```\ncode. Here.\n\n   x\n```\n"
    pieces = split_to_limit(segments[0], fits=lambda text: len(text) < 6, keep=spans)
    assert [p.text for p in pieces] == ["Run", "`a. B   c\td`", "now."]
    shifted = split_to_limit(segments[1], fits=lambda text: len(text) < 6, keep=spans)
    assert [p.text for p in shifted] == ["See", "{n, plural, one {A. B} other {C. D}}", "!"]
