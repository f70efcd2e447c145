"""What a Translator's calls share: the model, its tokenizer and settings, and what they may take."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from onnxmt.runtime.decoder import Seq2SeqModel
from onnxmt.runtime.memory import BatchNeeds
from onnxmt.runtime.search.terms import TargetVocabulary
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction, Tokenizer
from onnxmt.runtime.translation_memory import TranslationMemory

_NOTHING_TOLD = Direction()


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What does the work, the same for every call: `limit` is the most source tokens, languages are the model's own.

    `source_language` and `target_language` are "" where the model has several and none is meant. `default`: what the
    tokenizer is told where a call names no language. `codes_in_text`: a text may begin with the code of its target,
    `>>deu<<`; in the other families such characters are text. `workers` batches are decoded side by side; together they
    take at most `spare_memory` bytes, by what they are known to need. `memory`: translations of earlier processes, by
    `identity`, which no other model has.
    """

    model: Seq2SeqModel
    tokenizer: Tokenizer
    settings: GenerationSettings
    limit: int | None
    source_language: str
    target_language: str
    default: Direction = _NOTHING_TOLD
    codes_in_text: bool = True
    workers: int = 1
    needs: BatchNeeds | None = None
    spare_memory: int | None = None
    memory: TranslationMemory | None = None
    identity: str = ""

    @functools.cached_property
    def target_bytes(self) -> Mapping[int, bytes]:
        """What each token writes, as the tokenizer says."""
        return self.tokenizer.written_bytes()

    @functools.cached_property
    def target_vocabulary(self) -> TargetVocabulary:
        """What each token writes; made at its first use, since only glossaries need it."""
        return TargetVocabulary(self.target_bytes, kept=self.model.kept)
