"""Does a translation say what its source says? Checks that need no model; each miss is a warning, never a change."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from onnxmt.errors import UsageError
from onnxmt.runtime.languages import is_chinese
from onnxmt.text.amounts import check_currencies, check_dates, check_numbers
from onnxmt.text.pair import Pair, TextWarning, WarningKind
from onnxmt.text.patterns import HAN
from onnxmt.text.script import check_script
from onnxmt.text.spans import ProtectOptions, Span, find_protected

__all__ = ["CheckOptions", "TextWarning", "WarningKind", "check_translation"]

ALL_KINDS: frozenset[WarningKind] = frozenset(get_args(WarningKind))


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
    pair = Pair(
        source=source,
        translation=translation,
        source_prose=_blanked(source, spans),
        translation_prose=_blanked(translation, find_protected(translation, protect)),
        spans=spans,
        source_language=source_language,
        target_language=target_language,
    )
    found = [warning for check in _CHECKS for warning in check(pair)]
    found += _check_length(pair, options)
    found += _check_repetition(pair, options)
    if not finished:
        message = "the output was cut at the length limit: text is missing"
        found.append(TextWarning(kind="length_cap", span=pair.whole, message=message))
    return [warning for warning in found if warning.kind in options.kinds]


def _blanked(text: str, spans: Sequence[Span]) -> str:
    """The text with spaces in the places of the spans."""
    characters = list(text)
    for span in spans:
        characters[span.start : span.end] = " " * (span.end - span.start)
    return "".join(characters)


def _check_spans(pair: Pair) -> Iterator[TextWarning]:
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


def _check_names(pair: Pair) -> Iterator[TextWarning]:
    """Latin words in a translation of another script are the source's own: KFC does not come out of NASA."""
    if _latin_share(pair.source_prose) < 0.5:
        return
    if not is_chinese(pair.target_language) and _latin_share(pair.translation_prose) > 0.5:
        return
    source = pair.source.translate(_SAME).casefold()
    words = _LATIN_WORD.findall(pair.source_prose)
    initials = "".join(word[0] for word in words).casefold()
    for found in dict.fromkeys(_LATIN_WORD.findall(pair.translation_prose)):
        word = found.translate(_SAME).casefold()
        if word in source or word in _UNITS or word in initials:
            continue
        near = difflib.get_close_matches(found, words, n=1, cutoff=0.7)
        hint = f"; the source has {near[0]!r}" if near else ""
        yield TextWarning(
            kind="name", span=pair.whole, message=f"{found!r} in the translation is not in the source{hint}"
        )


def _latin_share(text: str) -> float:
    letters = [character for character in text if character.isalpha()]
    return sum(character < "\u0250" for character in letters) / len(letters) if letters else 0.0


_HAN = re.compile(f"[{HAN}]")


def _weight(text: str) -> float:
    """The length of a text in letters; a Han character says as much as 3.3 of them."""
    dense = "".join(text.split())
    return len(dense) + 2.3 * len(_HAN.findall(dense))


def _check_length(pair: Pair, options: CheckOptions) -> Iterator[TextWarning]:
    given, made = _weight(pair.source), _weight(pair.translation)
    if given and not made:
        yield TextWarning(kind="length_ratio", span=pair.whole, message="the translation is empty")
        return
    ratio = (made + 12) / (given + 12)  # short texts vary more
    if not options.shortest <= ratio <= options.longest:
        word = "short" if ratio < 1 else "long"
        yield TextWarning(
            kind="length_ratio",
            span=pair.whole,
            message=f"the translation is very {word}: {ratio:.2f} of its source's length, where "
            f"{options.shortest} to {options.longest} is usual",
        )


_LONGEST_PERIOD = 40
_SHORTEST_LOOP = 12


def _check_repetition(pair: Pair, options: CheckOptions) -> Iterator[TextWarning]:
    """A loop: one piece of text many times over, 的的的的."""
    loop = _longest_loop(pair.translation_prose, options.repeats)
    if loop is None:
        return
    unit, copies = loop
    own = _longest_loop(pair.source_prose, options.repeats)
    if own is None or own[1] * 2 < copies:
        yield TextWarning(
            kind="repetition", span=pair.whole, message=f"{unit[:20]!r} is repeated {copies} times in the translation"
        )


def _longest_loop(text: str, repeats: int) -> tuple[str, int] | None:
    """The unit and the number of copies of the longest run of one unit; only with a letter or a digit in it."""
    best: tuple[str, int] | None = None
    for match in _loops(repeats).finditer(text):
        unit, length = match.group(1), len(match.group())
        least = _SHORTEST_LOOP if len(unit) > 1 else repeats + 1
        if length >= max(least, len(best[0]) * best[1] + 1 if best else 0) and any(map(str.isalnum, unit)):
            best = unit, length // len(unit)
    return best


@functools.cache
def _loops(repeats: int) -> re.Pattern[str]:
    return re.compile(rf"(.{{1,{_LONGEST_PERIOD}}}?)\1{{{repeats - 1},}}", re.DOTALL)


_MARKERS = re.compile(r"<unk>|<pad>|</?s>|\u2047|\u2581|\ufffd|<extra_id_\d+>|>>[\w-]+<<|__[a-z]{2,3}__")


def _check_markers(pair: Pair) -> Iterator[TextWarning]:
    """Pieces of the vocabulary that are no text."""
    for marker in dict.fromkeys(_MARKERS.findall(pair.translation)):
        if marker not in pair.source:
            yield TextWarning(
                kind="unknown_token", span=pair.whole, message=f"the translation holds {marker!r}, which is no text"
            )


_CHECKS: Sequence[Callable[[Pair], Iterator[TextWarning]]] = (
    check_numbers,
    check_dates,
    check_currencies,
    check_script,
    _check_spans,
    _check_names,
    _check_markers,
)
