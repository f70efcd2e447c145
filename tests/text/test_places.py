"""Places of a changed text in the text before the change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.text.normalize import normalize_punctuation
from onnxmt.text.places import SpacingMap, original_span
from onnxmt.text.unwrap import unwrap_lines


@pytest.mark.parametrize(
    ("original", "word"),
    [
        ("We saw — “there” — 4711 elephants…", "4711"),
        ("Wait… 5 of 12 — no, “7”!", "12"),
        ("So\u00adft hyp\u00adhens and 33 more…", "33"),
        ("Ｆｕｌｌ　ｗｉｄｔｈ… and 99 — ok", "99"),
    ],
)
def test_a_word_of_a_normalized_sentence_is_found_again(original, word):
    changed = normalize_punctuation(original)
    assert changed != original
    place = changed.index(word)
    start, end = original_span((place, place + len(word)), changed=changed, original=original)
    assert original[start:end] == word


def test_the_whole_is_the_whole_and_equal_lengths_are_the_same_place():
    assert original_span((0, 5), changed="a...b", original="a…b") == (0, 3)
    assert original_span((2, 4), changed="open", original="OPEN") == (2, 4)


@given(st.text("ab 1“”…—\u00ad", max_size=20), st.integers(0, 60), st.integers(1, 60))
@settings(max_examples=300, deadline=None)
def test_every_place_is_inside_the_original(original, start, length):
    changed = normalize_punctuation(original)
    end = min(start + length, len(changed))
    if start < end:
        first, last = original_span((start, end), changed=changed, original=original)
        assert 0 <= first < last <= len(original)


WORDS = st.sampled_from(["one", "two", "three", "well-", "a", "4711,", "word."])


@given(st.lists(st.lists(WORDS, min_size=1, max_size=14), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_words_of_an_unwrapped_text_are_found_again(lines):
    original = "\n  ".join(" ".join(line) for line in lines)
    changed = unwrap_lines(original)
    places = SpacingMap(changed=changed, original=original)
    position = 0
    for word in changed.split():
        position = changed.index(word, position)
        start, end = places.span(position, position + len(word))
        assert "".join(original[start:end].split()) == word
        position += len(word)


def test_spaces_alone_have_a_place():
    places = SpacingMap(changed="a  b", original="a\n b")
    assert places.span(1, 2) == (3, 3)
    assert SpacingMap(changed="a ", original="a\n").span(1, 2) == (1, 1)
    assert SpacingMap(changed="", original="").span(0, 0) in {(0, 0), (1, 1)}
