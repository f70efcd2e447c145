"""Plain punctuation in sources, for models that were trained on it; only when asked for."""

from __future__ import annotations

import re

from onnxmt.text.spans import ProtectOptions, find_protected

__all__ = ["normalize_punctuation"]

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("“”„‟«»″", '"'),
        **dict.fromkeys("‘’‚‛′`´", "'"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2009\u202f\u3000", " "),
        **dict.fromkeys("‐‑–−", "-"),
        **dict.fromkeys("\u00ad\u200b\u2060\ufeff"),
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
        "—": " - ",
        "…": "...",
        "。": ". ",
        "、": ", ",
    }
)


def normalize_punctuation(text: str, *, protect: ProtectOptions | None = None) -> str:
    """The text with straight quotes, ASCII dashes, dots and spaces, and half-width letters; protected spans stay.

    Much the same as Moses' normalisation, which transformers' MarianTokenizer defines and never applies. Lines stay.
    """
    parts: list[str] = []
    position = 0
    for span in find_protected(text, protect):
        parts += [_plain(text[position : span.start]), span.text]
        position = span.end
    return "".join([*parts, _plain(text[position:])])


def _plain(text: str) -> str:
    plain = text.translate(_PLAIN)
    return plain if plain == text else re.sub(r"(?<=\S) {2,}(?=\S)", " ", plain)
