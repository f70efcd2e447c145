"""A judge that makes numbers up in the shapes of a large model, to see how large a recording gets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxmt.measure.expected import ExpectedSentence, JudgeFacts, Samples, SourceLine


class RandomJudge:
    """Translations have 40 tokens, so that all 8 steps are recorded; nothing in them compresses."""

    def __init__(self, *, vocabulary: int, layers: int, heads: int, positions: int | None = 512) -> None:
        self._vocabulary, self._layers, self._heads, self._positions = vocabulary, layers, heads, positions
        self._random = np.random.default_rng(0)
        self._logits = self._random.normal(scale=3, size=2 * vocabulary).astype(np.float32)

    def facts(self) -> JudgeFacts:
        return JudgeFacts(
            kind="live", versions={"torch": "2.13.0", "transformers": "5.24.0"}, date="2025-01-01", model="org/name",
            revision="c" * 40, identity=None, max_new_tokens=64, positions=self._positions,
        )  # fmt: skip

    def tokenize(self, texts: Sequence[str]) -> list[SourceLine]:
        return [SourceLine(text=text, tokens=self._tokens(12)) for text in texts]

    def judge(self, lines: Sequence[SourceLine]) -> list[ExpectedSentence]:
        return [self._sentence(line) for line in lines]

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.integers(0, self._vocabulary, size=count).tolist())

    def _samples(self, *shape: int) -> Samples:
        return Samples(shape=shape, values=self._random.normal(size=int(np.prod(shape))).astype(np.float32))

    def _step(self) -> Samples:
        first = int(self._random.integers(0, self._vocabulary))
        return Samples(shape=(self._vocabulary,), values=self._logits[first : first + self._vocabulary])

    def _sentence(self, line: SourceLine) -> ExpectedSentence:
        text = "".join(chr(0x4E00 + int(code)) for code in self._random.integers(0, 8000, size=60))
        states = range(2 * self._layers)
        return ExpectedSentence(
            source=line.tokens,
            start_token=1,
            greedy=self._tokens(40),
            beam=self._tokens(40),
            greedy_text=text,
            beam_text=text[::-1],
            cross=tuple(self._samples(self._heads, len(line.tokens), 64) for _ in states),
            logits=tuple(self._step() for _ in range(8)),
            present=tuple(self._samples(self._heads, 8, 64) for _ in states),
        )
