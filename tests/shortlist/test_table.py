"""The table: what is learnt, what a batch may say, the file."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import onnxmt.lexical_table as lexical_table
from onnxmt.errors import BundleFormatError, UsageError
from onnxmt.lexical_table import Pairs, learn_lexicon
from onnxmt.runtime import shortlist as module
from onnxmt.runtime.shortlist import Shortlist


def table(
    rows: list[list[int]], *, always: list[int], vocabulary: int = 20, foreign: tuple[int, ...] = ()
) -> Shortlist:
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    tokens = np.array([token for row in rows for token in row], np.int32)
    return Shortlist(
        offsets=offsets, tokens=tokens, always=np.array(always, np.int32), vocabulary=vocabulary,
        foreign=np.array(foreign, np.int32),
    )  # fmt: skip


def rows_of(learnt: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    offsets, tokens = learnt
    return [tokens[a:b].tolist() for a, b in pairwise(offsets)]


# the house 1 2 → das haus 5 6; the book 1 3 → das buch 5 7; a book 4 3 → ein buch 8 7
HOUSES = [([1, 2], [5, 6]), ([1, 3], [5, 7]), ([4, 3], [8, 7])]


def test_the_textbook_example_is_learnt() -> None:
    learnt = learn_lexicon(Pairs.of(HOUSES * 20), source_vocabulary=5, target_vocabulary=10, per_token=1)
    assert rows_of(learnt) == [[], [5], [6], [7], [8]]


def test_more_candidates_are_kept_in_order_of_id_and_each_token_counts_once_a_sentence() -> None:
    two = learn_lexicon(Pairs.of(HOUSES * 20), source_vocabulary=5, target_vocabulary=10, per_token=2)
    assert [row == sorted(row) and len(row) <= 2 for row in rows_of(two)] == [True] * 5
    assert {5, 6} >= set(rows_of(two)[2]) >= {6}
    again = [(source * 3, target * 2) for source, target in HOUSES] * 20
    once = learn_lexicon(Pairs.of(again), source_vocabulary=5, target_vocabulary=10, per_token=2)
    assert rows_of(once) == rows_of(two)


def test_parts_of_the_text_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    pairs = [(rng.integers(0, 30, rng.integers(1, 9)), rng.integers(0, 40, rng.integers(1, 9))) for _ in range(60)]
    arguments = {"source_vocabulary": 30, "target_vocabulary": 40, "per_token": 6}
    whole = learn_lexicon(Pairs.of(pairs), **arguments)
    monkeypatch.setattr(lexical_table, "_CELLS_AT_ONCE", 50)
    assert len(list(Pairs.of(pairs).parts())) > 10
    assert rows_of(learn_lexicon(Pairs.of(pairs), **arguments)) == rows_of(whole)


def test_what_is_followed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexical_table, "_LARGEST_LEXICON", 7)
    monkeypatch.setattr(lexical_table, "_CELLS_AT_ONCE", 6)
    learnt = learn_lexicon(Pairs.of(HOUSES * 20), source_vocabulary=5, target_vocabulary=10, per_token=3)
    assert 0 < learnt[1].size <= 7


def test_a_sentence_may_say_the_candidates_of_its_tokens_and_those_of_every_sentence() -> None:
    found = table([[], [3, 9], [9, 12]], always=[0, 1])
    assert found.of([1, 2, 2]).tolist() == [0, 1, 3, 9, 12]
    assert found.of([0, 17]).tolist() == [0, 1]
    assert found.of([1], more=[4, 3]).tolist() == [0, 1, 3, 4, 9]


def test_a_batch_has_the_union_and_each_sentence_its_own() -> None:
    found = table([[], [3, 9], [9, 12]], always=[0, 1]).batch([[1], [2]])
    assert found.kept.ids.tolist() == [0, 1, 3, 9, 12]
    assert found.others is not None
    assert np.isneginf(found.others).tolist() == [[False] * 4 + [True], [False, False, True, False, False]]
    alike = table([[], [3, 9], [9, 12]], always=[0, 1]).batch([[1], [1, 0]])
    assert alike.others is None


def test_a_batch_is_cut_where_its_candidates_would_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    found = table([[2, 3], [3, 4], [5, 6], [7, 8, 9, 10, 11]], always=[0])
    monkeypatch.setattr(module, "LARGEST_UNION", 5)
    assert found.parts([1, 0, 2, 3], [[0], [1], [2], [3]]) == [[1, 0], [2], [3]]


def test_a_source_token_of_another_language_is_refused() -> None:
    found = table([[], [3]], always=[0], foreign=(17,))
    with pytest.raises(UsageError, match="learnt for other languages than the call names"):
        found.of([1, 17])


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    first = table([[], [3, 9], [9, 12]], always=[0, 1], foreign=(7,))
    for name in ("a.npz", "b.npz"):
        first.save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = Shortlist.load(tmp_path / "a.npz", vocabulary=20)
    assert [getattr(again, n).tolist() for n in ("offsets", "tokens", "always", "foreign")] == [
        [0, 0, 2, 4], [3, 9, 9, 12], [0, 1], [7],
    ]  # fmt: skip
    with pytest.raises(BundleFormatError, match="for 20 target tokens, the model has 21"):
        Shortlist.load(tmp_path / "a.npz", vocabulary=21)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "shortlist.npz"
    table([[], [3, 9]], always=[0, 1]).save(path)
    whole = path.read_bytes()
    damaged = [b"", b"PK", whole[: len(whole) // 2], whole[:-30], b"\x93NUMPY" + whole]
    damaged += [whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :] for place in range(60, 400, 37)]
    for content in damaged:
        path.write_bytes(content)
        with contextlib.suppress(BundleFormatError):  # a byte of a header that nobody reads says nothing
            Shortlist.load(path, vocabulary=20)
            assert len(content) == len(whole)
    path.write_bytes(whole[:-30])
    with pytest.raises(
        BundleFormatError, match=r"shortlist\.npz is not a table of a shortlist: .* Copy the bundle again"
    ):
        Shortlist.load(path, vocabulary=20)
    with pytest.raises(BundleFormatError, match="is not a table"):
        Shortlist.load(tmp_path / "none.npz", vocabulary=20)


def saved(path: Path, **changed: object) -> Path:
    arrays = {
        "offsets": np.array([0, 1], np.int32), "tokens": np.array([3], np.int32), "always": np.array([0], np.int32),
        "foreign": np.empty(0, np.int32), "version": np.int32(1), "vocabulary": np.int32(20),
    }  # fmt: skip
    np.savez(path, **(arrays | changed))
    return path


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": np.int32(2)}, "version 2 was found, 1 is read"),
        ({"extra": np.int32(2)}, "it holds always, extra"),
        ({"offsets": np.array([0, 5], np.int32)}, "offsets end at 5, and there are 1 tokens"),
        ({"offsets": np.array([0, 2, 1], np.int32)}, "offsets do not begin with 0, or fall"),
        ({"tokens": np.array([20], np.int32)}, "tokens holds ids outside of 0 to 19"),
        ({"tokens": np.array([3], np.int64)}, "tokens is int64"),
        ({"always": np.array([2, 1], np.int32)}, "always is empty, or not ascending"),
        ({"tokens": np.array([{}], object)}, "is not a table"),
    ],
)
def test_a_wrong_table_is_refused(changed: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(BundleFormatError, match=said):
        Shortlist.load(saved(tmp_path / "t.npz", **changed), vocabulary=20)
