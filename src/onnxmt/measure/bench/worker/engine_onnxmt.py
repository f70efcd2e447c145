"""A bundle, by the graphs, cache and search that a Translator uses."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnxruntime

import onnxmt
from onnxmt.runtime.search import search
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator


class Bundle:
    """One Translator."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator

    def versions(self) -> dict[str, str]:
        """Return the packages that compute."""
        return {"onnxmt": onnxmt.__version__, "onnxruntime": onnxruntime.__version__, "numpy": np.__version__}

    def translate(self, ids: list[list[int]], *, beams: int, tokens: int | None) -> list[int]:
        """Translate one batch; see run.Engine."""
        forced = {} if tokens is None else {"min_new_tokens": tokens, "max_new_tokens": tokens}
        return [len(found) for found in self.outputs(ids, beams=beams, told=forced)]

    def outputs(self, ids: list[list[int]], *, beams: int, told: dict[str, int]) -> list[list[int]]:
        """Translate one batch; see run.SpeakingEngine."""
        width = max(len(row) for row in ids)
        padded = np.full((len(ids), width), ids[0][-1], np.int64)
        mask = np.zeros((len(ids), width), np.int64)
        for row, own in enumerate(ids):
            padded[row, : len(own)] = own
            mask[row, : len(own)] = 1
        model = self._translator.model
        settings = dataclasses.replace(
            self._translator.settings,
            num_beams=beams,
            num_return_sequences=1,
            do_sample=False,
            **told,  # type: ignore[arg-type]  # every name in it is one of a whole number
        )
        if model.positions is not None:
            settings = settings.limited_to(model.positions)
        found = search(model.start(padded, mask), rows=len(ids), settings=settings, scored=False)
        return [list(hypotheses[0].tokens) for hypotheses in found]


def load(*, model: str, threads: int, workers: int, spin: str = "brief") -> Bundle:
    """Load a bundle with `threads` threads for each of `workers` workers."""
    options = RuntimeOptions(threads=threads, workers=workers, spin=spin)  # type: ignore[arg-type]
    return Bundle(Translator.load(model, options=options))
