"""The Chinese output profile: each rule, its limits, its switch."""

from __future__ import annotations

import sys
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.errors import MissingExtraError, UsageError
from onnxmt.text import chinese
from onnxmt.text.chinese import ChineseOptions, to_chinese_form
from onnxmt.text.spans import ProtectOptions, find_protected

DEFAULT = {
    # marks
    "你好,世界.": "你好，世界。",
    "真的?!好;对:是!": "真的？！好；对：是！",
    "Tom, 你好: 再见": "Tom，你好：再见",
    "10%, 而且": "10%，而且",
    "它是好.”": "它是好。”",
    "他在 a.py 里, 对.": "他在 a.py 里，对。",
    # not beside Han characters
    "Hello, world. 5": "Hello, world. 5",
    "我说 Hello, world! Yes": "我说 Hello, world! Yes",
    "Yahoo! 很好": "Yahoo! 很好",
    "Dr. 王": "Dr. 王",
    "1. 打开": "1. 打开",
    "(1) 打开": "(1) 打开",
    # numbers and times
    "他有1,000,000元,对吗?": "他有1,000,000元，对吗？",
    "现在12:30:45,比分3:2": "现在12:30:45，比分3:2",
    "价格3.5元": "价格3.5元",
    "约1，234，567人在12：30到": "约1,234,567人在12:30到",
    "第1，2，3章": "第1，2，3章",
    "3．5米": "3.5米",
    # brackets
    "世界卫生组织 (WHO) 说": "世界卫生组织（WHO）说",
    "Windows(操作系统)": "Windows（操作系统）",
    "函数 f(x) 的值(即y)": "函数 f(x) 的值（即y）",
    "（好)": "（好）",
    "你好:) 再见": "你好:) 再见",
    "他(她(它))": "他（她（它））",
    "你好)": "你好)",
    # ellipsis
    "等等...好": "等等……好",
    "嗯…好": "嗯……好",
    "等等......": "等等……",
    "wait... 好的 a...b": "wait……好的 a...b",
    # quotes
    '"你好",他说.': "“你好”，他说。",
    '他说"Hello"。': "他说“Hello”。",
    "「你好」『世界』": "“你好”‘世界’",
    "'你好'": "‘你好’",
    "他是 Tom's 朋友": "他是 Tom's 朋友",
    '5" 屏幕, 6" 屏幕': '5" 屏幕，6" 屏幕',
    '一个"引号': '一个"引号',
    'say "yes" 好 and "no" now': 'say “yes”好 and "no" now',
    # spaces
    "我 爱  你 ": "我爱你 ",
    "你好 , 世界 !": "你好，世界！",
    "他说 “好” 。": "他说“好”。",
    "他用 iPhone 手机": "他用 iPhone 手机",
    "他很 <b>非常</b> 高": "他很<b>非常</b>高",
    "看 [这本书](http://x.org) 吧": "看[这本书](http://x.org)吧",
    "我 ❤️ 你": "我❤️你",
    # spans
    "打开 https://a.org/b,c?d=e, 发 邮件 x@y.org.": "打开 https://a.org/b,c?d=e，发邮件 x@y.org.",
    "跑 `make, all` 吧: {a, b} %s,好": "跑 `make, all` 吧：{a, b} %s，好",
    "<a title='你好, 世界.'>好</a>.": "<a title='你好, 世界.'>好</a>。",
    # lines
    "  你好,\n\t世 界.\r\n": "  你好，\n\t世界。\r\n",
}


@pytest.mark.parametrize(("text", "expected"), DEFAULT.items())
def test_default_profile(text, expected):
    assert to_chinese_form(text) == expected
    assert to_chinese_form(expected) == expected


SWITCHES = [
    ({"punctuation": False}, "你好, (世界)...", "你好, (世界)……"),
    ({"ellipsis": False}, "你好, 等等...", "你好，等等..."),
    ({"quotes": "keep"}, '"你好"「世界」', '"你好"「世界」'),
    ({"quotes": "corner"}, '"你好"和“世界”和‘他’, it’s “OK”', "「你好」和「世界」和『他』，it’s “OK”"),
    ({"han_spaces": False}, "我 爱 你 , 好", "我 爱 你 ， 好"),
    ({"latin_space": "add"}, "我用iPhone手机, 有3个{n}个", "我用 iPhone 手机，有 3 个 {n} 个"),
    ({"latin_space": "remove"}, "我用 iPhone 手机, 见 https://a.org 的", "我用iPhone手机，见 https://a.org 的"),
]


@pytest.mark.parametrize(("options", "text", "expected"), SWITCHES)
def test_each_rule_has_its_switch(options, text, expected):
    assert to_chinese_form(text, ChineseOptions(**options)) == expected


def test_everything_off_changes_nothing():
    off = ChineseOptions(punctuation=False, ellipsis=False, quotes="keep", han_spaces=False)
    text = '我 爱 "你" , (好)...「」,'
    assert to_chinese_form(text, off) == text


def test_user_patterns_are_kept():
    assert to_chinese_form("见 甲,乙 吧,好", protect=ProtectOptions(patterns=("甲,乙",))) == "见 甲,乙 吧，好"


def test_unknown_values_are_named_together():
    with pytest.raises(UsageError, match=r"quotes is 'straight'.*latin_space is 'yes'.*traditional is 't2s'"):
        ChineseOptions(quotes="straight", latin_space="yes", traditional="t2s")


def test_traditional_output():
    options = ChineseOptions(traditional="s2twp", quotes="corner")
    assert to_chinese_form('鼠标里面的软件"头发",见`鼠标`', options) == "滑鼠裡面的軟體「頭髮」，見`鼠标`"
    assert to_chinese_form("里面", ChineseOptions(traditional="s2hk")) == "裏面"


def test_traditional_output_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "opencc", None)
    chinese._opencc.cache_clear()
    with pytest.raises(MissingExtraError, match=r"onnxmt\[opencc\]"):
        to_chinese_form("头发", ChineseOptions(traditional="s2t"))


def test_opencc_is_loaded_only_when_asked_for(monkeypatch):
    asked: list[str] = []
    fake = types.SimpleNamespace(
        OpenCC=lambda configuration: asked.append(configuration) or types.SimpleNamespace(convert=str.upper)
    )
    monkeypatch.setitem(sys.modules, "opencc", fake)
    chinese._opencc.cache_clear()
    assert to_chinese_form("头发") == "头发"
    assert asked == []
    assert to_chinese_form("头发a", ChineseOptions(traditional="s2t")) == "头发A"
    assert asked == ["s2t"]
    chinese._opencc.cache_clear()


PIECES = [*',.!?:;()"\'“”「」（），。… \n', "...", "你", "好世界", "a", "Tom", "1", "1,000", "12:30", "https://a.org/b,c", "{a, b}", "<b>", "😀", "`x. y`", "\U000f0000", "\U000f0001"]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@given(
    text=TEXTS, latin=st.sampled_from(["keep", "add", "remove"]), quotes=st.sampled_from(["curly", "corner", "keep"])
)
@settings(max_examples=500, deadline=None)
def test_spans_lines_and_letters_survive(text, latin, quotes):
    options = ChineseOptions(latin_space=latin, quotes=quotes)
    result = to_chinese_form(text, options)
    assert result.count("\n") == text.count("\n")
    for span in find_protected(text):
        assert span.text in result
    assert [c for c in result if c.isalnum()] == [c for c in text if c.isalnum()]
    assert to_chinese_form(result, options) == result


UNITS = ["… ", "！", "(", "“", "“好", "'好", '"好', "好 ", "好😀 ", "...", "1，000，", "，", ": ", "你好,"]


@pytest.mark.parametrize("unit", UNITS)
def test_hostile_text_is_read(unit):
    for options in (ChineseOptions(), ChineseOptions(quotes="corner", latin_space="add")):
        to_chinese_form("好" + unit * 20_000, options)
