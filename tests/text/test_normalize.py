"""Plain punctuation in sources."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.text.normalize import normalize_punctuation
from onnxmt.text.spans import find_protected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("“It’s fine,” she said…", '"It\'s fine," she said...'),
        ("a—b – c−d", "a - b - c-d"),
        ("Ｈｅｌｌｏ，ｗｏｒｌｄ！", "Hello,world!"),
        ("5\u00a0km\u200b\u00ad", "5 km"),
        ("see `a—b` and https://x.org/a—b", "see `a—b` and https://x.org/a - b"),
        ("  kept  as it is\n", "  kept  as it is\n"),
    ],
)
def test_normalize(text, expected):
    assert normalize_punctuation(text) == expected


@given(st.lists(st.sampled_from(["“", "’", "…", "—", " ", "a", "{x–y}", "`“`", "\n", "，"]), max_size=12).map("".join))
@settings(deadline=None)
def test_lines_and_spans_stay(text):
    result = normalize_punctuation(text)
    assert result.count("\n") == text.count("\n")
    for span in find_protected(text):
        assert span.text in result
