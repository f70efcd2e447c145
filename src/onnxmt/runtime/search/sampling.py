"""Random streams and drawing from a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from onnxmt.runtime.scores import Floats, Ids

Generators: TypeAlias = "list[np.random.Generator]"  # numpy.random loads 2 MB, which only sampling needs


def random_streams(seed: int | None, streams: Sequence[int], answers: int) -> Generators:
    """One generator for each of `answers` outputs of each stream, in that order.

    What one yields depends on the seed, the stream's number and the output's number alone, so that a sentence draws the
    same tokens in any batch. Without a seed they are fresh at each call.
    """
    entropy = np.random.SeedSequence(seed).entropy
    return [
        np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(stream, answer))))
        for stream in streams
        for answer in range(answers)
    ]


def draw(values: Floats, best: Floats, generators: Generators) -> Ids:
    """Draw one token a row, int64 [R], from the softmax of `values` [R, V]; `best` [R] is the highest of each row."""
    shares = np.exp(values - best[:, None], dtype=np.float64)
    np.cumsum(shares, axis=1, out=shares)
    tokens = np.empty(len(values), np.int64)
    for row, (cumulative, generator) in enumerate(zip(shares, generators, strict=True)):
        # random() is at most 1 - 2**-53, so that the product stays below the last sum, after rounding too: no token
        # without a share is reached.
        tokens[row] = np.searchsorted(cumulative, generator.random() * cumulative[-1], side="right")
    return tokens
