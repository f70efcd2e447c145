"""Fidelity checks of numbers, dates and currencies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnxmt.runtime.languages import is_chinese, parse_language
from onnxmt.text.numerals import Number, numbers_in
from onnxmt.text.pair import Pair, TextWarning

__all__ = ["check_currencies", "check_dates", "check_numbers"]


def check_numbers(pair: Pair) -> Iterator[TextWarning]:
    """Each number that the source writes in digits is in the translation; the translation adds none in digits."""
    given = numbers_in(pair.source_prose, pair.source_language)
    made = numbers_in(pair.translation_prose, pair.target_language)
    present = frozenset().union(*(number.values for number in made))
    known = frozenset().union(*(number.values for number in given))
    spelled = not (is_chinese(pair.target_language) or _base(pair.target_language) == "eng")
    for number in given:
        # a language whose number words are not known here may write small numbers in words
        found = number.values & present or _stands_in(number.text, pair.translation)
        if number.in_digits and not found and not (spelled and _is_small(number)):
            yield TextWarning(
                kind="number",
                span=(number.start, number.end),
                message=f"the number {number.text} is not in the translation",
            )
    roman = {str(value) for value in map(_roman, re.findall(r"\b[IVXLC]+\b", pair.source_prose)) if value}
    for number in made:
        explained = number.values & (known | roman) or _stands_in(number.text, pair.source)
        if number.in_digits and not explained and not _is_half_known(number, known):
            yield TextWarning(
                kind="number_added",
                span=pair.whole,
                message=f"the translation has the number {number.text}, which is not in the source",
            )


def _stands_in(digits: str, text: str) -> bool:
    """Whether a number is in a text as it is written, inside a name or a clock time perhaps."""
    place = text.find(digits)
    while place >= 0:
        end = place + len(digits)
        if not _GOES_BEFORE.search(text[max(0, place - 2) : place]) and not _GOES_AFTER.match(text[end : end + 2]):
            return True
        place = text.find(digits, place + 1)
    return False


# Digits around that make it another number.
_GOES_BEFORE = re.compile(r"[0-9][.,]?$")
_GOES_AFTER = re.compile(r"[0-9]|[.,][0-9]|\s?[百千万亿]")


def _base(language: str) -> str | None:
    parsed = parse_language(language)
    return parsed.base if parsed else None


def _is_small(number: Number) -> bool:
    return any(value.isdigit() and len(value) <= 2 and int(value) <= 12 for value in number.values)


def _is_half_known(number: Number, known: frozenset[str]) -> bool:
    """A year in two digits (’95 for 1995) or one written out."""
    return any(
        value.isdigit() and other.isdigit() and {len(value), len(other)} == {2, 4} and value[-2:] == other[-2:]
        for value in number.values
        for other in known
    )


def _roman(numeral: str) -> int:
    values = [{"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}[letter] for letter in numeral]
    return sum(-v if any(v < later for later in values[i + 1 : i + 2]) else v for i, v in enumerate(values))


_MONTH = re.compile(
    r"\b(?:(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?)?"
    r"(?P<month>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\b\.?(?P<after>\s+[0-9]{1,4}(?:st|nd|rd|th)?\b(?!,[0-9]{3}))?"
)
_WEEKDAY = re.compile(r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b")
_DAYS = {"Mon": "一", "Tue": "二", "Wed": "三", "Thu": "四", "Fri": "五", "Sat": "六", "Sun": "日天"}


def check_dates(pair: Pair) -> Iterator[TextWarning]:
    """Months beside a day or a year, and weekdays, from English into Chinese."""
    if not is_chinese(pair.target_language) or _base(pair.source_language) != "eng":
        return
    months = {
        value
        for number in numbers_in(pair.translation_prose, pair.target_language)
        if re.match(r"\s?月", pair.translation_prose[number.end :])
        or re.match(r"\s?[-/.][0-9]", pair.translation_prose[number.end :])
        or pair.translation_prose[number.start - 1 : number.start] in {"-", "/", "."}
        for value in number.values
    }
    for match in _MONTH.finditer(pair.source_prose):
        name = match["month"]
        value = "jan feb mar apr may jun jul aug sep oct nov dec".index(name.lower()[:3]) // 4 + 1
        dated = match["day"] or match["after"]
        kept = (
            name in pair.translation
            or (value == 1 and "元月" in pair.translation)
            or (value == 12 and "腊月" in pair.translation)
        )
        if dated and str(value) not in months and not kept:
            yield TextWarning(
                kind="date",
                span=match.span(),
                message=f"the date {match.group().strip()!r}: its month ({value}月) is not in the translation",
            )
    for match in _WEEKDAY.finditer(pair.source_prose):
        name, days = match.group(), _DAYS[match.group()[:3]]
        if not re.search(rf"(?:星期|周|週|礼拜|禮拜)[一二三四五六日天至到、和与]*[{days}]|{name}", pair.translation):
            yield TextWarning(
                kind="date", span=match.span(), message=f"the weekday {name} (星期{days[0]}) is not in the translation"
            )


# The marks before or after an amount, the words after one, and what stands for the currency in a translation.
_CURRENCIES = (
    (r"\$", "dollars?|bucks|USD", "元|刀|美金|块|塊|dollar|USD|\\$|＄"),
    ("€", "euros?|EUR", "欧元|歐元|euro|EUR|€"),
    ("£", "pounds? sterling|GBP", "镑|鎊|pound|GBP|£"),
    ("[¥￥]", "yuan|yen|RMB|JPY|CNY", "元|人民币|人民幣|块|塊|圆|圓|yuan|yen|RMB|JPY|CNY|¥|￥"),
    ("₹", "rupees?|INR", "卢比|盧比|rupee|INR|₹"),
    ("₩", "won|KRW", "韩元|韓元|韩圆|won|KRW|₩"),
    ("₽", "rubles?|roubles?|RUB", "卢布|盧布|ruble|rouble|RUB|₽"),
    ("₣", "francs?|CHF", "法郎|franc|CHF|₣"),
)


def check_currencies(pair: Pair) -> Iterator[TextWarning]:
    """The currency of an amount is named in a Chinese translation."""
    if not is_chinese(pair.target_language):
        return
    for mark, words, names in _CURRENCIES:
        match = re.search(rf"{mark}\s?[0-9][0-9.,]*|[0-9]\s?(?:{mark}|(?:{words})\b)", pair.source_prose)
        if match and not re.search(names, pair.translation, re.IGNORECASE):
            yield TextWarning(
                kind="currency",
                span=match.span(),
                message=f"the currency of {match.group().strip()!r} is not in the translation",
            )
