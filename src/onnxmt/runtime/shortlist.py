"""The table of a lexical shortlist: which target tokens are candidates for a source token, and for a batch.

The file is an .npz of three int32 arrays and a version: `offsets` [source vocabulary + 1] and `tokens` (the candidates
of source token s are tokens[offsets[s]:offsets[s + 1]], ascending), `always` (ascending: candidates of every sentence),
and `foreign` (ascending: source tokens that name a language, on either side, that the table was not learnt for).
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onnxmt.errors import BundleFormatError, UsageError
from onnxmt.runtime.kept_tokens import KeptTokens

__all__ = ["LARGEST_UNION", "Candidates", "Shortlist", "Table"]

Ids = npt.NDArray[np.int64]
Table = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

# Candidates that the sentences of one batch may have together: 8,192 rows of width 512 are 17 MB in float32.
LARGEST_UNION = 8192
_ARRAYS = ("offsets", "tokens", "always", "foreign")
_VERSION = 1
# What numpy, zipfile and zlib raise for files that are cut, damaged or of something else.
_READ_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    AttributeError,
    KeyError,
    OverflowError,
    MemoryError,
    RuntimeError,  # NotImplementedError among them: a method of compression that does not exist
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """What a batch's sentences may say: the tokens of any of them, and float32 [sentences, K], 0 for a sentence's own
    candidates and −inf for the others; None where all have the same."""

    kept: KeptTokens
    others: Floats | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Shortlist:
    """See the module. `vocabulary` is the number of target tokens, of which all candidates are some."""

    offsets: Table
    tokens: Table
    always: Table
    vocabulary: int
    foreign: Table = field(default_factory=lambda: np.empty(0, np.int32))

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise ValueError(problem)

    def _problem(self) -> str | None:
        for name in _ARRAYS:
            array = getattr(self, name)
            if array.ndim != 1 or array.dtype != np.int32:
                return f"{name} is {array.dtype} of shape {list(array.shape)}; int32 of one axis is needed"
        if not self.offsets.size or self.offsets[0] != 0 or (np.diff(self.offsets) < 0).any():
            return "offsets do not begin with 0, or fall"
        if self.offsets[-1] != self.tokens.size:
            return f"offsets end at {self.offsets[-1]}, and there are {self.tokens.size} tokens"
        for name in ("tokens", "always"):
            array = getattr(self, name)
            if array.size and (array.min() < 0 or array.max() >= self.vocabulary):
                return f"{name} holds ids outside of 0 to {self.vocabulary - 1}"
        if not self.always.size or (np.diff(self.always) <= 0).any():
            return "always is empty, or not ascending"
        return None

    @property
    def sources(self) -> int:
        """How many source tokens the table has a row for."""
        return self.offsets.size - 1

    def of(self, ids: Iterable[int], *, more: Iterable[int] = ()) -> Ids:
        """The candidates of one sentence, ascending: of its source tokens, those of every sentence, and `more`.

        Raises UsageError for a source token that names a language that the table was not learnt for.
        """
        sources = np.unique(np.fromiter(ids, np.int64))
        if self.foreign.size and np.isin(sources, self.foreign).any():
            raise UsageError(
                "this bundle's shortlist of target tokens was learnt for other languages than the call names: use a "
                "bundle without a shortlist, or learn one for these languages (onnxmt shortlist)"
            )
        sources = sources[(sources >= 0) & (sources < self.sources)]
        rows = [self.tokens[self.offsets[s] : self.offsets[s + 1]] for s in sources.tolist()]
        return np.unique(np.concatenate([self.always, np.fromiter(more, np.int64), *rows])).astype(np.int64)

    def batch(self, sentences: Sequence[Iterable[int]], *, more: Sequence[Iterable[int]] | None = None) -> Candidates:
        """The candidates of a batch: the union, and which of it each sentence may not say."""
        more = more or [()] * len(sentences)
        each = [self.of(ids, more=own) for ids, own in zip(sentences, more, strict=True)]
        if all(np.array_equal(each[0], one) for one in each[1:]):
            return Candidates(kept=KeptTokens(ids=each[0], vocabulary=self.vocabulary), others=None)
        union = np.unique(np.concatenate(each))
        others = np.full((len(each), union.size), -np.inf, np.float32)
        for row, own in enumerate(each):
            others[row, np.searchsorted(union, own)] = 0.0
        return Candidates(kept=KeptTokens(ids=union, vocabulary=self.vocabulary), others=others)

    def parts(self, batch: Sequence[int], sentences: Sequence[Sequence[int]]) -> list[list[int]]:
        """Cut a batch (numbers of `sentences`) where its candidates would be more than LARGEST_UNION together.

        A sentence alone may have more.
        """
        parts: list[list[int]] = []
        union = np.empty(0, np.int64)
        for index in batch:
            own = self.of(sentences[index])
            union = np.union1d(union, own)
            if parts and union.size <= LARGEST_UNION:
                parts[-1].append(index)
            else:
                parts.append([index])
                union = own
        return parts

    def save(self, path: Path) -> None:
        """Write the file; the same table gives the same bytes."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        np.savez_compressed(path, version=np.int32(_VERSION), vocabulary=np.int32(self.vocabulary), **arrays)

    @classmethod
    def load(cls, path: Path, *, vocabulary: int) -> Shortlist:
        """Read what `save` wrote, for a model with so many target tokens. Raises BundleFormatError."""
        try:
            with np.load(path, allow_pickle=False) as found:
                if set(found.files) != {*_ARRAYS, "version", "vocabulary"}:
                    raise BundleFormatError(_broken(path, f"it holds {', '.join(sorted(found.files)) or 'nothing'}"))
                version, own = (int(found[name][()]) for name in ("version", "vocabulary"))
                if version != _VERSION:
                    raise BundleFormatError(_broken(path, f"version {version} was found, {_VERSION} is read"))
                if own != vocabulary:
                    raise BundleFormatError(_broken(path, f"it is for {own} target tokens, the model has {vocabulary}"))
                return cls(vocabulary=vocabulary, **{name: found[name] for name in _ARRAYS})
        except _READ_ERRORS as error:
            raise BundleFormatError(_broken(path, str(error) or type(error).__name__)) from error


def _broken(path: Path, why: str) -> str:
    return f"{path} is not a table of a shortlist: {why}. Copy the bundle again, or make it again (onnxmt shortlist)"
