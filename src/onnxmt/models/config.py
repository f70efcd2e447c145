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

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def positive_int(self, key: str, default: int) -> int:
        """Return `key` as an integer of at least 1."""
        value = self._config.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnsupportedModelError(f"config.json: {key} is {value!r}, and must be a whole number of at least 1")
        return value

    def token_id(self, key: str, default: int) -> int:
        """Return `key` as a token id of at least 0."""
        value = self._config.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UnsupportedModelError(f"config.json: {key} is {value!r}, and must be a token id")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return `key` as a boolean."""
        value = self._config.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise UnsupportedModelError(f"config.json: {key} is {value!r}, and must be true or false")
        return value

    def text(self, key: str, default: str) -> str:
        """Return `key` as a string."""
        value = self._config.get(key)
        value = default if value is None else value
        if not isinstance(value, str):
            raise UnsupportedModelError(f"config.json: {key} is {value!r}, and must be a string")
        return value

    def refuse(self, key: str, *, because: str) -> None:
        """Raise UnsupportedModelError when the flag `key` is set."""
        if self._config.get(key):
            raise UnsupportedModelError(f"config.json sets {key}={self._config[key]!r}, {because}")


def stack(reader: ConfigReader, side: str, *, d_model: int, layers: int, heads: int, ffn_dim: int) -> StackConfig:
    """Read the `side` ("encoder" or "decoder") keys of a BART-like config; the numbers are the family's defaults."""
    count = reader.positive_int(f"{side}_attention_heads", heads)
    if d_model % count:
        raise UnsupportedModelError(
            f"config.json: d_model={d_model} cannot be divided among {side}_attention_heads={count}"
        )
    return StackConfig(
        layers=reader.positive_int(f"{side}_layers", layers),
        heads=count,
        head_dim=d_model // count,
        ffn_dim=reader.positive_int(f"{side}_ffn_dim", ffn_dim),
    )
