"""Does a translation say what its source says? Checks that need no model; each miss is a warning, never a change."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from onnxmt.errors import UsageError
from onnxmt.runtime.languages import is_chinese, parse_language
from onnxmt.text.numerals import Number, numbers_in
from onnxmt.text.patterns import EMOJI, HAN, is_han
from onnxmt.text.spans import ProtectOptions, Span, find_protected

__all__ = ["CheckOptions", "TextWarning", "WarningKind", "check_translation"]

WarningKind = Literal[
    "number", "number_added", "date", "currency", "url", "placeholder", "name", "length_ratio", "repetition",
    "untranslated", "unknown_token", "wrong_script", "length_cap",
]  # fmt: skip
ALL_KINDS: frozenset[WarningKind] = frozenset(get_args(WarningKind))


@dataclass(frozen=True, kw_only=True, slots=True)
class TextWarning:
    """Something that a reader of the translation should look at.

    span: where in the source text, as (start, end); where the fault is in the translation alone, the whole source.
    """

    kind: WarningKind
    span: tuple[int, int]
    message: str


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Which checks run, and their limits.

    kinds: the kinds of warnings that are looked for.
    shortest, longest: the allowed length of a translation in parts of its source's, where a Han character counts as
        3.3 letters. Of 13,600 human translations (FLORES-200, newstest2019, Tatoeba, TICO-19, WMT22) 8 are outside.
    repeats: from how many copies on a run counts as a loop; it must also be 12 characters long, the source no loop.
    """

    kinds: frozenset[WarningKind] = ALL_KINDS
    shortest: float = 0.55
    longest: float = 2.4
    repeats: int = 4

    def __post_init__(self) -> None:
        problems = [f"unknown kind {kind!r}" for kind in sorted(self.kinds - ALL_KINDS)]
        if not 0 <= self.shortest < self.longest:
            problems.append(f"shortest ({self.shortest}) must be 0 or more and below longest ({self.longest})")
        if self.repeats < 2:
            problems.append(f"repeats is {self.repeats}, and 2 is the least")
        if problems:
            raise UsageError(f"checks: {'; '.join(problems)}. Kinds are {', '.join(sorted(ALL_KINDS))}")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    """A source and its translation, and the same with the protected spans blanked (places unchanged)."""

    source: str
    translation: str
    source_prose: str
    translation_prose: str
    spans: Sequence[Span]
    source_language: str
    target_language: str
    options: CheckOptions

    @property
    def whole(self) -> tuple[int, int]:
        return 0, len(self.source)


def check_translation(
    source: str,
    translation: str,
    *,
    source_language: str = "en",
    target_language: str = "zh",
    finished: bool = True,
    options: CheckOptions | None = None,
    protect: ProtectOptions | None = None,
) -> list[TextWarning]:
    """Check one sentence's translation; the list is empty when nothing is missed.

    `finished` is False where the model was stopped at the length limit. Numbers are compared by value: 5 million is
    500万, 21 is 二十一 or twenty-one. `protect` says what had to come out unchanged.
    """
    options = options or CheckOptions()
    spans = find_protected(source, protect)
    pair = _Pair(
        source=source,
        translation=translation,
        source_prose=_blanked(source, spans),
        translation_prose=_blanked(translation, find_protected(translation, protect)),
        spans=spans,
        source_language=source_language,
        target_language=target_language,
        options=options,
    )
    found: list[TextWarning] = []
    if not finished:
        found.append(
            TextWarning(
                kind="length_cap", span=pair.whole, message="the output was cut at the length limit: text is missing"
            )
        )
    for check in _CHECKS:
        found += check(pair)
    return [warning for warning in found if warning.kind in options.kinds]


def _blanked(text: str, spans: Sequence[Span]) -> str:
    for span in spans:
        text = text[: span.start] + " " * (span.end - span.start) + text[span.end :]
    return text


# --- numbers, dates, currencies --------------------------------------------------------------------------------------


def _check_numbers(pair: _Pair) -> Iterator[TextWarning]:
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
    return re.search(rf"(?<![0-9])(?<![0-9][.,]){re.escape(digits)}(?![0-9]|[.,][0-9]|\s?[百千万亿])", text) is not None


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


def _check_dates(pair: _Pair) -> Iterator[TextWarning]:
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


def _check_currencies(pair: _Pair) -> Iterator[TextWarning]:
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


# --- protected spans and names ---------------------------------------------------------------------------------------


def _check_spans(pair: _Pair) -> Iterator[TextWarning]:
    """Each protected span is in the translation as often as in the source."""
    for text in dict.fromkeys(span.text for span in pair.spans):
        span = next(span for span in pair.spans if span.text == text)
        given, made = pair.source.count(text), pair.translation.count(text)
        if made != given:
            yield TextWarning(
                kind="url" if span.kind in {"url", "email"} else "placeholder",
                span=(span.start, span.end),
                message=f"the {span.kind} {text!r} is in the translation {_times(made)}, in the source {_times(given)}",
            )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


_LATIN = "A-Za-z\u00c0-\u024f"
_LATIN_WORD = re.compile(rf"[{_LATIN}][{_LATIN}0-9'’.&+-]*[{_LATIN}0-9+]")
_SAME = str.maketrans("’‘−‐‑–", "''----")
_UNITS = frozenset(
    {"km", "kg", "cm", "mm", "ml", "mg", "hz", "mhz", "ghz", "kb", "mb", "gb", "tb", "kw", "kwh", "ph", "am", "pm"}
    | {"app", "vs", "ok", "dvd", "cd", "tv", "pc", "id", "ceo", "gdp", "dna", "it", "ai"}
)


def _check_names(pair: _Pair) -> Iterator[TextWarning]:
    """Latin words in a translation of another script are the source's own: KFC does not come out of NASA."""
    if _latin_share(pair.source_prose) < 0.5 or _latin_share(pair.translation_prose) > 0.5:
        return
    source = pair.source.translate(_SAME).casefold()
    words = _LATIN_WORD.findall(pair.source_prose)
    initials = "".join(word[0] for word in words).casefold()
    for match in _LATIN_WORD.finditer(pair.translation_prose):
        word = match.group().translate(_SAME).casefold()
        if word in source or word in _UNITS or word in initials:
            continue
        near = difflib.get_close_matches(match.group(), words, n=1, cutoff=0.7)
        hint = f"; the source has {near[0]!r}" if near else ""
        yield TextWarning(
            kind="name", span=pair.whole, message=f"{match.group()!r} in the translation is not in the source{hint}"
        )


def _latin_share(text: str) -> float:
    letters = [character for character in text if character.isalpha()]
    return sum(character < "\u0250" for character in letters) / len(letters) if letters else 0.0


# --- the whole of it -------------------------------------------------------------------------------------------------


_HAN = re.compile(f"[{HAN}]")


def _weight(text: str) -> float:
    """The length of a text in letters; a Han character says as much as 3.3 of them."""
    dense = "".join(text.split())
    return len(dense) + 2.3 * len(_HAN.findall(dense))


def _check_length(pair: _Pair) -> Iterator[TextWarning]:
    given, made = _weight(pair.source), _weight(pair.translation)
    if given and not made:
        yield TextWarning(kind="length_ratio", span=pair.whole, message="the translation is empty")
        return
    ratio = (made + 12) / (given + 12)  # short texts vary more
    if not pair.options.shortest <= ratio <= pair.options.longest:
        word = "short" if ratio < 1 else "long"
        yield TextWarning(
            kind="length_ratio",
            span=pair.whole,
            message=f"the translation is very {word}: {ratio:.2f} of its source's length, where "
            f"{pair.options.shortest} to {pair.options.longest} is usual",
        )


_LONGEST_PERIOD = 40
_SHORTEST_LOOP = 12


def _check_repetition(pair: _Pair) -> Iterator[TextWarning]:
    """A loop: one piece of text many times over, 的的的的."""
    loop = _longest_loop(pair.translation_prose, pair.options.repeats)
    if loop is None:
        return
    unit, copies = loop
    own = _longest_loop(pair.source_prose, pair.options.repeats)
    if own is None or own[1] * 2 < copies:
        yield TextWarning(
            kind="repetition", span=pair.whole, message=f"{unit[:20]!r} is repeated {copies} times in the translation"
        )


def _longest_loop(text: str, repeats: int) -> tuple[str, int] | None:
    """The unit and the number of copies of the longest run of one unit; only with a letter or a digit in it."""
    best: tuple[str, int] | None = None
    for match in _loops(repeats).finditer(text):
        unit, copies = match.group(1), len(match.group()) // len(match.group(1))
        long_enough = len(match.group()) >= (_SHORTEST_LOOP if len(unit) > 1 else repeats + 1)
        if (
            long_enough
            and any(map(str.isalnum, unit))
            and (best is None or copies * len(unit) > len(best[0]) * best[1])
        ):
            best = unit, copies
    return best


@functools.cache
def _loops(repeats: int) -> re.Pattern[str]:
    return re.compile(rf"(.{{1,{_LONGEST_PERIOD}}}?)\1{{{repeats - 1},}}", re.DOTALL)


_MARKERS = re.compile(r"<unk>|<pad>|</?s>|\u2047|\u2581|\ufffd|<extra_id_\d+>|>>[\w-]+<<|__[a-z]{2,3}__")


def _check_markers(pair: _Pair) -> Iterator[TextWarning]:
    """Pieces of the vocabulary that are no text."""
    for marker in dict.fromkeys(_MARKERS.findall(pair.translation)):
        if marker not in pair.source:
            yield TextWarning(
                kind="unknown_token", span=pair.whole, message=f"the translation holds {marker!r}, which is no text"
            )


def _check_script(pair: _Pair) -> Iterator[TextWarning]:
    """A Chinese translation is in Han characters, and of the source's own words only names stay."""
    if not is_chinese(pair.target_language) or is_chinese(pair.source_language):
        return
    letters = [character for character in EMOJI.sub("", pair.translation_prose) if character.isalpha()]
    source_words = re.findall(r"[^\W\d_]+", pair.source_prose)
    if not letters or not source_words:
        return
    han = sum(map(is_han, letters))
    if not han and not all(word.isupper() or len(word) == 1 for word in source_words):
        yield TextWarning(
            kind="untranslated" if pair.translation.strip() == pair.source.strip() else "wrong_script",
            span=pair.whole,
            message="the translation has no Chinese character",
        )
        return
    # Greek letters are symbols: alpha-CoV is α-CoV
    foreign = [c for c in letters if not is_han(c) and not "\0" <= c <= "\u03ff" and c not in pair.source]
    if foreign:
        yield TextWarning(
            kind="wrong_script",
            span=pair.whole,
            message=f"the translation holds letters of another script: {''.join(dict.fromkeys(foreign))[:20]!r}",
        )
    yield from _left_over(pair)


# Small words that stand in names: Bank of England.
_IN_NAMES = frozenset(
    {"of", "the", "for", "and", "in", "on", "at", "to", "a", "de", "la", "le", "du", "von", "van", "al"}
)


def _left_over(pair: _Pair) -> Iterator[TextWarning]:
    """Three and more words of the source in a row, not all of them names."""
    for match in re.finditer(r"[A-Za-z][A-Za-z'’-]*(?:\s+[A-Za-z][A-Za-z'’-]*){2,}", pair.translation_prose):
        text = match.group()
        place = pair.source.find(text)
        plain = [word for word in text.split() if word[0].islower() and word not in _IN_NAMES]
        if place >= 0 and len(plain) >= 2:
            yield TextWarning(
                kind="untranslated",
                span=(place, place + len(text)),
                message=f"{text[:60]!r} is still in the source's language",
            )


_CHECKS: Sequence[Callable[[_Pair], Iterator[TextWarning]]] = (
    _check_numbers,
    _check_dates,
    _check_currencies,
    _check_spans,
    _check_names,
    _check_length,
    _check_repetition,
    _check_markers,
    _check_script,
)
