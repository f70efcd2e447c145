"""Terms that an output must hold, as tokens: which tokens begin one, which go on with it, which a text has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxmt.runtime.kept_tokens import KeptTokens
from onnxmt.runtime.scores import Ids

__all__ = ["TargetVocabulary", "Wanted", "WantedTerms"]


class TargetVocabulary:
    """What each token writes, and the tokens that write a given text. Immutable; threads may share it.

    `written`: id → bytes. `kept`: the tokens of a trimmed head; ids are then their places, as in search.
    """

    def __init__(self, written: Mapping[int, bytes], *, kept: KeptTokens | None = None) -> None:
        if kept is not None:
            written = {place: written[token] for place, token in enumerate(kept.ids.tolist()) if token in written}
        self._written = dict(written)
        self._tokens: dict[bytes, list[int]] = {}
        for index, data in self._written.items():
            self._tokens.setdefault(data, []).append(index)
        self._longest = max(map(len, self._tokens), default=0)

    def text_of(self, token: int) -> bytes:
        """What a token writes; nothing for a special one."""
        return self._written.get(token, b"")

    def can_write(self, term: str) -> bool:
        """Whether tokens can write this term and nothing else, but for a space in front."""
        return self._ways(term)[0]

    def writers(self, term: str) -> frozenset[int]:
        """The tokens that some way of writing a beginning of this term has."""
        return self._ways(term)[1]

    def _ways(self, term: str) -> tuple[bool, frozenset[int]]:
        data = term.encode("utf-8", "ignore")
        reached, used = {0}, set[int]()
        for place in range(len(data)):
            if place in reached:
                tokens, steps = self.continuations(data[place:], first=place == 0)
                reached.update(place + step for step in steps.tolist())
                used.update(tokens.tolist())
        return len(data) in reached, frozenset(used)

    def continuations(self, rest: bytes, *, first: bool) -> tuple[Ids, Ids]:
        """The tokens that write a beginning of `rest`, and how many bytes of it each writes.

        With `first` a token may also write a space before it.
        """
        tokens: list[int] = []
        steps: list[int] = []
        for length in range(1, min(len(rest), self._longest) + 1):
            for data in (rest[:length], b" " + rest[:length]) if first else (rest[:length],):
                for token in self._tokens.get(data, ()):
                    tokens.append(token)
                    steps.append(length)
        return np.array(tokens, np.int64), np.array(steps, np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A term that an output must hold: its text, how it is found there, and the source tokens that it stands for.

    standin: what the search may write in its place, for the caller to replace; the text itself where there is no other.
    """

    text: str
    pattern: re.Pattern[str]
    source: tuple[int, ...]
    standin: str


class WantedTerms:
    """All that one sentence's output must hold; a term that is wanted twice is there twice."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted = tuple(wanted)
        self.texts = [one.text.encode() for one in wanted]
        self.standins = [one.standin.encode() for one in wanted]
        groups: dict[str, list[int]] = {}
        for number, one in enumerate(wanted):
            groups.setdefault(one.text, []).append(number)
        # the longest is looked for first: a term inside another one counts for that one only
        self._groups = [(text, groups[text]) for text in sorted(groups, key=lambda text: (-len(text), text))]

    def data(self, number: int, *, placed: bool) -> bytes:
        """What is written for a term."""
        return self.standins[number] if placed else self.texts[number]

    def missing(self, text: str, placed: frozenset[int]) -> tuple[int, tuple[int, ...]]:
        """How many terms a text lacks, and the numbers of those that may be written next: none that was placed."""
        lacking, total = [], 0
        for term, numbers in self._groups:
            found = sum(number in placed and self.standins[number] != self.texts[number] for number in numbers)
            if term in text:
                text, more = self.wanted[numbers[0]].pattern.subn("\0", text)
                found += more
            if found < len(numbers):
                total += len(numbers) - found
                lacking += [number for number in numbers if number not in placed]
        return total, tuple(lacking)
