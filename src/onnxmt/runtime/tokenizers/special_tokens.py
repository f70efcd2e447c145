"""Which special tokens a checkpoint's tokenizer has: read from all the files that transformers 5 reads them from.

The rules are those of `from_pretrained` in transformers 5.24: tokenizer_config.json; where it has no
`added_tokens_decoder`, also special_tokens_map.json, added_tokens.json and the list in tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizers.added_tokens import AddedToken, NumberedToken
from onnxmt.runtime.tokenizers.files import read_json_object

__all__ = ["SpecialTokens", "read_special_tokens"]

# transformers' order: tokens that the vocabulary lacks get ids in this order.
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """The special tokens of a checkpoint.

    `named` by role (`eos_token`), in transformers' order; `declared` with their ids; `extra`: the list of further ones
    that the files give (None where it is null), which counts alone if `extra_given`; `older`: the list of
    special_tokens_map.json, for a checkpoint that gives no other.
    """

    named: Mapping[str, AddedToken]
    declared: tuple[NumberedToken, ...]
    extra: tuple[AddedToken, ...] | None
    extra_given: bool
    older: tuple[AddedToken, ...] | None

    def name(self, role: str) -> str:
        """The spelling of the token in `role`. Raises TokenizerError where the checkpoint has none."""
        if role not in self.named:
            raise TokenizerError(f"the tokenizer has no {role}: add it to tokenizer_config.json")
        return self.named[role].content

    def further(self, otherwise: Sequence[AddedToken] = ()) -> tuple[AddedToken, ...]:
        """The special tokens beyond the named ones; `otherwise`: the family's own, where the files give no list."""
        if self.extra_given:
            return self.extra or ()
        return tuple(otherwise)

    def numbered(
        self, vocabulary: Mapping[str, int], *, otherwise: Sequence[AddedToken] = ()
    ) -> tuple[NumberedToken, ...]:
        """Every token with its id, for the tokenizers that transformers implements in Python.

        The declared id, else the vocabulary's, else the next free one behind it. `otherwise` as in `further`. Raises
        TokenizerError for `single_word`, which is not implemented there.
        """
        further = self.further(self.older or otherwise)
        special = {token.content for token in (*self.named.values(), *further)}
        tokens = {
            n.token.content: replace(n, token=replace(n.token, special=n.token.content in special))
            for n in self.declared
        }
        free = len(vocabulary.keys() | tokens.keys())
        for token in (*self.named.values(), *further):
            if token.content and token.content not in tokens:
                plain = AddedToken(content=token.content, special=True)
                tokens[token.content] = NumberedToken(token=plain, id=vocabulary.get(token.content, free))
                free += token.content not in vocabulary
        single = [content for content, numbered in tokens.items() if numbered.token.single_word]
        if single:
            raise TokenizerError(f"added tokens with single_word are not implemented: {', '.join(map(repr, single))}")
        return tuple(tokens.values())

    def in_order(self, further: Sequence[AddedToken]) -> tuple[AddedToken, ...]:
        """Every token once, in the order in which transformers gives them to the `tokenizers` library."""
        named = {token.content for token in self.named.values()}
        declared = [n.token for n in sorted(self.declared, key=lambda n: n.id)]
        tokens: dict[str, AddedToken] = {}
        for token in (*declared, *self.named.values(), *further):
            if token.content:
                forced = replace(token, special=token.special or token.content in named)
                tokens.setdefault(token.content, forced)
        return tuple(tokens.values())


def read_special_tokens(
    folder: Path, config: Mapping[str, Any], defaults: Mapping[str, str | AddedToken]
) -> SpecialTokens:
    """The special tokens of the checkpoint in `folder`; `config` is tokenizer_config.json, `defaults` the family's own.

    A default that is an AddedToken lends its flags to a plain string that the files give in its place. Raises
    TokenizerError that names what is not a token.
    """
    values: dict[str, Any] = dict(config)
    if "additional_special_tokens" in values and not values.get("extra_special_tokens"):
        values["extra_special_tokens"] = values.pop("additional_special_tokens")
    declared: dict[str, NumberedToken] = {}
    if "added_tokens_decoder" in config:
        for index, token in _object(config["added_tokens_decoder"], "added_tokens_decoder").items():
            _declare(declared, token, int(index) if index.isdecimal() else index, "added_tokens_decoder")
    else:
        _read_older_files(folder, values, declared)
    extra = values.get("extra_special_tokens")
    roles = dict.fromkeys(_ROLES) | {role: None for role in values if role.endswith("_token")}
    named: dict[str, AddedToken] = {}
    for role in roles:
        token = _named(role, values, defaults)
        if token is not None:
            named[role] = declared[token.content].token if token.content in declared else token
    if isinstance(extra, Mapping):
        named |= {role: _token(token, role) for role, token in extra.items()}
        extra = None
    return SpecialTokens(
        named=named,
        declared=tuple(declared.values()),
        extra=None if extra is None else tuple(_token(token, "extra_special_tokens") for token in extra),
        extra_given="extra_special_tokens" in values,
        older=None
        if (older := values.get("additional_special_tokens")) is None
        else tuple(_token(token, "additional_special_tokens") for token in older),
    )


def _read_older_files(folder: Path, values: dict[str, Any], declared: dict[str, NumberedToken]) -> None:
    """Merge the files that checkpoints without `added_tokens_decoder` keep their special tokens in."""
    if (folder / "special_tokens_map.json").exists():
        for role, value in read_json_object(folder / "special_tokens_map.json").items():
            if role == "extra_special_tokens" and isinstance(value, Sequence):
                values[role] = [*(values.get(role) or ()), *value]
            else:
                values[role] = (
                    {**value, "special": True} if isinstance(value, Mapping) and "content" in value else value
                )
    if (folder / "added_tokens.json").exists():
        special = {_token(values[role], role).content for role in _ROLES if values.get(role)}
        special |= {_token(token, "extra_special_tokens").content for token in values.get("extra_special_tokens") or ()}
        for content, index in read_json_object(folder / "added_tokens.json").items():
            token = {"content": content, "special": content in special, "normalized": content not in special}
            _declare(declared, token, index, "added_tokens.json")
    if (folder / "tokenizer.json").exists():
        for token in read_json_object(folder / "tokenizer.json").get("added_tokens", []):
            _declare(declared, token, token.get("id"), "tokenizer.json")


def _declare(declared: dict[str, NumberedToken], token: object, index: object, where: str) -> None:
    read = _token(token, where)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise TokenizerError(
            f"{where}: the added token {read.content!r} has the id {index!r}, not an integer of at least 0"
        )
    declared[read.content] = NumberedToken(token=read, id=index)


def _named(role: str, values: Mapping[str, Any], defaults: Mapping[str, str | AddedToken]) -> AddedToken | None:
    """The token in `role`: the files', else the family's; None where there is none.

    A role beyond transformers' own (`image_token`) counts only when it is a token: `add_bos_token` is a switch.
    """
    value, default = values.get(role), defaults.get(role)
    if role not in _ROLES and not isinstance(value, str | Mapping):
        return None
    if value is None:
        value = None if role in values else default
    if value is None:
        return None
    if isinstance(value, str) and isinstance(default, AddedToken):
        return replace(default, content=value)
    return _token(value, role)


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TokenizerError(f"tokenizer_config.json: {name!r} is {value!r}, not an object")
    return value


def _token(token: object, name: str) -> AddedToken:
    """A token that is written as a string or as an object with `content`; a string is special."""
    if isinstance(token, AddedToken):
        return token
    if isinstance(token, str):
        return AddedToken(content=token, special=True)
    content = token.get("content") if isinstance(token, Mapping) else None
    if not isinstance(token, Mapping) or not isinstance(content, str):
        raise TokenizerError(f"tokenizer files: {name!r} holds {token!r}, which is not a token")
    normalized = token.get("normalized")
    return AddedToken(
        content=content,
        special=bool(token.get("special")),
        lstrip=bool(token.get("lstrip")),
        rstrip=bool(token.get("rstrip")),
        normalized=None if normalized is None else bool(normalized),
        single_word=bool(token.get("single_word")),
    )
