"""Reading tokenizer files: JSON, vocabularies and SentencePiece models, each fault named with its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxmt.errors import TokenizerError

if TYPE_CHECKING:
    import sentencepiece

__all__ = ["load_sentencepiece", "read_bytes", "read_json_object", "read_vocabulary", "require_unicode"]


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises TokenizerError when it is missing, unreadable, not JSON or not an object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TokenizerError(f"tokenizer file {path.name} is missing in {path.parent}") from error
    except OSError as error:
        raise TokenizerError(f"tokenizer file {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # json.JSONDecodeError and UnicodeDecodeError are both ValueErrors
        raise TokenizerError(f"tokenizer file {path} is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise TokenizerError(f"tokenizer file {path} holds a {type(data).__name__}, not a JSON object")
    return data


def read_vocabulary(path: Path, *, required: tuple[str, ...]) -> dict[str, int]:
    """Token → id from a `vocab.json`. Every id is a non-negative integer, used once; `required` tokens are present."""
    vocabulary = read_json_object(path)
    wrong = [token for token, index in vocabulary.items() if type(index) is not int or index < 0]
    if wrong:
        shown = ", ".join(f"{token!r}: {vocabulary[token]!r}" for token in wrong[:3])
        raise TokenizerError(f"tokenizer file {path}: {len(wrong)} ids are not non-negative integers, such as {shown}")
    owners: dict[int, str] = {}
    doubled = [(token, index) for token, index in vocabulary.items() if owners.setdefault(index, token) != token]
    if doubled:
        shown = ", ".join(f"{index} ({owners[index]!r} and {token!r})" for token, index in doubled[:3])
        raise TokenizerError(f"tokenizer file {path}: {len(doubled)} ids are used twice, such as {shown}")
    missing = [token for token in required if token not in vocabulary]
    if missing:
        raise TokenizerError(f"tokenizer file {path} lacks the token {' and '.join(map(repr, missing))}")
    return vocabulary


def load_sentencepiece(path: Path) -> sentencepiece.SentencePieceProcessor:
    """The SentencePiece model in `path`, sampling off. Raises TokenizerError when it is missing or not such a model.

    The processor is safe to share between threads (its C++ methods are const) and pickles as its serialized model.
    """
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(read_bytes(path))
    except RuntimeError as error:
        raise TokenizerError(f"tokenizer file {path} is not a SentencePiece model: {error}") from error
    return processor


def read_bytes(path: Path) -> bytes:
    """The content of `path`; raises TokenizerError when it is missing or unreadable."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TokenizerError(f"tokenizer file {path.name} is missing in {path.parent}") from error
    except OSError as error:
        raise TokenizerError(f"tokenizer file {path} cannot be read: {error.strerror or error}") from error


def require_unicode(text: str) -> None:
    """Raise TokenizerError when `text` has no UTF-8 form: it holds half of a surrogate pair (JSON "\\ud83d" alone)."""
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise TokenizerError(
            f"the text is not valid Unicode: character {error.start} is the lone surrogate U+{code:04X}"
        ) from error
