"""--trim-head: what is chosen and scored equals the whole head with the other tokens banned; one copy of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.bundle import read_bundle
from onnxmt.errors import GenerationSettingsError, SessionError, UsageError
from onnxmt.graph_export import export_graphs
from onnxmt.head_trimming import HeadTrimming, plan_trimming
from onnxmt.inspection.bundle_view import bundle_page
from onnxmt.manifest import TrimmedHead
from onnxmt.measure.texts import shipped_texts
from onnxmt.migration import MigrateOptions, export, migrate
from onnxmt.models import architecture_of
from onnxmt.precision import PRESETS, Recipe, recipe
from onnxmt.quantization import QuantizeOptions, explain_damage, quantize, search
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.kept_tokens import KEPT_KEY, VOCABULARY_KEY, KeptTokens
from onnxmt.runtime.scores import Scores
from onnxmt.runtime.search import Processor
from onnxmt.runtime.search import search as decode
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import load_tokenizer, tokenizer_spec
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from onnxmt.verification import verify
from tests.cli.harness import invoke
from tests.families.checkpoints import FAMILIES
from tests.families.checkpoints import build as build_family
from tests.models.parity import open_checkpoint
from tests.precision.families import Tiny, opened
from tests.tiny import build_marian

ONE = RuntimeOptions(threads=1)
TRIMMED_FP32 = PRESETS["fp32"].with_head(trimmed=True)


class Masked:
    """A step over the whole head whose logits of the other tokens are −inf."""

    def __init__(self, model: Seq2SeqModel, ids: np.ndarray, mask: np.ndarray, kept: KeptTokens) -> None:
        self._step = model.start(ids, mask)
        self._removed = np.setdiff1d(np.arange(kept.vocabulary), kept.ids)

    def __call__(self, tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        logits = self._step(tokens, parents).copy()
        logits[:, self._removed] = -np.inf
        return logits


class OwnRule:
    """A caller's processor: it knows ids, edits one, and is told the history in ids."""

    only_bans = False

    def __init__(self, banned: int, raised: int) -> None:
        self.banned, self.raised, self.seen = banned, raised, set[int]()

    def __call__(self, history: np.ndarray, scores: Scores) -> None:
        self.seen |= set(history.ravel().tolist())
        scores.settled()[:, self.raised] += 0.5
        scores.ban(np.array([self.banned]))


def trimming_for(tiny: Tiny) -> HeadTrimming:
    spec = tokenizer_spec(tiny.folder, tiny.checkpoint.config)
    sizes = architecture_of(tiny.checkpoint.config).dimensions
    return plan_trimming(load_tokenizer(tiny.folder, spec), tiny.settings, sizes, model="tiny")


def trimmed(tiny: Tiny, how: Recipe, output: Path) -> Path:
    output.mkdir(parents=True)
    export_graphs(tiny.checkpoint, output, precision=how, calibration=tiny.calibration, trimming=trimming_for(tiny))
    return output


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    root = tmp_path_factory.mktemp("tiny")
    return opened(build_marian(root / "checkpoint", logits_bias=1.5), root)


@pytest.fixture(scope="module")
def pair(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> tuple[Seq2SeqModel, Seq2SeqModel]:
    """The whole fp32 model, and the same with a trimmed head."""
    folder = trimmed(tiny, TRIMMED_FP32, tmp_path_factory.mktemp("trimmed") / "graphs")
    return load_model(tiny.fp32, options=ONE), load_model(folder, options=ONE)


def some_ids(kept: KeptTokens) -> tuple[list[int], list[int]]:
    """A few kept and a few removed tokens, no special ones."""
    removed = np.setdiff1d(np.arange(kept.vocabulary), kept.ids)
    return kept.ids[5:60:9].tolist(), removed[3:40:7].tolist()


SETTINGS: dict[str, Callable[[list[int], list[int]], dict[str, Any]]] = {
    "greedy": lambda k, r: {},
    "beam 4, n-best": lambda k, r: {"num_beams": 4, "num_return_sequences": 4},
    "beam 3, never": lambda k, r: {"num_beams": 3, "early_stopping": "never", "length_penalty": 0.6},
    "bans": lambda k, r: {
        "bad_words_ids": ((k[0],), (r[0],), (k[1], k[2]), (k[3], r[1]), (r[2], k[3]), (r[1], r[2])),
        "suppress_tokens": (k[4], r[3]),
        "begin_suppress_tokens": (k[5], r[4]),
        "num_beams": 4,
    },
    "repetition": lambda k, r: {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "num_beams": 4},
    "lengths": lambda k, r: {"min_new_tokens": 6, "max_new_tokens": 9, "exponential_decay_length_penalty": (2, 1.2)},
    "forced": lambda k, r: {"forced_bos_token_id": k[5], "eos_token_ids": (0, k[6]), "num_beams": 2},
    "renormalized": lambda k, r: {"num_beams": 4, "renormalize_logits": True, "remove_invalid_values": True},
    "sampled": lambda k, r: {"do_sample": True, "temperature": 1.4, "top_k": 12, "num_return_sequences": 3},
    "sampled, top p": lambda k, r: {"do_sample": True, "top_p": 0.8, "top_k": 0, "min_p": 0.01},
}


@pytest.mark.reference
@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_as_the_whole_head_with_the_other_tokens_banned(
    name: str, tiny: Tiny, pair: tuple[Seq2SeqModel, Seq2SeqModel]
) -> None:
    whole, cut = pair
    kept = cut.kept
    assert kept is not None
    assert whole.kept is None
    kept_ids, removed = some_ids(kept)
    settings = replace(tiny.settings, max_length=24, **SETTINGS[name](kept_ids, removed))
    rule: list[list[Processor]] = [[], [OwnRule(kept_ids[1], kept_ids[2])]]
    for processors in rule:
        arguments: dict[str, Any] = {
            "rows": len(tiny.batch.ids), "settings": settings, "seed": 5, "processors": processors,
        }  # fmt: skip
        wanted = decode(Masked(whole, tiny.batch.ids, tiny.batch.mask, kept), **arguments)
        found = decode(cut.start(tiny.batch.ids, tiny.batch.mask), **arguments)
        assert [[one.tokens for one in row] for row in found] == [[one.tokens for one in row] for row in wanted]
        for got, other in zip(chain(*found), chain(*wanted), strict=True):
            assert got.score == pytest.approx(other.score, rel=1e-5, abs=1e-5)
            assert got.finished == other.finished
        assert set(chain.from_iterable(one.tokens for row in found for one in row)) <= set(kept.ids.tolist())
    assert len({one.tokens for row in found for one in row}) > 1
    assert rule[1][0].seen <= set(kept.ids.tolist())  # type: ignore[attr-defined]


@pytest.mark.reference
def test_logits_of_the_kept_tokens_are_the_same_numbers(tiny: Tiny, pair: tuple[Seq2SeqModel, Seq2SeqModel]) -> None:
    """Bias included; on what other tokens would be chosen, the whole head would choose a removed one somewhere."""
    whole, cut = pair
    assert cut.kept is not None
    ids, mask = tiny.batch.ids, tiny.batch.mask
    start = np.full((len(ids), 1), tiny.settings.decoder_start_token_id, np.int64)
    place = np.array(cut.kept.places(start.ravel()))[:, None]
    wanted, found = whole.start(ids, mask)(start, None), cut.start(ids, mask)(place, None)
    assert np.abs(found - wanted[:, cut.kept.ids]).max() < 1e-5
    free = decode(whole.start(ids, mask), rows=len(ids), settings=replace(tiny.settings, max_length=24))
    assert set(chain.from_iterable(one.tokens for row in free for one in row)) - set(cut.kept.ids.tolist())


@pytest.mark.reference
@pytest.mark.parametrize("text", ["fp32", "int8", "int4", "int8-dynamic", "int8-static", "fp16", "int8,embedding=fp32"])
def test_every_format_gives_what_its_whole_head_gives(text: str, tiny: Tiny, tmp_path: Path) -> None:
    """And a token that has no row is refused, where it would have been another one's row."""
    how = recipe(text)
    plain = load_model(tiny.export(how, tmp_path / "plain"), options=ONE)
    cut = load_model(trimmed(tiny, how.with_head(trimmed=True), tmp_path / "trimmed"), options=ONE)
    assert cut.kept is not None
    ids, mask = tiny.batch.ids, tiny.batch.mask
    start = np.full((len(ids), 1), tiny.settings.decoder_start_token_id, np.int64)
    place = np.array(cut.kept.places(start.ravel()))[:, None]
    wanted, found = plain.start(ids, mask)(start, None), cut.start(ids, mask)(place, None)
    assert np.abs(found - wanted[:, cut.kept.ids]).max() < 1e-4 * np.abs(wanted).max()

    removed = np.setdiff1d(np.arange(cut.kept.vocabulary), cut.kept.ids)
    feeds = {"attention_mask": mask, **cut.encode(ids, mask), **cut.empty_past(len(ids))}
    with pytest.raises(SessionError, match=r"could not run decoder\.onnx"):
        cut.run_decoder({"input_ids": np.full((len(ids), 1), removed[0]), **feeds})


@pytest.mark.parametrize("text", ["int8", "int8-dynamic", "fp16"])
def test_no_row_is_stored_twice(text: str, tmp_path: Path) -> None:
    plain = export("demo", tmp_path / "plain", options=MigrateOptions(precision=recipe(text))).bundle.folder
    how = recipe(text, trim_head=True)
    cut = export("demo", tmp_path / "cut", options=MigrateOptions(precision=how)).bundle.folder
    more = (cut / "weights.bin").stat().st_size - (plain / "weights.bin").stat().st_size
    table_of_rows, pages = 4 * 10261, 8 * 4096
    assert -4 * 10261 < more <= table_of_rows + pages  # 5,501 rows of 256 bytes would be 1.4 million


def test_the_demo_models_rows_and_bytes(demo: Path, tmp_path: Path) -> None:
    """quantize needs no checkpoint for it, and the manifest, inspect and memory know."""
    result = quantize(demo, tmp_path / "a", options=QuantizeOptions(precision=recipe("int8,trim_head"), gate="off"))
    exported = export("demo", tmp_path / "b", options=MigrateOptions(precision=recipe("int8", trim_head=True)))
    for name in ("encoder.onnx", "decoder.onnx", "weights.bin"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    manifest = read_bundle(tmp_path / "a").manifest
    assert manifest == result.bundle.manifest
    assert manifest.recipe == exported.bundle.manifest.recipe == "int8,trim_head"
    assert manifest.precision.trimmed_head == TrimmedHead(
        rows=5501, of=10261, why="pieces of target.spm, special tokens, and tokens that the generation settings name"
    )
    assert not manifest.precision.exact
    assert manifest.dimensions.target_vocabulary == 10261
    assert "trimmed to 5,501 of 10,261 tokens: pieces of target.spm" in bundle_page(result.bundle)
    assert "trimmed to 5,501 of 10,261 tokens" in (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="fp32 weights are gone"):
        quantize(tmp_path / "a", tmp_path / "c", options=QuantizeOptions(gate="off"))


def test_a_bundle_with_a_trimmed_head_translates_in_any_batch_and_is_verified(tmp_path: Path) -> None:
    """Through the recording: the fp32 graphs are proved whole, and the tokens of the trimmed ones are counted."""
    how = MigrateOptions(precision=recipe("int8,trim_head"), verify="recording", gate="off")
    folder = migrate("demo", tmp_path / "demo", options=how).bundle.folder
    manifest = read_bundle(folder).manifest
    assert manifest.verification.passed
    assert manifest.verification.graphs == "fp32"
    counted = verify(folder).report
    assert counted.passed
    with Translator.load(folder, options=ONE) as cut, Translator.load("demo", options=ONE) as whole:
        assert cut.model.kept is not None
        lines = list(shipped_texts().sources or ())[:48]
        for beams in (1, 4):
            options = TranslateOptions(beams=beams, max_new_tokens=24)
            together = cut.translate_detailed(lines, options=options)
            alone = [cut.translate_detailed(line, options=options) for line in lines]
            assert sum(a.text != b.text for a, b in zip(together, alone, strict=True)) <= 1  # a tie (docs/precision.md)
            assert {t for found in together for t in found.tokens} <= set(cut.model.kept.ids.tolist())
            same = sum(a.text == b.text for a, b in zip(together, whole.translate_detailed(lines), strict=True))
            assert beams != whole.settings.num_beams or same > len(lines) / 3


def test_search_tries_trimmed_recipes_and_explain_looks_at_whole_ones(demo: Path, tmp_path: Path) -> None:
    from types import SimpleNamespace

    options = QuantizeOptions(precision=recipe("int8", trim_head=True))
    judge: Any = lambda translator, how: SimpleNamespace(misses=(), passed=True, to_dict=dict)  # noqa: E731
    found = search(demo, tmp_path / "found", options=options, judge=judge)
    assert [one.recipe.name for one in found.tried] == ["int4,trim_head"]
    assert read_bundle(tmp_path / "found").manifest.precision.trimmed_head is not None
    assert explain_damage(demo, options=options).recipe == "int8"


@pytest.mark.reference
@pytest.mark.parametrize("name", ["nllb", "m2m_100", "mbart50", "t5", "mt5"])
def test_a_shared_vocabulary_is_refused_before_the_work(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    checkpoint = build_family(name, tmp_path / "checkpoint")
    options = MigrateOptions(
        precision=recipe("int8,trim_head"), source=family.source, prefix=family.prefix,
        target=family.targets[0] if family.targets else None,
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"cannot be trimmed: .* share one vocabulary.* Leave --trim-head out"):
        export(checkpoint, tmp_path / "out", options=options)
    assert not (tmp_path / "out").exists()


@pytest.mark.reference
def test_other_models_that_have_nothing_to_trim(tmp_path: Path) -> None:
    options = MigrateOptions(precision=recipe("int8,trim_head"))
    separate = build_marian(tmp_path / "separate", separate_vocabs=True)
    with pytest.raises(UsageError, match="a vocabulary of its own for the target side"):
        export(separate, tmp_path / "out", options=options)
    shared = build_marian(tmp_path / "shared")
    (shared / "target.spm").write_bytes((shared / "source.spm").read_bytes())
    checkpoint = open_checkpoint(shared)
    tokenizer = load_tokenizer(shared, tokenizer_spec(shared, checkpoint.config))
    settings = GenerationSettings.from_checkpoint(checkpoint.config, checkpoint.generation)
    sizes = architecture_of(checkpoint.config).dimensions
    few = replace(sizes, target_vocab_size=len(tokenizer.target_tokens()))
    with pytest.raises(UsageError, match="nothing would be won"):
        plan_trimming(tokenizer, settings, few, model="tiny")


def test_fp32_cannot_be_trimmed(tmp_path: Path) -> None:
    for text in ("fp32", "fp32,trim_head", "trim_head"):
        with pytest.raises(UsageError, match="fp32 is what is verified"):
            recipe(text, trim_head=True)
    outcome = invoke("export", "demo", "--trim-head", "-o", str(tmp_path / "out"))
    assert outcome.code == 2
    assert "fp32 is what is verified" in outcome.err
    outcome = invoke("quantize", "demo", "--explain", "--trim-head")
    assert outcome.code == 2
    assert "leave --trim-head out" in outcome.err


def test_the_command_line(tmp_path: Path) -> None:
    outcome = invoke("export", "demo", "--precision", "int4", "--trim-head", "-o", str(tmp_path / "out"))
    assert outcome.code == 0, outcome.err
    assert "5,501 of 10,261" in invoke("inspect", str(tmp_path / "out")).text
    assert invoke("translate", "Good morning.", "--model", str(tmp_path / "out")).text == "早晨。\n"


@given(
    st.sets(st.integers(0, 200), min_size=1).flatmap(
        lambda ids: st.tuples(st.just(sorted(ids)), st.integers(max(ids) + 1, 300))
    )
)
def test_metadata_is_read_as_it_was_written(given_ids: tuple[list[int], int]) -> None:
    ids, vocabulary = given_ids
    kept = KeptTokens(ids=np.array(ids, np.int64), vocabulary=vocabulary)
    found = KeptTokens.from_metadata(kept.metadata(), where="decoder.onnx")
    assert found is not None
    assert found.ids.tolist() == ids
    assert found.vocabulary == vocabulary
    assert kept.places(range(vocabulary)) == list(range(len(ids)))
    assert kept.tokens(range(len(ids))) == tuple(ids)


@pytest.mark.parametrize(
    "metadata",
    [
        {KEPT_KEY: "0-5"}, {KEPT_KEY: "", VOCABULARY_KEY: "9"}, {KEPT_KEY: "5-2", VOCABULARY_KEY: "9"},
        {KEPT_KEY: "0-9", VOCABULARY_KEY: "9"}, {KEPT_KEY: "0,0", VOCABULARY_KEY: "9"}, {KEPT_KEY: "a", VOCABULARY_KEY: "9"},
    ],
)  # fmt: skip
def test_wrong_metadata_is_refused(metadata: dict[str, str]) -> None:
    with pytest.raises(SessionError, match=r"decoder\.onnx: its metadata"):
        KeptTokens.from_metadata(metadata, where="decoder.onnx")


def test_a_token_that_is_needed_must_be_kept() -> None:
    kept = KeptTokens(ids=np.array([0, 1, 9], np.int64), vocabulary=10)
    settings = GenerationSettings(decoder_start_token_id=9, eos_token_ids=(0,))
    assert kept.settings(settings).decoder_start_token_id == 2
    with pytest.raises(GenerationSettingsError, match=r"without eos_token_id \[0, 4\], forced_bos_token_id \[5\]"):
        kept.settings(replace(settings, eos_token_ids=(0, 4), forced_bos_token_id=5))
    assert GenerationSettings(
        decoder_start_token_id=2, eos_token_ids=(0,), bad_words_ids=((1,),), suppress_tokens=(1,)
    ) == kept.settings(replace(settings, bad_words_ids=((1,), (4,), (1, 4)), suppress_tokens=(1, 7)))
