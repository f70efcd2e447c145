"""ALL CAPS and Title Case sources in ordinary form."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.errors import UsageError
from onnxmt.text.casing import CaseChange, CasingOptions, restore_case, to_ordinary_case
from onnxmt.text.spans import find_protected

ALL_CAPS = {
    "PLEASE CLOSE THE DOOR": "Please close the door",  # case I3
    "NASA AND USB": "NASA and USB",  # case I3
    "HELLO": "Hello",
    "I DON'T KNOW. WHO ARE YOU? I'M TOM": "I don't know. Who are you? I'm TOM",
    "MONDAY, 3 MARCH 2025 09:12": "Monday, 3 March 2025 09:12",  # case I1
    "JOHN'S MP3 AND THE 2ND X-RAY AT AT&T IN THE U.S. OF CHINA": "John's MP3 and the 2nd X-ray at AT&T in the U.S. of China",
    "PLEASE READ {Name} AT https://A.ORG/B NOW": "Please read {Name} at https://A.ORG/B now",
    "THE CEO OF IBM SAID “HTML IS OK”": "The CEO of IBM said “HTML is OK”",
    "A McDONALD IS OPEN": "A McDONALD is open",
    "WARNING: DO NOT OPEN!": "Warning: do not open!",
}
TITLE_CASE = {
    "How To Cook Rice In Ten Minutes": "How to cook rice in ten minutes",
    "I Love You So Much": "I love you so much",
    "The Old Man and the Sea": "The old man and the sea",
    "Why Trump Will Win a Second Term in Ohio": "Why Trump Will win a second Term in Ohio",
    "Buy Your NASA T-Shirt With `Some Code` Here": "Buy your NASA T-shirt with `Some Code` here",
}
AS_IT_IS = [
    "", "A", "I", "OK", "USB", "NASA", "NASA USB", "I am OK.", "Hello There", "42", "x", "Ω",
    "Barack Obama Joe Biden Donald Trump", "On Monday Tom and Mary went to Paris, France.", "President Obama Met Angela Merkel in Berlin",
    "Please READ this carefully.", "ПРИВЕТ",
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ALL_CAPS.items())
def test_all_caps(text, expected):
    assert to_ordinary_case(text) == CaseChange(text=expected, kind="all_caps")


@pytest.mark.parametrize(("text", "expected"), TITLE_CASE.items())
def test_title_case(text, expected):
    assert to_ordinary_case(text) == CaseChange(text=expected, kind="title_case")


@pytest.mark.parametrize("text", AS_IT_IS)
def test_ordinary_text_stays(text):
    assert to_ordinary_case(text) == CaseChange(text=text, kind=None)


def test_options():
    assert to_ordinary_case("CLOSE IT", options=CasingOptions(all_caps=False)).kind is None
    assert to_ordinary_case("I Love You So Much", options=CasingOptions(title_case=False)).kind is None
    own = CasingOptions(acronyms=frozenset({"OpenAI", "RASTER"}))
    assert to_ordinary_case("OPENAI AND RASTER ARE NEW", options=own).text == "OpenAI and RASTER are new"
    with pytest.raises(UsageError, match="'two words'"):
        CasingOptions(acronyms=frozenset({"two words"}))


def test_only_english_is_rewritten():
    assert to_ordinary_case("BITTE SCHLIESSEN", language="de").kind is None
    assert to_ordinary_case("PLEASE CLOSE", language="eng_Latn").kind == "all_caps"


def test_capitals_come_back_where_the_target_has_them():
    change = to_ordinary_case("CLOSE {door} NOW")
    assert restore_case("{door} jetzt schließen", change, target_language="de") == "{door} JETZT SCHLIESSEN"
    assert restore_case("请关 Door", change, target_language="zh_CN") == "请关 Door"
    assert restore_case("jetzt", CaseChange(text="", kind="title_case"), target_language="de") == "jetzt"


@given(st.lists(st.sampled_from(["HELLO", "World", "the", "The", "NASA", "{Name}", "https://A.b/C", ".", "“", "I'M", "É", "5TH", "\u0130X", "\n"]), max_size=8).map(" ".join))  # fmt: skip
@settings(deadline=None)
def test_only_case_changes_and_spans_stay(text):
    change = to_ordinary_case(text)
    assert change.text.casefold().replace("\u0307", "") == text.casefold().replace("\u0307", "")
    assert find_protected(change.text) == find_protected(text)
    assert (change.kind is None) == (change.text == text)
