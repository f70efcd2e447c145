"""Scores are sacrebleu's own, for every part and every bootstrap sample; the wrong tokenizer is not taken by accident."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from onnxmt.errors import MissingExtraError, UsageError
from onnxmt.measure import scores as room
from onnxmt.measure.scores import Scorer, Tokenization, choose_tokenization, require_sacrebleu
from onnxmt.measure.texts import read_lines, shipped_texts

DATA = Path(__file__).parents[3] / "shared" / "data" / "wmt22"
SENTENCE = "我们明天早上九点在图书馆门口见面，请不要迟到。"
OTHER = "我们明天上午九点在图书馆门口见面，请别迟到。"
ZH = Tokenization(name="zh", language="zh")


def scored(
    hypotheses: list[str], references: list[str], tokenization: Tokenization = ZH, *, ter: bool = True
) -> room.Score:
    scorer = Scorer(tokenization, ter=ter)
    return scorer.score(scorer.count(hypotheses, [references]))


@pytest.mark.parametrize("text", [SENTENCE, "你好", "好。", "我"])
def test_a_chinese_sentence_against_itself_is_100(text: str) -> None:
    """Case M1; sacrebleu alone gives 0 below four tokens."""
    found = scored([text], [text])
    assert (found.bleu, found.chrf, found.ter, found.brevity_penalty) == (pytest.approx(100), pytest.approx(100), 0, 1)


def test_the_signature_says_which_tokenizer_and_that_short_lines_were_scored_by_what_they_have() -> None:
    scorer = Scorer(ZH, ter=True)
    long, short = scorer.score(scorer.count([SENTENCE], [[SENTENCE]])), scorer.score(scorer.count(["你好"], [["你好"]]))
    version = sacrebleu.__version__
    assert scorer.signatures(long) == {
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:{version}",
        "chrf": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}",
        "ter": f"nrefs:1|case:lc|tok:tercom|norm:yes|punct:yes|asian:yes|version:{version}",
    }
    assert (long.orders, short.orders) == (4, 2)
    assert scorer.signatures(short)["bleu"] == f"nrefs:1|case:mixed|eff:yes|tok:zh|smooth:exp|version:{version}"


@pytest.mark.parametrize(
    ("language", "texts", "name", "note"),
    [
        ("zh", [SENTENCE], "zh", None),
        ("cmn_Hans", ["no Han here"], "zh", None),
        ("Traditional Chinese", [SENTENCE], "zh", None),
        ("zho_Hant", [SENTENCE], "zh", None),
        (None, [SENTENCE], "zh", "mostly Han characters"),
        (None, ["This is English."], "13a", "13a"),
        (None, ["今日はいい天気ですね。散歩に行きましょう。"], "char", "without spaces"),
        (None, ["วันนี้อากาศดี"], "char", "without spaces"),
        ("ja", ["今日は東京駅前集合。"], "char", "Japanese is written without spaces"),
        ("de", ["Guten Tag, 世界!"], "13a", None),
    ],
)
def test_the_language_chooses_the_tokenizer(
    language: str | None, texts: list[str], name: str, note: str | None
) -> None:
    found = choose_tokenization(language, texts)
    assert found.name == name
    assert (note is None) == (found.note is None)
    assert note is None or note in str(found.note)


def test_a_wrong_language_for_chinese_texts_is_refused_and_a_tokenizer_by_name_is_taken() -> None:
    """By 13a the pair below scores 0: each sentence is one word (sacrebleu issues 147 and 198)."""
    with pytest.raises(UsageError, match="said to be English, and the texts to score are in Han"):
        choose_tokenization("en", [SENTENCE])
    assert choose_tokenization("en", [SENTENCE], tokenizer="13a").name == "13a"
    assert scored([OTHER], [SENTENCE], Tokenization(name="13a", language="en")).bleu == 0
    assert scored([OTHER], [SENTENCE]).bleu == pytest.approx(66.66935927206883)
    with pytest.raises(UsageError, match=r"no tokenizer 'zz'; it has 13a, char"):
        Scorer(Tokenization(name="zz", language=None), ter=False)


@pytest.fixture(scope="module")
def pair() -> tuple[list[str], list[str], list[str]]:
    """References, one translation with every seventh character lost, and one with every third line of another."""
    references = list(shipped_texts().references[0][54:114])
    worse = ["".join(c for i, c in enumerate(line) if i % 7) or line for line in references]
    mixed = [line if i % 3 else references[(i + 1) % 60] for i, line in enumerate(references)]
    return references, worse, mixed


def test_a_part_scores_as_sacrebleu_scores_its_lines_alone(pair: tuple[list[str], list[str], list[str]]) -> None:
    references, worse, _ = pair
    scorer = Scorer(ZH, ter=True)
    counted = scorer.count(worse, [references])
    part = [3, 10, 11, 40, 59]
    found, hypotheses, [wanted] = scorer.score(counted, part), [worse[i] for i in part], [[references[i] for i in part]]
    bleu = sacrebleu.corpus_bleu(hypotheses, [wanted], tokenize="zh")
    assert found.bleu == pytest.approx(bleu.score, abs=1e-12)
    assert (found.brevity_penalty, found.length_ratio) == (pytest.approx(bleu.bp), pytest.approx(bleu.ratio))
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [wanted]).score, abs=1e-12)
    assert found.ter == pytest.approx(
        sacrebleu.corpus_ter(hypotheses, [wanted], normalized=True, asian_support=True).score, abs=1e-12
    )
    assert scorer.line_chrf(counted)[3] == pytest.approx(sacrebleu.sentence_chrf(worse[3], [references[3]]).score)


def test_p_values_are_those_of_sacrebleus_paired_test(pair: tuple[list[str], list[str], list[str]]) -> None:
    references, worse, mixed = pair
    scorer = Scorer(ZH, ter=True)
    ours, theirs = scorer.count(mixed, [references]), scorer.count(worse, [references])
    found = scorer.differences(ours, theirs)
    metrics = {
        "bleu": sacrebleu.BLEU(tokenize="zh"),
        "chrf": sacrebleu.CHRF(),
        "ter": sacrebleu.TER(normalized=True, asian_support=True),
    }
    _, judged = PairedTest([("base", worse), ("ours", mixed)], metrics, [references], test_type="bs", n_samples=1000)()
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF2"), ("ter", "TER")):
        base, other = judged[label]
        assert found[name].p_value == pytest.approx(other.p_value)
        assert found[name].value == pytest.approx(other.score - base.score)
        assert found[name].lower < found[name].value < found[name].upper


def test_equal_translations_differ_by_nothing(pair: tuple[list[str], list[str], list[str]]) -> None:
    references, worse, _ = pair
    scorer = Scorer(ZH, ter=False)
    counted = scorer.count(worse, [references])
    assert set(scorer.differences(counted, counted)) == {"bleu", "chrf"}
    for found in scorer.differences(counted, counted).values():
        assert (found.value, found.lower, found.upper, found.p_value) == (0, 0, 0, 1)


def test_a_missing_sacrebleu_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingExtraError, match=r"'sacrebleu.*pip install 'onnxmt\[eval\]'"):
        require_sacrebleu()


def official() -> dict[tuple[str, str], float]:
    """The published scores by system and metric with its reference, such as ("DLUT", "bleu-A")."""
    with (DATA / "official_scores.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {(row["system"], row["metric"]): float(row["score"]) for row in rows}


@pytest.mark.skipif(
    not DATA.is_dir(), reason="the WMT22 translations (folder shared/data/wmt22 beside the checkout) are absent"
)
@pytest.mark.parametrize("reference", ["A", "B"])
@pytest.mark.parametrize("system", ["DLUT", "GTCOM", "HuaweiTSC", "JDExploreAcademy", "LanguageX", "Online-A"])
def test_the_official_scores_of_wmt22_come_out_to_the_last_digit(system: str, reference: str) -> None:
    hypotheses, references = (
        list(read_lines(DATA / name)) for name in (f"sys.{system}.zh.txt", f"ref{reference}.zh.txt")
    )
    found = scored(hypotheses, references, choose_tokenization(None, references), ter=False)
    published = official()
    assert found.bleu == pytest.approx(published[system, f"bleu-{reference}"], abs=1e-11)
    assert found.chrf == pytest.approx(published[system, f"chrf-{reference}"], abs=1e-11)
