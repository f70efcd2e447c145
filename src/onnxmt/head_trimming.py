"""Which tokens a trimmed head scores: those that the target side can produce, and those that generation names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxmt.errors import UsageError
from onnxmt.manifest import TrimmedHead
from onnxmt.runtime.kept_tokens import KeptTokens

if TYPE_CHECKING:
    from onnxmt.models.config import Dimensions
    from onnxmt.runtime.settings import GenerationSettings
    from onnxmt.runtime.tokenizer import Tokenizer

# A head that keeps more than this share of its rows is not worth a change of scores.
_LARGEST_SHARE = 0.95


@dataclass(frozen=True, kw_only=True)
class HeadTrimming:
    """The tokens that stay, and why these."""

    kept: KeptTokens
    why: str

    def for_manifest(self) -> TrimmedHead:
        """Return what a bundle says of it."""
        return TrimmedHead(rows=self.kept.count, of=self.kept.vocabulary, why=self.why)


def plan_trimming(
    tokenizer: Tokenizer, settings: GenerationSettings, dimensions: Dimensions, *, model: str
) -> HeadTrimming:
    """Find the tokens that `model` can generate, from its tokenizer and its generation settings.

    Raises UsageError where the source side's tokens are the target side's as well, and where next to nothing would go.
    """
    found, vocabulary = tokenizer.target_tokens(), dimensions.target_vocab_size
    if isinstance(found, str):
        raise UsageError(f"the head of {model} cannot be trimmed: {found}. Leave --trim-head out")
    named = {
        settings.decoder_start_token_id,
        *settings.eos_token_ids,
        *settings.forced_eos_token_ids,
        *(() if settings.pad_token_id is None else (settings.pad_token_id,)),
        *(() if settings.forced_bos_token_id is None else (settings.forced_bos_token_id,)),
        *(token for word in settings.bad_words_ids for token in word),
    }
    ids = np.array(sorted(token for token in found | named if token < vocabulary), np.int64)
    if len(ids) > _LARGEST_SHARE * vocabulary:
        raise UsageError(
            f"the head of {model} cannot be trimmed: its target side can produce {len(ids):,} of {vocabulary:,} "
            "tokens, so that nothing would be won. Leave --trim-head out"
        )
    return HeadTrimming(
        kept=KeptTokens(ids=ids, vocabulary=vocabulary),
        why="pieces of target.spm, special tokens, and tokens that the generation settings name",
    )
