"""The rows of a step of constrained search: what each continues, its token, and what it sees of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from onnxmt.runtime.scores import Ids
from onnxmt.runtime.search.terms import WantedTerms

if TYPE_CHECKING:
    from onnxmt.runtime.search.constrained import Beam

__all__ = ["RowLayout"]


class RowLayout:
    """Gives beams their rows, one step at a time."""

    def __init__(self, mask: Ids, terms: Sequence[WantedTerms]) -> None:
        self._mask, self._terms = mask, terms
        self._parents: list[int] = []
        self._tokens: list[int] = []
        self._views: list[Ids] = []

    @property
    def parents(self) -> Ids:
        """int64 [R]: the row of the last step that each row continues; on the first step its sentence."""
        return np.array(self._parents, np.int64)

    @property
    def tokens(self) -> Ids:
        """int64 [R]."""
        return np.array(self._tokens, np.int64)

    @property
    def views(self) -> Ids:
        """int64 [R, S]: 1 for the source tokens that a row sees."""
        return np.array(self._views)

    def first(self, beam: Beam) -> Beam:
        """The beam that a sentence starts with, with its rows."""
        return self._placed(beam, beam.sentence, {}, 0)

    def next(self, beam: Beam, *, after: Beam, token: int) -> Beam:
        """A beam with its rows; `after` is the one that it continues by `token`."""
        return self._placed(beam, after.row, after.unseeing, token)

    def _placed(self, beam: Beam, row: int, unseeing: dict[int, int], token: int) -> Beam:
        if beam.term >= 0:  # a placed term is written by the row that does not see its source, from its first token on
            hidden = beam.hidden | {beam.term} if beam.placed else beam.hidden
            row = unseeing.get(beam.term, row) if beam.placed else row
            return replace(beam, row=self._row(row, token, beam, hidden), unseeing={})
        own = self._row(self._origin(beam, row, unseeing), token, beam, beam.hidden)
        blind = {
            number: self._row(unseeing.get(number, row), token, beam, beam.hidden | {number})
            for number in self._terms[beam.sentence].missing(beam.said, beam.hidden)[1]
        }
        return replace(beam, row=own, unseeing=blind)

    def _origin(self, beam: Beam, row: int, unseeing: dict[int, int]) -> int:
        """The row to continue: where a whole term was placed by its first token, that which does not see its source."""
        placed = [number for number in beam.hidden if number in unseeing]
        return unseeing[placed[0]] if placed else row

    def _row(self, parent: int, token: int, beam: Beam, hidden: frozenset[int]) -> int:
        view = self._mask[beam.sentence]
        if hidden:
            view = view.copy()
            for number in hidden:
                view[list(self._terms[beam.sentence].wanted[number].source)] = 0
        self._parents.append(parent)
        self._tokens.append(token)
        self._views.append(view)
        return len(self._parents) - 1
