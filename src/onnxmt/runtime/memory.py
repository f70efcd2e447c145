"""What a loaded bundle needs of memory: amounts written by people, what is in use, and what a batch takes."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from onnxmt.errors import UsageError
from onnxmt.manifest import Dimensions
from onnxmt.runtime.batching import LEAST_TOKENS

_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", re.IGNORECASE)
_FLOAT = 4
# Copies of the scores of a step that live at once: the model's, and the search's while it normalises and ranks them.
_SCORES = 3
# The cache before a step and after it.
_CACHES = 2


def parse_bytes(text: str | int) -> int:
    """Read an amount of memory: bytes, or a number with k, M, G (powers of 1,000) or Ki, Mi, Gi (of 1,024).

    Raises UsageError.
    """
    found = _AMOUNT.fullmatch(str(text).strip())
    amount = int(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found else 0
    if amount <= 0 or isinstance(text, bool):
        raise UsageError(f"an amount of memory is {text!r}; bytes, or a number such as 512Mi, 300MB or 1.5G is allowed")
    return amount


def resident_bytes() -> int:
    """Return the memory that this process has resident now (where the system does not tell: its peak)."""
    status = Path("/proc/self/status")
    if status.exists():
        values = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line)
        return int(values["VmRSS"].split()[0]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def usual_target(source: int, limit: int) -> int:
    """Return how long an output is reckoned to be at most: twice its source and some, within the length limit."""
    return min(limit, 2 * source + 32)


@dataclass(frozen=True, kw_only=True)
class BatchNeeds:
    """What batches of one model take: `position` bytes for keys and values of one token of one row, `scores` a row."""

    position: int
    scores: int
    length_limit: int

    @classmethod
    def of(cls, dimensions: Dimensions, *, length_limit: int, scored: int | None = None) -> BatchNeeds:
        """Read them off a manifest's sizes; `length_limit` is the most tokens that an output may have.

        `scored`: the rows of a trimmed head; None for one that scores every token.
        """
        width = dimensions.decoder_heads * dimensions.head_dim
        return cls(
            position=2 * dimensions.decoder_layers * width * _FLOAT,
            scores=_SCORES * (scored or dimensions.target_vocabulary) * _FLOAT,
            length_limit=length_limit,
        )

    def batch(self, *, rows: int, source: int) -> int:
        """Return the bytes that `rows` (sentences × beams) of `source` tokens each take at their peak."""
        positions = source + _CACHES * usual_target(source, self.length_limit)
        return rows * (positions * self.position + self.scores)

    def batch_tokens(self, available: int, *, rows_each: int) -> int:
        """Return the largest budget of source tokens × rows whose batches fit into `available` bytes; 0: none does.

        A row counts LEAST_TOKENS at least, and is dearest, token for token, when it has just these.
        """
        each = self.batch(rows=1, source=LEAST_TOKENS)
        rows = available // each
        return 0 if rows < rows_each else int(rows) * LEAST_TOKENS
