"""What a family must be told and is not; directions other than English to Chinese; texts that are too long (L1)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from onnxmt import Translator
from onnxmt.errors import InputTooLongError, TokenizerError, UnknownLanguageError
from onnxmt.migration import MigrateOptions, MigrateResult, export, migrate
from onnxmt.precision import PRESETS
from onnxmt.runtime.direction import poor_script, unwritable_script
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.tokenizer import Tokenizer
from onnxmt.runtime.translation import TranslateOptions
from tests.cli.harness import invoke
from tests.families.checkpoints import FAMILIES, Judge, build, sentences_file
from tests.families.conftest import Migrated
from tests.tiny import CHINESE, ENGLISH, build_marian, build_t5

pytestmark = pytest.mark.reference
FP32 = PRESETS["fp32"]


def exported(folder: Path, checkpoint: Path, **options: str | None) -> MigrateResult:
    return export(checkpoint, folder, options=MigrateOptions(precision=FP32, **options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = build(name, tmp_path_factory.mktemp(name) / "tiny-model")
        return made[name]

    return of


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("nllb", "its 202 languages include zho_Hans (Chinese (Simplified)), zho_Hant (Chinese (Traditional))"),
        ("m2m_100", "its 100 languages include zh (Chinese"),
        ("small100", "its 100 languages include zh (Chinese"),
        ("mbart50", "its 52 languages include zh_CN (Chinese"),
    ],
)
def test_a_missing_target_is_one_clear_error(
    checkpoints: Callable[[str], Path], tmp_path: Path, name: str, nearest: str
) -> None:
    error = invoke("migrate", checkpoints(name), "-o", tmp_path / "out", "--gate", "off").error()
    assert "must be told its target language and has no default: pass --target LANG" in error
    assert nearest in error
    assert not (tmp_path / "out").exists()
    assert "--target LANG" in invoke("inspect", checkpoints(name)).text


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("nllb", "chinois", "target language 'chinois' is not one of this model's: the nearest of its 202 are"),
        ("mbart50", "tlh", "target language 'tlh' is not one of this model's: the nearest of its 52 are"),
        ("t5", "zh", "target language 'zh' is not one of this model's: it has"),
        ("mbart", "tlh", "the nearest of its 25 are"),
    ],
)
def test_an_unsupported_target_names_the_nearest(
    checkpoints: Callable[[str], Path], tmp_path: Path, name: str, target: str, said: str
) -> None:
    assert said in invoke("migrate", checkpoints(name), "-o", tmp_path / "out", "--target", target).error()
    inspected = json.loads(invoke("inspect", checkpoints(name), "--target", target, "--json").text)
    assert not inspected["supported"]
    assert any(said in reason for reason in inspected["reasons"])


def test_a_bundle_made_for_one_target_translates_into_others_and_refuses_unknown_ones(
    migrated: Callable[[str], Migrated],
) -> None:
    bundle = migrated("nllb").bundle
    assert invoke("translate", "--model", bundle, "--target", "tlh", "Yes.").error().startswith("target language 'tlh'")
    with Translator.load(bundle, options=RuntimeOptions(threads=1)) as translator:
        with pytest.raises(UnknownLanguageError, match="nearest of its 202"):
            translator.translate("Yes.", options=TranslateOptions(target="Klingon"))
        with pytest.raises(UnknownLanguageError, match="source language"):
            translator.translate("Yes.", options=TranslateOptions(source="Klingon"))


def test_settings_that_name_a_target_need_no_argument(tmp_path: Path) -> None:
    """mBART-50 many-to-one forces English in its own generation settings; mBART-25 starts from its language."""
    one = build("mbart50", tmp_path / "one")
    settings = json.loads((one / "generation_config.json").read_text())
    with pytest.raises(UnknownLanguageError, match="--target"):
        exported(tmp_path / "none", one)
    made = exported(tmp_path / "probe", one, target="en")
    with Translator.load(made.bundle.folder) as translator:
        english = translator.tokenizer.forced_bos_token_id("en")
    (one / "generation_config.json").write_text(json.dumps({**settings, "forced_bos_token_id": english}))
    assert exported(tmp_path / "forced", one).bundle.manifest.languages.default_target == "en_XX"

    romanian = build("mbart", tmp_path / "ro")
    assert exported(tmp_path / "started", romanian).bundle.manifest.languages.default_target == "ro_RO"


def english_t5(folder: Path, **config: object) -> Path:
    """A T5 whose vocabulary holds no Chinese, as T5-small's."""
    import sentencepiece

    folder.mkdir()
    (folder / "text.txt").write_text("\n".join(ENGLISH.splitlines() * 4), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(folder / "spiece"), vocab_size=160, hard_vocab_limit=False,
        character_coverage=1.0, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    (folder / "text.txt").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    return build_t5(folder, seed=4, config={"vocab_size": 300, **config})


def test_a_vocabulary_without_chinese_is_refused(tmp_path: Path) -> None:
    """Case T2: English T5 asked for Chinese, by a prefix, in which it would write unknown tokens only."""
    folder = english_t5(tmp_path / "t5-small")
    prefix = "translate English to Chinese: "
    error = invoke("migrate", folder, "-o", tmp_path / "out", "--prefix", prefix, "--gate", "off").error()
    assert "cannot write zh (Chinese (Simplified)): 19 of the 19 commonest characters" in error
    assert not (tmp_path / "out").exists()
    found = json.loads(invoke("inspect", folder, "--prefix", prefix, "--json").text)
    assert any("cannot write zh" in reason for reason in found["reasons"])
    german = exported(tmp_path / "de", folder, prefix="translate English to German: ")
    assert german.bundle.manifest.languages.target == ("de",)


class Lacking:
    """A tokenizer that lacks so many of the characters it is asked for."""

    def __init__(self, count: int) -> None:
        self._count = count

    def unwritable(self, sample: str) -> list[str]:
        return list(sample[: self._count])


@pytest.mark.parametrize(
    ("count", "refused", "warned"), [(0, False, False), (9, False, False), (13, False, True), (19, True, False)]
)
def test_a_thin_vocabulary_is_warned_about_and_one_with_nothing_refused(
    count: int, refused: bool, warned: bool
) -> None:
    """A model may be of a narrow domain; only one that can write no character at all is certainly the wrong one."""
    tokenizer = cast(Tokenizer, Lacking(count))
    assert (unwritable_script(tokenizer, "zh") is not None) is refused
    assert (poor_script(tokenizer, "zh") is not None) is warned


def test_nothing_chosen_among_several_prefixes_is_a_warning(checkpoints: Callable[[str], Path], tmp_path: Path) -> None:
    made = exported(tmp_path / "open", checkpoints("t5"))
    assert any("no target language was chosen among de, fr, ro" in warning for warning in made.warnings)
    assert made.bundle.manifest.languages.default_target is None
    chosen = exported(tmp_path / "chosen", checkpoints("t5"), target="German")
    assert not any("no target language" in warning for warning in chosen.warnings)


def test_the_shape_of_small100_without_its_sign_is_a_warning(tmp_path: Path) -> None:
    folder = build("m2m_100", tmp_path / "distilled", encoder_layers=12, decoder_layers=3)
    assert any("small100" in warning for warning in exported(tmp_path / "a", folder, target="zh").warnings)
    (folder / "tokenization_small100.py").write_text("")
    made = exported(tmp_path / "b", folder, target="zh")
    assert not any("small100" in warning for warning in made.warnings)
    assert made.bundle.manifest.tokenizer["kind"] == "small100"
    assert "tokenization_small100.py" not in {entry.path for entry in made.bundle.manifest.files}


@pytest.mark.parametrize(("name", "target"), [("t5", "de"), ("nllb", "zho_Hans")])
def test_long_sentences_are_split_or_refused_and_caps_are_flagged(
    migrated: Callable[[str], Migrated], tmp_path: Path, name: str, target: str
) -> None:
    """Case L1. The tiny NLLB has 128 positions, T5 no table and 512 by its tokenizer."""
    with Translator.load(migrated(name).bundle, options=RuntimeOptions(threads=1)) as translator:
        assert translator.limit == {"t5": 512, "nllb": 128}[name]
        sixty = " ".join(["the cat"] * 30) + "."
        (found,) = translator.translate_detailed([sixty], options=TranslateOptions(target=target, max_new_tokens=5))
        capped = [segment for segment in found.segments if not segment.finished]
        flagged = [warning for warning in found.warnings if warning.kind == "length_cap"]
        assert len(flagged) == len(capped)
        assert found.finished == (not capped)
        long = "the library, " * 400
        assert len(translator.tokenizer.encode(long, target=target)) >= 700
        cut = translator.translate_detailed(long, options=TranslateOptions(target=target, max_new_tokens=3))
        assert len(cut.segments) > 1
        with pytest.raises(InputTooLongError, match=f"at most {translator.limit}"):
            translator.translate(long, options=TranslateOptions(target=target, split=False))


def test_a_cap_of_the_models_own_is_flagged(migrated: Callable[[str], Migrated]) -> None:
    """Case L1: T5 stops at the 20 tokens of transformers' default, and says so."""
    bundle = migrated("madlad").bundle
    with Translator.load(bundle, options=RuntimeOptions(threads=1)) as translator:
        assert translator.settings.length_limit == 30
        found = translator.translate_detailed("A black cat is sleeping.", options=TranslateOptions(beams=1))
        assert (len(found.tokens), found.finished) == (29, False)
        assert [warning.kind for warning in found.warnings if warning.kind == "length_cap"] == ["length_cap"]


def test_large_activations_are_finite_and_equal(tmp_path: Path) -> None:
    """Case Q7, fp32: feed-forward outputs beyond what float16 holds, 30 long sentences, every token as PyTorch's."""
    folder = build("t5", tmp_path / "large", seed=2)
    scale_feed_forward(folder, by=12_000.0)
    assert largest_feed_forward(folder) > 65_504
    words = ENGLISH.split()
    rng = np.random.default_rng(5)
    lines = [f"long\t{' '.join(rng.choice(words, 40))}" for _ in range(30)]
    (tmp_path / "long.tsv").write_text("\n".join(lines), encoding="utf-8")
    options = MigrateOptions(
        precision=FP32, verify="live", gate="off", target="de", sentences=tmp_path / "long.tsv"
    )  # fmt: skip
    report = migrate(folder, tmp_path / "bundle", options=options).report
    assert report is not None
    assert report.passed
    assert {row.layer: row.compared for row in report.rows}["greedy tokens"] == 30
    assert all(row.max_abs_error is None or np.isfinite(row.max_abs_error) for row in report.rows)


def scale_feed_forward(folder: Path, *, by: float) -> None:
    from safetensors.numpy import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if "DenseReluDense.wo" in name:
            weights[name] = weights[name] * np.float32(by)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def largest_feed_forward(folder: Path) -> float:
    """The largest value that a feed-forward layer of the encoder puts out, in PyTorch."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    seen = []
    for block in model.encoder.block:
        block.layer[1].DenseReluDense.register_forward_hook(lambda _m, _i, out: seen.append(float(out.abs().max())))
    with torch.no_grad():
        model.encoder(input_ids=torch.tensor([[5, 17, 40, 80, 1]]))
    return max(seen)


def chinese_to_english(folder: Path) -> Path:
    """A Marian whose tokenizer is turned round, Chinese in and English out, and which may not write Chinese."""
    build_marian(folder, seed=6)
    (folder / "source.spm").rename(folder / "other.spm")
    (folder / "target.spm").rename(folder / "source.spm")
    (folder / "other.spm").rename(folder / "target.spm")
    for name, changes in (
        ("tokenizer_config.json", {"source_lang": "zho", "target_lang": "eng"}),
        ("generation_config.json", {"bad_words_ids": [[index] for index in not_english(folder)]}),
    ):
        (folder / name).write_text(json.dumps({**json.loads((folder / name).read_text()), **changes}))
    return folder


def not_english(folder: Path) -> list[int]:
    """The ids of Chinese pieces and of padding; `>>zho<<` becomes a piece like any other."""
    text = (folder / "vocab.json").read_text(encoding="utf-8").replace(">>zho<<", "未用")
    (folder / "vocab.json").write_text(text, encoding="utf-8")
    return [index for piece, index in json.loads(text).items() if piece == "<pad>" or any(c >= "⺀" for c in piece)]


def test_chinese_to_english_end_to_end(tmp_path: Path) -> None:
    """Verified on Chinese sentences, cut by Chinese marks, joined with spaces."""
    folder = chinese_to_english(tmp_path / "opus-mt-zh-en")
    options = MigrateOptions(precision=FP32, verify="live", gate="off")
    made = migrate(folder, tmp_path / "bundle", options=options)
    assert made.report is not None
    assert made.report.passed
    assert (made.report.sentences.name, made.report.sentences.lines) == ("verification.zh.tsv", 61)
    assert not any("English" in note for note in made.report.notes)
    shutil.rmtree(folder)
    text = "图书馆九点开门。他昨天买了三本书！最近的车站在哪里？"
    with Translator.load(made.bundle.folder, options=RuntimeOptions(threads=1)) as translator:
        found = translator.translate_detailed(text, options=TranslateOptions(max_new_tokens=6))
        assert [segment.source for segment in found.segments] == [
            "图书馆九点开门。", "他昨天买了三本书！", "最近的车站在哪里？",
        ]  # fmt: skip
        single = [translator.translate(s.source, options=TranslateOptions(max_new_tokens=6)) for s in found.segments]
    assert all(text and text.isascii() for text in single)
    assert found.text == " ".join(single)
    replayed = invoke("verify", made.bundle.folder, "--json")
    assert json.loads(replayed.text)["sentences"]["lines"] == 61


def test_english_to_german_end_to_end(migrated: Callable[[str], Migrated]) -> None:
    """A target that is not Chinese: sentences are joined with spaces, whatever the defaults are."""
    made = migrated("t5")
    judge = Judge("t5", made.checkpoint)
    with Translator.load(made.bundle, options=RuntimeOptions(threads=1)) as translator:
        options = TranslateOptions(target="German", beams=4, max_new_tokens=24)
        found = translator.translate_detailed("The library opens at nine. Please close the door.", options=options)
        wanted = [judge.translate(s.source, target="de", beams=4) for s in found.segments]
    assert [segment.text for segment in found.segments] == wanted
    assert len(wanted) == 2
    assert found.text == " ".join(part for part in wanted)


def test_a_language_without_sentences_of_its_own_is_noted(tmp_path: Path) -> None:
    folder = build("m2m_100", tmp_path / "model")
    options = MigrateOptions(precision=FP32, verify="live", gate="off", source="fr", target="en")
    report = migrate(folder, tmp_path / "bundle", options=options).report
    assert report is not None
    assert report.passed
    assert "the sentences are English, and the model reads French" in report.notes[0]


def test_a_tokenizer_that_transformers_cannot_judge_is_told(tmp_path: Path) -> None:
    """NLLB's SentencePiece model alone: transformers finds no languages in it, and ids are then ours, which is said."""
    from tests.tokenizer import families

    folder = build("nllb", tmp_path / "nllb")
    families.write_nllb(tmp_path / "plain")
    (folder / "tokenizer.json").unlink()
    shutil.copy(tmp_path / "plain" / "sentencepiece.bpe.model", folder)
    options = MigrateOptions(
        precision=FP32, verify="live", gate="off", target="zh", sentences=sentences_file(tmp_path)
    )  # fmt: skip
    report = migrate(folder, tmp_path / "bundle", options=options).report
    assert report is not None
    assert report.passed
    assert "source tokens" not in {row.layer for row in report.rows}
    assert any("onnxmt's own and were not compared" in note for note in report.notes)


def test_a_prefix_is_for_families_without_language_tokens(checkpoints: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="this one has language tokens"):
        exported(tmp_path / "out", checkpoints("nllb"), target="zh", prefix="translate: ")


def test_a_code_in_the_text_is_text_in_families_that_have_no_such_codes(migrated: Callable[[str], Migrated]) -> None:
    """`>>de<<` is opus-mt's; T5 must neither refuse it nor take it for a target."""
    with Translator.load(migrated("t5").bundle, options=RuntimeOptions(threads=1)) as translator:
        whole = TranslateOptions(target="fr", max_new_tokens=8)
        found = translator.translate_detailed(">>xx<< The library opens. Thank you?", options=whole)
        second = found.segments[-1]
        assert second.text == translator.translate(second.source, options=whole)


def test_families_table_is_complete() -> None:
    from onnxmt.runtime.tokenizers.coded import LAYOUTS

    assert set(LAYOUTS) - {"nllb_legacy"} <= set(FAMILIES)
    assert CHINESE  # the tokenizers of these checkpoints are trained on both languages


def test_a_code_of_opus_mt_is_the_same_target(tmp_path: Path) -> None:
    """`--target zh` at the migration is `>>zho<<` in front of every text, in the proof as in translations."""
    folder = build_marian(tmp_path / "opus-mt-en-mul", seed=2)
    options = MigrateOptions(
        precision=FP32, verify="live", gate="off", target="Chinese", sentences=sentences_file(tmp_path)
    )  # fmt: skip
    made = migrate(folder, tmp_path / "bundle", options=options)
    assert made.report is not None
    assert made.report.passed
    assert made.bundle.manifest.languages.default_target == "zho"
    text = "The library opens at nine."
    with Translator.load(made.bundle.folder, options=RuntimeOptions(threads=1)) as translator:
        for how in (TranslateOptions(), TranslateOptions(split=False), TranslateOptions(target="zh_CN")):
            assert translator.translate(text, options=how) == translator.translate(f">>zho<<{text}")
        plain = exported(tmp_path / "plain", folder).bundle.folder
        with Translator.load(plain) as without:
            assert without.translate(text) != translator.translate(text)
