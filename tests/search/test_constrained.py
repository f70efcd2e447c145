from __future__ import annotations

import re

import numpy as np
import pytest

from onnxmt.runtime.kept_tokens import KeptTokens
from onnxmt.runtime.search.constrained import TermCosts, search_constrained
from onnxmt.runtime.search.terms import TargetVocabulary, Wanted, WantedTerms
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizers.writing import token_bytes

# Two source tokens, A and B, and a model that writes "a" for A, "b" for B, and ends. Here letters stand for Han
# characters, which need no spaces between them.
PIECES = ["</s>", "<pad>", "▁a", "b", "x", "y", "xy", "▁x", "c", "▁", "!", "▁b", "a"]
HAN = str.maketrans("abxyc", "甲乙丙丁戊")
IDS = {piece: index for index, piece in enumerate(PIECES)}
WRITTEN = token_bytes(
    {piece.translate(HAN) if index > 1 else piece: index for piece, index in IDS.items()}, skipped=[0, 1]
)
VOCABULARY = TargetVocabulary(WRITTEN)
SETTINGS = GenerationSettings(
    decoder_start_token_id=1, eos_token_ids=(0,), pad_token_id=1, max_length=12, num_beams=4, length_penalty=1.0
)


class Model:
    """Writes what it sees of the source in order: `▁a` or `a` for A, then `b` for B; seeing neither it ends."""

    def __init__(self, kept: KeptTokens | None = None) -> None:
        self.kept = kept
        self.histories: list[tuple[int, ...]] = []
        self.rows = 0

    def __call__(self, tokens, parents, view):
        first = not self.histories
        if parents is not None:
            self.histories = [(() if first else self.histories[p]) for p in parents.tolist()]
        self.histories = [(*h, int(t)) for h, t in zip(self.histories or [()] * len(tokens), tokens[:, 0], strict=True)]
        self.rows = max(self.rows, len(tokens))
        logits = np.full((len(tokens), len(PIECES)), -4.0, np.float32)
        for row, (history, sees) in enumerate(zip(self.histories, view, strict=True)):
            ids = history[1:] if self.kept is None else self.kept.ids[list(history[1:])].tolist()
            text = "".join(PIECES[i] for i in ids).replace("▁", "")
            todo = [letter for letter, there in zip("ab", sees.tolist(), strict=True) if there and letter not in text]
            logits[row, IDS["▁a"] if todo and todo[0] == "a" else IDS["b"] if todo else 0] = 6.0
        return logits if self.kept is None else logits[:, self.kept.ids]


def search(wanted, *, settings=SETTINGS, costs=None, kept=None, vocabulary=VOCABULARY, sentences=1):
    model = Model(kept)
    han = [(term.translate(HAN), source, standin.translate(HAN)) for term, source, standin in wanted]
    terms = WantedTerms([Wanted(text=t, pattern=re.compile(re.escape(t)), source=s, standin=u) for t, s, u in han])
    found = search_constrained(
        model, mask=np.ones((sentences, 2), np.int64), terms=[terms] * sentences, vocabulary=vocabulary,
        settings=settings, costs=costs, kept=kept,
    )  # fmt: skip
    return found, model


def text(hypothesis) -> str:
    return "".join(PIECES[i] for i in hypothesis.tokens if i).replace("▁", " ").strip()


def test_a_term_is_written_where_its_source_is_translated():
    for term, source, expected in (("xy", (0,), "xyb"), ("xy", (1,), "axy"), ("x", (1,), "ax"), ("yc", (0,), "ycb")):
        (best, *_), *_ = search([(term, source, term)])[0]
        assert text(best.hypothesis) == expected
        assert best.hypothesis.finished
        assert best.stands == ()


def test_tokens_alone_do_not_know_the_place():
    (best, *_), *_ = search([("xy", (0,), "xy")], costs=TermCosts(placing=float("inf"), least_own=float("-inf")))[0]
    assert "xy" in text(best.hypothesis)
    assert "a" in text(best.hypothesis)  # the source word is translated beside the term


def test_a_stand_in_is_written_and_named():
    (best, *_), *_ = search([("unwritable 囍", (1,), "x")])[0]
    assert text(best.hypothesis) == "ax"
    (stand,) = best.stands
    assert (stand.term, stand.text, stand.number) == (0, "丙", 0)


def test_a_second_place_of_a_stand_in_is_told_apart():
    (best, *_), *_ = search([("term", (1,), "a")])[0]
    assert text(best.hypothesis) == "aa"
    assert [stand.number for stand in best.stands] == [1]


def test_several_terms_and_one_wanted_twice():
    (best, *_), *_ = search([("x", (0,), "x"), ("y", (1,), "y")])[0]
    assert text(best.hypothesis) == "xy"
    (best, *_), *_ = search([("x", (0,), "x"), ("x", (1,), "x")])[0]
    assert text(best.hypothesis).count("x") == 2


def test_a_placed_word_is_not_grown_on():
    latin = TargetVocabulary(token_bytes(IDS, skipped=[0, 1]))
    terms = WantedTerms([Wanted(text="xy", pattern=re.compile(r"\bxy\b"), source=(0,), standin="x")])
    ((best, *_),) = search_constrained(
        Model(), mask=np.ones((1, 2), np.int64), terms=[terms], vocabulary=latin, settings=SETTINGS
    )
    assert not re.search(r"x\w|\wx", text(best.hypothesis))


def test_what_the_model_says_anyway_counts():
    (best, *_), *_ = search([("b", (1,), "b")])[0]
    assert text(best.hypothesis) == "ab"


def test_more_outputs_are_sorted_and_all_have_the_term():
    settings = GenerationSettings.from_dict({**SETTINGS.to_dict(), "num_return_sequences": 3})
    (outputs,) = search([("xy", (0,), "xy")], settings=settings)[0]
    assert len(outputs) == 3
    assert all("xy" in text(one.hypothesis) for one in outputs)
    scores = [one.hypothesis.score for one in outputs]
    assert scores == sorted(scores, reverse=True)


def test_banned_tokens_stay_banned():
    settings = GenerationSettings.from_dict(
        {**SETTINGS.to_dict(), "bad_words_ids": [[IDS["xy"]], [IDS["x"]], [IDS["▁x"]]]}
    )
    outputs = search([("xy", (0,), "xy")], settings=settings)[0][0]
    assert outputs
    assert all("x" not in text(one.hypothesis) for one in outputs)  # missed, and told by the caller


def test_a_batch_is_what_single_sentences_are():
    single = search([("xy", (0,), "xy")])[0][0]
    assert search([("xy", (0,), "xy")], sentences=3)[0] == [single] * 3


def test_a_trimmed_head_is_searched_in_places():
    kept = KeptTokens(ids=np.array([0, 1, 2, 3, 4, 5, 7, 9, 12], np.int64), vocabulary=len(PIECES))
    vocabulary = TargetVocabulary(WRITTEN, kept=kept)
    (best, *_), *_ = search([("xy", (0,), "xy")], kept=kept, vocabulary=vocabulary)[0]
    assert text(best.hypothesis) == "xyb"
    assert IDS["xy"] not in best.hypothesis.tokens


@pytest.mark.parametrize(
    ("term", "writable"), [("xy", True), ("ab c", True), ("c x", True), ("囍", False), ("xyxyc!", True), ("b", True)]
)
def test_what_tokens_can_write(term, writable):
    assert VOCABULARY.can_write(term.translate(HAN)) is writable


def test_bytes_of_pieces():
    written = token_bytes({"▁世": 0, "<0xE4>": 1, "<0xe4>": 2, "a▁b": 3, "</s>": 4}, skipped=[4])
    assert written == {0: " 世".encode(), 1: b"\xe4", 2: b"<0xe4>", 3: b"a b"}
    level = token_bytes({"Ġthe": 0, "ä¸ĸ": 1, "<s>": 2}, byte_level=True, skipped=[2])
    assert level == {0: b" the", 1: "世".encode()}
    whole = TargetVocabulary(token_bytes({"<0xE4>": 1, "<0xB8>": 2, "<0x96>": 3}))
    assert whole.can_write("世")
