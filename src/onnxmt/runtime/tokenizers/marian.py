"""The tokenizer of opus-mt and other Marian models: two SentencePiece models and one or two `vocab.json` files.

Equal to MarianTokenizer of transformers 5.24 in ids and text, except where that one hides a mistake: an unknown leading
language code is an error (there: the unknown token), an id outside the vocabulary is an error (there: some unrelated
SentencePiece piece), and Chinese is always joined by `target.spm` (there: `source.spm` unless the vocabularies are
separate; the two differ only for pieces that one model calls a control or byte piece).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmt.errors import TokenizerError, UnknownLanguageError
from onnxmt.runtime.languages import LanguageChoice, describe_nearest, language_name
from onnxmt.runtime.tokenizer import Direction, LanguageCodes, TokenizerSpec, VocabularyLimits
from onnxmt.runtime.tokenizers.added_tokens import AddedTokenSplitter, NumberedToken
from onnxmt.runtime.tokenizers.checkpoint_config import (
    model_max_length,
    read_tokenizer_config,
    refuse_unimplemented,
    text_or_none,
)
from onnxmt.runtime.tokenizers.decoding import clean_up_spaces
from onnxmt.runtime.tokenizers.engines import unwritable_characters
from onnxmt.runtime.tokenizers.files import (
    load_sentencepiece,
    read_vocabulary,
    require_unicode,
)
from onnxmt.runtime.tokenizers.piece_table import PieceTable
from onnxmt.runtime.tokenizers.settings import SettingsReader
from onnxmt.runtime.tokenizers.special_tokens import read_special_tokens
from onnxmt.runtime.tokenizers.spm_model import read_sentencepiece_model
from onnxmt.runtime.tokenizers.writing import token_bytes

__all__ = ["MarianSettings", "MarianTokenizer", "marian_spec"]

_KIND = "marian"
_SOURCE_MODEL, _TARGET_MODEL = "source.spm", "target.spm"
_VOCABULARY, _TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
_DEFAULT_NAMES = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
# What a language code in front of a text looks like; anything else between >> and << is text.
_CODE = re.compile(r">>([A-Za-z][A-Za-z0-9_@-]{0,30})<<")


@dataclass(frozen=True, kw_only=True)
class MarianSettings:
    """What loading needs beside the files.

    `eos`, `unk`: the tokens' spelling; `added`: tokens cut out of the text, with their source-side ids; `limit`: the
    checkpoint's model_max_length; languages as the checkpoint names them.
    """

    eos: str
    unk: str
    added: tuple[NumberedToken, ...]
    separate_vocabularies: bool
    clean_up_spaces: bool
    limit: int | None
    source_language: str | None
    target_language: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, for a TokenizerSpec."""
        return {
            "eos": self.eos,
            "unk": self.unk,
            "added": [token.to_dict() for token in self.added],
            "separate_vocabularies": self.separate_vocabularies,
            "clean_up_spaces": self.clean_up_spaces,
            "limit": self.limit,
            "source_language": self.source_language,
            "target_language": self.target_language,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MarianSettings:
        """Read the JSON form; raises TokenizerError for anything missing, unknown or mistyped."""
        reader = SettingsReader(data, where="tokenizer spec (marian)")
        settings = cls(
            eos=reader.text("eos"),
            unk=reader.text("unk"),
            added=tuple(
                NumberedToken.from_dict(token, where="tokenizer spec (marian), added token")
                for token in reader.objects("added")
            ),
            separate_vocabularies=reader.flag("separate_vocabularies"),
            clean_up_spaces=reader.flag("clean_up_spaces"),
            limit=reader.optional_count("limit"),
            source_language=reader.optional_text("source_language"),
            target_language=reader.optional_text("target_language"),
        )
        reader.finish()
        return settings


def marian_spec(folder: Path) -> TokenizerSpec:
    """Describe the Marian tokenizer in a checkpoint folder, and check its files.

    Raises TokenizerError that names a missing or wrong file, or a setting that is not implemented.
    """
    config = read_tokenizer_config(folder)
    refuse_unimplemented(config, folder)
    name = config.get("tokenizer_class")
    if name is not None and str(name).removesuffix("Fast") != "MarianTokenizer":
        raise TokenizerError(f"{folder}: tokenizer_class {name!r} is not implemented for Marian, only MarianTokenizer")
    tokens = read_special_tokens(folder, config, _DEFAULT_NAMES)
    separate = bool(config.get("separate_vocabs"))
    files = (_SOURCE_MODEL, _TARGET_MODEL, _VOCABULARY, *((_TARGET_VOCABULARY,) if separate else ()))
    missing = [name for name in files if not (folder / name).exists()]
    if missing:
        raise TokenizerError(f"{folder} lacks the tokenizer file {', '.join(missing)}: a Marian model needs it")
    for name in (_SOURCE_MODEL, _TARGET_MODEL):
        read_sentencepiece_model(folder / name)
    eos, unk = tokens.name("eos_token"), tokens.name("unk_token")
    vocabulary = read_vocabulary(folder / _VOCABULARY, required=(eos, unk))
    settings = MarianSettings(
        eos=eos,
        unk=unk,
        added=tokens.numbered(vocabulary),
        separate_vocabularies=separate,
        clean_up_spaces=bool(config.get("clean_up_tokenization_spaces")),
        limit=model_max_length(config, folder),
        source_language=text_or_none(config.get("source_lang")),
        target_language=text_or_none(config.get("target_lang")),
    )
    spec = TokenizerSpec(kind=_KIND, files=files, settings=settings.to_dict())
    MarianTokenizer.load(folder, spec)  # what cannot be loaded later is refused now
    return spec


class MarianTokenizer:
    """A Marian tokenizer, ready for use; it never changes, so threads and forked processes may share it."""

    def __init__(
        self,
        settings: MarianSettings,
        *,
        source_model: Any,
        target_model: Any,
        vocabulary: Mapping[str, int],
        target_vocabulary: Mapping[str, int],
    ) -> None:
        self._settings = settings
        self._source_model, self._target_model = source_model, target_model
        self._vocabulary = PieceTable(vocabulary)
        self._eos = next((n.id for n in settings.added if n.token.content == settings.eos), vocabulary[settings.eos])
        self._unk = vocabulary[settings.unk]
        self._splitter = AddedTokenSplitter(settings.added)
        self._codes = {match[1]: index for token, index in vocabulary.items() if (match := _CODE.fullmatch(token))}
        self._choice = LanguageChoice(self._codes)
        self._own_source = LanguageChoice([code] if (code := settings.source_language) else [])
        self._own_target = LanguageChoice([code] if (code := settings.target_language) else [])
        separate = settings.separate_vocabularies
        self._target_vocabulary = PieceTable(target_vocabulary) if separate else self._vocabulary
        self._added_pieces = {} if separate else {n.id: n.token.content for n in settings.added}
        self._skipped = self._skipped_ids()

    @classmethod
    def load(cls, folder: Path, spec: TokenizerSpec) -> MarianTokenizer:
        """Load from the files that `spec` names; raises TokenizerError that names a missing or wrong one."""
        settings = MarianSettings.from_dict(spec.settings)
        required = (settings.eos, settings.unk)
        vocabulary = read_vocabulary(folder / _VOCABULARY, required=required)
        return cls(
            settings,
            source_model=load_sentencepiece(folder / _SOURCE_MODEL),
            target_model=load_sentencepiece(folder / _TARGET_MODEL),
            vocabulary=vocabulary,
            target_vocabulary=read_vocabulary(folder / _TARGET_VOCABULARY, required=required)
            if settings.separate_vocabularies
            else vocabulary,
        )

    def _skipped_ids(self) -> frozenset[int]:
        """The ids that decoding skips, on the target side."""
        special = [n for n in self._settings.added if n.token.special]
        if self._settings.separate_vocabularies:  # each side has its own ids for the special tokens
            found = (self._target_vocabulary.id_of(n.token.content) for n in special)
            return frozenset(index for index in found if index is not None)
        return frozenset(n.id for n in special)

    def _piece(self, index: int) -> str | None:
        """The target side's piece of an id."""
        return self._added_pieces.get(index) or self._target_vocabulary.piece_of(index)

    @property
    def _largest_target(self) -> int:
        return max(self._target_vocabulary.largest, *self._added_pieces, -1)

    @property
    def limit(self) -> int | None:
        """The checkpoint's model_max_length, in tokens; None where it sets none."""
        return self._settings.limit

    @property
    def vocabulary_limits(self) -> VocabularyLimits:
        """The largest id of the source vocabulary with its added tokens, and of the target vocabulary."""
        added = (token.id for token in self._settings.added)
        return VocabularyLimits(source=max(self._vocabulary.largest, *added), target=self._largest_target)

    def languages(self) -> LanguageCodes:
        """Target codes are the vocabulary's `>>code<<` tokens, else the one language that the checkpoint names."""
        return LanguageCodes(source=self._own_source.codes, target=self._choice.codes or self._own_target.codes)

    @property
    def needs_target(self) -> bool:
        """False: a model of one pair needs none, and one of several may be told in the text (`>>code<<`)."""
        return False

    def resolve(self, *, source: str | None = None, target: str | None = None) -> Direction:
        """The model's own codes. Raises as `encode` does."""
        self._check_source(source)
        own = self._own_source.codes
        code = self._target_code(target)
        return Direction(
            source=own[0] if source is not None and own and _is_one_language(own[0]) else source,
            target=None
            if target is None
            else self._own_target.resolve(target, role="target")
            if code is None
            else self._choice.resolve(target, role="target"),
        )

    def defaults(self) -> Direction:
        """The pair that the checkpoint names."""
        return Direction(source=self._settings.source_language, target=self._settings.target_language)

    def written(self, *, source: str | None = None, target: str | None = None) -> str:
        """`>>code<<` where the target is one of several. Raises as `encode` does."""
        self._check_source(source)
        code = self._target_code(target)
        return "" if target is None or code is None else f">>{self._choice.resolve(target, role='target')}<<"

    def language_of(self, token: int) -> str | None:  # noqa: ARG002 - what every tokenizer promises
        """None: there are no language tokens on the decoder's side."""
        return None

    def forced_bos_token_id(self, target: str | None = None) -> int | None:
        """None: a Marian model is told its target on the source side. Raises as `encode` does."""
        self._target_code(target)
        return None

    def encode(self, text: str, *, source: str | None = None, target: str | None = None) -> list[int]:
        """Ids of `text`, one `</s>` at the end, never truncated.

        Without `target`, a `>>code<<` at the start of the text chooses the language, as in transformers. With it, the
        code of that language is put in front and the text is only text. Raises UnknownLanguageError for a language or
        a leading code that the model does not have, TokenizerError for text that is not valid Unicode.
        """
        require_unicode(text)
        self._check_source(source)
        code = self._target_code(target)
        ids = [] if code is None else [code]
        at_start = target is not None  # the first stretch of text may hold no code of its own then
        for part in self._splitter.split(text):
            if isinstance(part, NumberedToken):
                ids.append(part.id)
            else:
                ids += self._encode_stretch(part, plain=at_start)
            at_start = False
        ids.append(self._eos)
        return ids

    def target_ids(self, text: str) -> list[int]:
        """Ids of target.spm's pieces of `text`, `<unk>` where the target vocabulary lacks one; no special tokens.

        Raises TokenizerError for text that is not valid Unicode.
        """
        require_unicode(text)
        found = [self._target_vocabulary.id_of(piece) for piece in self._target_model.encode(text, out_type=str)]
        return [self._unk if index is None else index for index in found]

    def _encode_stretch(self, text: str, *, plain: bool) -> list[int]:
        """Ids of text without added tokens. transformers looks for a code at the start of every such stretch."""
        ids = []
        if not plain and text.startswith(">>") and (end := text.find("<<")) != -1:
            ids.append(self._leading_code(text[: end + 2]))
            text = text[end + 2 :]
        found = [self._vocabulary.id_of(piece) for piece in self._source_model.encode(text, out_type=str)]
        ids += [self._unk if index is None else index for index in found]
        return ids

    def _leading_code(self, token: str) -> int:
        """The id of a `>>…<<` in front of a text. What does not look like a code is unknown, as in transformers."""
        if (index := self._vocabulary.id_of(token)) is not None:
            return index
        match = _CODE.fullmatch(token)
        if match is None:
            return self._unk
        known = describe_nearest(match[1], self._codes) if self._codes else "it has none"
        raise UnknownLanguageError(
            f"the text begins with the language code {token!r}, which this model does not have ({known}); "
            "change or remove it, or put a space in front of it to have it translated as text"
        )

    def _target_code(self, target: str | None) -> int | None:
        """The id that tells the model its target; None where there is nothing to tell. The model's only language needs
        no code."""
        if target is None:
            return None
        if self._codes and (self._choice.means(target) or not self._own_target.means(target)):
            return self._codes[self._choice.resolve(target, role="target")]
        self._own_target.resolve(target, role="target")
        return None

    def _check_source(self, source: str | None) -> None:
        """Refuse a source language that is not the checkpoint's; a group such as `mul` or `roa` says nothing."""
        own = self._settings.source_language
        if source is None or own is None or not _is_one_language(own):
            return
        self._own_source.resolve(source, role="source")

    def decode(self, ids: Sequence[int]) -> str:
        """Text of target-side ids, special tokens skipped. Raises TokenizerError for an id without a token."""
        kept = [int(index) for index in ids if int(index) not in self._skipped]
        pieces = [self._piece(index) for index in kept]
        missing = sorted({index for index, piece in zip(kept, pieces, strict=True) if piece is None})
        if missing:
            raise TokenizerError(
                f"the target vocabulary has no token for id {missing[0]} (its ids end at {self._largest_target}): "
                "the model and the tokenizer do not belong together"
            )
        text = self._target_model.decode(pieces) if kept else ""
        # A piece that target.spm does not know comes back as it is, word mark included.
        text = text.replace("▁", " ").strip()
        return clean_up_spaces(text) if self._settings.clean_up_spaces else text

    def source_ids(self, pieces: Sequence[str]) -> list[int]:
        """The id of each of source.spm's pieces, `<unk>` where the vocabulary lacks it."""
        found = [self._vocabulary.id_of(piece) for piece in pieces]
        return [self._unk if index is None else index for index in found]

    def target_pieces(self) -> list[str]:
        """The piece of each id up to the largest, "" for what decoding skips."""
        kept = (None if index in self._skipped else self._piece(index) for index in range(self._largest_target + 1))
        return [piece or "" for piece in kept]

    def target_tokens(self) -> frozenset[int] | str:
        """The ids of the pieces of target.spm, of the added tokens and of `<unk>`; why it is every id, otherwise."""
        if self._settings.separate_vocabularies:
            return "it has a vocabulary of its own for the target side, so that its head holds nothing else"
        model = self._target_model
        found = (self._vocabulary.id_of(model.id_to_piece(index)) for index in range(model.get_piece_size()))
        return frozenset(
            {index for index in found if index is not None}
            | {self._eos, self._unk}
            | {token.id for token in self._settings.added}
        )

    def unwritable(self, sample: str) -> str:
        """The characters of `sample` that no target-side token can write."""
        added = list(self._added_pieces.values())
        if "<0xE4>" in self._target_vocabulary or "<0xE4>" in added:
            return ""
        return unwritable_characters(sample, [*self._target_vocabulary, *added])

    def written_bytes(self) -> Mapping[int, bytes]:
        """What each target-side token writes in UTF-8; none for special tokens and language codes."""
        tokens = self._target_vocabulary.ids() | {piece: index for index, piece in self._added_pieces.items()}
        return token_bytes(
            {piece: index for piece, index in tokens.items() if _CODE.fullmatch(piece) is None}, skipped=self._skipped
        )


def _is_one_language(code: str) -> bool:
    """Whether the table knows this code as a language; a family of languages (`mul`, `roa`) is not one."""
    return language_name(code) is not None
