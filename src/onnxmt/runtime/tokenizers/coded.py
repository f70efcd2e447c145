"""Tokenizers of the families whose languages are tokens: M2M100, small100, NLLB, mBART and mBART-50.

What differs between them is the table LAYOUTS: where the language tokens stand, and whether the decoder is forced to
begin with the target. Source: the families' tokenizers in transformers 5.24; small100: its authors' tokenizer
(alirezamsh/small100), which puts the target in front of the source text and forces nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from onnxmt.errors import TokenizerError, UnknownLanguageError
from onnxmt.runtime.languages import LanguageChoice, describe_nearest
from onnxmt.runtime.tokenizer import Direction, LanguageCodes, TokenizerSpec, VocabularyLimits
from onnxmt.runtime.tokenizers import language_codes
from onnxmt.runtime.tokenizers.decoding import clean_up_spaces
from onnxmt.runtime.tokenizers.engines import Engine, PieceEngine, PieceSettings, PipelineEngine
from onnxmt.runtime.tokenizers.files import require_unicode
from onnxmt.runtime.tokenizers.pipeline_settings import PipelineSettings
from onnxmt.runtime.tokenizers.settings import SettingsReader

__all__ = ["LAYOUTS", "CodedSettings", "CodedTokenizer", "Layout"]

Place = Literal["source", "target", "eos"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What stands before and behind the text, and whether the first generated token is the target's.

    `default_source`: the source language that transformers assumes; None where no source is told to the model.
    """

    before: tuple[Place, ...]
    behind: tuple[Place, ...]
    forces_target: bool
    default_source: str | None


LAYOUTS = {
    "m2m_100": Layout(before=("source",), behind=("eos",), forces_target=True, default_source="en"),
    "small100": Layout(before=("target",), behind=("eos",), forces_target=False, default_source=None),
    "nllb": Layout(before=("source",), behind=("eos",), forces_target=True, default_source="eng_Latn"),
    "nllb_legacy": Layout(before=(), behind=("eos", "source"), forces_target=True, default_source="eng_Latn"),
    "mbart": Layout(before=(), behind=("eos", "source"), forces_target=True, default_source="en_XX"),
    "mbart50": Layout(before=("source",), behind=("eos",), forces_target=True, default_source="en_XX"),
}


@dataclass(frozen=True, kw_only=True)
class CodedSettings:
    """What loading needs beside the files; one of `pieces` and `pipeline` is set.

    `codes`: the languages in id order; `language_codes`: for M2M100, whose list fixes the ids behind the vocabulary;
    `source_language`, `target_language`: the checkpoint's own defaults.
    """

    layout: str
    eos: str
    codes: tuple[str, ...]
    source_language: str | None
    target_language: str | None
    limit: int | None
    clean_up_spaces: bool
    pieces: PieceSettings | None = None
    pipeline: PipelineSettings | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, for a TokenizerSpec."""
        engine = {"pieces": self.pieces.to_dict()} if self.pieces else {}
        engine |= {"pipeline": self.pipeline.to_dict()} if self.pipeline else {}
        return {
            "layout": self.layout,
            "eos": self.eos,
            "codes": list(self.codes),
            "source_language": self.source_language,
            "target_language": self.target_language,
            "limit": self.limit,
            "clean_up_spaces": self.clean_up_spaces,
            **engine,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CodedSettings:
        """Read the JSON form; raises TokenizerError for anything missing, unknown or mistyped."""
        where = "tokenizer spec"
        reader = SettingsReader(data, where=where)
        pieces = PieceSettings.from_dict(reader.mapping("pieces"), where=where) if "pieces" in data else None
        pipeline = PipelineSettings.from_dict(reader.mapping("pipeline"), where=where) if "pipeline" in data else None
        settings = cls(
            layout=reader.text("layout"),
            eos=reader.text("eos"),
            codes=reader.texts("codes"),
            source_language=reader.optional_text("source_language"),
            target_language=reader.optional_text("target_language"),
            limit=reader.optional_count("limit"),
            clean_up_spaces=reader.flag("clean_up_spaces"),
            pieces=pieces,
            pipeline=pipeline,
        )
        reader.finish()
        if settings.layout not in LAYOUTS:
            raise TokenizerError(f"{where}: layout {settings.layout!r} is unknown; known: {', '.join(LAYOUTS)}")
        if (pieces is None) == (pipeline is None):
            raise TokenizerError(f"{where}: it needs one of 'pieces' and 'pipeline'")
        return settings


class CodedTokenizer:
    """A tokenizer with language tokens, ready for use; it never changes: threads and forked processes may share it."""

    def __init__(self, settings: CodedSettings, engine: Engine, *, language_ids: Mapping[str, int]) -> None:
        self._settings, self._engine = settings, engine
        self._layout = LAYOUTS[settings.layout]
        self._language_ids = dict(language_ids)
        self._choice = LanguageChoice(self._language_ids)
        self._languages_by_id = {index: code for code, index in language_ids.items()}
        if not language_ids:
            raise TokenizerError("the tokenizer's vocabulary has none of its family's language tokens")
        eos = engine.id_of(settings.eos)
        if eos is None:
            raise TokenizerError(f"the tokenizer's vocabulary lacks its end token {settings.eos!r}")
        self._eos = eos

    @classmethod
    def load(cls, folder: Path, spec: TokenizerSpec) -> CodedTokenizer:
        """Load from the files that `spec` names; raises TokenizerError that names a missing or wrong one."""
        settings = CodedSettings.from_dict(spec.settings)
        if settings.pieces is not None:  # M2M100: the languages follow the vocabulary, in the order of the list
            pieces = PieceEngine(folder, settings.pieces)
            behind = {code: pieces.base_size + index for index, code in enumerate(settings.codes)}
            return cls(settings, pieces, language_ids=behind)
        assert settings.pipeline is not None  # CodedSettings.from_dict has checked it
        from onnxmt.runtime.tokenizers.recipes import build_pipeline  # loads the tokenizers library

        pipeline = PipelineEngine(build_pipeline(folder, spec.files, settings.pipeline))
        found = {code: pipeline.id_of(code) for code in settings.codes}
        missing = [code for code, index in found.items() if index is None]
        if missing:
            raise TokenizerError(f"{folder}: the vocabulary lacks the language {', '.join(missing[:5])}")
        return cls(settings, pipeline, language_ids={code: index for code, index in found.items() if index is not None})

    @property
    def limit(self) -> int | None:
        """The checkpoint's model_max_length, in tokens; None where it sets none."""
        return self._settings.limit

    @property
    def vocabulary_limits(self) -> VocabularyLimits:
        """The largest id, the same on both sides."""
        largest = max(*self._engine.tokens().values(), *self._language_ids.values())
        return VocabularyLimits(source=largest, target=largest)

    def languages(self) -> LanguageCodes:
        """Every language of the family, in both roles."""
        return LanguageCodes(source=self._choice.codes, target=self._choice.codes)

    def encode(self, text: str, *, source: str | None = None, target: str | None = None) -> list[int]:
        """Ids of `text` with the language tokens in their places and one end token, never truncated.

        `source` None is the checkpoint's, else English, as in transformers. `target` is checked even where the family
        tells it to the decoder alone. Raises UnknownLanguageError, and TokenizerError for text that is not Unicode.
        """
        require_unicode(text)
        ids: dict[Place, int | None] = {
            "source": self._source_id(source),
            "target": self._target_id(target),
            "eos": self._eos,
        }
        before = [self._placed(place, ids) for place in self._layout.before]
        behind = [self._placed(place, ids) for place in self._layout.behind]
        return [*before, *self._engine.encode(text), *behind]

    @property
    def needs_target(self) -> bool:
        """True: by a first token, or (small100) in front of the source."""
        return True

    def resolve(self, *, source: str | None = None, target: str | None = None) -> Direction:
        """The model's own codes. Raises UnknownLanguageError, which names the nearest."""
        return Direction(
            source=None if source is None else self._choice.resolve(source, role="source"),
            target=None if target is None else self._choice.resolve(target, role="target"),
        )

    def defaults(self) -> Direction:
        """The tokenizer's own settings, else the source language that transformers assumes where the model has it."""
        source = self._settings.source_language or self._layout.default_source
        target = self._settings.target_language
        return Direction(
            source=self._choice.resolve(source, role="source") if source and self._choice.means(source) else None,
            target=self._choice.resolve(target, role="target") if target and self._choice.means(target) else None,
        )

    def written(self, *, source: str | None = None, target: str | None = None) -> str:
        """Nothing: the languages are told by tokens."""
        self.resolve(source=source, target=target)
        return ""

    def language_of(self, token: int) -> str | None:
        """The language whose token this id is; None for any other token."""
        return self._languages_by_id.get(token)

    def _placed(self, place: Place, ids: Mapping[Place, int | None]) -> int:
        index = ids[place]
        if index is None:
            raise UnknownLanguageError(
                f"this model must be told its {place} language and has no default: "
                f"{describe_nearest('en', self._language_ids)}"
            )
        return index

    def _source_id(self, source: str | None) -> int | None:
        if self._layout.default_source is None:
            if source is not None:
                self._choice.resolve(source, role="source")
            return None
        wanted = source or self._settings.source_language or self._layout.default_source
        return self._language_ids[self._choice.resolve(wanted, role="source")]

    def _target_id(self, target: str | None) -> int | None:
        told_here = "target" in (*self._layout.before, *self._layout.behind)
        wanted = target or (self._settings.target_language if told_here else None)
        if wanted is None:
            return None
        return self._language_ids[self._choice.resolve(wanted, role="target")]

    def forced_bos_token_id(self, target: str | None = None) -> int | None:
        """The target's token, which the decoder must generate first; None without `target` (then the checkpoint's
        generation settings decide), and for small100. Raises UnknownLanguageError."""
        if target is None:
            return None
        index = self._target_id(target)
        return index if self._layout.forces_target else None

    def target_ids(self, text: str) -> list[int]:
        """Ids of `text` alone: both sides share one vocabulary. Raises TokenizerError for text that is not Unicode."""
        require_unicode(text)
        return list(self._engine.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special and language tokens skipped."""
        text = self._engine.decode([index for index in map(int, ids) if index not in self._languages_by_id])
        return clean_up_spaces(text) if self._settings.clean_up_spaces else text

    def target_tokens(self) -> frozenset[int] | str:
        """Why it is every id: there is one vocabulary."""
        return "its languages share one vocabulary, any token of which can be generated"

    def unwritable(self, sample: str) -> str:
        """The characters of `sample` that no token can write: the model cannot answer in a language that needs them."""
        return self._engine.unwritable(sample)

    def written_bytes(self) -> Mapping[int, bytes]:
        """What each token writes in UTF-8, special and language tokens left out."""
        written = self._engine.written_bytes()
        return {index: data for index, data in written.items() if index not in self._languages_by_id}


def m2m100_codes(name: str) -> tuple[str, ...]:
    """The list that `language_codes` in an M2M100 tokenizer_config.json names. Raises TokenizerError for another."""
    lists = {"m2m100": language_codes.M2M100, "wmt21": language_codes.WMT21}
    if name not in lists:
        raise TokenizerError(f"language_codes {name!r} is not implemented; implemented: {', '.join(lists)}")
    return lists[name]
