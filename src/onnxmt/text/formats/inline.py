"""Prose with markup inside: the markup becomes short tags for the translator, and is put back from its answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from onnxmt.text.formats.document import Piece, UnfitTranslationError
from onnxmt.text.patterns import has_letter, is_cjk

__all__ = ["Inline", "Mark", "Part", "Run", "edges", "joined_lines"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run of text; `plain` is what it says, with escapes and entities resolved."""

    plain: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A piece of markup.

    kind: `open` and `close` pair up; `single` stands alone; `word` stands for a word (code); `break` ends a line.
    pieces: what stands in the document for it.
    shown: for a word, how the translator may see it; None or a text that is taken: as a number in backticks.
    name: an opening and a closing mark pair up when their names are the same.
    """

    kind: Literal["open", "close", "single", "word", "break"]
    pieces: tuple[Piece, ...]
    shown: str | None = None
    name: str = ""


Part = Run | Mark


@dataclass(frozen=True, kw_only=True, slots=True)
class _Label:
    """How a mark is shown, and for a pair which one it is."""

    text: str
    mark: Mark
    pair: int


class Inline:
    """The parts of one unit; `text` is what the translator gets."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        plain = "".join(part.plain for part in parts if isinstance(part, Run))
        shown = " ".join(part.shown for part in parts if isinstance(part, Mark) and part.shown)
        letter = next(letter for letter in "mnkxyzabcdefg" if not re.search(rf"[<`]/?{letter}\d", plain + shown))
        pairs = _pairs(self.parts)
        numbers: dict[int, int] = {}
        labels: list[_Label] = []
        texts: list[str] = []
        taken = {part.shown for part in parts if isinstance(part, Mark) and part.shown and part.shown in plain}
        for index, part in enumerate(self.parts):
            if isinstance(part, Run):
                texts.append(part.plain)
                continue
            if part.kind == "break":
                texts.append("\n")
                continue
            number = numbers.setdefault(pairs.get(index, -index), len(numbers) + 1)
            label = _label(part, letter, number, paired=index in pairs)
            if part.kind == "word" and part.shown is not None and part.shown not in taken:
                label = part.shown
                taken.add(label)
            labels.append(_Label(text=label, mark=part, pair=number if index in pairs else 0))
            texts.append(label)
        self._labels = labels
        self._breaks = [part for part in self.parts if isinstance(part, Mark) and part.kind == "break"]
        self._letter = letter
        self.text = "".join(texts)
        self.marks = tuple(label.text for label in labels)

    def read(self, translation: str) -> list[str | Mark]:
        """Take a translation apart into texts and marks.

        Raises UnfitTranslationError when a mark is missing, there twice or out of order, when a pair has lost its text,
        or when the number of lines is another.
        """
        items = list(self._items(translation))
        counts = Counter(item.text for item in items if isinstance(item, _Label))
        for label in self._labels:
            count = counts[label.text]
            if count != 1:
                named = f"the markup {_said(label.mark)!r} is in the translation "
                raise UnfitTranslationError(named + ("no more" if count == 0 else f"{count} times"))
        tags = [label for label in self._labels if label.mark.kind != "word"]
        if [item for item in items if isinstance(item, _Label) and item.mark.kind != "word"] != tags:
            raise UnfitTranslationError("the markup stands in another order in the translation")
        if sum(item == "\n" for item in items) != len(self._breaks):
            raise UnfitTranslationError("the translation has another number of lines")
        self._check_pairs(items)
        breaks = iter(self._breaks)
        return [next(breaks) if item == "\n" else item.mark if isinstance(item, _Label) else item for item in items]

    def _items(self, translation: str) -> Iterator[str | _Label]:
        """Texts, labels and line breaks as they follow each other."""
        if not self._labels and "\n" not in translation:
            yield translation
            return
        by_text = {label.text: label for label in self._labels}
        shown = sorted((label.text for label in self._labels if label.text == label.mark.shown), key=len, reverse=True)
        numbered = rf"</?{self._letter}\d+/?>|`{self._letter}\d+`|\n"
        for index, piece in enumerate(re.split("(" + "|".join([*map(re.escape, shown), numbered]) + ")", translation)):
            if index % 2 and piece != "\n" and piece not in by_text:
                raise UnfitTranslationError(f"the translation holds {piece!r}, which stands for nothing")
            if piece:
                yield by_text[piece] if index % 2 and piece != "\n" else piece

    def _check_pairs(self, items: Sequence[str | _Label]) -> None:
        """A pair with words inside must not come back empty: an empty link cannot be followed."""
        empty = _filled_pairs(self._source_items()) - _filled_pairs(items)
        if empty:
            opening = next(label for label in self._labels if label.pair in empty)
            raise UnfitTranslationError(f"nothing is left inside {_said(opening.mark)!r} in the translation")

    def _source_items(self) -> Sequence[str | _Label]:
        labels = iter(self._labels)
        return [
            part.plain if isinstance(part, Run) else "\n" if part.kind == "break" else next(labels)
            for part in self.parts
        ]


def _label(mark: Mark, letter: str, number: int, *, paired: bool) -> str:
    if mark.kind == "word":
        return f"`{letter}{number}`"
    if not paired:
        return f"<{letter}{number}/>"
    return f"<{letter}{number}>" if mark.kind == "open" else f"</{letter}{number}>"


def _pairs(parts: Sequence[Part]) -> dict[int, int]:
    """Which opening and closing marks belong together: index → number of the pair. What crosses another is no pair."""
    numbers: dict[int, int] = {}
    stack: list[tuple[str, int]] = []
    for index, part in enumerate(parts):
        if isinstance(part, Run):
            continue
        if part.kind == "open":
            stack.append((part.name, index))
        elif part.kind == "close" and any(name == part.name for name, _ in stack):
            while True:
                name, opened = stack.pop()
                if name == part.name:
                    break
            numbers[opened] = numbers[index] = opened + 1
    return numbers


def edges(parts: Sequence[Part]) -> tuple[int, int]:
    """The first and the last index (exclusive) of what is left without the markup around the prose."""
    pairs = _pairs(parts)
    start, end = 0, len(parts)
    while start < end:
        first, last = parts[start], parts[end - 1]
        if isinstance(first, Run) and not first.plain.strip():
            start += 1
        elif isinstance(last, Run) and not last.plain.strip():
            end -= 1
        elif isinstance(first, Mark) and (first.kind in {"single", "break"} or start not in pairs) and _not_word(first):
            start += 1
        elif isinstance(last, Mark) and (last.kind in {"single", "break"} or end - 1 not in pairs) and _not_word(last):
            end -= 1
        elif start in pairs and pairs.get(end - 1) == pairs[start] and start < end - 1:
            start, end = start + 1, end - 1
        else:
            break
    return start, end


def _not_word(mark: Mark) -> bool:
    return mark.kind != "word"


def _filled_pairs(items: Sequence[str | _Label]) -> frozenset[int]:
    """The pairs with a letter, a digit or a word mark inside."""
    open_pairs: list[int] = []
    filled: set[int] = set()
    for item in items:
        if isinstance(item, str):
            if any(map(str.isalnum, item)) or has_letter(item):
                filled.update(open_pairs)
        elif item.pair and item.mark.kind == "open":
            open_pairs.append(item.pair)
        elif item.pair and item.pair in open_pairs:
            open_pairs.remove(item.pair)
        elif item.mark.kind == "word":
            filled.update(open_pairs)
    return frozenset(filled)


def _said(mark: Mark) -> str:
    return "".join(piece if isinstance(piece, str) else "…" for piece in mark.pieces)[:40]


def joined_lines(left: str, right: str) -> str:
    """What stands between two lines of a wrapped paragraph once they are one: nothing between Chinese characters."""
    return "" if left and right and is_cjk(left[-1]) and is_cjk(right[0]) else " "
