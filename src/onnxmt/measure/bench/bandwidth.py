"""How fast this machine's threads read memory: the floor under every token."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_BYTES = 64 * 2**20  # a thread's part: beyond any core's caches


def read_bandwidth(threads: int, *, rounds: int = 5) -> float:
    """Return the best GB/s at which `threads` threads together read memory (numpy sums over 64 MiB each)."""
    parts = [np.ones(_BYTES // 8, np.int64) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            begin = time.perf_counter()
            list(pool.map(np.max, parts))
            best = max(best, threads * _BYTES / (time.perf_counter() - begin) / 1e9)
    return best
