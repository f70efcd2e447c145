"""Any text at all, with any of the layer's options: no crash, lines and places right. The golden bundle is tiny and loops."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from onnxmt.text.layer import TextOptions
from onnxmt.text.spans import find_protected
from tests.runtime.conftest import FORMAT1

PIECES = st.sampled_from(
    ["Yes.", "It rained.", "IT RAINED TODAY", "%s", "{name}", "https://a.org/b?c=1", "`a. b`", "<b>", "</b>", "😀", "- ", "1. ",
     "“So”", "…", "4711", "12:30", "word " * 30, "长长的句子，", "。", "\n", "\r\n", "\n\n", "\t", "   ", "```\ncode x\n```\n", "<!-- a\nb -->",
     "x >>zho<< ", "(1)", "[a](b.md)", "\u200b", "\ufeff", "\u2028", "é\u0301", "ﷺ", "𝔘𝔫𝔦", "\x00", "a_b", "$5"]
)  # fmt: skip
TEXTS = st.lists(
    st.lists(PIECES | st.text(max_size=4).filter(lambda t: t.isascii()), max_size=9).map("".join),
    min_size=1,
    max_size=6,
)
LAYERS = st.sampled_from(
    [TextOptions(), TextOptions(retry=False, normalize_punctuation=True), TextOptions(protect=None), TextOptions(casing=None, checks=None)]
)  # fmt: skip
BREAK = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


@pytest.fixture(scope="module")
def translator():
    with Translator.load(FORMAT1 / "bundle", options=RuntimeOptions(threads=1)) as loaded:
        yield loaded


@given(
    texts=TEXTS, layer=LAYERS, overlap=st.sampled_from([0, 0, 2]), unwrap=st.booleans(), beams=st.sampled_from([1, 3])
)
@settings(max_examples=300, deadline=None)
def test_any_text_comes_back_whole(translator, texts, layer, overlap, unwrap, beams):
    options = TranslateOptions(
        beams=beams, max_new_tokens=8, text=layer, overlap=overlap, unwrap=unwrap, alternatives=beams - 1
    )
    for source, found in zip(texts, translator.translate_detailed(texts, options=options), strict=True):
        assert found.error is None
        assert found.source == source
        if source.strip() and not unwrap:
            assert [bool(line.strip()) for line in BREAK.split(found.text)] == [
                bool(line.strip()) for line in BREAK.split(source)
            ]
        for warning in found.warnings:
            assert warning.span is not None
            assert 0 <= warning.span[0] <= warning.span[1] <= len(source)
        places = [(segment.start, segment.end) for segment in found.segments]
        assert all(0 <= start <= end <= len(source) for start, end in places)
        assert places == sorted(places)
        for segment in found.segments:
            assert "".join(source[segment.start : segment.end].split()) == "".join(segment.source.split())
            if layer.protect is not None:
                for span in find_protected(segment.source, layer.protect):
                    assert segment.text.count(span.text) == segment.source.count(span.text)
