"""`onnxmt shortlist` on the demo model: learnt from its own translations, gated, translated with, shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxmt.bundle import read_bundle
from onnxmt.errors import BundleError, UsageError
from onnxmt.measure.texts import shipped_texts
from onnxmt.precision import PRESETS, recipe
from onnxmt.quantization import QuantizeOptions, quantize, search
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from onnxmt.shortlisting import ShortlistOptions, _foreign, learn_shortlist
from onnxmt.text.glossary import Glossary
from onnxmt.verification import verify
from tests.cli.harness import invoke
from tests.families.checkpoints import FAMILIES
from tests.families.checkpoints import build as build_family

ONE = RuntimeOptions(threads=1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Shipped sentences and what the demo model says to them."""
    folder = tmp_path_factory.mktemp("text")
    lines = [line for line in shipped_texts().sources or () if len(line) < 60][:120]
    with Translator.load("demo", options=ONE) as demo:
        said = demo.translate(lines, options=TranslateOptions(text=None, beams=1, max_new_tokens=40))
    (folder / "en.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "zh.txt").write_text("\n".join(one.replace("\n", " ") for one in said) + "\n", encoding="utf-8")
    return folder / "en.txt", folder / "zh.txt"


@pytest.fixture(scope="module")
def bundle(text: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "short"
    outcome = invoke("shortlist", "demo", *map(str, text), "-o", str(folder), "--gate", "off")
    assert outcome.code == 0, outcome.err
    assert outcome.lines[-1] == str(folder)
    return folder


def test_what_the_bundle_says_of_itself(bundle: Path) -> None:
    manifest = read_bundle(bundle).manifest
    info = manifest.precision.shortlist
    assert info is not None
    assert manifest.recipe == "int8,shortlist"
    assert (info.file, info.pairs, info.left_out, info.per_token) == ("shortlist.npz", 120, 0, 50)
    assert manifest.graphs.head is not None
    assert manifest.graphs.head.file == "head.onnx"
    assert {"head.onnx", "shortlist.npz"} <= {entry.path for entry in manifest.files}
    assert {"head.onnx", "shortlist.npz"} <= set(manifest.required_files)
    shown = " ".join(invoke("inspect", str(bundle)).text.split())
    assert f"a shortlist for each sentence: {info.always} tokens always" in shown
    assert "Graph head.onnx" in shown
    assert "a shortlist for each sentence" in (bundle / "report.html").read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="fp32 weights are gone"):
        quantize(bundle, bundle.parent / "c", options=QuantizeOptions(gate="off"))


def test_it_says_what_it_has_learnt_alone_and_in_any_batch(bundle: Path, text: tuple[Path, Path]) -> None:
    lines = text[0].read_text(encoding="utf-8").splitlines()
    wanted = text[1].read_text(encoding="utf-8").splitlines()
    with Translator.load(bundle, options=ONE) as short:
        for beams in (1, 4):
            options = TranslateOptions(text=None, beams=beams, max_new_tokens=40)
            together = short.translate_detailed(lines, options=options)
            alone = [short.translate_detailed(line, options=options) for line in lines[:40]]
            changed = sum(a.text != b.text for a, b in zip(together, alone, strict=False))
            assert changed <= 1  # a tie of int8 (docs/precision.md)
            same = sum(a.text == b for a, b in zip(together, wanted, strict=True))
            assert beams > 1 or same > 0.7 * len(lines)
            assert short.model.shortlist is not None
            for line, found in zip(lines, together, strict=True):
                allowed = short.model.shortlist.of(short.tokenizer.encode(line))
                assert set(found.tokens) <= set(allowed.tolist()), line


def test_a_batch_is_cut_and_says_the_same(
    bundle: Path, text: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxmt.runtime import shortlist

    lines = text[0].read_text(encoding="utf-8").splitlines()[:24]
    with Translator.load(bundle, options=ONE) as short:
        whole = short.translate(lines)
        started: list[int] = []
        real = short.model.start
        monkeypatch.setattr(short.model, "start", lambda ids, mask: started.append(len(ids)) or real(ids, mask))
        monkeypatch.setattr(shortlist, "LARGEST_UNION", 700)
        cut = short.translate(lines)
    assert len(started) > 4
    assert sum(started) == 24
    assert sum(a != b for a, b in zip(whole, cut, strict=True)) <= 1  # a tie of int8


def test_a_glossary_term_that_is_no_candidate_is_written(bundle: Path) -> None:
    glossary = Glossary.from_dict({"library": "鳄鱼馆"})
    with Translator.load(bundle, options=ONE) as short:
        assert "鳄鱼馆" in short.translate("The library opens at nine.", options=TranslateOptions(glossary=glossary))


def test_doctor_says_what_to_use_instead(bundle: Path) -> None:
    outcome = invoke("doctor", str(bundle))
    assert (outcome.code, len(outcome.err.splitlines())) == (2, 1)
    assert "a bundle with a shortlist" in outcome.err
    assert "onnxmt verify" in outcome.err


def test_verify_counts_its_tokens(bundle: Path) -> None:
    report = verify(bundle).report
    assert report.rows


def test_a_damaged_table_is_one_line(bundle: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    content = (copy / "shortlist.npz").read_bytes()
    (copy / "shortlist.npz").write_bytes(content[:-1] + b"x")
    outcome = invoke("translate", "Good morning.", "--model", str(copy))
    assert outcome.code == 2
    assert "shortlist.npz" in outcome.err
    assert len(outcome.err.splitlines()) == 1
    (copy / "shortlist.npz").unlink()
    with pytest.raises(BundleError, match=r"shortlist\.npz"):
        Translator.load(copy)
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    del manifest["precision"]["shortlist"]
    (copy / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(BundleError, match=r"graphs\.head and precision\.shortlist"):
        read_bundle(copy)


def test_a_missed_gate_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the command: on texts that the one sentence it has learnt from has nothing to do with."""
    monkeypatch.setattr("onnxmt.shortlisting.own_candidates", lambda *_, **__: {})
    texts = shipped_texts()
    lines = list(zip(texts.sources or (), texts.references[0], strict=True))[-30:]
    (tmp_path / "set.tsv").write_text("".join(f"news\t{s}\t{r}\n" for s, r in lines), encoding="utf-8")
    (tmp_path / "one.en").write_text("Good morning.\n", encoding="utf-8")
    (tmp_path / "one.zh").write_text("早上好。\n", encoding="utf-8")
    outcome = invoke(
        "shortlist", "demo", str(tmp_path / "one.en"), str(tmp_path / "one.zh"), "-o", str(tmp_path / "out"),
        "--per-token", "1", "--always", "0", "--evaluation", str(tmp_path / "set.tsv"),
    )  # fmt: skip
    assert outcome.code == 1, outcome.err
    assert "Nothing was written" in outcome.err
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def options(text: tuple[Path, Path], **changed: Any) -> QuantizeOptions:
    return QuantizeOptions(gate="off", shortlist=ShortlistOptions(source=text[0], target=text[1], **changed))


def test_a_judge_decides(text: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxmt.shortlisting.own_candidates", lambda *_, **__: {})
    seen: list[str] = []

    def judge(translator: Translator, how: Any) -> Any:
        seen.append(f"{how.name}: {translator.translate('Good morning.')}")
        return SimpleNamespace(misses=(), passed=True, to_dict=dict, raise_if_missed=lambda **_: None)

    quantize(demo_folder(), tmp_path / "out", options=replace(options(text), gate="enforce"), judge=judge)
    assert len(seen) == 1
    assert seen[0].startswith("int8,shortlist: ")


def demo_folder() -> Path:
    from onnxmt.commands._options import DEMO_BUNDLE

    return DEMO_BUNDLE


def test_wrong_texts_are_named(text: tuple[Path, Path], tmp_path: Path) -> None:
    en = text[0]
    short = tmp_path / "short.zh"
    short.write_text("一\n二\n", encoding="utf-8")
    cases = [
        ((en, short), "has 120 lines and .*short.zh 2: line n of one must be"),
        ((short, en), "short.zh has 2 lines and .* 120"),
        ((en, tmp_path / "none"), "none cannot be read: No such file"),
    ]
    latin = tmp_path / "latin"
    latin.write_bytes(b"caf\xe9\n" * 120)
    cases.append(((en, latin), "is not UTF-8"))
    empty = tmp_path / "empty"
    empty.write_text("\n" * 120, encoding="utf-8")
    cases.append(((en, empty), "hold no pair of lines to learn from"))
    with Translator.load("demo", options=ONE) as demo:
        for (source, target), said in cases:
            with pytest.raises(UsageError, match=said):
                learn_shortlist(demo, ShortlistOptions(source=source, target=target), vocabulary=10261)
    outcome = invoke("shortlist", "demo", str(en), str(short), "-o", str(tmp_path / "out"))
    assert (outcome.code, len(outcome.err.splitlines())) == (2, 1)
    assert not (tmp_path / "out").exists()


def test_wrong_options_are_refused(text: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"per_token .*is 0; 1 to 1000"):
        options(text, per_token=0)
    with pytest.raises(UsageError, match=r"always .*is 9999; 0 to 5000"):
        options(text, always=9999)
    with pytest.raises(UsageError, match=r"fp32.* cannot have a shortlist"):
        replace(options(text), precision=PRESETS["fp32"])
    with pytest.raises(UsageError, match="a search has no shortlist"):
        search(demo_folder(), tmp_path / "out", options=replace(options(text), gate="enforce"))
    with pytest.raises(UsageError, match="needs a text to be learnt from"):
        QuantizeOptions(precision=recipe("int8").with_shortlist())
    outcome = invoke("quantize", "demo", "--precision", "int8,shortlist", "-o", str(tmp_path / "out"))
    assert outcome.code == 2
    assert "onnxmt shortlist BUNDLE SOURCE TARGET" in outcome.err


def test_always_is_what_every_sentence_may_need(text: tuple[Path, Path]) -> None:
    with Translator.load("demo", options=ONE) as demo:
        learnt = learn_shortlist(
            demo, ShortlistOptions(source=text[0], target=text[1], always=0, per_token=3), vocabulary=10261
        ).table
        always = set(learnt.always.tolist())
        assert {demo.settings.decoder_start_token_id, *demo.settings.eos_token_ids} <= always
        for sign in ("。", "，", "7"):
            assert set(demo.tokenizer.target_ids(sign)) & always, sign
        name = demo.tokenizer.encode("Beijing 2025")
        for token in name[:-1]:  # what it writes can be copied
            written = demo.tokenizer.written_bytes()[token].decode().strip()
            assert set(demo.tokenizer.target_ids(written)) <= set(learnt.of([token]).tolist())
        assert set(demo.tokenizer.target_ids("早晨")) <= set(learnt.of(demo.tokenizer.encode("morning")).tolist())
        assert learnt.of(name).size < 0.2 * 10261


@pytest.mark.reference
@pytest.mark.parametrize("name", ["nllb", "small100"])
def test_another_language_than_the_one_learnt_is_refused(name: str, tmp_path: Path) -> None:
    from onnxmt.migration import MigrateOptions, export

    family = FAMILIES[name]
    made = MigrateOptions(
        precision=PRESETS["fp32"], source=family.source, target=family.targets[0], prefix=family.prefix
    )
    export(build_family(name, tmp_path / "checkpoint"), tmp_path / "fp32", options=made)
    for side in ("a", "b"):
        (tmp_path / side).write_text("Yes.\nThe library opens at nine.\n", encoding="utf-8")
    result = quantize(tmp_path / "fp32", tmp_path / "out", options=options((tmp_path / "a", tmp_path / "b")))
    with Translator.load(result.bundle.folder, options=ONE) as short:
        short.translate("The library opens at nine.")
        with pytest.raises(Exception, match="shortlist"):
            short.translate("The library opens at nine.", options=TranslateOptions(target=family.targets[1]))


def told(kind: str, *, target: str | None, code_token: int) -> Any:
    """As much of a translator as says which languages it has."""

    def encode(text: str, *, source: str | None, target: str | None) -> list[int]:
        return [*([code_token] if target == "deu" else []), 0]

    return SimpleNamespace(
        bundle=SimpleNamespace(manifest=SimpleNamespace(name="tiny", tokenizer={"kind": kind})),
        direction=SimpleNamespace(source=None, target=target), target_language="",
        tokenizer=SimpleNamespace(languages=lambda: SimpleNamespace(source=(), target=("fra", "deu")), encode=encode),
    )  # fmt: skip


def test_which_source_tokens_name_another_language() -> None:
    assert _foreign(told("marian", target="fra", code_token=7)) == {7}
    assert _foreign(told("marian", target="fr", code_token=7)) == {7}
    with pytest.raises(UsageError, match="translates into 2 languages and its bundle has none of them as default"):
        _foreign(told("marian", target=None, code_token=7))
    with pytest.raises(UsageError, match=r"tiny is told its target language \(fra, deu\) by words in the text"):
        _foreign(told("t5", target="fra", code_token=7))
