"""Where a place of a changed text was in the text before the change."""

from __future__ import annotations

from bisect import bisect_left
from difflib import SequenceMatcher

__all__ = ["SpacingMap", "original_span"]


def original_span(span: tuple[int, int], *, changed: str, original: str) -> tuple[int, int]:
    """The stretch of `original` that became `span` of `changed`: its place by what the two texts have in common.

    Case does not count. For warnings only, since it takes time: about a millisecond for a sentence.
    """
    small, before = _small(changed), _small(original)
    if small == before:
        return span
    if span == (0, len(changed)):
        return 0, len(original)
    start, end = span
    first, last = len(original), 0
    blocks = SequenceMatcher(a=before, b=small, autojunk=False).get_opcodes()
    for kind, a, b, c, d in blocks:
        if d <= start or c >= end:
            continue
        same = kind == "equal"
        first = min(first, a + max(0, start - c) if same else a)
        last = max(last, a + min(d, end) - c if same else b)
    return (first, min(last, len(original))) if first < last else (0, len(original))


def _small(text: str) -> str:
    """Small letters, as many characters as the text has."""
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)


class SpacingMap:
    """Places of a text in one that differs from it by its spaces and line breaks alone."""

    def __init__(self, *, changed: str, original: str) -> None:
        self._changed, self._original = _filled(changed), _filled(original)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the original that became `start:end`, without spaces at its edges."""
        first, last = bisect_left(self._changed, start), bisect_left(self._changed, end) - 1
        if first > last:  # spaces alone: the place before what follows
            place = self._original[first] if first < len(self._original) else self._original[-1] + 1
            return place, place
        return self._original[first], self._original[last] + 1


def _filled(text: str) -> list[int]:
    """Where the characters stand that are no space; one at least."""
    return [place for place, character in enumerate(text) if not character.isspace()] or [0]
