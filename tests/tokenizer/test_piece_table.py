"""A vocabulary as arrays answers as the dict it was made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onnxmt.runtime.tokenizers.piece_table import PieceTable

IDS = st.integers(0, 2**40)
VOCABULARIES = st.lists(
    st.tuples(st.text(max_size=6), IDS), unique_by=(lambda pair: pair[0], lambda pair: pair[1])
).map(dict)


@given(VOCABULARIES, st.lists(st.text(max_size=6)), st.lists(IDS))
def test_it_answers_as_a_dict(vocabulary: dict[str, int], pieces: list[str], ids: list[int]) -> None:
    table = PieceTable(vocabulary)
    pieces_of = {index: piece for piece, index in vocabulary.items()}
    assert [table.id_of(piece) for piece in [*vocabulary, *pieces]] == [
        vocabulary.get(piece) for piece in [*vocabulary, *pieces]
    ]
    assert [table.piece_of(index) for index in [*pieces_of, *ids]] == [
        pieces_of.get(index) for index in [*pieces_of, *ids]
    ]
    assert list(table) == list(vocabulary)
    assert len(table) == len(vocabulary)
    assert table.largest == max(vocabulary.values(), default=-1)


def test_literal_answers() -> None:
    table = PieceTable({"▁the": 0, "的": 7, "": 3, "\ud83d": 4})
    assert (table.id_of("的"), table.id_of("地"), table.id_of("")) == (7, None, 3)
    assert (table.piece_of(7), table.piece_of(4), table.piece_of(1), table.piece_of(-1)) == ("的", "\ud83d", None, None)
    assert "▁the" in table
    assert "the" not in table


def test_pieces_that_share_a_slot() -> None:
    vocabulary = {f"piece{number}": 2 * number for number in range(5000)}
    table = PieceTable(vocabulary)
    assert all(table.id_of(piece) == index and table.piece_of(index) == piece for piece, index in vocabulary.items())
    assert table.piece_of(1) is None
