"""What a model itself says to single source tokens: candidates for those that a parallel text has seldom or never."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnxmt.runtime.translator import Translator

__all__ = ["own_candidates"]

# Of a word alone, the eight likeliest tokens at each of the first four steps of greedy search.
_STEPS, _LIKELIEST, _ROWS = 4, 8, 128


def own_candidates(
    translator: Translator,
    texts: Mapping[int, str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[int, list[int]]:
    """Return the likeliest target tokens of each source token that `texts` gives the text of.

    What is not one token when it stands alone, the inside of a word, is left out.
    """
    tokenizer, told = translator.tokenizer, translator.direction
    around = len(tokenizer.encode("", source=told.source, target=told.target))
    asked = []
    for token, text in texts.items():
        ids = tokenizer.encode(text, source=told.source, target=told.target)
        if len(ids) == around + 1 and token in ids:
            asked.append((token, ids))
    found: dict[int, list[int]] = {}
    for first in range(0, len(asked), _ROWS):
        part = asked[first : first + _ROWS]
        for (token, _), said in zip(part, _said(translator, [ids for _, ids in part]), strict=True):
            found[token] = said
        if progress is not None:
            progress(min(first + _ROWS, len(asked)), len(asked))
    return found


def _said(translator: Translator, sources: Sequence[Sequence[int]]) -> list[list[int]]:
    """The likeliest tokens of the first steps, for sources of one length."""
    settings, direction = translator.settings, translator.direction
    ids = np.array(sources, np.int64)
    step = translator.model.start(ids, np.ones_like(ids))
    forced = translator.tokenizer.forced_bos_token_id(direction.target)
    forced = settings.forced_bos_token_id if forced is None else forced
    tokens = np.full(len(ids), settings.decoder_start_token_id, np.int64)
    banned = [word[0] for word in settings.bad_words_ids if len(word) == 1]
    going = np.ones(len(ids), bool)
    said: list[set[int]] = [set() for _ in sources]
    for number in range(_STEPS + (forced is not None)):
        logits = step(tokens[:, None], None)
        if number == 0 and forced is not None:
            tokens = np.full(len(ids), forced, np.int64)
            continue
        logits[:, banned] = -np.inf
        best = np.argpartition(logits, -_LIKELIEST, axis=1)[:, -_LIKELIEST:]
        for row in np.flatnonzero(going).tolist():
            said[row].update(best[row].tolist())
        tokens = logits.argmax(axis=1)
        going &= ~np.isin(tokens, settings.eos_token_ids)
    return [sorted(one) for one in said]
