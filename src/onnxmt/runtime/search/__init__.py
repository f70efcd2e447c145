"""Decoding over a `step` callable, equal to `generate()` of transformers 5: greedy search, beam search and sampling."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from onnxmt.errors import UsageError
from onnxmt.runtime.kept_tokens import KeptTokens
from onnxmt.runtime.processors import Processor, build_processors, check_vocabulary
from onnxmt.runtime.search.beam import search_beam
from onnxmt.runtime.search.sampling import random_streams
from onnxmt.runtime.search.single import search_single
from onnxmt.runtime.search.trimmed import OnAllTokens
from onnxmt.runtime.search.types import Hypothesis, Step
from onnxmt.runtime.settings import GenerationSettings

__all__ = ["Hypothesis", "Processor", "Step", "search"]


def search(
    step: Step,
    *,
    rows: int,
    settings: GenerationSettings,
    seed: int | None = None,
    streams: Sequence[int] | None = None,
    processors: Sequence[Processor] = (),
    scored: bool = True,
) -> list[list[Hypothesis]]:
    """Decode a batch of `rows` sentences that `step` has been started with.

    Returns for each sentence its num_return_sequences outputs, best first (in beam search fewer where the bans leave
    fewer). A sentence's result does not depend on the others: rows that are done leave the batch, and the loop ends
    with the last of them.

    `seed` makes sampling reproducible: sentence i draws from the random stream that `seed` and streams[i] name. Number
    `streams` by the sentences' places in the whole input, and batches may be cut anywhere (default: 0 to rows − 1).
    `processors` run after those of the settings and before those that shape what is sampled from.

    A step over a trimmed head has an attribute `kept`, and tokens and logits in places of it. Settings, processors and
    results are in token ids all the same, and the result is that of all tokens with the logits of the others at −inf.

    Without `scored` greedy search and sampling leave their scores NaN, which saves 6 % of a large batch's time.

    Raises DecodingError where no token can be chosen, GenerationSettingsError where the settings name tokens that the
    model does not score.
    """
    streams = range(rows) if streams is None else streams
    if len(streams) != rows:
        raise UsageError(f"streams has {len(streams)} numbers for {rows} sentences: one for each is needed")
    kept: KeptTokens | None = getattr(step, "kept", None)
    if kept is not None:
        check_vocabulary(settings, kept.vocabulary)
        settings = kept.settings(settings)
        processors = [OnAllTokens(processor, kept) for processor in processors]
    rules = build_processors(settings, processors)
    if settings.num_beams > 1:
        found = search_beam(step, sentences=rows, settings=settings, processors=rules)
    else:
        generators = random_streams(seed, streams, settings.num_return_sequences) if settings.do_sample else None
        found = search_single(
            step, sentences=rows, settings=settings, processors=rules, generators=generators, scored=scored
        )
    if kept is None:
        return found
    return [[dataclasses.replace(one, tokens=kept.tokens(one.tokens)) for one in outputs] for outputs in found]
