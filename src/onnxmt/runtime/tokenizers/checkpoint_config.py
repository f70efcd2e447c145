"""What the tokenizer families read alike out of a checkpoint's tokenizer_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizers.files import read_json_object

__all__ = ["model_max_length", "read_tokenizer_config", "refuse_unimplemented", "text_or_none"]

_FILE = "tokenizer_config.json"
# transformers' mark for "no limit" is int(1e30); anything near it is no limit either.
_NO_LIMIT = 10**12
# Settings of SentencePieceProcessor that change nothing while sampling is off.
_SAMPLING_DETAILS = frozenset({"nbest_size", "alpha", "num_threads"})


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, empty where the checkpoint has none."""
    path = folder / _FILE
    return read_json_object(path) if path.exists() else {}


def refuse_unimplemented(config: Mapping[str, Any], folder: Path) -> None:
    """Raise TokenizerError that lists every setting that would change ids and is not implemented."""
    problems = ["split_special_tokens"] if config.get("split_special_tokens") else []
    processor = config.get("sp_model_kwargs") or {}
    problems += [
        f"sp_model_kwargs.{key} = {value!r}"
        for key, value in (processor.items() if isinstance(processor, Mapping) else [("", processor)])
        if value and key not in _SAMPLING_DETAILS
    ]
    if problems:
        raise TokenizerError(f"{folder / _FILE} asks for what is not implemented: {', '.join(problems)}")


def model_max_length(config: Mapping[str, Any], folder: Path) -> int | None:
    """`model_max_length` in tokens; None where it is absent or stands for no limit."""
    value = config.get("model_max_length")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        raise TokenizerError(f"{folder / _FILE}: model_max_length is {value!r}, not a positive number of tokens")
    return None if value >= _NO_LIMIT else int(value)


def text_or_none(value: object) -> str | None:
    """A string that says something, else None."""
    return value if isinstance(value, str) and value else None
