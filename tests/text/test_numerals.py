"""Numbers and the values that they can mean, in English, Chinese and other text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.text.numerals import numbers_in


def values(text: str, language: str, *, digits: bool | None = None) -> list[set[str]]:
    return [set(n.values) for n in numbers_in(text, language) if digits is None or n.in_digits == digits]


ENGLISH = {
    "It cost 1,234.50 and 007": [{"1234.5"}, {"7"}],
    "5 million, $1.2bn, £11million, $300+ billion, 5k": [{"5000000"}, {"1200000000"}, {"11000000"}, {"300000000000"}, {"5000"}],
    "200 to 300 million": [{"200", "200000000"}, {"300000000"}],
    "v1.2.3 and 1.2.3.": [{"1.2.3"}],
    "COVID-19, F-16, Covid-19, MP3, 7up": [{"7"}],
    "mid-1960s and the '90s": [{"1960", "60", "20"}, {"90", "1"}],
    "at 3 pm or 12 a.m.": [{"3", "15"}, {"12"}],
    "2010–11": [{"2010"}, {"11", "2011"}],
    "at 12:30, 9:00 and 4.40 am": [{"12", "0"}, {"30", "0.5"}, {"9", "21"}, {"4", "16"}, {"40"}],
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ENGLISH.items())
def test_english_digits(text, expected):
    assert values(text, "en", digits=True) == expected


WORDS = {
    "two hundred and five": [{"205"}],
    "the twenty-first of three thousand five hundred": [{"21"}, {"3500"}],
    "five hundred thousand, nineteen ninety": [{"500000"}, {"19"}, {"90"}],
    "half a million": [{"0.5"}, {"1000000", "500000"}],
    "one or two dozen in May": [{"1"}, {"2"}, {"12"}, {"5"}],
}


@pytest.mark.parametrize(("text", "expected"), WORDS.items())
def test_english_words(text, expected):
    assert values(text, "eng_Latn", digits=False) == expected


CHINESE = {
    "12亿、2.4万、3千5百": [{"1200000000"}, {"24000"}, {"3000", "500", "3500"}],
    "1亿5000万元": [{"100000000", "50000000", "150000000"}],
    "3,000 多亿": [{"300000000000"}],
    "2到3亿": [{"2", "200000000"}, {"300000000"}],
    "５成，1，000": [{"5", "50"}, {"1000"}],
    "第3章R0和HCoV-229E": [{"3"}],
    "一九五四年": [{"1954"}],
    "一百二": [{"102", "120"}],
    "两千零五": [{"2005"}],
    "三点五": [{"3", "5", "3.5"}],
    "九点三十分": [{"9", "30"}],
    "百分之五十": [{"100"}, {"50"}],
    "三四个": [{"3", "4", "34"}],
    "一亿两千万": [{"120000000"}],
    "一万亿": [{"1000000000000"}],
    "十二": [{"12"}],
    "廿三": [{"23"}],
    "两个半": [{"2"}, {"0.5"}],
}


@pytest.mark.parametrize(("text", "expected"), CHINESE.items())
def test_chinese(text, expected):
    assert values(text, "zh-Hans") == expected


def test_other_languages_read_both_separators():
    assert values("1.000 oder 2,500", "de") == [{"1", "1000"}, {"2500", "2.5"}]


def test_places_are_those_of_the_text():
    (number,) = numbers_in("价格：１２元", "zh")
    assert (number.start, number.end, number.text) == (3, 5, "１２")


def test_a_number_of_any_length_is_read():
    digits = "9" * 10_000
    assert values(digits, "en") == [{digits}]
    assert values(digits, "zh") == [{digits}]
    assert values("1" + "0" * 39 + ".50", "en") == [{"1" + "0" * 39 + ".5"}]


def _chinese(number: int) -> str:
    """A number in Chinese characters, written independently of the reader."""
    numerals, units = "零一二三四五六七八九", ["", "十", "百", "千"]
    sections = []
    rest, level = number, 0
    while rest:
        rest, section = divmod(rest, 10_000)
        text, gap = "", False
        for place in range(3, -1, -1):
            digit = section // 10**place % 10
            if digit:
                text += ("零" if gap and text else "") + numerals[digit] + units[place]
                gap = False
            else:
                gap = True
        if section:
            padded = section < 1000 and rest > 0
            sections.append(("零" if padded else "") + text + ["", "万", "亿"][level])
        level += 1
    return "".join(reversed(sections)) or "零"


@given(st.integers(0, 10**12 - 1))
@settings(deadline=None)
def test_every_chinese_numeral_is_read(number):
    (found,) = numbers_in(_chinese(number), "zh")
    assert str(number) in found.values


@given(st.integers(0, 10**12), st.sampled_from(["en", "zh", "de"]))
@settings(deadline=None)
def test_every_grouped_number_is_read(number, language):
    found = numbers_in(f"x {number:,} y", language)
    assert any(str(number) in n.values for n in found)


@given(st.text(alphabet="一二十百千万亿零〇半点两0123456789,.:-年月个 a", max_size=30))
@settings(deadline=None)
def test_any_mixture_is_read(text):
    for language in ("zh", "en", "fr"):
        for number in numbers_in(text, language):
            assert text[number.start : number.end] == number.text
            assert number.values
