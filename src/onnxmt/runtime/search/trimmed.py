"""Rules of a caller over a trimmed head: they see every token, as if the others were banned."""

from __future__ import annotations

import numpy as np

from onnxmt.runtime.kept_tokens import KeptTokens
from onnxmt.runtime.processors import Processor
from onnxmt.runtime.scores import Ids, Scores


class OnAllTokens:
    """A processor that is written in token ids, over scores and a history that are in places of `kept`."""

    def __init__(self, inner: Processor, kept: KeptTokens) -> None:
        self._inner, self._kept = inner, kept

    @property
    def only_bans(self) -> bool:
        """As the processor says."""
        return self._inner.only_bans

    def __call__(self, history: Ids, scores: Scores) -> None:
        """See Processor."""
        ids = self._kept.ids
        values = np.full((len(scores.values), self._kept.vocabulary), -np.inf, np.float32)
        values[:, ids] = scores.values
        whole = Scores(values, scores.shift)
        whole.forced = scores.forced
        self._inner(ids[history], whole)
        scores.values[:] = whole.values[:, ids]
        scores.shift, scores.forced = whole.shift, whole.forced
