"""Translators that need no model: their output can be told by anyone, and one is made to break documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from onnxmt.runtime.translation import TranslateOptions, Translation
from onnxmt.text.spans import find_protected


def marked(text: str) -> str:
    """What a perfect model does: every word outside the protected spans becomes Han characters."""
    parts, position = [], 0
    for span in find_protected(text):
        parts += [_han(text[position : span.start]), span.text]
        position = span.end
    return "".join(parts) + _han(text[position:])


def _han(text: str) -> str:
    return re.sub(r"[^\W\d_]+", lambda word: "汉" * max(1, len(word.group()) // 3), text)


class Fake:
    """A translator by a function; counts the texts that it is given."""

    def __init__(self, function: Callable[[str], str] = marked) -> None:
        self.function = function
        self.given: list[str] = []

    def translate_stream(
        self, texts: Iterable[str], *, options: TranslateOptions | None = None, errors: str = "raise"
    ) -> Iterator[Translation]:
        for text in texts:
            self.given.append(text)
            yield Translation(source=text, text=self.function(text), score=-0.5, tokens=(1,), finished=True)
