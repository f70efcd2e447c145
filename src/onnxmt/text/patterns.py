"""Shapes that several text modules recognise: Han characters, emoji, URLs, e-mail addresses.

Each expression runs in linear time on hostile input: a repeated part can start in one place only.
"""

from __future__ import annotations

import re

__all__ = ["CJK_CLOSING", "CJK_MARK", "EMAIL", "EMOJI", "HAN", "URL", "has_letter", "is_cjk", "is_han"]

# Character classes, for use between [ and ].
HAN = (
    "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002fa1f\U00030000-\U000323af"
)
_KANA_HANGUL = "\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7af"
# Marks that bring their own space: after or before one of them no ASCII space is written.
CJK_MARK = "\u3001\u3002\u3008-\u3011\u3014-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
CJK_CLOSING = "”’」』】）〉》〕〗］｝\"')\\]"

_HAN_CHARACTER = re.compile(f"[{HAN}]")
_CJK_CHARACTER = re.compile(f"[{HAN}{_KANA_HANGUL}{CJK_MARK}]")

# A path may hold Han characters after a separator (wiki/中国); Han text that follows a URL directly is not part of it.
_URL_HAN = f"(?<=[/=#&?_-])[{HAN}]+"
_URL_PIECE = rf"\([^\s()<>\"“”]*\)|\{{[^\s{{}}]*\}}|[A-Za-z0-9\-._~:/?#\[\]@!$&'*+,;=%|]|{_URL_HAN}"
_URL_LAST = rf"\([^\s()<>\"“”]*\)|\{{[^\s{{}}]*\}}|[A-Za-z0-9/#=&%_~$@+*-]|{_URL_HAN}"
_URL_REST = rf"(?:{_URL_PIECE})*(?:{_URL_LAST})"
# Two-letter domains are left out where they are also English words (in, is, it, me, my, no, so, to, us).
_DOMAINS = "com|org|net|edu|gov|info|io|ai|dev|app|cn|uk|de|fr|jp|ru|eu|ch|nl|hk|tw|kr|wiki|xyz"
URL = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?:https?|ftps?|sftp|ssh|git|file|wss?|s3|gs|hdfs)://{_URL_REST}"
    rf"|data:[a-z]+/[a-z0-9.+-]+[;,]{_URL_REST}|mailto:{_URL_REST}|www\.{_URL_REST})"
    rf"|(?<![\w@.-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+(?:{_DOMAINS})\b(?![\w@-]|\.\w)(?::\d+)?(?:/(?:{_URL_REST})?)?"
)
EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9_%+](?:[A-Za-z0-9._%+-]*)@[A-Za-z0-9](?:[A-Za-z0-9-]*)(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"
)

_PICTOGRAPH = (
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff\u2600-\u27bf\u2b00-\u2bff"
    "\u231a\u231b\u23e9-\u23fa\u2328\u23cf"
)
_MODIFIER = "[\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
# One emoji: a flag (two regional letters), a keycap, or pictographs joined by zero-width joiners, with their modifiers.
EMOJI = re.compile(
    "[\U0001f1e6-\U0001f1ff]{2}"
    "|[0-9#*]\ufe0f?\u20e3"
    f"|(?:[{_PICTOGRAPH}\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]|[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u24c2\u3030\u303d\u3297\u3299]\ufe0f){_MODIFIER}"
    f"(?:\u200d[{_PICTOGRAPH}\u2190-\u21ff]{_MODIFIER})*"
)


def is_han(character: str) -> bool:
    """Whether the character is a Han character (or 〇, 々); one character in."""
    return _HAN_CHARACTER.match(character) is not None


def is_cjk(character: str) -> bool:
    """Whether the character is Han, kana, hangul, or a full-width or CJK punctuation mark."""
    return _CJK_CHARACTER.match(character) is not None


def has_letter(text: str) -> bool:
    """Whether the text holds at least one letter of any script, emoji and their modifiers aside."""
    return any(character.isalpha() for character in EMOJI.sub("", text))
