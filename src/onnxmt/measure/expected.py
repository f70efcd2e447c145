"""What a judge (PyTorch, or a recording of it) says about a sentence: the data that verification compares against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

STEPS = 8
"""How many decoder steps are compared tensor by tensor, under the judge's own greedy tokens."""
BEAMS = 4
"""The number of beams of the second token comparison (field notes: greedy first, then beam 4)."""
MAX_NEW_TOKENS = 64
"""Both sides stop here, so that a model that never ends costs little; a model's own smaller limit is kept."""

Floats = NDArray[np.float32]
Positions = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Values of one tensor without its batch axis and padding: all of them, or those at some positions.

    `shape` is the whole tensor's; `positions` index it flattened (C order), None = every value in order.
    """

    shape: tuple[int, ...]
    values: Floats
    positions: Positions | None = None

    def of(self, tensor: Floats) -> Floats:
        """Return the values of another tensor of the same shape at the same positions."""
        flat = np.asarray(tensor, dtype=np.float32).reshape(-1)
        return flat if self.positions is None else flat[self.positions]

    def until(self, length: int) -> Samples:
        """Return the samples of a [heads, positions, head size] tensor that lie in its first `length` positions."""
        heads, positions, size = self.shape
        if length >= positions:
            return self
        shape = (heads, length, size)
        if self.positions is None:
            return Samples(shape=shape, values=self.values.reshape(self.shape)[:, :length].reshape(-1))
        head, position, offset = np.unravel_index(self.positions, self.shape)
        kept = position < length
        moved = np.ravel_multi_index((head[kept], position[kept], offset[kept]), shape).astype(np.int64)
        return Samples(shape=shape, values=self.values[kept], positions=moved)


@dataclass(frozen=True, kw_only=True)
class ExpectedSentence:
    """Everything a judge computed for one sentence; tokens come after the start token, a generated EOS included.

    `cross` and `present` hold key and value of layer 0, then of layer 1, …: [heads, source length, head size], and
    after the last compared step [heads, steps, head size]. `logits` holds one entry a step, [vocabulary], before any
    processor.
    """

    source: tuple[int, ...]
    start_token: int
    greedy: tuple[int, ...]
    beam: tuple[int, ...]
    greedy_text: str
    beam_text: str
    cross: tuple[Samples, ...]
    logits: tuple[Samples, ...]
    present: tuple[Samples, ...]

    @property
    def steps(self) -> int:
        """How many decoder steps can be compared: STEPS, or fewer where the greedy translation is shorter."""
        return len(self.logits)


@dataclass(frozen=True, kw_only=True)
class JudgeFacts:
    """Who judges: the kind, the package versions behind it, and what the comparison ran under.

    `max_new_tokens` caps both sides; `positions` is the length of the model's position table, None where it has none.
    `source` and `target` are the languages that were asked for, in the model's codes. `own_tokens` says why the source
    tokens are ours and could not be compared; None: they are the judge's.
    """

    kind: Literal["live", "recording"]
    versions: Mapping[str, str]
    date: str
    model: str
    revision: str | None
    identity: str | None
    max_new_tokens: int
    positions: int | None
    source: str | None = None
    target: str | None = None
    own_tokens: str | None = None


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A sentence with the token ids that the judge's tokenizer gave it (special tokens included)."""

    text: str
    tokens: tuple[int, ...]


class Reference(Protocol):
    """A judge: PyTorch (`measure.reference.TorchReference`) or what it said once (`measure.recording.Recording`)."""

    def facts(self) -> JudgeFacts:
        """Say who judges."""

    def tokenize(self, texts: Sequence[str]) -> list[SourceLine]:
        """Return the texts with their source tokens, in order."""

    def judge(self, lines: Sequence[SourceLine]) -> list[ExpectedSentence]:
        """Return what is expected for each line; the lines of one call form one batch."""


def pad_batch(rows: Sequence[Sequence[int]], *, pad: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return token ids [B, S] padded on the right with `pad`, and the mask [B, S] (1 = token)."""
    width = max(len(row) for row in rows)
    ids = np.full((len(rows), width), pad, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return ids, mask


def forced_tokens(start: int, greedy: Sequence[int], *, steps: int, filler: int) -> list[int]:
    """Return what the decoder is fed at each of `steps` steps: the start token, then the greedy tokens, then filler."""
    fed = [start, *greedy][:steps]
    return fed + [filler] * (steps - len(fed))


def batches(lines: Sequence[SourceLine], *, positions: int | None, rows: int = 16) -> list[list[SourceLine]]:
    """Return the lines that fit `positions` tokens, in batches of similar length: padding costs time on both sides."""
    fitting = [line for line in lines if positions is None or len(line.tokens) <= positions]
    ordered = sorted(fitting, key=lambda line: len(line.tokens))
    return [ordered[first : first + rows] for first in range(0, len(ordered), rows)]
