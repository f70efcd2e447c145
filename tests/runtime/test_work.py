"""Cutting and encoding, with a tokenizer that writes down what it is asked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onnxmt.errors import InputTooLongError, UnknownLanguageError, UsageError
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction, LanguageCodes, VocabularyLimits
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.work import Engine, Work
from tests.runtime.graphs import write_fake_graphs

EOS = 0


class Notebook:
    """One id a word; `>>zho<<` and `>>deu<<` are codes; a forced first token where the target is `forced`."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.asked: list[tuple[str, str | None, str | None]] = []

    @property
    def vocabulary_limits(self) -> VocabularyLimits:
        return VocabularyLimits(source=3, target=3)

    needs_target = False

    def languages(self) -> LanguageCodes:
        return LanguageCodes(source=(), target=("zho", "deu"))

    def resolve(self, *, source: str | None = None, target: str | None = None) -> Direction:
        return Direction(source=source, target=target)

    def defaults(self) -> Direction:
        return Direction()

    def written(self, *, source: str | None = None, target: str | None = None) -> str:
        return ""

    def language_of(self, token: int) -> str | None:
        return None

    def unwritable(self, sample: str) -> str:
        return ""

    def encode(self, text: str, *, source: str | None = None, target: str | None = None) -> list[int]:
        self.asked.append((text, source, target))
        if target is None and text.startswith(">>") and text[:7] not in (">>zho<<", ">>deu<<"):
            raise UnknownLanguageError(f"unknown code in {text}")
        return [1 + (target is not None)] * len(text.split()) + [EOS]

    def decode(self, ids: Sequence[int]) -> str:
        return "译" * len(ids)

    def forced_bos_token_id(self, target: str | None = None) -> int | None:
        return 2 if target == "forced" else None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Seq2SeqModel:
    return load_model(write_fake_graphs(tmp_path_factory.mktemp("fake")), options=RuntimeOptions(threads=1))


SETTINGS = GenerationSettings(decoder_start_token_id=1, eos_token_ids=(EOS,), max_new_tokens=3)


def engine(model: Seq2SeqModel, notebook: Notebook) -> Engine:
    return Engine(
        model=model, tokenizer=notebook, settings=SETTINGS, limit=notebook.limit, source_language="en", target_language="zh"
    )  # fmt: skip


def asked(model: Seq2SeqModel, text: str, notebook: Notebook | None = None, **options: object) -> list[tuple]:
    notebook = notebook or Notebook()
    work = Work(engine(model, notebook), TranslateOptions(beams=1, **options), "raise")  # type: ignore[arg-type]
    list(work.translate([text]))
    return notebook.asked


def test_languages_reach_the_tokenizer(model: Seq2SeqModel) -> None:
    assert asked(model, "A cat. A dog.", source="en", target="zho") == [
        ("A cat.", "en", "zho"), ("A dog.", "en", "zho"),
    ]  # fmt: skip
    assert asked(model, " A cat. ", split=False, target="zho") == [(" A cat. ", None, "zho")]


def test_a_leading_code_counts_for_every_sentence(model: Seq2SeqModel) -> None:
    assert asked(model, ">>deu<< A cat. A dog.") == [(">>deu<< A cat.", None, None), ("A dog.", None, "deu")]
    assert asked(model, "\n >>deu<< A cat.\nA dog.") == [(">>deu<< A cat.", None, None), ("A dog.", None, "deu")]


def test_a_leading_code_counts_for_every_part_of_a_long_sentence(model: Seq2SeqModel) -> None:
    found = asked(model, ">>deu<< one two three, four five six", Notebook(limit=6))

    assert (">>deu<< one two three,", None, None) in found
    assert found[-1] == ("four five six", None, "deu")


def test_a_leading_code_joins_in_its_own_language(model: Seq2SeqModel) -> None:
    def text(source: str) -> str:
        return next(Work(engine(model, Notebook()), TranslateOptions(beams=1), "raise").translate([source])).text

    assert text(">>deu<< A cat. A dog.").count(" ") == 1
    assert text(">>zho<< A cat. A dog.").count(" ") == 0
    assert text("A cat. A dog.").count(" ") == 0


def test_an_unknown_leading_code_is_an_error_and_one_inside_is_text(model: Seq2SeqModel) -> None:
    with pytest.raises(UnknownLanguageError):
        asked(model, ">>xxx<< A cat.")
    assert asked(model, "A cat. >>NOTE<< A dog.")[-1][0].startswith(" >>NOTE<<")
    assert asked(model, ">>NOTE<< A dog.", target="zho") == [(">>NOTE<< A dog.", None, "zho")]


def test_the_targets_first_token_is_forced_for_that_call_alone(model: Seq2SeqModel) -> None:
    """Case G4: nothing of one target is left in the next call."""

    def first(target: str | None) -> int:
        work = Work(engine(model, Notebook()), TranslateOptions(beams=1, target=target), "raise")
        return next(work.translate(["A cat."])).tokens[0]

    assert [first(target) for target in (None, "forced", None, "forced", "zho")] == [3, 2, 3, 2, 3]


def test_the_limit_holds_for_every_part(model: Seq2SeqModel) -> None:
    notebook = Notebook(limit=5)
    words = " ".join(f"w{i}" for i in range(40))

    (found,) = Work(engine(model, notebook), TranslateOptions(beams=1), "raise").translate([words])

    assert all(len(segment.source.split()) + 1 <= 5 for segment in found.segments)
    assert " ".join(segment.source for segment in found.segments) == words
    with pytest.raises(InputTooLongError, match="41 tokens long and the model takes at most 5"):
        asked(model, words, notebook, split=False)


def test_a_limit_that_nothing_fits_is_one_clear_error(model: Seq2SeqModel) -> None:
    with pytest.raises(UsageError, match="cannot be split further"):
        asked(model, "word", Notebook(limit=1))
