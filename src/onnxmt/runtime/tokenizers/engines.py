"""The two engines that turn text into ids and back, without languages: sentencepiece, and the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizers.added_tokens import AddedTokenSplitter, NumberedToken
from onnxmt.runtime.tokenizers.files import load_sentencepiece, read_vocabulary
from onnxmt.runtime.tokenizers.settings import SettingsReader
from onnxmt.runtime.tokenizers.writing import token_bytes

__all__ = ["Engine", "PieceEngine", "PieceSettings", "PipelineEngine", "unwritable_characters"]


class Engine(Protocol):
    """Text ↔ ids. No call changes it."""

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, special tokens only where they stand in it."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens skipped."""

    def id_of(self, token: str) -> int | None:
        """The id of a token, None if there is none."""

    def tokens(self) -> Mapping[str, int]:
        """The whole vocabulary; made anew at each call."""

    def unwritable(self, sample: str) -> str:
        """The characters of `sample` that no token can write."""

    def written_bytes(self) -> dict[int, bytes]:
        """What each token writes in UTF-8, special ones left out."""


def unwritable_characters(sample: str, pieces: Sequence[str]) -> str:
    """The characters of `sample` that occur in none of `pieces`."""
    wanted = set(sample) - {" "}
    for piece in pieces:
        wanted.difference_update(piece)
        if not wanted:
            return ""
    return "".join(character for character in dict.fromkeys(sample) if character in wanted)


class PipelineEngine:
    """A tokenizer of the `tokenizers` library.

    `with_post_processor`: the file itself says which special tokens stand around a text. The library does not lock or
    change anything in `encode` and `decode`; only its batch calls start threads, and they are not used.
    """

    def __init__(self, tokenizer: Any, *, with_post_processor: bool = False) -> None:
        self._tokenizer = tokenizer
        self._with_post_processor = with_post_processor

    def encode(self, text: str) -> list[int]:
        """Ids of `text`."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=self._with_post_processor).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`; ids behind the vocabulary (T5 pads its embedding) are skipped, as in transformers."""
        text: str = self._tokenizer.decode([int(index) for index in ids], skip_special_tokens=True)
        return text

    def id_of(self, token: str) -> int | None:
        """The id of a token, None if there is none."""
        index: int | None = self._tokenizer.token_to_id(token)
        return index

    def tokens(self) -> Mapping[str, int]:
        """The whole vocabulary with its added tokens."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        return vocabulary

    def unwritable(self, sample: str) -> str:
        """The characters of `sample` that no token can write; bytes write all."""
        if "Byte" in repr(self._tokenizer.decoder):  # ByteLevel, ByteFallback
            return ""
        return unwritable_characters(sample, list(self.tokens()))

    def written_bytes(self) -> dict[int, bytes]:
        """What each token writes in UTF-8, special ones left out."""
        special = [index for index, token in self._tokenizer.get_added_tokens_decoder().items() if token.special]
        byte_level = "ByteLevel" in repr(self._tokenizer.decoder)
        return token_bytes(self.tokens(), skipped=special, byte_level=byte_level)


@dataclass(frozen=True, kw_only=True)
class PieceSettings:
    """`added` tokens with their ids; `unk`: the spelling of the unknown token; `vocabulary_file`: the ids of the pieces
    (None: sentencepiece's own ids); `model_file`: the SentencePiece model."""

    model_file: str
    vocabulary_file: str | None
    unk: str
    added: tuple[NumberedToken, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "model_file": self.model_file,
            "vocabulary_file": self.vocabulary_file,
            "unk": self.unk,
            "added": [token.to_dict() for token in self.added],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str) -> PieceSettings:
        """Read the JSON form; raises TokenizerError that names `where`."""
        reader = SettingsReader(data, where=where)
        settings = cls(
            model_file=reader.text("model_file"),
            vocabulary_file=reader.optional_text("vocabulary_file"),
            unk=reader.text("unk"),
            added=tuple(
                NumberedToken.from_dict(token, where=f"{where}, added token") for token in reader.objects("added")
            ),
        )
        reader.finish()
        return settings


class PieceEngine:
    """A SentencePiece model, with the ids of a vocab.json or its own, and added tokens cut out before it."""

    def __init__(self, folder: Path, settings: PieceSettings) -> None:
        self._model = load_sentencepiece(folder / settings.model_file)
        if settings.vocabulary_file is None:
            size = self._model.get_piece_size()
            self._ids = {self._model.id_to_piece(index): index for index in range(size)}
        else:
            self._ids = read_vocabulary(folder / settings.vocabulary_file, required=(settings.unk,))
        self.base_size = len(self._ids)
        if settings.unk not in self._ids:
            raise TokenizerError(f"tokenizer file {folder / settings.model_file} lacks the token {settings.unk!r}")
        self._unk_name, self._unk = settings.unk, self._ids[settings.unk]
        self._splitter = AddedTokenSplitter(settings.added)
        self._added = {numbered.token.content: numbered.id for numbered in settings.added}
        self._pieces = {index: piece for piece, index in self._ids.items()} | {
            numbered.id: numbered.token.content for numbered in settings.added
        }
        self._skipped = frozenset(numbered.id for numbered in settings.added if numbered.token.special)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`."""
        ids: list[int] = []
        for part in self._splitter.split(text):
            if isinstance(part, NumberedToken):
                ids.append(part.id)
            else:
                ids += [self._ids.get(piece, self._unk) for piece in self._model.encode(part, out_type=str)]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`.

        An id without a token (M2M100 has eight made-up rows) is the unknown token's spelling, as in transformers: it
        shows that the model wrote nonsense.
        """
        text, run = "", list[str]()
        for index in ids:
            if int(index) in self._skipped:
                continue
            piece = self._pieces.get(int(index))
            if piece is None:
                text += self._joined(run) + self._unk_name
                run = []
            else:
                run.append(piece)
        return (text + self._joined(run)).strip()

    def _joined(self, pieces: list[str]) -> str:
        joined: str = self._model.decode(pieces) if pieces else ""
        return joined

    def id_of(self, token: str) -> int | None:
        """The id of a token, None if there is none."""
        return self._added.get(token, self._ids.get(token))

    def tokens(self) -> Mapping[str, int]:
        """The whole vocabulary with its added tokens."""
        return self._ids | self._added

    def unwritable(self, sample: str) -> str:
        """The characters of `sample` that no token can write; bytes write all."""
        return "" if "<0xE4>" in self._ids else unwritable_characters(sample, list(self._ids))

    def written_bytes(self) -> dict[int, bytes]:
        """What each token writes in UTF-8, special ones left out."""
        return token_bytes(self.tokens(), skipped=[*self._skipped, self._unk])
