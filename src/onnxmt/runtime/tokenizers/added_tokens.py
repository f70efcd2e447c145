"""Added tokens of the tokenizers that transformers implements in Python (Marian, M2M100): read, split out, skipped.

Such a tokenizer cuts its added tokens (`</s>`, `<pad>`, `<unk>`, …) out of the text before SentencePiece sees it, also
where a user typed them (transformers 5.24, tokenization_python.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizers.files import read_json_object
from onnxmt.runtime.tokenizers.settings import SettingsReader

__all__ = ["AddedToken", "AddedTokenSplitter", "NamedTokens", "read_named_tokens"]

# transformers' order: tokens that the vocabulary lacks get ids in this order.
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A token that is never split; `special`: skipped in decoding; `lstrip`/`rstrip`: it takes the spaces beside it."""

    content: str
    id: int
    special: bool
    lstrip: bool = False
    rstrip: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "content": self.content,
            "id": self.id,
            "special": self.special,
            "lstrip": self.lstrip,
            "rstrip": self.rstrip,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str) -> AddedToken:
        """Read the JSON form; raises TokenizerError that names `where`."""
        reader = SettingsReader(data, where=where)
        token = cls(
            content=reader.text("content"),
            id=reader.index("id"),
            special=reader.flag("special"),
            lstrip=reader.flag("lstrip"),
            rstrip=reader.flag("rstrip"),
        )
        reader.finish()
        return token


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """An added token as a tokenizer file writes it, id included."""

    content: str
    id: int
    lstrip: bool
    rstrip: bool


@dataclass(frozen=True, kw_only=True)
class NamedTokens:
    """The special tokens of a checkpoint: `named` by role (`eos_token`), `extra` ones, and all that carry an id."""

    named: Mapping[str, str]
    extra: tuple[str, ...]
    declared: tuple[_Declared, ...]

    def added(self, vocabulary: Mapping[str, int]) -> tuple[AddedToken, ...]:
        """Give every token its id: the declared one, else the vocabulary's, else the next free one behind it."""
        special = (*self.named.values(), *self.extra)
        tokens = {
            token.content: AddedToken(
                content=token.content,
                id=token.id,
                special=token.content in special,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
            )
            for token in self.declared
        }
        free = len(vocabulary.keys() | tokens.keys())
        for content in special:
            if content not in tokens:
                index = vocabulary.get(content, free)
                free += content not in vocabulary
                tokens[content] = AddedToken(content=content, id=index, special=True)
        return tuple(tokens.values())


def read_named_tokens(folder: Path, config: Mapping[str, Any], defaults: Mapping[str, str]) -> NamedTokens:
    """The special tokens of the checkpoint in `folder`, from every file that transformers 5 reads them from.

    `config` is tokenizer_config.json, `defaults` the family's own names. Without `added_tokens_decoder` in it the older
    files count too: special_tokens_map.json, added_tokens.json and the list in tokenizer.json.
    """
    values: dict[str, Any] = {**defaults, **config}
    declared: dict[str, Mapping[str, Any]] = {}
    if "added_tokens_decoder" in config:
        for index, token in _object(config["added_tokens_decoder"], "added_tokens_decoder").items():
            content = _content(token, "added_tokens_decoder")
            declared[content] = {**token, "id": int(index) if index.isdecimal() else index}
    else:
        if (folder / "special_tokens_map.json").exists():
            values.update(read_json_object(folder / "special_tokens_map.json"))
        if (folder / "added_tokens.json").exists():
            for content, index in read_json_object(folder / "added_tokens.json").items():
                declared[content] = {"content": content, "id": index}
        if (folder / "tokenizer.json").exists():
            for token in read_json_object(folder / "tokenizer.json").get("added_tokens", []):
                declared[_content(token, "tokenizer.json")] = token
    extra = values.get("extra_special_tokens") or values.get("additional_special_tokens") or []
    named = {role: _content(values[role], role) for role in _NAMED if values.get(role) is not None}
    if isinstance(extra, Mapping):
        named |= {role: _content(token, role) for role, token in extra.items()}
        extra = []
    for role, value in values.items():  # a model's own roles, such as `image_token`
        if role.endswith("_token") and role not in named and isinstance(value, str | Mapping):
            named[role] = _content(value, role)
    single = [content for content, token in declared.items() if token.get("single_word")]
    if single:
        raise TokenizerError(f"added tokens with single_word are not implemented: {', '.join(map(repr, single))}")
    wrong = [content for content, token in declared.items() if type(token.get("id")) is not int or token["id"] < 0]
    if wrong:
        raise TokenizerError(f"added tokens without an integer id: {', '.join(map(repr, wrong))}")
    return NamedTokens(
        named=named,
        extra=tuple(_content(token, "extra_special_tokens") for token in extra),
        declared=tuple(
            _Declared(
                content=content,
                id=token["id"],
                lstrip=bool(token.get("lstrip")),
                rstrip=bool(token.get("rstrip")),
            )
            for content, token in declared.items()
        ),
    )


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TokenizerError(f"tokenizer_config.json: {name!r} is {value!r}, not an object")
    return value


def _content(token: object, name: str) -> str:
    """The text of a token that is written as a string or as an object with `content`."""
    content = token.get("content") if isinstance(token, Mapping) else token
    if not isinstance(content, str):
        raise TokenizerError(f"tokenizer files: {name!r} holds {token!r}, which is not a token")
    return content


class AddedTokenSplitter:
    """Cuts added tokens out of a text: the leftmost first, of those the longest."""

    def __init__(self, tokens: Sequence[AddedToken]) -> None:
        self._by_content = {token.content: token for token in tokens if token.content}
        longest_first = sorted(self._by_content, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def split(self, text: str) -> Iterator[str | AddedToken]:
        """The parts of `text` in order: added tokens, and the text between them where there is any."""
        matches = self._pattern.finditer(text) if self._pattern else ()
        start = 0
        strip_left = False
        for match in matches:
            token = self._by_content[match.group()]
            between = text[start : match.start()]
            between = between.lstrip() if strip_left else between
            between = between.rstrip() if token.lstrip else between
            if between:
                yield between
            yield token
            start, strip_left = match.end(), token.rstrip
        rest = text[start:].lstrip() if strip_left else text[start:]
        if rest:
            yield rest
