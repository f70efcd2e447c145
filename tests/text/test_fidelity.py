"""What the checks find, what they let pass, and how often they doubt human translations."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.errors import UsageError
from onnxmt.text.fidelity import CheckOptions, TextWarning, check_translation
from onnxmt.text.spans import ProtectOptions

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def kinds(source: str, translation: str, **more) -> list[str]:
    return [warning.kind for warning in check_translation(source, translation, **more)]


FAITHFUL = [
    ("It cost 5 million dollars in 1954.", "1954年花了500万美元。"),
    ("He has 21 cats and 1,000 dogs.", "他有二十一只猫和一千只狗。"),
    ("About 50% of 24,000 people.", "2.4万人的百分之五十左右。"),
    ("Come at 12:30 or 9:00 p.m. on Monday, May 5.", "5月5日星期一12点半或晚上9点来。"),
    ("In the 1990s it was $3.50.", "20世纪90年代是3.5美元。"),
    ("The 19th century had 100 years.", "十九世纪有一百年。"),
    ("Open https://a.org/x and {name}.", "打开 https://a.org/x 和 {name}。"),
    ("NASA is big.", "NASA很大。"),
    ("NASA USB", "NASA USB"),
    ("Tom paid €20 to Mary.", "Tom付给Mary 20欧元。"),
    ("Super Bowl XLIX was good.", "第49届超级碗很精彩。"),
    ("Three men and a dozen eggs.", "3个男人和12个鸡蛋。"),
    ("Ha ha ha ha ha ha ha!", "哈哈哈哈哈哈哈！"),
    ("alpha-CoV is a virus.", "α-CoV 是一种病毒。"),
    ("Visit the Bank of England in London.", "去伦敦的 Bank of England 看看。"),
    ("He lived 24/7 in 2010–11.", "他在2010至2011年整天都在那里生活。"),
    ("", ""),
    ("😀 42", "😀 42"),
]


@pytest.mark.parametrize(("source", "translation"), FAITHFUL)
def test_faithful_translations_pass(source, translation):
    assert check_translation(source, translation) == []


UNFAITHFUL = {
    "number lost": ("He has 21 cats at home.", "他家里有很多只猫。", ["number"]),
    "number changed": ("He has 21 cats at home.", "他家里有12只猫。", ["number", "number_added"]),
    "wrong magnitude": ("It has 5 million people.", "它有500亿人口。", ["number", "number_added"]),
    "a digit too many": ("It has 77 people now.", "它现在有777人。", ["number", "number_added"]),
    "month changed": ("He came on 7 January 2020.", "他于2020年2月7日来。", ["number_added", "date"]),
    "weekday changed": ("He came on Monday last week.", "他上周二来的。", ["date"]),
    "currency lost": ("It costs $20 to go there.", "去那里要花20英镑。", ["currency"]),
    "currency changed": ("It costs €20 to go there.", "去那里要花20美元。", ["currency"]),
    "url changed": ("See https://a.org/b now.", "现在见 https://a.org/c。", ["url"]),
    "placeholder doubled": ("See {name} there now.", "现在见{name}和{name}。", ["placeholder"]),
    "name misspelt": ("Ellen does not speak English.", "Elen不会说英语。", ["name"]),
    "name invented": ("We ate in a restaurant.", "我们在 KFC 吃饭。", ["name"]),
    "empty": ("We ate in a restaurant.", "", ["length_ratio"]),
    "short": ("We ate in a very good restaurant in the old town by the river last night.", "吃了。", ["length_ratio"]),
    "long": ("We ate.", "我们昨天晚上在河边老城区的一家非常好的餐厅里吃了一顿非常丰盛的晚饭。", ["length_ratio"]),
    "one character over and over": (
        "The cat sat on the mat in the house.",
        "猫的的的的的的坐在屋子里的垫子上。",
        ["repetition"],
    ),
    "phrase over and over": (
        "Hello, how are you doing today, my dear friend?",
        "你好你好你好你好你好你好，朋友。",
        ["repetition"],
    ),
    "case I1": ("Hello, hello, hello, hello, all of you out there!", "你好" * 20, ["repetition"]),
    "copied": ("Please close the door.", "Please close the door.", ["untranslated"]),
    "partly copied": ("I said please close the door, Tom.", "我说 please close the door，汤姆。", ["untranslated"]),
    "no Chinese": ("It is in the house.", "das ist im Haus.", ["wrong_script"]),
    "another script": ("It is in the house.", "它在家里です。", ["wrong_script"]),
    "case T2": ("A witch rides a broom.", "一个 \u2047 骑着扫帚<unk>\u2581。", ["unknown_token"] * 3),
}


@pytest.mark.parametrize(("source", "translation", "expected"), UNFAITHFUL.values(), ids=UNFAITHFUL)
def test_unfaithful_translations_are_flagged(source, translation, expected):
    found = kinds(source, translation)
    assert [kind for kind in found if kind in expected] == expected
    assert set(found) <= {*expected, "name", "length_ratio"}


def test_a_warning_says_what_and_where():
    (warning,) = check_translation("He has 21 cats at home.", "他家里有很多只猫。")
    assert warning == TextWarning(kind="number", span=(7, 9), message="the number 21 is not in the translation")
    (warning,) = check_translation("Ellen does not speak English.", "Elen不会说英语。")
    assert warning.message == "'Elen' in the translation is not in the source; the source has 'Ellen'"
    (warning,) = check_translation("Hi {a}, it is {a} now.", "你好，现在是{a}了。")
    assert warning.message == "the placeholder '{a}' is in the translation once, in the source 2 times"
    assert warning.span == (3, 6)


def test_a_cut_output_is_flagged():
    assert kinds("A cat.", "一只猫。", finished=False) == ["length_cap"]


def test_checks_are_options():
    source, bad = "He has 21 cats at home.", "他家里有12只猫。"
    assert kinds(source, bad, options=CheckOptions(kinds=frozenset({"number"}))) == ["number"]
    assert kinds(source, bad, options=CheckOptions(kinds=frozenset())) == []
    assert "length_ratio" in kinds("We went home.", "我们回家了。", options=CheckOptions(longest=1.0, shortest=0.9))
    assert kinds("TICKET-12 is here.", "在这里呢。", protect=ProtectOptions(patterns=(r"TICKET-\d+",))) == [
        "placeholder"
    ]
    with pytest.raises(UsageError, match=r"unknown kind 'x'.*shortest \(3\).*repeats is 1.*wrong_script"):
        CheckOptions(kinds=frozenset({"x"}), shortest=3, repeats=1)


def test_other_pairs_of_languages():
    assert (
        kinds(
            "今天有3.5万人和21只猫。",
            "There are 35,000 people and 21 cats today.",
            source_language="zh",
            target_language="en",
        )
        == []
    )
    assert kinds("他有21只猫。", "He has twenty-one cats.", source_language="zh", target_language="en") == []
    assert kinds("他有21只猫。", "He has 12 cats.", source_language="zh", target_language="en") == [
        "number",
        "number_added",
    ]
    assert kinds("He has 5 cats, 1,000 dogs.", "Er hat fünf Katzen, 1.000 Hunde.", target_language="de") == []
    assert kinds("He has 55 cats.", "Er hat viele Katzen.", target_language="de") == ["number"]


def test_script_of_other_targets():
    assert kinds("这是一只猫。", "这是一只猫咪。", source_language="zh", target_language="en") == ["wrong_script"]
    assert kinds("It is a cat.", "Das ist eine Katze.", target_language="ru") == ["wrong_script"]
    assert kinds("It is a cat.", "Это кошка.", target_language="rus_Cyrl") == []
    assert kinds("It is a cat.", "猫です。", target_language="ja") == []
    assert kinds("NASA", "NASA", target_language="ja") == []


def pairs(name: str, reference: str) -> list[tuple[str, str]]:
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip("the shared test sets are not beside this checkout")
    source, target = ((folder / file).read_text(encoding="utf-8").splitlines() for file in ("src.en.txt", reference))
    return list(zip(source, target, strict=True))


@pytest.mark.parametrize(
    ("name", "reference", "most"),
    [("flores200-devtest", "ref.zh.txt", 0.01), ("tatoeba", "ref.zh.txt", 0.004), ("wmt22", "refB.zh.txt", 0.006)],
)
def test_human_translations_are_seldom_doubted(name, reference, most):
    """What is flagged there was read: about half are true faults of the translation (a wrong weekday, a misspelt name)."""
    checked = list(islice(pairs(name, reference), 1500))
    flagged = Counter(kind for source, target in checked for kind in set(kinds(source, target)))
    assert sum(flagged.values()) <= most * len(checked), flagged


def test_changed_numbers_are_found():
    """One digit of a number in a human translation is changed: nearly always one of the two warnings appears."""
    generator = random.Random(7)
    changed = found = 0
    for source, target in pairs("newstest2019", "ref.zh.txt"):
        places = [m.start() for m in re.finditer("[0-9]", target)]
        if places and "number" not in "".join(kinds(source, target)):
            place = generator.choice(places)
            digit = generator.choice([d for d in "123456789" if d != target[place]])
            changed += 1
            found += any(k.startswith("number") for k in kinds(source, target[:place] + digit + target[place + 1 :]))
    assert changed > 400
    assert found >= 0.97 * changed


@given(numbers=st.lists(st.integers(0, 10**9), min_size=1, max_size=4), kept=st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_every_number_is_present_or_warned_about(numbers, kept):
    """In digits, in 万 or not at all: what is not in the translation is in the warnings."""
    source = "There are " + " and ".join(f"{n:,}" for n in numbers) + " of them."
    made = [f"{n / 10_000:f}".rstrip("0").rstrip(".") + "万" if n % 2 else str(n) for n in numbers[:kept]]
    warnings = check_translation(source, "有" + "和".join(made) + "个。")
    warned = {source[w.span[0] : w.span[1]] for w in warnings if w.kind == "number"}
    assert warned == {f"{n:,}" for n in numbers if n not in numbers[:kept]}


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(["zh", "en", "de", "xx"]))
@settings(max_examples=200, deadline=None)
def test_any_pair_of_texts_is_checked(source, translation, language):
    for warning in check_translation(source, translation, target_language=language):
        assert 0 <= warning.span[0] <= warning.span[1] <= len(source)
