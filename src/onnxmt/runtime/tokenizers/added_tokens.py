"""Tokens that are never split: what is known of one, and how they are cut out of a text.

transformers does the cutting in Python for Marian and M2M100 (transformers 5.24, tokenization_python.py): SentencePiece
sees only what lies between them, also where a user typed `</s>`. The `tokenizers` library does the same for the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmt.runtime.tokenizers.settings import SettingsReader

__all__ = ["AddedToken", "AddedTokenSplitter", "NumberedToken"]

_FLAGS = ("special", "lstrip", "rstrip", "single_word")


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A token that is never split.

    `special`: skipped in decoding; `lstrip`/`rstrip`: it takes the spaces beside it; `single_word`: only between
    spaces; `normalized`: it is looked for in the normalised text (None: unless it is special).
    """

    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; flags that are off are left out."""
        data: dict[str, Any] = {"content": self.content} | {flag: True for flag in _FLAGS if getattr(self, flag)}
        return data if self.normalized is None else data | {"normalized": self.normalized}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str) -> AddedToken:
        """Read the JSON form; raises TokenizerError that names `where`."""
        reader = SettingsReader(data, where=where)
        flags = {flag: reader.flag(flag, default=False) for flag in _FLAGS}
        normalized = reader.flag("normalized", default=False) if "normalized" in data else None
        token = cls(content=reader.text("content"), normalized=normalized, **flags)
        reader.finish()
        return token


@dataclass(frozen=True, kw_only=True)
class NumberedToken:
    """An added token with its id."""

    token: AddedToken
    id: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"id": self.id, **self.token.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str) -> NumberedToken:
        """Read the JSON form; raises TokenizerError that names `where`."""
        rest = {key: value for key, value in data.items() if key != "id"}
        reader = SettingsReader({key: value for key, value in data.items() if key == "id"}, where=where)
        token = cls(token=AddedToken.from_dict(rest, where=where), id=reader.index("id"))
        reader.finish()
        return token


class AddedTokenSplitter:
    """Cuts added tokens out of a text: the leftmost first, of those the longest."""

    def __init__(self, tokens: Sequence[NumberedToken]) -> None:
        self._by_content = {numbered.token.content: numbered for numbered in tokens if numbered.token.content}
        longest_first = sorted(self._by_content, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def split(self, text: str) -> Iterator[str | NumberedToken]:
        """The parts of `text` in order: added tokens, and the text between them where there is any."""
        start = 0
        strip_left = False
        for match in self._pattern.finditer(text) if self._pattern else ():
            numbered = self._by_content[match.group()]
            between = text[start : match.start()]
            between = between.lstrip() if strip_left else between
            between = between.rstrip() if numbered.token.lstrip else between
            if between:
                yield between
            yield numbered
            start, strip_left = match.end(), numbered.token.rstrip
        rest = text[start:].lstrip() if strip_left else text[start:]
        if rest:
            yield rest
