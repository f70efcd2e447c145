"""Evaluation sets: what is read, what is refused, how it is cut, and what counts as a loop."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.errors import UnknownLanguageError, UsageError
from onnxmt.manifest import Languages
from onnxmt.measure.direction import requested_language, required_language, scored_language, texts_for
from onnxmt.measure.outputs import Output, OutputCounts, count_faults, is_loop
from onnxmt.measure.sentences import verification_sentences
from onnxmt.measure.texts import (
    EvaluationSet,
    joined,
    named_texts,
    parse_table,
    parts_of,
    read_lines,
    read_parallel,
    shipped_texts,
)


def test_the_shipped_set_is_large_referenced_and_disjoint_from_the_verification_set() -> None:
    texts = shipped_texts()
    assert texts.lines == 640
    assert len(texts.references) == 1
    assert (texts.source_language, texts.target_language, texts.shipped) == ("en", "zh", True)
    assert texts.sources is not None
    assert not set(texts.sources) & {sentence.text for sentence in verification_sentences().sentences}
    assert len(set(texts.sources)) == texts.lines
    domains = [part for part in parts_of(texts) if part.kind == "domain"]
    assert {"short", "long", "numbers", "names", "colloquial", "technical"} <= {part.name for part in domains}
    assert {len(part.lines) for part in domains} == {80}


def test_a_table_may_have_references_or_none() -> None:
    found = parse_table("a\tOne.\t一。\t壹。\n\nb\tTwo.\t二。\t贰。\n", name="x.tsv")
    assert found.sources == ("One.", "Two.")
    assert found.references == (("一。", "二。"), ("壹。", "贰。"))
    assert found.domains == ("a", "b")
    assert not found.shipped
    assert parse_table("a\tOne.\n", name="x.tsv").references == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tOne.\t一。\nb\tTwo.\n\nThree.\na\t\t三。", r"x.tsv: line\(s\) 2, 4, 5 are not DOMAIN, tab, SOURCE"),
        ("\n\n", "x.tsv holds no line"),
    ],
)
def test_every_bad_line_of_a_table_is_named(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_table(text, name="x.tsv")


def test_only_line_ends_end_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("\ufeffone\u2028still one\r\n\r\ntwo\x0bstill two\n".encode())
    assert read_lines(tmp_path / "a") == ("one\u2028still one", "", "two\x0bstill two")
    (tmp_path / "b").write_bytes(b"last line without an end")
    assert read_lines(tmp_path / "b") == ("last line without an end",)
    (tmp_path / "c").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read_lines(tmp_path / "c")
    with pytest.raises(UsageError, match="No such file"):
        read_lines(tmp_path / "absent")


def test_unequal_numbers_of_lines_are_refused_with_both(tmp_path: Path) -> None:
    (tmp_path / "src").write_text("1\n2\n3\n")
    (tmp_path / "ref").write_text("1\n2\n")
    with pytest.raises(UsageError, match=r"src has 3, .*ref has 2 lines"):
        read_parallel(tmp_path / "src", [tmp_path / "ref"])


def test_a_set_by_name_is_shipped_a_table_or_a_folder(tmp_path: Path) -> None:
    assert named_texts("shipped").sha256 == shipped_texts().sha256
    (tmp_path / "x.tsv").write_text("a\tOne.\t一。\n", encoding="utf-8")
    assert named_texts(str(tmp_path / "x.tsv")).name == "x.tsv"
    folder = tmp_path / "news"
    folder.mkdir()
    for name, text in (("src.en.txt", "One.\n"), ("refA.zh.txt", "一。\n"), ("refB.zh.txt", "壹。\n")):
        (folder / name).write_text(text, encoding="utf-8")
    found = named_texts(str(folder))
    assert (found.name, found.sources, found.references) == ("news", ("One.",), (("一。",), ("壹。",)))
    both = joined([found, parse_table("a\tTwo.\t二。\t贰。", name="y")])
    assert (both.name, both.sources, both.origins) == ("news + y", ("One.", "Two."), ("news", "y"))
    assert [(part.kind, part.name) for part in parts_of(both)] == [("all", "all"), ("set", "news"), ("set", "y")]
    with pytest.raises(UsageError, match="there is no evaluation set 'newz'"):
        named_texts("newz")
    with pytest.raises(UsageError, match=r"news has 2, x\.tsv has 1"):
        joined([found, named_texts(str(tmp_path / "x.tsv"))])
    (folder / "src.de.txt").write_text("x\n")
    with pytest.raises(UsageError, match=r"holds 2 files src\.\*"):
        named_texts(str(folder))


@given(st.lists(st.text(alphabet="ab ", min_size=1, max_size=30), min_size=3, max_size=40))
def test_thirds_hold_every_line_once_from_short_to_long(sources: list[str]) -> None:
    thirds = [part.lines for part in parts_of(EvaluationSet(name="x", sources=tuple(sources))) if part.kind == "third"]
    assert sorted(line for lines in thirds for line in lines) == list(range(len(sources)))
    assert max(map(len, thirds)) - min(map(len, thirds)) <= 1
    lengths = [[len(sources[line]) for line in lines] for lines in thirds]
    assert max(lengths[0]) <= min(lengths[1])
    assert max(lengths[1]) <= min(lengths[2])


def test_sets_with_different_content_have_different_fingerprints() -> None:
    texts = shipped_texts()
    assert texts.sha256 == shipped_texts().sha256
    assert len({texts.sha256, texts.swapped().sha256, texts.without_references().sha256}) == 3


@pytest.mark.parametrize(
    ("source", "target", "between", "references"),
    [
        (("eng",), ("zho",), ("eng", "zho"), 1),
        (("en",), ("nan", "yue_Hant", "cmn_Hans"), ("en", "cmn_Hans"), 1),
        (("en",), ("yue_Hant", "lzh_Hant"), ("en", "yue_Hant"), 1),
        (("zho",), ("eng",), ("zho", "eng"), 1),
        (("deu_Latn", "eng_Latn", "zho_Hans"), ("eng_Latn", "zho_Hant", "zho_Hans"), ("eng_Latn", "zho_Hans"), 1),
        (("en",), ("de",), ("en", None), 0),
        (("zh",), ("ja",), ("zh", None), 0),
        ((), (), ("en", None), 0),
        ((), ("zho",), ("en", "zh"), 1),
        ((), ("eng",), ("zh", "en"), 1),
        ((), ("deu",), ("en", None), 0),
    ],
)
def test_the_shipped_set_serves_a_model_as_far_as_its_languages_go(
    source: tuple[str, ...], target: tuple[str, ...], between: tuple[str, str | None], references: int
) -> None:
    found = texts_for(Languages(source=source, target=target), model="m")
    assert ((found.source_language, found.target_language), len(found.references)) == (between, references)


def test_what_the_migration_chose_counts_before_what_the_model_could() -> None:
    codes = ("eng_Latn", "zho_Hans", "deu_Latn")
    german = Languages(source=codes, target=codes, default_source="eng_Latn", default_target="deu_Latn")
    assert texts_for(german, model="m").references == ()
    assert scored_language(texts_for(german, model="m"), german) == "deu_Latn"


def test_a_model_of_other_languages_is_told_to_bring_its_own_texts() -> None:
    with pytest.raises(UsageError, match=r"m translates from fra, .*--evaluation FILE.*--gate off"):
        texts_for(Languages(source=("fra",), target=("deu",)), model="m")


def test_languages_are_asked_for_only_where_a_model_has_several() -> None:
    assert requested_language(("zho",), "zh") is None
    assert requested_language(("eng_Latn", "zho_Hans", "zho_Hant"), "zh") == "zho_Hans"
    assert requested_language(("deu", "fra"), "zh") is None
    assert required_language(("deu",), "zh", role="target") is None
    with pytest.raises(UnknownLanguageError, match="'zh' is not one of this model's"):
        required_language(("deu", "fra"), "zh", role="target")
    assert scored_language(shipped_texts().without_references(), Languages(source=(), target=("cmn", "yue"))) == "zh"
    assert scored_language(shipped_texts().without_references(), Languages(source=(), target=("de", "fr"))) is None


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("的的的的的的的的", True),
        ("他说的的的的的的的的话", True),
        ("我想知道你是否我想知道你是否我想知道你是否我想知道你是否", True),
        ("the the the the the", True),
        ("我, 我, 我, 我, 我, 我, 我, 我", True),
        ("的的的的的的的", False),
        ("哈哈哈哈!", False),
        ("人口超过100,000,000,000人。", False),
        ("目录 ........................ 12", False),
        ("很好很好很好", False),
        ("", False),
    ],
)
def test_what_runs_in_circles(text: str, loops: bool) -> None:
    assert is_loop(text) is loops


def test_no_human_translation_of_the_set_is_a_loop() -> None:
    texts = shipped_texts()
    assert not [line for line in (*(texts.sources or ()), *texts.references[0]) if is_loop(line)]


def test_faults_are_counted_and_unknown_where_there_are_texts_alone() -> None:
    outputs = [Output(text="", finished=True), Output(text="的" * 9, finished=False), Output(text="", finished=True)]
    assert count_faults(outputs, ["a", "b", " "]) == OutputCounts(empty=1, repeating=1, unfinished=1)
    assert count_faults([Output(text="")], None) == OutputCounts(empty=1, repeating=0, unfinished=None)
