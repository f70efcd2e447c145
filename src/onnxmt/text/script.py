"""Fidelity checks of the script: is the translation in its language's letters, and is source text left in it?"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from onnxmt.runtime.languages import is_chinese, usual_script
from onnxmt.text.pair import Pair, TextWarning
from onnxmt.text.patterns import EMOJI, is_han

__all__ = ["check_script"]


def check_script(pair: Pair) -> Iterator[TextWarning]:
    """A translation is in its language's script; in Chinese, of the source's own words only names stay."""
    if not is_chinese(pair.target_language):
        yield from _check_other_script(pair)
        return
    if is_chinese(pair.source_language):
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


# What the Unicode names of a script's letters begin with.
_LETTER_NAMES = {
    "Latn": ("LATIN",),
    "Cyrl": ("CYRILLIC",),
    "Grek": ("GREEK",),
    "Arab": ("ARABIC",),
    "Hebr": ("HEBREW",),
    "Jpan": ("HIRAGANA", "KATAKANA", "CJK"),
    "Hang": ("HANGUL", "CJK"),
    "Thai": ("THAI",),
    "Laoo": ("LAO",),
    "Deva": ("DEVANAGARI",),
    "Beng": ("BENGALI",),
    "Guru": ("GURMUKHI",),
    "Gujr": ("GUJARATI",),
    "Taml": ("TAMIL",),
    "Telu": ("TELUGU",),
    "Knda": ("KANNADA",),
    "Mlym": ("MALAYALAM",),
    "Sinh": ("SINHALA",),
    "Orya": ("ORIYA",),
    "Mymr": ("MYANMAR",),
    "Khmr": ("KHMER",),
    "Tibt": ("TIBETAN",),
    "Geor": ("GEORGIAN",),
    "Armn": ("ARMENIAN",),
    "Ethi": ("ETHIOPIC",),
    "Thaa": ("THAANA",),
    "Tfng": ("TIFINAGH",),
    "Cans": ("CANADIAN",),
}


def _check_other_script(pair: Pair) -> Iterator[TextWarning]:
    names = _LETTER_NAMES.get(usual_script(pair.target_language) or "")
    letters = [character for character in pair.translation_prose if character.isalpha()]
    if names is None or len(letters) < 4 or pair.translation_prose.strip() == pair.source_prose.strip():
        return
    own = sum(unicodedata.name(character, "").startswith(names) for character in letters)
    if own < len(letters) / 2:
        yield TextWarning(
            kind="wrong_script",
            span=pair.whole,
            message=f"most letters of the translation are not {names[0].title()}: {pair.translation[:20]!r}",
        )


# Small words that stand in names: Bank of England.
_IN_NAMES = frozenset(
    {"of", "the", "for", "and", "in", "on", "at", "to", "a", "de", "la", "le", "du", "von", "van", "al"}
)


def _left_over(pair: Pair) -> Iterator[TextWarning]:
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
