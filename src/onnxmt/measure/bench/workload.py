"""What every engine of a bench is given: the same token ids, in the same batches, with the same output lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from onnxmt.errors import UsageError

Target = int | Literal["source", "model"]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sentences as token ids, EOS included, and how many tokens are generated for each.

    `target`: a number, "source" (as many as the source has) or "model" (as the model likes). In a batch the longest
    sentence's number holds for all, in every engine alike, since no peer takes one a sentence.
    """

    name: str
    sentences: tuple[tuple[int, ...], ...]
    target: Target

    @property
    def is_corpus(self) -> bool:
        """Whether the sentences differ in length."""
        return len({len(ids) for ids in self.sentences}) > 1

    def groups(self, batch: int) -> list[Mapping[str, Any]]:
        """Return the batches: of one sentence in the order given, else of neighbours in length, the longest first."""
        order = range(len(self.sentences))
        if batch > 1:
            order = sorted(order, key=lambda index: -len(self.sentences[index]))  # type: ignore[assignment]
        cuts = [list(order)[first : first + batch] for first in range(0, len(self.sentences), batch)]
        return [{"ids": [list(self.sentences[index]) for index in cut], "tokens": self._tokens(cut)} for cut in cuts]

    def _tokens(self, cut: Sequence[int]) -> int | None:
        if self.target == "model":
            return None
        return max(len(self.sentences[index]) for index in cut) if self.target == "source" else self.target

    def wanted_tokens(self) -> int | None:
        """Tokens that are of use, whatever batches generate beside them: what tokens/s counts. None: as generated."""
        if self.target == "model":
            return None
        return sum(len(ids) if self.target == "source" else self.target for ids in self.sentences)


def shape_workload(
    *, source_tokens: int, target_tokens: int, sentences: int, vocabulary: int, end: int, seed: int = 0
) -> Workload:
    """Sentences of one length, of random tokens in front of `end`."""
    if source_tokens < 2:
        raise UsageError(f"source tokens is {source_tokens}; 2 or more are needed, EOS included")
    random = np.random.default_rng(seed)
    ids = random.integers(2, max(3, vocabulary // 2), size=(sentences, source_tokens - 1)).tolist()
    return Workload(
        name=f"{source_tokens} tokens in, {target_tokens} out",
        sentences=tuple((*row, end) for row in ids),
        target=target_tokens,
    )
