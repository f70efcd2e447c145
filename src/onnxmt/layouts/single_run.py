"""The single graph, run by ONNX Runtime and compared with the library's own search before it is handed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmt.errors import VerificationError
from onnxmt.models.single_graph import (
    ATTENTION_MASK,
    INPUT_IDS,
    MAX_NEW_TOKENS,
    OUTPUT_IDS,
    OUTPUT_LENGTHS,
    SCORES,
)
from onnxmt.runtime.decoder import Seq2SeqModel
from onnxmt.runtime.search import Hypothesis, search
from onnxmt.runtime.session import RuntimeOptions, Session
from onnxmt.runtime.settings import GenerationSettings

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Sentences of a model, padded on the right: int64 [B, S] each."""

    input_ids: Ids
    attention_mask: Ids

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], *, padding: int) -> Batch:
        """Pad token ids to the longest sentence."""
        width = max(len(ids) for ids in sentences)
        input_ids = np.full((len(sentences), width), padding, np.int64)
        mask = np.zeros((len(sentences), width), np.int64)
        for row, ids in enumerate(sentences):
            input_ids[row, : len(ids)], mask[row, : len(ids)] = ids, 1
        return cls(input_ids=input_ids, attention_mask=mask)


class SingleModel:
    """One graph that translates. Raises SessionError."""

    def __init__(self, path: Path, *, options: RuntimeOptions | None = None) -> None:
        self.session = Session(path, options=options)

    def run(
        self, batch: Batch, *, told: dict[str, Ids] | None = None, max_new_tokens: int | None = None
    ) -> list[list[Hypothesis]]:
        """Translate a batch; → the outputs of each sentence, best first. `told` is the language's token, if it has one.

        `finished` is not known from outside, and is True.
        """
        feeds: dict[str, Any] = {INPUT_IDS: batch.input_ids, ATTENTION_MASK: batch.attention_mask, **(told or {})}
        if max_new_tokens is not None:
            feeds[MAX_NEW_TOKENS] = np.array([max_new_tokens], np.int64)
        found = self.session.run(feeds)
        rows = len(batch.input_ids)
        tokens = found[OUTPUT_IDS].reshape(rows, -1, found[OUTPUT_IDS].shape[-1])
        lengths, scores = (found[name].reshape(rows, -1) for name in (OUTPUT_LENGTHS, SCORES))
        return [
            [
                Hypothesis(tokens=tuple(map(int, tokens[row, place, :length])), score=float(score), finished=True)
                for place, (length, score) in enumerate(zip(lengths[row], scores[row], strict=True))
                if length
            ]
            for row in range(rows)
        ]

    def close(self) -> None:
        """Give the graph's memory back."""
        self.session.close()


@dataclass(frozen=True, kw_only=True)
class SameTokens:
    """How many sentences were compared, and that all gave the library's tokens."""

    sentences: int
    max_new_tokens: int

    def to_dict(self) -> dict[str, int]:
        """What onnxmt.json says of it."""
        return {"sentences": self.sentences, "max_new_tokens": self.max_new_tokens, "same": self.sentences}


def require_same_tokens(
    single: SingleModel,
    model: Seq2SeqModel,
    sentences: Sequence[Sequence[int]],
    *,
    settings: GenerationSettings,
    padding: int,
    told: dict[str, int] | None = None,
    together: bool = True,
) -> SameTokens:
    """Decode the sentences with both, each alone and, if they are wanted `together`, in one batch.

    `settings` are those of the graph, with a length limit that the comparison can afford. A precision whose sentences
    depend on their neighbours is compared alone: padding counts among those. Raises VerificationError.
    """
    limit = settings.length_limit - 1

    def compare(some: Sequence[Sequence[int]]) -> int:
        """How many sentences differ."""
        batch, rows = Batch.of(some, padding=padding), len(some)
        named = {name: np.full(rows, token, np.int64) for name, token in (told or {}).items()}
        found = single.run(batch, told=named, max_new_tokens=limit)
        wanted = search(model.start(batch.input_ids, batch.attention_mask), rows=rows, settings=settings)
        return sum([h.tokens for h in f] != [h.tokens for h in w] for f, w in zip(found, wanted, strict=True))

    different = sum(compare([ids]) for ids in sentences)
    if together and not different:
        different = compare(sentences)
    if different:
        raise VerificationError(
            f"the single graph gives other tokens than the library for {different} of {len(sentences)} sentences: "
            "nothing was written"
        )
    return SameTokens(sentences=len(sentences), max_new_tokens=limit)
