"""What search is given and what it returns: `Step` and `Hypothesis`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from onnxmt.runtime.scores import Floats, Ids

Step: TypeAlias = Callable[[Ids, Ids | None], Floats]
"""step(tokens int64 [R, T], parents int64 [R] | None) → float32 [R, V], the logits after the last token of each row.

Row r continues row parents[r] of the previous call; on the first call parents[r] is the sentence that row r belongs to.
None means the same rows in the same order. One callable thus covers the first step, beams that change places, and rows
that leave. The array now belongs to the search, which writes into it: a step that keeps its logits returns a copy (or a
read-only array, which the search copies).
"""

SeeingStep: TypeAlias = Callable[[Ids, Ids | None, Ids], Floats]
"""As `Step`, with a third argument int64 [R, S]: row r attends to the source tokens whose view[r] is 1 alone."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output for one sentence."""

    tokens: tuple[int, ...]
    """Token ids after the start token, EOS included when it was generated. Nothing follows EOS."""
    score: float
    """Beam search: transformers' `sequences_scores`, the sum of log-probabilities / new tokens ** length_penalty.
    Greedy search and sampling: the mean log-probability of the tokens, as the model gave it, before any processor or
    temperature. A forced token counts as certain (0) in both."""
    finished: bool
    """True when the model ended the sentence; False when the length limit did, by a forced EOS too (case L1)."""
