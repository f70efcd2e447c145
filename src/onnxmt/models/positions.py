"""Position tables that transformers computes instead of loading."""

from __future__ import annotations

import numpy as np

from onnxmt.precision import Array


def marian_sinusoids(positions: int, width: int) -> Array:
    """Marian's table: sines in the first half of the width, cosines in the second. float32 [positions, width].

    Same float64 arithmetic as transformers' MarianSinusoidalPositionalEmbedding, so the float32 table is the same bits.
    """
    columns = np.arange(width)
    angles = np.arange(positions)[:, None] / np.power(10000, 2 * (columns // 2) / width)[None, :]
    table = np.empty((positions, width), dtype=np.float32)
    sines = (width + 1) // 2
    table[:, :sines] = np.sin(angles[:, 0::2])
    table[:, sines:] = np.cos(angles[:, 1::2])
    return table


def m2m_sinusoids(rows: int, width: int, pad_token_id: int) -> Array:
    """M2M100's table: sines, then cosines, of the row number; the row of the pad id is zero. float32 [rows, width].

    transformers computes it in float32 (M2M100SinusoidalPositionalEmbedding); the frequencies here are rounded once
    from float64, which is within one unit in the last place of torch's float32 exponential.
    """
    half = width // 2
    frequencies = np.exp((np.arange(half, dtype=np.float32) * np.float32(-(np.log(10000) / (half - 1)))).astype(float))
    angles = np.arange(rows, dtype=np.float32)[:, None] * frequencies.astype(np.float32)[None, :]
    table = np.zeros((rows, width), dtype=np.float32)
    table[:, :half], table[:, half : 2 * half] = np.sin(angles), np.cos(angles)
    table[pad_token_id] = 0
    return table
