"""Evaluation of files and bundles, as a function and from the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu

from onnxmt.commands._options import DEMO_BUNDLE
from onnxmt.errors import BundleFileMissingError, UsageError
from onnxmt.measure.evaluate import Answers, EvaluateOptions, evaluate
from onnxmt.measure.outputs import Output
from onnxmt.measure.systems import RunOptions, answer
from onnxmt.measure.texts import EvaluationSet, shipped_texts
from onnxmt.migration import MigrateOptions, export, migrate
from onnxmt.precision import PRESETS
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
from tests.cli.harness import environment, invoke

REFERENCE = [
    "图书馆九点开门。",
    "请把门关上，谢谢！",
    "一只黑猫在红色的沙发上睡觉。",
    "他昨天买了三本书，花了四十五元。",
]
WORSE = ["图书馆九点。", "请把门关上，谢谢！", "一只黑猫在红色的沙发上睡。", "他买了三本书。"]
SOURCES = [
    "The library opens at nine.",
    "Please close the door, thank you!",
    "A black cat is sleeping on the red sofa.",
    "He bought three books yesterday.",
]
TEXTS = EvaluationSet(
    name="four",
    sources=tuple(SOURCES),
    references=(tuple(REFERENCE),),
    domains=("a", "a", "b", "b"),
    target_language="zh",
)


def answers(texts: list[str], label: str = "ours") -> Answers:
    return Answers(label=label, outputs=tuple(Output(text=text) for text in texts), facts={"file": label})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, lines in (("src", SOURCES), ("ref", REFERENCE), ("hyp", WORSE)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def test_every_part_is_scored_and_the_whole_stands_first() -> None:
    found = evaluate(TEXTS, answers(WORSE)).to_dict()
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(WORSE, [REFERENCE], tokenize="zh").score)
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(WORSE, [REFERENCE]).score)
    assert found["ter"] > 0
    assert set(found["signatures"]) == {"bleu", "chrf", "ter"}
    assert (found["lines"], found["references"], found["set"], found["tokenizer"]) == (4, 1, "four", "zh")
    assert [(row["set"], row["lines"]) for row in found["sets"]] == [("four", 4)]
    assert [(row["domain"], row["lines"]) for row in found["domains"]] == [("a", 2), ("b", 2)]
    assert found["domains"][1]["bleu"] == pytest.approx(
        sacrebleu.corpus_bleu(WORSE[2:], [REFERENCE[2:]], tokenize="zh").score
    )
    assert [row["third"] for row in found["thirds"]] == ["short sources", "middle sources", "long sources"]
    assert found["outputs"] == {"empty": 0, "repeating": 0, "unfinished": None}
    assert found["against"] is None
    assert found["brevity_penalty"] < 1


def test_beside_another_translation_each_part_has_a_difference_with_its_interval() -> None:
    found = evaluate(TEXTS, answers(WORSE), against=answers(REFERENCE, "human")).to_dict()
    beside = found["against"]
    assert (beside["label"], beside["identical"], beside["bleu"]) == ("human", 0.25, 100)
    bleu = beside["differences"]["bleu"]
    assert bleu["value"] == pytest.approx(found["bleu"] - 100)
    assert bleu["lower"] <= bleu["value"] <= bleu["upper"] <= 0
    assert set(beside["differences"]) == {"bleu", "chrf", "ter"}
    assert found["domains"][0]["against"]["identical"] == 0.5


def test_several_references_count_together() -> None:
    other = ["图书馆九点开始开放。", "请关门，谢谢。", "黑猫睡在红沙发上。", "昨天他花四十五元买了三本书。"]
    both = EvaluationSet(name="both", sources=tuple(SOURCES), references=(tuple(REFERENCE), tuple(other)))
    found = evaluate(both, answers(other)).to_dict()
    assert found["bleu"] == pytest.approx(100)
    assert found["signatures"]["bleu"].startswith("nrefs:2|")


def test_without_references_two_translations_are_compared_with_each_other_and_that_is_said() -> None:
    bare = EvaluationSet(name="bare", sources=tuple(SOURCES))
    found = evaluate(bare, answers(WORSE), against=answers(REFERENCE, "fp32")).to_dict()
    assert found["bleu"] is found["chrf"] is found["ter"] is None
    assert found["against"]["agreement_chrf"] == pytest.approx(sacrebleu.corpus_chrf(WORSE, [REFERENCE]).score)
    assert found["against"]["differences"] == {}
    assert list(found["signatures"]) == ["chrf"]
    assert any("has no references" in note for note in found["notes"])
    with pytest.raises(UsageError, match="bare has no references, and there is nothing to compare with"):
        evaluate(bare, answers(WORSE))


def test_unequal_numbers_of_lines_are_refused_with_both() -> None:
    with pytest.raises(UsageError, match="ours has 3 and four 4 lines"):
        evaluate(TEXTS, answers(WORSE[:3]))


def test_ter_is_left_out_where_it_takes_minutes_unless_it_is_asked_for() -> None:
    long = EvaluationSet(name="long", sources=None, references=(("不" * 16_000,),))
    found = evaluate(long, answers(["不" * 16_000])).to_dict()
    assert found["ter"] is None
    assert "ter" not in found["signatures"]
    assert any("--ter" in note for note in found["notes"])
    assert evaluate(TEXTS, answers(WORSE), options=EvaluateOptions(ter=False)).to_dict()["ter"] is None


def test_the_table_shows_parts_signatures_and_how_it_was_made(files: Path) -> None:
    outcome = invoke("evaluate", "--hyp", files / "hyp", "--src", files / "src", "--ref", files / "ref")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.lines[0] == "hyp on 4 lines of src"
    assert [line.split()[0] for line in outcome.lines[1:6]] == ["part", "all", "short", "middle", "long"]
    assert "outputs: 0 repeating, unknown unfinished, 0 empty" in outcome.lines
    assert any(line.startswith("bleu: nrefs:1|case:mixed|eff:no|tok:zh|") for line in outcome.lines)
    assert "made by: file hyp" in outcome.lines


def test_one_chinese_sentence_against_itself_is_100_from_the_command_line(tmp_path: Path) -> None:
    """Case M1."""
    (tmp_path / "x").write_text("你好，世界。\n", encoding="utf-8")
    found = json.loads(invoke("evaluate", "--hyp", tmp_path / "x", "--ref", tmp_path / "x", "--json").text)
    assert (found["bleu"], found["chrf"], found["ter"]) == (100, 100, 0)
    assert "|tok:zh|" in found["signatures"]["bleu"]


def test_a_file_of_translations_is_scored_without_onnx_runtime(files: Path) -> None:
    code = (
        "import sys\nfor name in ('onnxruntime', 'sentencepiece', 'tokenizers', 'onnx', 'torch'): sys.modules[name] = None\n"
        "from onnxmt.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    arguments = ["evaluate", "--hyp", str(files / "hyp"), "--ref", str(files / "ref"), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, env=environment(), timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(WORSE, [REFERENCE], tokenize="zh").score)
    assert found["system"] == {"file": "hyp"}
    assert any("scored as Chinese" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("demo", "--hyp", "{hyp}", "--ref", "{ref}"), "a bundle to translate with, or translations that exist"),
        (("--hyp", "{hyp}", "--ref", "{ref}", "--set", "shipped"), "give files (--src, --ref) or a set (--set)"),
        (
            ("--hyp", "{hyp}", "--ref", "{ref}", "--beams", "4", "--no-split"),
            "--beams, --no-split: of no effect with --hyp",
        ),
        (("--hyp", "{hyp}", "--ref", "{short}"), "hyp has 4 and short 1 lines"),
        (("--hyp", "{hyp}", "--src", "{src}"), "has no references, and there is nothing to compare with"),
        (("--hyp", "{hyp}", "--ref", "{absent}"), "absent cannot be read: No such file or directory"),
        (("--hyp", "{hyp}", "--ref", "{ref}", "--target-language", "en"), "said to be English"),
        (("--hyp", "{hyp}", "--ref", "{ref}", "--tokenizer", "zz"), "no tokenizer 'zz'"),
        (("demo", "--ref", "{ref}"), "has no sources to translate: give them with --src"),
    ],
)
def test_wrong_use_is_one_line(files: Path, arguments: tuple[str, ...], message: str) -> None:
    (files / "short").write_text("一\n", encoding="utf-8")
    paths = {name: files / name for name in ("hyp", "ref", "src", "short", "absent")}
    assert message in invoke("evaluate", *(argument.format(**paths) for argument in arguments)).error()


def test_a_missing_sacrebleu_is_named_before_any_work(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    message = invoke("evaluate", "demo").error()
    assert "pip install 'onnxmt[eval]'" in message


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model in int8, with what fp32 said of 27 lines of the shipped set."""
    whole = shipped_texts()
    lines = range(0, whole.lines, 24)
    texts = EvaluationSet(
        name="some",
        sources=tuple((whole.sources or ())[i] for i in lines),
        references=(tuple(whole.references[0][i] for i in lines),),
        domains=tuple(whole.domains[i] for i in lines),
        source_language="en",
        target_language="zh",
        shipped=True,
    )
    folder = tmp_path_factory.mktemp("evaluate") / "int8"
    migrate("demo", folder, options=MigrateOptions(verify="none", gate="report", evaluation=texts))
    return folder


def table_of(bundle: Path, path: Path) -> Path:
    """The lines that a bundle was evaluated on, as a file."""
    recorded = json.loads((bundle / "evaluation.json").read_text(encoding="utf-8"))
    rows = ("\t".join([line["domain"], line["source"], *line["references"]]) for line in recorded["lines"])
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_a_quantised_bundle_is_compared_with_fp32_as_recorded(int8: Path, tmp_path: Path) -> None:
    table = table_of(int8, tmp_path / "some.tsv")
    outcome = invoke("evaluate", int8, "--set", table, "--beams", "4", "--json", "-o", tmp_path / "out")
    found = json.loads(outcome.text)
    kept = json.loads((int8 / "manifest.json").read_text(encoding="utf-8"))["quality"]["modes"]["beam 4"]
    assert found["bleu"] == pytest.approx(kept["bleu"], abs=1e-4)
    assert found["against"]["label"] == "fp32, as recorded when the bundle was made"
    assert found["against"]["identical"] == pytest.approx(kept["identical"], abs=1e-4)
    assert found["against"]["bleu"] == pytest.approx(kept["fp32_bleu"], abs=1e-4)
    system = found["system"]
    assert (system["model"], system["recipe"], system["beams"], system["split"]) == ("demo", "int8", 4, True)
    assert set(system["precision"].values()) == {"int8"}
    assert {"threads", "provider", "cpu", "versions", "date", "revision"} <= set(system)
    # What was written is scored again without the model, and gives the same.
    again = invoke("evaluate", "--hyp", tmp_path / "out", "--set", table, "--json")
    assert json.loads(again.text)["bleu"] == pytest.approx(found["bleu"])
    assert json.loads(invoke("evaluate", int8, "--set", table, "--beams", "2", "--json").text)["against"] is None


def test_two_bundles_are_compared_line_by_line(int8: Path, files: Path) -> None:
    outcome = invoke(
        "evaluate", int8, "--src", files / "src", "--ref", files / "ref", "--against", "demo", "--beams", "1", "--json"
    )
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.text)
    assert found["label"] == "demo, int8"
    assert found["against"]["system"]["recipe"] == "fp32"
    assert found["target_language"] == "zh"
    ours, theirs = (
        [output.text for output in answer(folder, TEXTS, RunOptions(beams=1)).answers.outputs]
        for folder in (int8, DEMO_BUNDLE)
    )
    assert found["against"]["identical"] == sum(a == b for a, b in zip(ours, theirs, strict=True)) / 4


def test_exactly_the_files_of_the_manifest_are_loaded(int8: Path, tmp_path: Path) -> None:
    """Case Q6: fp32 files beside the int8 ones change nothing, and are no fallback where those are gone."""
    folder = Path(shutil.copytree(int8, tmp_path / "both"))
    export(DEMO_BUNDLE.parent / "checkpoint", tmp_path / "fp32", options=MigrateOptions(precision=PRESETS["fp32"]))
    for name in ("encoder", "decoder"):
        shutil.copy(tmp_path / "fp32" / f"{name}.onnx", folder / f"{name}_fp32.onnx")
    shutil.copy(tmp_path / "fp32" / "weights.bin", folder / "weights_fp32.bin")
    texts = EvaluationSet(name="one", sources=tuple(SOURCES), references=(tuple(REFERENCE),))
    own, beside = (answer(place, texts, RunOptions(beams=1)).answers for place in (int8, folder))
    assert own.outputs == beside.outputs
    assert beside.facts["recipe"] == "int8"
    (folder / "weights.bin").unlink()
    with pytest.raises(BundleFileMissingError, match=r"weights\.bin"):
        answer(folder, texts, RunOptions(beams=1))


def test_the_same_words_at_any_thread_count_and_by_either_entrance(int8: Path, tmp_path: Path) -> None:
    """Case M3: tokens do not depend on threads, runs or the entrance."""
    lines = (shipped_texts().sources or ())[54:104]  # 26 short and 24 long ones
    first = None
    for threads in (1, 4, 8):
        with Translator.load(int8, options=RuntimeOptions(threads=threads)) as translator:
            for _ in range(20 if threads == 1 else 2):
                found = [translation.tokens for translation in translator.translate_detailed(list(lines[:12]))]
                first = first or found
                assert found == first
    with Translator.load(int8) as translator:
        library = translator.translate(list(lines))
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    outcome = invoke("translate", "--model", int8, "-f", tmp_path / "in")
    assert outcome.lines == library
