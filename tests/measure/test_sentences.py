"""The shipped texts and the reading of sentence sets."""

from __future__ import annotations

import re
import unicodedata
from importlib import resources
from pathlib import Path

import pytest

from onnxmt.errors import UsageError
from onnxmt.measure.sentences import (
    CATEGORIES,
    choose_sentences,
    parse_sentences,
    read_sentences,
    verification_sentences,
)

DATA = resources.files("onnxmt.measure") / "data"


def _lines(name: str) -> list[str]:
    text = (DATA / name).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def _plain(sentence: str) -> str:
    """What is left of a sentence when case, spaces and punctuation do not count."""
    return "".join(char for char in sentence.lower() if char.isalnum())


def test_the_verification_set_covers_every_category() -> None:
    sentences = verification_sentences()
    assert len(sentences.sentences) >= 60
    assert sentences.categories == CATEGORIES
    counts = {c: sum(s.category == c for s in sentences.sentences) for c in CATEGORIES}
    assert min(counts.values()) >= 10
    of = {c: [s.text for s in sentences.sentences if s.category == c] for c in CATEGORIES}
    assert all(len(text.split()) >= 30 for text in of["long"])
    assert all(len(text.split()) <= 5 for text in of["short"])
    assert all(re.search(r"\d|quarters", text) for text in of["numbers"])


def test_the_evaluation_set_has_domains_and_references() -> None:
    rows = [line.split("\t") for line in _lines("evaluation.tsv")]
    assert {len(row) for row in rows} == {3}
    domains = [row[0] for row in rows]
    assert {*CATEGORIES, "medical", "legal"} == set(domains)
    # By chance alone, 26 lines lose more than 1 BLEU in up to 11 % of samples; from 80 on it is seldom.
    assert {domains.count(domain) for domain in set(domains)} == {80}
    assert domains == sorted(domains, key=domains.index), "a domain's lines stand together"
    assert all(line == unicodedata.normalize("NFC", line) for line in _lines("evaluation.tsv"))


def test_chinese_references_are_simplified_and_punctuated_in_full_width() -> None:
    for _, english, chinese in (line.split("\t") for line in _lines("evaluation.tsv")):
        assert not re.search(r"[\s,;!?()]", chinese), chinese
        assert not re.search(r"(?<!\d)[.:]|[.:](?!\d)", chinese), chinese  # 4.6 and 10:30 are written so in Chinese too
        assert chinese.endswith({".": "。", "?": "？", "!": "！"}[english[-1]]), chinese
        assert not set(chinese) & set("這說會時來國為們對學後過還沒車長門問開關電話東書買賣"), chinese
        assert re.search(r"[\u4e00-\u9fff]", chinese)


def test_numbers_survive_in_the_references() -> None:
    # 460万, 27亿, 50多万, 百公里: other digits in Chinese
    rewritten = ("million", "billion", "500,000", "per 100 kilometres")
    lines = [line.split("\t") for line in _lines("evaluation.tsv")]
    checked = [row for row in lines if row[0] == "numbers" and not any(part in row[1] for part in rewritten)]
    assert len(checked) >= 70
    for _, english, chinese in checked:
        for number in re.findall(r"\d+(?:[.:]\d+)?", re.sub(r"(?<=\d),(?=\d)", "", english)):
            assert number in chinese, (english, number)


def test_the_calibration_set_is_large_and_of_mixed_length() -> None:
    lines = _lines("calibration.txt")
    assert len(lines) >= 512
    words = [len(line.split()) for line in lines]
    assert (min(words), max(words)) == (1, 59)
    for low, high, least in ((1, 3, 40), (4, 8, 100), (9, 16, 100), (17, 30, 30), (31, 60, 15)):
        assert sum(low <= count <= high for count in words) >= least
    assert not any("\t" in line or line != line.strip() or not line for line in lines)


def test_the_three_sets_are_disjoint_and_without_repetitions() -> None:
    sets = {
        "verification": [s.text for s in verification_sentences().sentences],
        "verification in Chinese": [s.text for s in verification_sentences("zh").sentences],
        "evaluation": [line.split("\t")[1] for line in _lines("evaluation.tsv")],
        "calibration": _lines("calibration.txt"),
    }
    seen: dict[str, str] = {}
    for name, sentences in sets.items():
        for sentence in sentences:
            assert _plain(sentence) not in seen, f"{name}: {sentence!r} is also in {seen[_plain(sentence)]}"
            seen[_plain(sentence)] = name


def test_a_set_is_read_with_any_line_ends_and_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_bytes("short\tOne.\r\n\r\nodd\t  Zwei – 二。 \n".encode())
    found = read_sentences(tmp_path / "mine.tsv")
    assert [(s.line, s.category, s.text) for s in found.sentences] == [(1, "short", "One."), (3, "odd", "Zwei – 二。")]
    assert found.categories == ("short", "odd")
    assert found.sha256 == parse_sentences("short\tOne.\nodd\tZwei – 二。", name="other.tsv").sha256
    assert found.sha256 != parse_sentences("short\tOne.\nodder\tZwei – 二。", name="other.tsv").sha256


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds no sentence"),
        ("\n \n", "holds no sentence"),
        ("short\tA.\nno tab\n\tB.\nshort\t\nshort\tC.\tD.", r"line\(s\) 2, 3, 4, 5 are not CATEGORY, one tab, TEXT"),
        ("short\tA.\nlong\tA.", "more than once, the first is 'A.'"),
    ],
)
def test_a_wrong_set_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_sentences(text, name="mine.tsv")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_bytes(b"\xff\xfe\x00")
    for name in ("mine.tsv", "absent.tsv"):
        with pytest.raises(UsageError, match="cannot be read as UTF-8 text"):
            read_sentences(tmp_path / name)


def test_the_fingerprint_is_that_of_the_content() -> None:
    one = parse_sentences("short\tOne.", name="a")
    assert one.sha256 == "1299fe3ec5ba28d5886be745c1b7e01609c5c05382566ae27b078e4ff53b5eeb"


def test_the_chinese_set_has_the_same_categories() -> None:
    chinese, english = verification_sentences("zh"), verification_sentences()
    assert len(chinese.sentences) >= 60
    assert chinese.categories == english.categories
    for category in chinese.categories:
        assert sum(sentence.category == category for sentence in chinese.sentences) >= 10
    han = [sum("一" <= character <= "鿿" for character in sentence.text) for sentence in chinese.sentences]
    assert min(han) >= 1
    assert sum(han) > 1200


@pytest.mark.parametrize(
    ("language", "name", "noted"),
    [
        (None, "verification.tsv", False), ("en", "verification.tsv", False), ("eng_Latn", "verification.tsv", False),
        ("zh", "verification.zh.tsv", False), ("zho_Hans", "verification.zh.tsv", False),
        ("fr", "verification.tsv", True), ("jpn_Jpan", "verification.tsv", True),
    ],
)  # fmt: skip
def test_the_set_follows_the_source_language(language: str | None, name: str, noted: bool) -> None:
    chosen = choose_sentences(language)
    assert chosen.sentences.name == name
    assert (chosen.note is not None) == noted


def test_a_file_of_ones_own_wins(tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("short\tOui.\n", encoding="utf-8")
    chosen = choose_sentences("fr", file=tmp_path / "mine.tsv")
    assert ([sentence.text for sentence in chosen.sentences.sentences], chosen.note) == (["Oui."], None)
