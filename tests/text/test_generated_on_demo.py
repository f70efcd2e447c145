"""The Translator with the demo model on generated sentences: 300 of each kind of protected span, 300 with numbers."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxmt import Translator
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.text.layer import TextOptions
from onnxmt.text.numerals import numbers_in
from onnxmt.text.spans import ProtectOptions, find_protected

PATTERN = r"\b[A-Z]{2}-\d+\b"
OPTIONS = TranslateOptions(beams=1, max_new_tokens=40, text=TextOptions(protect=ProtectOptions(patterns=(PATTERN,))))
BATCH, BATCHES = 30, 10  # 300 sentences, 30 a call: most of the time is the model's
HYPOTHESIS = settings(
    max_examples=BATCHES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

name = st.text("abcdefgxyz", min_size=2, max_size=7)
number = st.integers(0, 99_999)
# Two apostrophes behind two backticks are a quotation as TeX writes it, ``so'', and no code.
printable = st.text("abz _().,:;%<>&=é\"'0", min_size=1, max_size=12).filter(
    lambda text: text.strip() and "''" not in text
)
SPANS = {
    "url": st.builds("https://{}.org/{}?{}={}&b=2".format, name, name, name, number),
    "email": st.builds("{}.{}@{}.com".format, name, name, name),
    "path": st.builds("{}/{}.py".format, name, name) | st.builds("/usr/{}/{}".format, name, name),
    "code": st.builds("`{}`".format, printable) | st.builds("``{}``".format, printable),
    "tag": st.sampled_from(["<b>", "</b>", "<br/>", "<i>"]) | st.builds('<a href="/{}">'.format, name),
    "entity": st.sampled_from(["&nbsp;", "&amp;", "&eacute;"]) | st.builds("&#{};".format, st.integers(160, 9999)),
    "placeholder": st.sampled_from(["%s", "%1$s", "%-5d", "{{ user.name }}", "{n, plural, one {# file} other {# files}}"])
    | st.builds("{{{}}}".format, name)
    | st.builds("%({})s".format, name)
    | st.builds("${{{}}}".format, name),
    "link": st.builds("[red car](https://{}.org/{})".format, name, number) | st.builds("![a dog](/{}.png)".format, name),
    "emoji": st.sampled_from(["😀", "🌷", "👩‍🚀", "🇨🇳", "👍🏽", "☀️"]),
    "pattern": st.builds("{}-{}".format, st.text("ABXYZ", min_size=2, max_size=2), number),
}  # fmt: skip
SUBJECTS = st.sampled_from(["A man", "The little girl", "My friend", "A black dog", "Everyone", "Tom"])
VERBS = st.sampled_from(["is looking at", "likes", "has", "is playing with", "wants", "can see"])
OBJECTS = st.sampled_from(["the red car", "a big house", "the sea", "an old book", "some water", "the children"])


@st.composite
def sentence(draw, pieces, most=3):
    words = [draw(SUBJECTS), draw(VERBS), draw(OBJECTS)]
    for piece in draw(st.lists(pieces, min_size=1, max_size=most)):
        words.insert(draw(st.integers(0, len(words))), piece)
    return " ".join(words) + draw(st.sampled_from([".", "!", ""]))


def batch(pieces, most=3):
    return st.lists(sentence(pieces, most), min_size=BATCH, max_size=BATCH)


@pytest.fixture(scope="module")
def translator():
    with Translator.load() as loaded:
        yield loaded


@pytest.mark.parametrize("kind", SPANS)
def test_every_protected_span_is_there_once_each(translator, kind):
    @given(texts=batch(SPANS[kind]))
    @HYPOTHESIS
    def check(texts):
        for source, made in zip(texts, translator.translate_detailed(texts, options=OPTIONS), strict=True):
            spans = find_protected(source, OPTIONS.text.protect)
            assert kind in {span.kind for span in spans}
            for span in spans:
                assert made.text.count(span.text) == source.count(span.text), (source, made.text)
            assert re.search("[一-鿿]", made.text), (source, made.text)

    check()


def test_all_kinds_in_one_sentence(translator):
    @given(texts=batch(st.one_of(*SPANS.values()), most=6))
    @HYPOTHESIS
    def check(texts):
        for source, made in zip(texts, translator.translate(texts, options=OPTIONS), strict=True):
            for span in find_protected(source, OPTIONS.text.protect):
                assert made.count(span.text) == source.count(span.text), (source, made)

    check()


NUMBERS = st.one_of(
    number.map(str),
    st.integers(1000, 9_999_999).map("{:,}".format),
    st.decimals(0, 999, places=2).map(str),
    st.integers(1, 100).map("{}%".format),
)


def test_every_number_is_there_or_warned_about(translator):
    told = []

    @given(texts=batch(NUMBERS))
    @HYPOTHESIS
    def check(texts):
        for source, made in zip(texts, translator.translate_detailed(texts, options=OPTIONS), strict=True):
            warned = [warning.span for warning in made.warnings if warning.kind == "number"]
            told.extend(warned)
            present = frozenset().union(*(one.values for one in numbers_in(made.text, "zh")))
            digits = re.sub("[,，]", "", made.text)
            for one in numbers_in(source, "en"):
                is_warned = any(start <= one.start and one.end <= end for start, end in warned)
                is_there = one.values & present or one.text.replace(",", "") in digits
                assert is_there or is_warned, (source, made.text)

    check()
    assert told  # the demo model does lose numbers
