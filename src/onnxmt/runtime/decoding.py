"""Token ids of many sentences → hypotheses: in batches, on the workers, within the memory."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from onnxmt.errors import UsageError
from onnxmt.runtime.batching import LEAST_TOKENS, plan_batches
from onnxmt.runtime.engine import Engine
from onnxmt.runtime.scores import Ids
from onnxmt.runtime.search import Hypothesis, search
from onnxmt.runtime.settings import GenerationSettings

__all__ = ["BatchDecoder"]

# int8-dynamic, 60 tokens in and out, CPU time a token: 0.83 ms with 16 rows a batch, 0.59 with 32, 0.58 with 48.
_BATCH_TOKENS, _BATCH_TOKENS_SIDE_BY_SIDE = 1024, 2560


class BatchDecoder:
    """Decodes for one call, with its settings and seed; a batch holds `budget` tokens at most.

    Raises UsageError where the memory does not allow for even one sentence.
    """

    def __init__(
        self,
        engine: Engine,
        settings: GenerationSettings,
        *,
        batch_tokens: int | None,
        seed: int | None,
        scored: bool = True,
    ) -> None:
        self._engine, self.settings, self._seed = engine, settings, seed
        # A translation memory keeps scores for calls that want them.
        self._scored = scored or engine.memory is not None
        if batch_tokens is None:
            batch_tokens = _BATCH_TOKENS if engine.workers == 1 else _BATCH_TOKENS_SIDE_BY_SIDE
        self._asked = batch_tokens
        rows = settings.num_return_sequences if settings.do_sample else settings.num_beams
        self.budget = max(1, self._batch_tokens(batch_tokens, rows) // rows)

    def _batch_tokens(self, asked: int, rows: int) -> int:
        """The budget asked for, cut to what the memory limit leaves each worker. Raises UsageError for too little."""
        engine = self._engine
        if engine.spare_memory is None or engine.needs is None:
            return asked
        fits = engine.needs.batch_tokens(engine.spare_memory // engine.workers, rows_each=rows)
        if fits == 0:
            least = engine.needs.batch(rows=rows, source=LEAST_TOKENS)
            raise UsageError(
                f"the memory limit leaves {engine.spare_memory / 1e6:.0f} MB beside the loaded model, and one short "
                f"sentence with {rows} beams takes {least / 1e6:.0f} MB for "
                f"each of {engine.workers} workers: raise the limit, or ask for fewer beams or workers"
            )
        return min(asked, fits)

    def decode(
        self, sources: Sequence[Sequence[int]], streams: Sequence[int], *, settings: GenerationSettings | None = None
    ) -> list[list[Hypothesis]]:
        """Translate token ids, in batches of like length; the result is in the order of `sources`.

        Sentence i draws from the random stream streams[i]. `settings` replaces the call's own, with no more beams.
        """
        batches = plan_batches([len(ids) for ids in sources], budget=self.budget, workers=self._engine.workers)
        if (shortlist := self._engine.model.shortlist) is not None:
            batches = [part for batch in batches for part in shortlist.parts(batch, sources)]
        answers: list[list[Hypothesis]] = [[] for _ in sources]

        def run(batch: Sequence[int]) -> None:
            found = self._decode_batch(
                [sources[index] for index in batch], [streams[index] for index in batch], settings or self.settings
            )
            for index, hypotheses in zip(batch, found, strict=True):
                answers[index] = hypotheses

        if self._engine.workers == 1 or len(batches) < 2:
            for batch in batches:
                run(batch)
        else:  # ONNX Runtime and numpy let other threads run meanwhile
            with ThreadPoolExecutor(self._engine.workers, thread_name_prefix="onnxmt") as pool:
                running = [pool.submit(run, batch) for batch in batches]
                try:
                    for future in running:
                        future.result()
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        return answers

    def _decode_batch(
        self, sources: Sequence[Sequence[int]], streams: Sequence[int], settings: GenerationSettings
    ) -> list[list[Hypothesis]]:
        padded, mask = self.padded(sources)
        scored = self._scored or settings.do_sample or settings.num_return_sequences > 1
        return search(
            self._engine.model.start(padded, mask),
            rows=len(sources),
            settings=settings,
            seed=self._seed,
            streams=streams,
            scored=scored,
        )

    def padded(self, sources: Sequence[Sequence[int]]) -> tuple[Ids, Ids]:
        """Token ids as one array with padding on the right, and 1 where a token is; int64 [B, S] each."""
        width = max(len(ids) for ids in sources)
        padded = np.full((len(sources), width), self._padding(sources[0]), np.int64)
        mask = np.zeros((len(sources), width), np.int64)
        for row, ids in enumerate(sources):
            padded[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        return padded, mask

    def budget_for(self, rows: int) -> int:
        """How many source tokens a batch may hold where each sentence has `rows` rows; 0: the memory allows none."""
        engine = self._engine
        if engine.spare_memory is None or engine.needs is None:
            return max(1, self._asked // rows)
        return min(self._asked, engine.needs.batch_tokens(engine.spare_memory, rows_each=rows)) // rows

    def _padding(self, ids: Sequence[int]) -> int:
        """What stands under the mask: it has no effect, but must be a row of the embedding."""
        return ids[-1] if self.settings.pad_token_id is None else self.settings.pad_token_id
