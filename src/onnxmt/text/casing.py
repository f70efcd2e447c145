"""ALL CAPS and Title Case English sources in their ordinary form, acronyms kept, and capitals back in the target.

Such text is rare in training, so models copy it or loop on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from onnxmt.errors import UsageError
from onnxmt.runtime.languages import is_chinese, parse_language
from onnxmt.text.casing_words import ACRONYMS, CAPITALISED, COMMON_WORDS, SHORT_WORDS
from onnxmt.text.spans import ProtectOptions, find_protected

__all__ = ["CaseChange", "CasingOptions", "restore_case", "to_ordinary_case"]


@dataclass(frozen=True, kw_only=True)
class CasingOptions:
    """Which sources are rewritten.

    all_caps: a text all in capitals becomes small, but for acronyms, weekdays, months and the beginning of a sentence.
    title_case: in A Text Like This One the common words become small; what may be a name stays.
    acronyms: more words that keep their capitals, written as they should be (`OpenAI`).
    """

    all_caps: bool = True
    title_case: bool = True
    acronyms: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        wrong = sorted(word for word in self.acronyms if not _WORD.fullmatch(word))
        if wrong:
            raise UsageError(
                f"casing: an acronym is one word of letters and digits, found {', '.join(map(repr, wrong))}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseChange:
    """A text for the model, and what was done to it: None when nothing was."""

    text: str
    kind: Literal["all_caps", "title_case"] | None


def to_ordinary_case(
    text: str, *, language: str = "en", options: CasingOptions | None = None, protect: ProtectOptions | None = None
) -> CaseChange:
    """Rewrite one sentence in ordinary case where it is all in capitals or in title case; protected spans stay.

    Only English sources are rewritten: which words are small, and what an acronym looks like, is a matter of language.
    """
    options = options or CasingOptions()
    parsed = parse_language(language)
    if parsed is None or parsed.base != "eng":
        return CaseChange(text=text, kind=None)
    prose = _Prose(text, protect)
    acronyms = {word.upper(): word for word in options.acronyms}
    if options.all_caps and _is_all_caps(prose.words, acronyms):
        result = prose.rewrite(lambda word: _from_capitals(word, acronyms), keep_starts=True)
        result = _MONTH_OR_WORD.sub(lambda match: match.group().capitalize(), result)
        kind: Literal["all_caps", "title_case"] = "all_caps"
    elif options.title_case and _is_title_case(prose.words):
        result = prose.rewrite(lambda word: _from_title(word, acronyms), keep_starts=True)
        kind = "title_case"
    else:
        return CaseChange(text=text, kind=None)
    return CaseChange(text=result, kind=kind if result != text else None)


def restore_case(
    translation: str, change: CaseChange, *, target_language: str, protect: ProtectOptions | None = None
) -> str:
    """Write a translation in capitals where its source was, protected spans aside; Chinese has no case."""
    if change.kind != "all_caps" or is_chinese(target_language):
        return translation
    return _Prose(translation, protect).rewrite(str.upper, keep_starts=False)


_LETTER = "A-Za-z\u00c0-\u024f"
_WORD = re.compile(rf"[{_LETTER}0-9]+(?:['’&.-][{_LETTER}0-9]+)*")
# The place where a sentence begins, before its first word; a protected span (NUL) is a word.
_SENTENCE_START = re.compile(rf"(?:\A|(?<!\.[A-Z])[.!?…][\"'”’)\]]*\s+)[^{_LETTER}0-9\0]*(?=[{_LETTER}0-9])")
# March and May are months beside a number.
_MONTH_OR_WORD = re.compile(r"\b(?:march|may)\b(?=,? [0-9])|(?<=[0-9] )(?:march|may)\b")
_ENDINGS = re.compile(r"[a-z]{2,}(?:ing|ed|tion|ions|ly|ness|ment|ments|able|ible|ful|less|ous|ive|ies|ers)")


class _Prose:
    """The words of a text outside its protected spans."""

    def __init__(self, text: str, protect: ProtectOptions | None) -> None:
        self._text = text
        blanked = list(text)
        for span in find_protected(text, protect):
            blanked[span.start : span.end] = "\0" * (span.end - span.start)
        self._blanked = "".join(blanked)
        self.words = _WORD.findall(self._blanked)

    def rewrite(self, change: Callable[[str], str], *, keep_starts: bool) -> str:
        """The text with each word changed; with `keep_starts` the first letter of a sentence stays as it is."""
        starts = {match.end() for match in _SENTENCE_START.finditer(self._blanked)} if keep_starts else set()
        parts: list[str] = []
        position = 0
        for match in _WORD.finditer(self._blanked):
            word = change(match.group())
            if match.start() in starts:
                word = match.group()[0] + word[1:]
            parts += [self._text[position : match.start()], word]
            position = match.end()
        return "".join([*parts, self._text[position:]])


def _is_all_caps(words: list[str], acronyms: dict[str, str]) -> bool:
    """All in capitals (a letter in ten may be small: McDONALD), with a word in it that is no acronym."""
    letters = [letter for word in words for letter in word if letter.isalpha()]
    if len(letters) < 2 or sum(letter.isupper() for letter in letters) < 0.9 * len(letters):
        return False
    return any(len(word) > 1 and _from_capitals(word, acronyms) != word for word in words)


def _from_capitals(word: str, acronyms: dict[str, str]) -> str:
    """One word of a text in capitals in its ordinary form."""
    if word.upper() in acronyms:
        return acronyms[word.upper()]
    if "&" in word or "." in word:
        return word
    if "-" in word:
        return "-".join(_from_capitals(part, acronyms) for part in word.split("-"))
    base, apostrophe, ending = re.split("(['’])", word, maxsplit=1) if re.search("['’]", word) else (word, "", "")
    if ending in {"T", "M", "D", "RE", "VE", "LL"}:  # DON'T, I'M
        return (base if base == "I" else base.lower()) + apostrophe + ending.lower()
    return _base_from_capitals(base, acronyms) + apostrophe + ending.lower()


def _base_from_capitals(word: str, acronyms: dict[str, str]) -> str:
    if word.upper() in acronyms:
        return acronyms[word.upper()]
    if re.fullmatch(r"[0-9]+(?:ST|ND|RD|TH)", word):
        return word.lower()
    small = word.lower()
    if len(word) == 1:
        return "a" if word == "A" else word
    if re.search("[0-9]", word) or word in ACRONYMS or not word.isupper():
        return word
    if word.capitalize() in CAPITALISED:
        return word.capitalize()
    if len(word) <= 3:
        return small if small in SHORT_WORDS else word
    return word if len(word) <= 5 and not re.search("[AEIOUY\u00c0-\u024f]", word) else small


def _is_title_case(words: list[str]) -> bool:
    """Most longer words have a capital, and so have two common ones that stand inside the sentence."""
    words = [word for word in words if word[0].isalpha()]
    long = [word for word in words if len(word) >= 4]
    capitals = [word for word in long if word[0].isupper()]
    common = [word for word in words[1:] if word[0].isupper() and word != "I" and word.lower() in COMMON_WORDS]
    return len(words) >= 4 and len(common) >= 2 and len(capitals) >= 0.8 * len(long) and any(map(_is_mixed, words))


def _is_mixed(word: str) -> bool:
    return any(map(str.islower, word))


def _from_title(word: str, acronyms: dict[str, str]) -> str:
    """One word of a text in title case: small where it is a common word or has the ending of one."""
    if word.upper() in acronyms:
        return acronyms[word.upper()]
    if "-" in word:
        return "-".join(_from_title(part, acronyms) for part in word.split("-"))
    base = re.split("['’]", word)[0]
    small = base.lower()
    is_small = small in COMMON_WORDS or (_ENDINGS.fullmatch(small) is not None and base not in CAPITALISED)
    if base == "I" or base != small.capitalize() or not is_small:
        return word
    return small + word[len(base) :]
