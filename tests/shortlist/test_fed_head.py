"""A decoder that is fed its candidates chooses what the whole head would, were the other tokens banned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxmt.errors import SessionError, UsageError
from onnxmt.graph_export import export_graphs
from onnxmt.precision import PRESETS, recipe
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.search import search as decode
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.shortlist import Shortlist
from tests.precision.families import Tiny, opened
from tests.precision.families import build as build_tiny
from tests.tiny import build_marian

ONE = RuntimeOptions(threads=1)
# No product: fp32 has no shortlist there. Here the same numbers come out of both heads.
FED_FP32 = replace(PRESETS["fp32"], name="fp32,shortlist", shortlist=True)
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam 4, n-best": {"num_beams": 4, "num_return_sequences": 4},
    "beam 3": {"num_beams": 3, "early_stopping": "never", "length_penalty": 0.6},
    "sampled": {"do_sample": True, "temperature": 1.4, "top_k": 12, "num_return_sequences": 3},
    "repetition": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "num_beams": 4},
}


def random_table(tiny: Tiny, *, vocabulary: int, seed: int = 4) -> Shortlist:
    rng, settings = np.random.default_rng(seed), tiny.settings
    sources = tiny.checkpoint.config["vocab_size"]
    rows = [np.unique(rng.integers(0, vocabulary, 3)) for _ in range(sources)]
    named = {settings.decoder_start_token_id, *settings.eos_token_ids, *settings.forced_eos_token_ids}
    named |= {token for token in (settings.forced_bos_token_id,) if token is not None}
    return Shortlist(
        offsets=np.cumsum([0, *map(len, rows)]).astype(np.int32), tokens=np.concatenate(rows).astype(np.int32),
        always=np.array(sorted(named | set(range(5, vocabulary, 25))), np.int32), vocabulary=vocabulary,
    )  # fmt: skip


def fed(tiny: Tiny, how: Any, folder: Path) -> Seq2SeqModel:
    folder.mkdir(parents=True)
    exported = export_graphs(tiny.checkpoint, folder, precision=how, calibration=tiny.calibration)
    vocabulary = exported.dimensions.target_vocab_size
    return load_model(folder, head="head.onnx", shortlist=random_table(tiny, vocabulary=vocabulary), options=ONE)


class Masked:
    """A step over the whole head: what a sentence's shortlist lacks has a logit of −inf."""

    def __init__(self, model: Seq2SeqModel, shortlist: Shortlist, ids: np.ndarray, mask: np.ndarray) -> None:
        self._step, self._sentence = model.start(ids, mask), np.arange(len(ids))
        self._allowed = np.zeros((len(ids), shortlist.vocabulary), bool)
        for row, own in enumerate(ids):
            self._allowed[row, shortlist.of(own[mask[row] > 0])] = True

    def __call__(self, tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        if parents is not None:
            self._sentence = self._sentence[parents]
        logits = self._step(tokens, parents).copy()
        logits[~self._allowed[self._sentence]] = -np.inf
        return logits


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    root = tmp_path_factory.mktemp("tiny")
    return opened(build_marian(root / "checkpoint", logits_bias=1.5), root)


@pytest.fixture(scope="module")
def model(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Seq2SeqModel:
    return fed(tiny, FED_FP32, tmp_path_factory.mktemp("fed") / "graphs")


def tokens(found: Sequence[Sequence[Any]]) -> list[list[tuple[int, ...]]]:
    return [[one.tokens for one in row] for row in found]


def compare(tiny: Tiny, whole: Seq2SeqModel, model: Seq2SeqModel, told: dict[str, Any]) -> list[list[Any]]:
    assert model.shortlist is not None
    ids, mask = tiny.batch.ids, tiny.batch.mask
    settings = replace(tiny.settings, max_length=20, **told)
    arguments: dict[str, Any] = {"settings": settings, "seed": 5}
    found = decode(model.start(ids, mask), rows=len(ids), **arguments)
    wanted = decode(Masked(whole, model.shortlist, ids, mask), rows=len(ids), **arguments)
    assert tokens(found) == tokens(wanted)
    for got, other in zip(chain(*found), chain(*wanted), strict=True):
        assert got.score == pytest.approx(other.score, rel=1e-4, abs=1e-4)
    for row, outputs in enumerate(found):  # alone, with fewer candidates in all, a sentence says the same
        length = int(mask[row].sum())
        alone = decode(
            model.start(ids[row : row + 1, :length], mask[row : row + 1, :length]), rows=1, streams=[row], **arguments
        )
        assert tokens(alone) == tokens([outputs])
        allowed = set(model.shortlist.of(ids[row][mask[row] > 0]).tolist())
        assert set(chain.from_iterable(one.tokens for one in outputs)) <= allowed
    return found


@pytest.mark.reference
@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_as_the_whole_head_with_the_other_tokens_banned(name: str, tiny: Tiny, model: Seq2SeqModel) -> None:
    whole = load_model(tiny.fp32, options=ONE)
    found = compare(tiny, whole, model, SEARCHES[name])
    assert len(set(chain.from_iterable(tokens(found)))) > 1
    free = decode(whole.start(tiny.batch.ids, tiny.batch.mask), rows=3, settings=replace(tiny.settings, max_length=20))
    assert name != "greedy" or tokens(free) != tokens(found)  # the table is felt


@pytest.mark.reference
@pytest.mark.parametrize("name", ["t5", "umt5", "m2m_100", "mbart", "bart", "t5, odd"])
def test_every_family(name: str, tmp_path: Path) -> None:
    """With and without a bias, tied and untied, scaled and not."""
    tiny = build_tiny(name, tmp_path)
    model = fed(tiny, FED_FP32, tmp_path / "fed")
    compare(tiny, load_model(tiny.fp32, options=ONE), model, {"num_beams": 3})


@pytest.mark.reference
@pytest.mark.parametrize(
    "text", ["int8", "int4", "int8-dynamic", "int8-static", "int8,lm_head=fp32", "int8,decoder=fp32"]
)
def test_every_format_gives_candidates_near_those_of_its_whole_head(text: str, tiny: Tiny, tmp_path: Path) -> None:
    """The rows are those of the whole head; only its input is not quantised, which is the better product."""
    how = recipe(text)
    plain = load_model(tiny.export(how, tmp_path / "plain"), options=ONE)
    short = fed(tiny, how.with_shortlist(), tmp_path / "short")
    ids, mask = tiny.batch.ids, tiny.batch.mask
    step = short.start(ids, mask)
    kept = step.kept  # type: ignore[attr-defined]
    start = np.full((len(ids), 1), tiny.settings.decoder_start_token_id, np.int64)
    wanted = plain.start(ids, mask)(start, None)[:, kept.ids]
    found = step(np.array(kept.places(start.ravel()))[:, None], None)
    own = np.isfinite(found)
    assert 0 < np.count_nonzero(~own) < own.size
    assert np.sqrt(np.mean((found[own] - wanted[own]) ** 2)) < 0.12 * wanted.std()


@pytest.mark.reference
def test_no_row_is_stored_twice_and_the_head_is_not_in_the_decoder(tiny: Tiny, tmp_path: Path) -> None:
    sizes = []
    for name, how in (("plain", recipe("int8")), ("short", recipe("int8").with_shortlist())):
        (tmp_path / name).mkdir()
        export_graphs(tiny.checkpoint, tmp_path / name, precision=how)
        sizes.append((tmp_path / name / "weights.bin").stat().st_size)
    assert sizes[0] == sizes[1]
    assert b"lm_head" not in (tmp_path / "short" / "decoder.onnx").read_bytes()
    assert b"lm_head" in (tmp_path / "plain" / "decoder.onnx").read_bytes()


@pytest.mark.reference
def test_tokens_that_a_sentence_needs_whatever_its_shortlist(tiny: Tiny, model: Seq2SeqModel) -> None:
    assert model.shortlist is not None
    ids, mask = tiny.batch.ids, tiny.batch.mask
    plain = model.scored(ids, mask)
    assert plain.kept is not None
    lacking = int(np.setdiff1d(np.arange(plain.kept.vocabulary), plain.kept.ids)[0])
    found = model.start_seeing(ids, mask, [[lacking], [], []]).kept
    assert found is not None
    assert np.setdiff1d(found.ids, plain.kept.ids).tolist() == [lacking]
    scored = model.scored(ids, mask, more=[[lacking], [], []])
    assert scored.others is not None
    assert np.isneginf(scored.others[:, found.places([lacking])[0]]).tolist() == [False, True, True]


@pytest.mark.reference
def test_graphs_that_do_not_fit_are_refused(tiny: Tiny, model: Seq2SeqModel, tmp_path: Path) -> None:
    folder = model.decoder.path.parent
    with pytest.raises(SessionError, match=r"decoder\.onnx has the inputs .*head\.weight"):
        load_model(folder, options=ONE)
    with pytest.raises(SessionError, match="a graph of candidates and a shortlist belong together"):
        load_model(folder, head="head.onnx", options=ONE)
    with pytest.raises(SessionError, match=r"encoder\.onnx gives .*needed: head\.weight for tokens"):
        load_model(folder, head="encoder.onnx", shortlist=model.shortlist, options=ONE)


def test_recipes() -> None:
    assert recipe("int8").with_shortlist().name == "int8,shortlist"
    assert recipe("int8-dynamic").with_shortlist().name == "int8-dynamic,lm_head=int8,embedding=int8,shortlist"
    assert recipe("int4", keep_fp32=["decoder.layers.0.*"]).with_shortlist().name == (
        "int4,shortlist,keep_fp32=decoder.layers.0.*"
    )
    assert not recipe("int8").with_shortlist().exact
    for text, said in (
        ("fp32", "verified against PyTorch"),
        ("fp16", "GPU"),
        ("int8,trim_head", "Leave --trim-head out"),
    ):
        with pytest.raises(UsageError, match=said):
            recipe(text).with_shortlist()
    with pytest.raises(UsageError, match="onnxmt shortlist BUNDLE SOURCE TARGET"):
        recipe("int8,shortlist")
