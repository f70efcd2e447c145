"""Numbers in English, Chinese and other text: where they stand and which values they can mean.

A value is a string in one normal form ("1000", "3.5"), so that numbers of any length can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext

from onnxmt.runtime.languages import is_chinese, parse_language

__all__ = ["Number", "numbers_in"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """A number at `start:end` of a text; it counts as found where one of `values` is found.

    in_digits: written with digits, not words. Words are numbers less surely: "one of them", 一下.
    """

    start: int
    end: int
    text: str
    values: frozenset[str]
    in_digits: bool


def numbers_in(text: str, language: str) -> list[Number]:
    """The numbers of a text in this language, in order; number words of English and Chinese are understood."""
    plain = text.translate(_HALF_WIDTH)
    if is_chinese(language):
        return _sorted(text, [*_chinese_digits(plain), *_chinese_words(plain)])
    parsed = parse_language(language)
    if parsed is not None and parsed.base == "eng":
        return _sorted(text, [*_digits(plain, english=True), *_english_words(plain)])
    return _sorted(text, _digits(plain, english=False))


_Found = tuple[int, int, frozenset[str], bool]
_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF10, 0xFF1A)} | {0xFF05: "%", 0xFF0E: ".", 0xFF1A: ":"}


def _sorted(text: str, found: Iterable[_Found]) -> list[Number]:
    """Numbers by place; of two that overlap ("5 million", "million") the first."""
    result: list[Number] = []
    for start, end, values, in_digits in sorted(found, key=lambda item: (item[0], -item[1])):
        if values and (not result or start >= result[-1].end):
            result.append(Number(start=start, end=end, text=text[start:end], values=values, in_digits=in_digits))
    return result


def _value(digits: str, scale: Decimal | int = 1) -> str:
    """The normal form of a decimal numeral times a scale."""
    digits = digits.replace(",", "").replace("，", "")
    if scale == 1 and len(digits) > 40:
        whole, _, part = digits.partition(".")
        part = part.rstrip("0")
        return (whole.lstrip("0") or "0") + (f".{part}" if part else "")
    with localcontext() as context:
        context.prec = 60
        shown = format(Decimal(digits[:50]) * scale, "f")
    return shown.rstrip("0").rstrip(".") or "0" if "." in shown else shown.lstrip("0") or "0"


# --- digits in English and other languages written with spaces -------------------------------------------------------

_ENGLISH_SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "k": 10**3,
    "million": 10**6,
    "m": 10**6,
    "mn": 10**6,
    "billion": 10**9,
    "b": 10**9,
    "bn": 10**9,
    "trillion": 10**12,
    "tn": 10**12,
    "dozen": 12,
}
_SCALE_WORD = (
    r"(?:\+?[\s-]*(?P<word>hundred|thousand|million|billion|trillion|dozen)s?\b|(?P<letter>[kKmMbB]|bn|mn|tn)\b)"
)
_DIGIT_NUMBER = re.compile(
    r"(?<![A-Za-z0-9.,])(?<![A-Z0-9]-)(?<!ovid-)(?:"  # mid-1960s is a number, F-16 and Covid-19 are names
    r"(?P<always>24/7)\b|"
    r"(?P<version>[0-9]+(?:\.[0-9]+){2,}|[0-9]{1,2}:[0-9]{2}\.[0-9]+)(?![0-9])"
    r"|(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-5][0-9])(?::(?P<second>[0-5][0-9]))?(?![0-9:])"
    r"|\.(?P<dotted>[0-5][0-9])(?=\s?[ap]\.?m\b))"
    r"|(?P<decade>(?:[0-9]{2})?[0-9]0)['’]?s\b"
    rf"|(?P<number>[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)(?:{_SCALE_WORD})?"
    r")"
)
_RANGE = re.compile(rf"\s?(?:-|–|—|~|to|and|or)\s?[$€£]?[0-9][0-9,.]*{_SCALE_WORD}")
_YEAR_BEFORE = re.compile(r"\b([12][0-9])[0-9]{2}[-–/]$")
_AFTERNOON = re.compile(r"\s?(?:p\.?\s?m\b|in the (?:afternoon|evening)|at night)", re.IGNORECASE)


def _digits(text: str, *, english: bool) -> Iterator[_Found]:
    for match in _DIGIT_NUMBER.finditer(text):
        start, end = match.span()
        if match["version"]:
            yield start, end, frozenset({match["version"]}), True
        elif match["always"]:  # 全天候
            yield start, end, frozenset({"24", "7"}), False
        elif match["hour"]:
            yield from _time(match)
        elif match["decade"]:
            year = int(match["decade"])
            yield start, end, frozenset({str(year), str(year % 100), str(year // 100 + 1)}), True
        else:
            yield start, end, frozenset(_plain_values(match, english=english)), True


def _plain_values(match: re.Match[str], *, english: bool) -> Iterator[str]:
    number, text = match["number"], match.string
    scale = _ENGLISH_SCALES.get((match["word"] or match["letter"] or "").lower(), 1)
    if match["letter"] and match["letter"] in {"m", "b"}:  # 5m is five metres as well as five million
        yield _value(number)
    yield _value(number, scale)
    shared = _RANGE.match(text, match.end()) if scale == 1 else None
    if shared:  # 200 to 300 million
        yield _value(number, _ENGLISH_SCALES[(shared["word"] or shared["letter"]).lower()])
    if number.isdigit() and len(number) <= 2 and _AFTERNOON.match(text, match.end()):
        yield str(int(number) % 12 + 12)
    first = _YEAR_BEFORE.search(text, max(0, match.start() - 5), match.start()) if len(number) == 2 else None
    if first:  # 2010–11
        yield first[1] + number
    if not english and re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{3})+", number):
        yield number.replace(".", "").lstrip("0") or "0"
    if not english and re.fullmatch(r"[0-9]+,[0-9]{3}", number):
        yield _value(number.replace(",", "."))


def _time(match: re.Match[str]) -> Iterator[_Found]:
    hour = int(match["hour"])
    values = {str(hour), str((hour + 12) % 24), "24" if hour == 0 else str(hour)}
    yield match.start("hour"), match.end("hour"), frozenset(values), True
    for name in ("minute", "dotted", "second"):
        if match[name] and not int(match[name]):
            yield match.start(name), match.end(name), frozenset({"0"}), False  # 8:00 is 8点
        elif match[name]:
            quarters = {"30": {"0.5"}, "15": {"1"}, "45": {"3", "15"}}.get(match[name], set())
            yield match.start(name), match.end(name), frozenset({str(int(match[name]))} | quarters), True


# --- English number words --------------------------------------------------------------------------------------------


def _numbered(words: str, *, first: int = 0, step: int = 1) -> dict[str, int]:
    return {word: first + step * i for i, word in enumerate(words.split())}


_TENS = _numbered("twenty thirty forty fifty sixty seventy eighty ninety", first=20, step=10)
_WORDS = {
    **_numbered("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"),
    **_numbered("sixteen seventeen eighteen nineteen", first=16),
    **_numbered("zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"),
    **_numbered("thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth", first=13),
    **_TENS,
    **{word.removesuffix("y") + "ieth": value for word, value in _TENS.items()},
}
_WORD_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
# Words that a translation may well turn into a digit, though they are no numerals.
_NEAR_NUMBERS = {
    **_numbered("january february march april may june july august september october november december", first=1),
    **_numbered("jan feb mar apr _ jun jul aug sep oct nov dec", first=1),
    **_numbered("once twice thrice", first=1),
    **_numbered("single double triple quarter", first=1),
    "sept": 9,
    "couple": 2,
    "pair": 2,
    "both": 2,
    "dozen": 12,
    "dozens": 12,
    "teens": 10,
    "noon": 12,
    "midnight": 12,
    "decade": 10,
    "decades": 10,
    "century": 100,
    "hundreds": 100,
    "thousands": 1000,
}
_WORD = re.compile(r"[A-Za-z]+")
_JOINED = re.compile(r"(?:-|\s+|\s+and\s+)")


def _english_words(text: str) -> Iterator[_Found]:
    """Runs of number words ("two hundred and five") and words that come near a number."""
    words = [(match.start(), match.end(), match.group().lower()) for match in _WORD.finditer(text)]
    index = 0
    while index < len(words):
        start, end, word = words[index]
        run = [word]
        if word in _WORDS or word in _WORD_SCALES:
            while (following := _next_in_run(text, words, index, end)) is not None:
                index, end = following, words[following][1]
                run.append(words[index][2])
            half = (
                _WORD_SCALES.get(run[0]) if re.search(r"half an?\s$", text[max(0, start - 8) : start], re.I) else None
            )
            values = {str(_run_value(run))} | ({str(half // 2)} if half else set())
            yield start, end, frozenset(values), False
        elif word in _NEAR_NUMBERS:
            yield start, end, frozenset({str(_NEAR_NUMBERS[word])}), False
        elif word == "half":
            yield start, end, frozenset({"0.5"}), False
        index += 1


def _next_in_run(text: str, words: list[tuple[int, int, str]], index: int, end: int) -> int | None:
    """The index of the number word that goes on with the run that ends at `end`."""
    for step in (1, 2):
        if index + step < len(words):
            start, _, word = words[index + step]
            if (word in _WORDS or word in _WORD_SCALES) and _JOINED.fullmatch(text, end, start):
                previous = words[index][2]
                goes_on = (
                    word in _WORD_SCALES or previous in _WORD_SCALES or (previous in _TENS and 0 < _WORDS[word] < 10)
                )
                return index + step if goes_on else None
    return None


def _run_value(run: list[str]) -> int:
    total = current = 0
    for word in run:
        scale = _WORD_SCALES.get(word)
        if scale is None:
            current += _WORDS[word]
        elif scale == 100:
            current = max(current, 1) * 100
        else:
            total, current = total + max(current, 1) * scale, 0
    return total + current


# --- Chinese ---------------------------------------------------------------------------------------------------------

_UNITS = {
    "十": 10,
    "拾": 10,
    "百": 100,
    "佰": 100,
    "千": 1000,
    "仟": 1000,
    "万": 10**4,
    "萬": 10**4,
    "亿": 10**8,
    "億": 10**8,
    "兆": 10**12,
}
_NUMERALS = {
    **_numbered("零 一 二 三 四 五 六 七 八 九"),
    **_numbered("〇 壹 贰 叁 肆 伍 陆 柒 捌 玖"),
    "两": 2,
    "兩": 2,
}
_UNIT_CLASS, _NUMERAL_CLASS = "".join(_UNITS), "".join(_NUMERALS)
_CHINESE_DIGITS = re.compile(
    r"(?<![A-Za-z0-9])(?<![A-Za-z]-)(?P<version>[0-9]+(?:\.[0-9]+){2,}|[0-9]{1,2}:[0-9]{2}\.[0-9]+)"
    rf"|(?<![A-Za-z0-9])(?<![A-Za-z]-)(?P<number>[0-9]{{1,3}}(?:[,，][0-9]{{3}})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)(?:\s?[多余]?\s?(?P<unit>[{_UNIT_CLASS}]+))?"
)
_CHINESE_WORDS = re.compile(
    rf"[{_NUMERAL_CLASS}{_UNIT_CLASS}廿卅半俩仨]+(?:[点點又][{_NUMERAL_CLASS}{_UNIT_CLASS}半]+)?"
)
_CHINESE_RANGE = re.compile(
    rf"\s?[%％]?\s?(?:-|–|—|~|～|到|至|或|、|和)\s?[0-9][0-9,.]*\s?[多余]?(?P<unit>[{_UNIT_CLASS}]+)"
)


def _chinese_digits(text: str) -> Iterator[_Found]:
    """Numbers in digits with their units: 12亿, 5000万, 1亿5000万, 2到3亿."""
    waiting: _Found | None = None
    chain = Decimal(0)
    for match in _CHINESE_DIGITS.finditer(text):
        start, end = match.span()
        number, unit = match["number"] or "", match["unit"] or ""
        values = {match["version"]} if match["version"] else set(_chinese_values(match))
        amount = Decimal(0)
        if number and len(number) <= 40:
            amount = Decimal(number.replace(",", "").replace("，", "")) * _scale(unit)
        if waiting and waiting[1] == start and chain > amount > 0:
            chain += amount
            start, values = waiting[0], {*waiting[2], *values, _value(format(chain, "f"))}
        else:
            if waiting:
                yield waiting
            chain = amount if unit else Decimal(0)
        waiting = (start, end, frozenset(values), True)
    if waiting:
        yield waiting


def _scale(units: str) -> int:
    scale = 1
    for character in units:
        scale *= _UNITS[character]
    return scale


def _chinese_values(match: re.Match[str]) -> Iterator[str]:
    number, unit, text = match["number"], match["unit"] or "", match.string
    yield _value(number, _scale(unit))
    if not unit:
        shared = _CHINESE_RANGE.match(text, match.end())
        if shared:
            yield _value(number, _scale(shared["unit"]))
        if text[match.end() : match.end() + 1] == "成":
            yield _value(number, 10)


def _chinese_words(text: str) -> Iterator[_Found]:
    """Numbers in Chinese characters, with every reading: 三四 is 34, 3 and 4, and 九点三 is 9.3, 9 and 3."""
    for match in _CHINESE_WORDS.finditer(text):
        words = match.group()
        values: set[str] = set()
        whole, point, part = re.match(r"([^点點又]*)([点點又]?)(.*)", words, re.DOTALL).groups()  # type: ignore[union-attr]
        for piece in filter(None, (whole, part)):
            values |= _readings(piece)
        if point in {"点", "點"} and all(character in _NUMERALS for character in part):
            decimals = "".join(str(_NUMERALS[character]) for character in part)
            values |= {_value(f"{value}.{decimals}") for value in _readings(whole) if value.isdigit()}
        if text[match.end() : match.end() + 1] == "成":
            values |= {_value(value, 10) for value in list(values) if len(value) < 4}
        before = text[match.start() - 1 : match.start()]
        if before.isascii() and before.isdigit():
            continue  # the unit of a number in digits
        yield match.start(), match.end(), frozenset(values), False


def _readings(words: str) -> set[str]:
    """What a run of numerals and units can mean."""
    values = {"0.5"} if "半" in words else set()
    words = words.replace("半", "").replace("俩", "两").replace("仨", "三").replace("廿", "二十").replace("卅", "三十")
    if not words or len(words) > 40:
        return values
    if all(character in _NUMERALS for character in words):
        digits = "".join(str(_NUMERALS[character]) for character in words)
        return values | {_value(digits)} | ({*digits} if len(digits) == 2 else set())
    total, section, current, last_unit = 0, 0, None, 0
    for character in words:
        if character in _NUMERALS:
            current = _NUMERALS[character]
            last_unit = last_unit if character not in "零〇" else 0
        elif (unit := _UNITS[character]) >= 10**4:
            section += current or 0
            total = (total + section or 1) * unit if unit > total else total + (section or 1) * unit
            section, current, last_unit = 0, None, unit
        else:
            section += (1 if current is None else current) * unit
            current, last_unit = None, unit
    result = total + section + (current or 0)
    values.add(str(result))
    if current and last_unit >= 100:  # 一百二 is 120
        values.add(str(result - current + current * last_unit // 10))
    if "0.5" in values and result:
        values.add(_value(f"{result}.5"))
    return values
