"""Which sentences share a batch: sorted by length, within a budget of tokens, without much padding."""

from __future__ import annotations

from collections.abc import Sequence

# A row costs its output too, however short its source: a batch of one-word lines would otherwise hold hundreds of rows
# of logits, each as long as the vocabulary.
LEAST_TOKENS = 16
# From this many rows on, a batch gains little by growing, and a short row beside a long one is mostly padding.
_FULL_ROWS = 8


def padding_waste(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Return the share of the batches' tokens that is padding, 0 to 1."""
    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    return 1 - sum(lengths) / padded if padded else 0.0


def plan_batches(lengths: Sequence[int], *, budget: int, workers: int = 1) -> list[list[int]]:
    """Return the indices of each batch, longest sentences first.

    Rows × the longest length stays within `budget` (a sentence longer than that is alone), and a batch of 8 rows or
    more takes no row shorter than half its longest. What would not give each of `workers` a batch is cut smaller.
    """
    if workers > 1:
        budget = min(budget, -(-sum(max(length, LEAST_TOKENS) for length in lengths) // workers))
    batches: list[list[int]] = []
    widest = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = max(lengths[index], LEAST_TOKENS)
        batch = batches[-1] if batches else []
        within_budget = (len(batch) + 1) * widest <= budget
        alike = len(batch) < _FULL_ROWS or 2 * length >= widest
        if batch and within_budget and alike:
            batch.append(index)
        else:
            batches.append([index])
            widest = length
    return batches
