"""Reading typed settings out of config.json: one field at a time, each refusal naming the key and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxmt.errors import UnsupportedModelError


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """Size of one stack (encoder or decoder)."""

    layers: int
    heads: int
    head_dim: int
    ffn_dim: int


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """What the runtime must know of a model's size; positions are None where the model has no position table."""

    d_model: int
    encoder: StackConfig
    decoder: StackConfig
    source_vocab_size: int
    target_vocab_size: int
    max_source_positions: int | None
    max_target_positions: int | None


class ConfigReader:
    """Typed access to a config.json mapping; a missing key takes the default that transformers gives it."""

    def __init__(self, config: Mapping[str, Any], *, aliases: Mapping[str, str] | None = None) -> None:
        """`aliases` are second names of keys: {key: alias}. An alias wins, as in transformers 5 (`attribute_map`)."""
        self._config, self._aliases = config, aliases or {}

    def _value(self, key: str, default: Any) -> Any:
        for name in (self._aliases.get(key), key):
            value = None if name is None else self._config.get(name)
            if value is not None:
                return value
        return default

    def positive_int(self, key: str, default: int) -> int:
        """Return `key` as an integer of at least 1."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnsupportedModelError(f"config.json: {key} is {value!r}, and must be a whole number of at least 1")
        return value

    def positive_number(self, key: str, default: float) -> float:
        """Return `key` as a number above 0."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise UnsupportedModelError(f"config.json: {key} is {value!r}, and must be a number above 0")
        return float(value)

    def token_id(self, key: str, default: int) -> int:
        """Return `key` as a token id of at least 0."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UnsupportedModelError(f"config.json: {key} is {value!r}, and must be a token id")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return `key` as a boolean."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise UnsupportedModelError(f"config.json: {key} is {value!r}, and must be true or false")
        return value

    def text(self, key: str, default: str) -> str:
        """Return `key` as a string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise UnsupportedModelError(f"config.json: {key} is {value!r}, and must be a string")
        return value

    def refuse(self, key: str, *, because: str) -> None:
        """Raise UnsupportedModelError when the flag `key` is set."""
        if self._config.get(key):
            raise UnsupportedModelError(f"config.json sets {key}={self._config[key]!r}, {because}")
