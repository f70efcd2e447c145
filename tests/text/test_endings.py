"""No full stop that the source has not."""

from __future__ import annotations

import pytest

from onnxmt.text.endings import end_like_source


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Save", "保存。", "保存"),
        ("Save", "保存.", "保存"),
        ("Save.", "保存。", "保存。"),
        ("Save!", "保存。", "保存。"),
        ("Really", "真的吗？", "真的吗？"),
        ("Wait", "等等……", "等等……"),
        ("Wait", "等等...", "等等..."),
        ("Dear Sir,", "亲爱的先生。", "亲爱的先生,"),
        ("He said:", "他说。", "他说:"),
        ("他说：", "He said.", "He said："),
        ("Chapter 3", "第3章。", "第3章"),
        ("**Title**", "标题。", "标题"),
        ('He said "Yes."', "他说“是的。”", "他说“是的。”"),
        ('He said "Yes."', "他说是的。", "他说是的。"),
        ("the USA", "aux U.S.", "aux U.S."),
        ("等一下", "Wait a moment.", "Wait a moment"),
        ("5", "。", "。"),
        ("", "好。", "好。"),
        ("%)", "好。", "好。"),
    ],
)
def test_the_end_is_the_sources(source, translation, expected):
    assert end_like_source(translation, source) == expected
