"""Search that follows one row for each output: greedy search and sampling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxmt.runtime.processors import Processor, replace_invalid
from onnxmt.runtime.scores import Scores, log_sum_exp
from onnxmt.runtime.search.rows import Rows, check_finite, closed_up, ended_by_model, no_token_left
from onnxmt.runtime.search.sampling import Generators, draw
from onnxmt.runtime.search.types import Hypothesis, Step
from onnxmt.runtime.settings import GenerationSettings


def search_single(
    step: Step,
    *,
    sentences: int,
    settings: GenerationSettings,
    processors: Sequence[Processor],
    generators: Generators | None,
    scored: bool = True,
) -> list[list[Hypothesis]]:
    """The highest token at each step, or with `generators` (one an output, sentence by sentence) one drawn from all.

    Without `scored` each score is NaN, and the sum over the vocabulary that it needs is left out: 6 % of the time of a
    large batch. NaN and +inf among the logits are then found in the highest one alone, which is one of them.
    """
    answers = settings.num_return_sequences
    output = np.arange(sentences * answers)  # the number of the output that each row writes
    rows = Rows(step, rows=output.size, settings=settings, parents=output // answers if answers > 1 else None)
    eos = np.array(settings.eos_token_ids, np.int64)
    sums = np.zeros(output.size)
    keep_raw = not all(processor.only_bans for processor in processors)
    done: dict[int, Hypothesis] = {}

    while output.size:
        logits = rows.logits()
        raw = logits.copy() if keep_raw else logits
        totals = log_sum_exp(raw) if scored else raw.max(axis=1)
        if settings.remove_invalid_values and not np.isfinite(totals).all():
            replace_invalid(raw)
            totals = log_sum_exp(raw) if scored else raw.max(axis=1)
        check_finite(totals, rows.length)

        scores = Scores(logits)
        for processor in processors:
            processor(rows.history, scores)
        values, index = scores.values, np.arange(output.size)
        tokens = values.argmax(axis=1)
        best = values[index, tokens]
        if np.isneginf(best).any():
            raise no_token_left(rows.length, int(output[np.isneginf(best)][0]) // answers)
        if generators is not None:
            tokens = draw(values, best, [generators[number] for number in output])
        if not scored:
            sums += np.nan
        elif not scores.forced:
            sums += raw[index, tokens] - totals

        ends = (tokens[:, None] == eos).any(axis=1)
        if rows.final:
            ends[:] = True
        if not ends.any():
            rows.advance(tokens, None)
            continue
        for row in np.flatnonzero(ends).tolist():
            sequence = rows.sequence(row, int(tokens[row]))
            done[int(output[row])] = Hypothesis(
                tokens=sequence, score=float(sums[row]) / len(sequence), finished=ended_by_model(sequence, settings)
            )
        stay = closed_up(~ends)
        rows.advance(tokens[stay], stay)
        output, sums = output[stay], sums[stay]
    return [[done[sentence * answers + answer] for answer in range(answers)] for sentence in range(sentences)]
