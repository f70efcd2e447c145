"""The promise of format 1: every later version loads this bundle and says what PyTorch said (docs/bundle-format.md)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from tests.runtime.conftest import FORMAT1

RAW = {beams: TranslateOptions(beams=beams, split=False) for beams in (1, 4)}


@pytest.mark.parametrize(("beams", "key"), [(1, "greedy"), (4, "beam")])
def test_tokens_text_and_scores_are_pytorchs(
    translator: Translator, expected: list[dict[str, Any]], beams: int, key: str
) -> None:
    sources = [row["source"] for row in expected]

    found = translator.translate_detailed(sources, options=RAW[beams])

    assert [list(f.tokens) for f in found] == [row[key]["tokens"] for row in expected]
    assert [f.text for f in found] == [row[key]["text"] for row in expected]
    if key == "beam":
        assert [f.score for f in found] == pytest.approx([row["beam"]["score"] for row in expected], abs=1e-4)


def test_source_tokens_are_pytorchs(translator: Translator, expected: list[dict[str, Any]]) -> None:
    assert [translator.tokenizer.encode(row["source"]) for row in expected] == [
        row["source_tokens"] for row in expected
    ]


def test_one_literal_sentence(translator: Translator) -> None:
    assert translator.translate("The library opens at nine.") == "图书馆九点开门。"
    assert translator.translate("It rained. We stayed in.") == "下雨了。我们待在家里。"  # case S4: no space


def test_it_works_elsewhere_with_only_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case T1: a copy, another current folder, nothing else to find."""
    copy = shutil.copytree(FORMAT1 / "bundle", tmp_path / "副本 copy")
    monkeypatch.chdir("/")

    with Translator.load(copy, options=RuntimeOptions(threads=1)) as loaded:
        assert loaded.translate("Thank you.") == "谢谢。"


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_number_of_threads_changes_no_token(expected: list[dict[str, Any]], threads: int) -> None:
    """Case M3."""
    with Translator.load(FORMAT1 / "bundle", options=RuntimeOptions(threads=threads)) as loaded:
        for _ in range(3):
            found = loaded.translate_detailed([row["source"] for row in expected], options=RAW[4])
            assert [list(f.tokens) for f in found] == [row["beam"]["tokens"] for row in expected]
            assert [f.score for f in found] == pytest.approx([row["beam"]["score"] for row in expected], abs=1e-4)
