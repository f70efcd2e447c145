"""Tokenizers without language tokens: T5, mT5, umT5, MADLAD (told by a prefix) and BART (trained for one pair)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizer import Direction, LanguageCodes, TokenizerSpec, VocabularyLimits
from onnxmt.runtime.tokenizers.decoding import clean_up_spaces
from onnxmt.runtime.tokenizers.engines import Engine, PieceEngine, PieceSettings, PipelineEngine
from onnxmt.runtime.tokenizers.files import require_unicode
from onnxmt.runtime.tokenizers.pipeline_settings import PipelineSettings
from onnxmt.runtime.tokenizers.prefixes import Prefix, PrefixChoice
from onnxmt.runtime.tokenizers.settings import SettingsReader

__all__ = ["PlainSettings", "PlainTokenizer"]


@dataclass(frozen=True, kw_only=True)
class PlainSettings:
    """What loading needs beside the files; one of `pieces` and `pipeline` is set.

    `before`, `behind`: the special tokens around a text (None: none there); `own_ends`: tokenizer.json's
    post-processor places them instead; `always_prefix`: the first prefix also stands where no language is asked for.
    """

    before: str | None
    behind: str | None
    own_ends: bool
    prefixes: tuple[Prefix, ...]
    always_prefix: bool
    limit: int | None
    clean_up_spaces: bool
    pieces: PieceSettings | None = None
    pipeline: PipelineSettings | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, for a TokenizerSpec."""
        engine = {"pieces": self.pieces.to_dict()} if self.pieces else {}
        engine |= {"pipeline": self.pipeline.to_dict()} if self.pipeline else {}
        return {
            "before": self.before,
            "behind": self.behind,
            "own_ends": self.own_ends,
            "prefixes": [prefix.to_dict() for prefix in self.prefixes],
            "always_prefix": self.always_prefix,
            "limit": self.limit,
            "clean_up_spaces": self.clean_up_spaces,
            **engine,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PlainSettings:
        """Read the JSON form; raises TokenizerError for anything missing, unknown or mistyped."""
        where = "tokenizer spec"
        reader = SettingsReader(data, where=where)
        pieces = PieceSettings.from_dict(reader.mapping("pieces"), where=where) if "pieces" in data else None
        pipeline = PipelineSettings.from_dict(reader.mapping("pipeline"), where=where) if "pipeline" in data else None
        settings = cls(
            before=reader.optional_text("before"),
            behind=reader.optional_text("behind"),
            own_ends=reader.flag("own_ends"),
            prefixes=tuple(Prefix.from_dict(item, where=f"{where}, prefix") for item in reader.objects("prefixes")),
            always_prefix=reader.flag("always_prefix"),
            limit=reader.optional_count("limit"),
            clean_up_spaces=reader.flag("clean_up_spaces"),
            pieces=pieces,
            pipeline=pipeline,
        )
        reader.finish()
        if (pieces is None) == (pipeline is None):
            raise TokenizerError(f"{where}: it needs one of 'pieces' and 'pipeline'")
        return settings


class PlainTokenizer:
    """A tokenizer without language tokens, ready for use; it never changes, so threads and forked processes may share
    it."""

    def __init__(self, settings: PlainSettings, engine: Engine) -> None:
        self._settings, self._engine = settings, engine
        self._prefix = PrefixChoice(settings.prefixes, always=settings.always_prefix)
        self._before = self._ids_of(settings.before)
        self._behind = self._ids_of(settings.behind)

    def _ids_of(self, token: str | None) -> list[int]:
        if token is None:
            return []
        index = self._engine.id_of(token)
        if index is None:
            raise TokenizerError(f"the tokenizer's vocabulary lacks its special token {token!r}")
        return [index]

    @classmethod
    def load(cls, folder: Path, spec: TokenizerSpec) -> PlainTokenizer:
        """Load from the files that `spec` names; raises TokenizerError that names a missing or wrong one."""
        settings = PlainSettings.from_dict(spec.settings)
        if settings.pieces is not None:
            return cls(settings, PieceEngine(folder, settings.pieces))
        assert settings.pipeline is not None  # PlainSettings.from_dict has checked it
        from onnxmt.runtime.tokenizers.recipes import build_pipeline  # loads the tokenizers library

        pipeline = build_pipeline(folder, spec.files, settings.pipeline)
        return cls(settings, PipelineEngine(pipeline, with_post_processor=settings.own_ends))

    @property
    def limit(self) -> int | None:
        """The checkpoint's model_max_length, in tokens; None where it sets none."""
        return self._settings.limit

    @property
    def vocabulary_limits(self) -> VocabularyLimits:
        """The largest id, the same on both sides."""
        largest = max(self._engine.tokens().values())
        return VocabularyLimits(source=largest, target=largest)

    def languages(self) -> LanguageCodes:
        """The languages that the prefixes name; none for a model without prefixes."""
        return LanguageCodes(source=self._prefix.languages("source"), target=self._prefix.languages("target"))

    @property
    def needs_target(self) -> bool:
        """False: without a prefix the model does what its text says."""
        return False

    def resolve(self, *, source: str | None = None, target: str | None = None) -> Direction:
        """The languages of the prefixes that `source` and `target` mean. Raises as `encode` does."""
        return self._prefix.resolve(source, target)

    def defaults(self) -> Direction:
        """The languages of the prefix that stands where none is asked for."""
        return self._prefix.defaults()

    def written(self, *, source: str | None = None, target: str | None = None) -> str:
        """The prefix for these languages. Raises as `encode` does."""
        return self._prefix.choose(source, target)

    def language_of(self, token: int) -> str | None:  # noqa: ARG002 - what every tokenizer promises
        """None: there are no language tokens on the decoder's side."""
        return None

    def encode(self, text: str, *, source: str | None = None, target: str | None = None) -> list[int]:
        """Ids of the prefix that the languages ask for, of `text`, and of the special tokens around; never truncated.

        Raises UnknownLanguageError for languages that no prefix stands for, TokenizerError for text that is not valid
        Unicode.
        """
        require_unicode(text)
        prefix = self._prefix.choose(source, target)
        return [*self._before, *self._engine.encode(prefix + text), *self._behind]

    def forced_bos_token_id(self, target: str | None = None) -> int | None:
        """None: these models are not told their target on the decoder's side. Raises as `encode` does."""
        self._prefix.choose(None, target)
        return None

    def target_ids(self, text: str) -> list[int]:
        """Ids of `text` alone: both sides share one vocabulary. Raises TokenizerError for text that is not Unicode."""
        require_unicode(text)
        return list(self._engine.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens skipped."""
        text = self._engine.decode(ids)
        return clean_up_spaces(text) if self._settings.clean_up_spaces else text

    def target_tokens(self) -> frozenset[int] | str:
        """Why it is every id: there is one vocabulary."""
        return "source and target share one vocabulary, any token of which can be generated"

    def unwritable(self, sample: str) -> str:
        """The characters of `sample` that no token can write: the model cannot answer in a language that needs them."""
        return self._engine.unwritable(sample)

    def written_bytes(self) -> Mapping[int, bytes]:
        """What each token writes in UTF-8, special ones left out."""
        return self._engine.written_bytes()
