"""One graph against the library's search: every family, every setting that it expresses, ragged batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from onnxmt.checkpoint import read_checkpoint
from onnxmt.errors import DecodingError, GenerationSettingsError
from onnxmt.graph_export import export_graphs
from onnxmt.hub import resolve
from onnxmt.layouts.single_run import Batch
from onnxmt.models.single_graph import NO_OUTPUT, NOT_FINITE, SingleOptions, single_model
from onnxmt.precision import recipe
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.search import Hypothesis, search
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.settings import GenerationSettings
from tests import tiny

pytestmark = pytest.mark.reference

SENTENCES = [[5, 9, 14, 2], [7, 2], [30, 31, 32, 33, 34, 35, 36, 37, 2], [11, 12, 13, 14, 15, 2], [8, 2]]
BUILDERS: dict[str, Callable[..., Path]] = {
    "marian": tiny.build_marian, "bart": tiny.build_bart, "mbart": tiny.build_mbart, "m2m_100": tiny.build_m2m,
    "t5": tiny.build_t5, "mt5": tiny.build_mt5, "umt5": tiny.build_umt5,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graphs:
    """A family's two graphs, loaded and as files."""

    folder: Path
    model: Seq2SeqModel
    settings: GenerationSettings
    vocabulary: int
    positions: int | None

    def single(self, *, told: str | None = None, **changes: Any) -> Single:
        settings = dataclasses.replace(self.settings, **changes)
        options = SingleOptions(settings=settings, vocabulary=self.vocabulary, positions=self.positions, told=told)
        model = single_model(ir.load(self.folder / "encoder.onnx"), ir.load(self.folder / "decoder.onnx"), options)
        ir.save(model, self.folder / "single.onnx")
        session_options = ort.SessionOptions()
        session_options.intra_op_num_threads, session_options.log_severity_level = 1, 4
        return Single(self, settings, ort.InferenceSession(self.folder / "single.onnx", session_options))


@dataclasses.dataclass(frozen=True)
class Single:
    graphs: Graphs
    settings: GenerationSettings
    session: ort.InferenceSession

    def run(self, batch: Batch, **further: np.ndarray) -> list[list[Hypothesis]]:
        feeds = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, **further}
        ids, lengths, scores = self.session.run(None, feeds)
        rows = len(batch.input_ids)
        ids, lengths, scores = ids.reshape(rows, -1, ids.shape[-1]), lengths.reshape(rows, -1), scores.reshape(rows, -1)
        assert lengths.max() == ids.shape[-1], "the longest output sets the width"
        padding = {int(t) for i, n in zip(ids, lengths, strict=True) for r, c in zip(i, n, strict=True) for t in r[c:]}
        assert padding <= {self.settings.pad_token_id}
        return [
            [
                Hypothesis(tokens=tuple(row[:length].tolist()), score=float(score), finished=True)
                for row, length, score in zip(ids[r], lengths[r], scores[r], strict=True)
                if length
            ]
            for r in range(rows)
        ]

    def same(self, sentences: list[list[int]] = SENTENCES) -> list[list[tuple[int, ...]]]:
        """Compare with the library, together and alone; → the tokens."""
        graphs, settings = self.graphs, self.settings
        padding = settings.pad_token_id or 0
        found = []
        for batch in (Batch.of(sentences, padding=padding), *(Batch.of([ids], padding=padding) for ids in sentences)):
            rows = len(batch.input_ids)
            wanted = search(graphs.model.start(batch.input_ids, batch.attention_mask), rows=rows, settings=settings)
            got = self.run(batch)
            assert [[h.tokens for h in one] for one in got] == [[h.tokens for h in one] for one in wanted]
            scores = [[h.score for one in many for h in one] for many in (got, wanted)]
            np.testing.assert_allclose(*scores, atol=2e-5)
            found.append([h.tokens for one in got for h in one])
        return found


@pytest.fixture(scope="module")
def graphs_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Graphs]:
    made: dict[str, Graphs] = {}

    def of(name: str, precision: str = "fp32") -> Graphs:
        key = f"{name} {precision}"
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            checkpoint = read_checkpoint(resolve(BUILDERS[name](folder / "checkpoint", seed=3)))
            exported = export_graphs(checkpoint, folder, precision=recipe(precision))
            settings = GenerationSettings.from_checkpoint(checkpoint.config, checkpoint.generation)
            positions = exported.dimensions.max_target_positions
            made[key] = Graphs(
                folder=folder,
                model=load_model(folder, positions=positions, options=RuntimeOptions(threads=1)),
                settings=dataclasses.replace(settings, max_length=25),
                vocabulary=exported.dimensions.target_vocab_size,
                positions=positions,
            )
        return made[key]

    return of


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("name", BUILDERS)
def test_every_family(graphs_of: Callable[..., Graphs], name: str, beams: int) -> None:
    tokens = graphs_of(name).single(num_beams=beams).same()
    assert len(set(tokens[0])) > 1, "the model says the same of every sentence: a weak test"


@pytest.mark.parametrize("precision", ["int8", "int4", "int8-dynamic", "fp16", "int8,lm_head=fp32"])
@pytest.mark.parametrize("name", ["marian", "t5"])
def test_every_precision(graphs_of: Callable[..., Graphs], name: str, precision: str) -> None:
    graphs_of(name, precision).single(num_beams=3).same([[5, 9, 14, 2]] if "dynamic" in precision else SENTENCES)


VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "two answers": {"num_return_sequences": 2},
    "early stopping": {"early_stopping": True},
    "never": {"early_stopping": "never", "length_penalty": 2.0},
    "short outputs": {"length_penalty": -1.0},
    "no penalty": {"length_penalty": 0.0},
    "odd penalty": {"length_penalty": 0.6},
    "forced first": {"forced_bos_token_id": 17},
    "forced first and last": {"forced_bos_token_id": 17, "forced_eos_token_ids": (2,), "max_length": 6},
    "several forced last": {"forced_eos_token_ids": (4, 2), "max_length": 6},
    "several ends": {"eos_token_ids": (2, 40, 41)},
    "no end": {"eos_token_ids": (), "forced_eos_token_ids": ()},
    "minimum": {"min_length": 9},
    "minimum of new ones": {"min_new_tokens": 7},
    "banned": {"bad_words_ids": ((33,), (50,), (51, 52), (60, 61, 62), (7, 8))},
    "suppressed": {"suppress_tokens": (20, 21, 22, 4000), "begin_suppress_tokens": (30, 31)},
    "suppressed behind a forced one": {"forced_bos_token_id": 17, "begin_suppress_tokens": (30, 31)},
    "no repeated pair": {"no_repeat_ngram_size": 2},
    "no repeated token": {"no_repeat_ngram_size": 1, "eos_token_ids": (2, 3)},
    "no repeated three": {"no_repeat_ngram_size": 3},
    "repetition penalty": {"repetition_penalty": 1.7},
    "penalty below 1": {"repetition_penalty": 0.8, "bad_words_ids": ((33,),)},
    "renormalised": {"renormalize_logits": True, "bad_words_ids": ((33,), (50,))},
    "one token": {"max_new_tokens": 1},
    "two tokens": {"max_new_tokens": 2, "forced_bos_token_id": 17},
    "everything": {
        "repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "bad_words_ids": ((33,), (51, 52)), "min_length": 4,
        "forced_bos_token_id": 17, "forced_eos_token_ids": (2,), "suppress_tokens": (20,), "max_length": 12,
    },
}  # fmt: skip


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_setting(graphs_of: Callable[..., Graphs], variant: str, beams: int) -> None:
    changes = {"num_beams": beams, **VARIANTS[variant]}
    if changes.get("num_return_sequences", 1) > beams:
        changes["num_return_sequences"] = beams
    graphs_of("bart").single(**changes).same()


@pytest.mark.parametrize("beams", [1, 3])
def test_the_start_token_is_part_of_what_may_not_be_repeated(graphs_of: Callable[..., Graphs], beams: int) -> None:
    graphs = graphs_of("marian")
    assert graphs.settings.decoder_start_token_id == graphs.vocabulary - 1
    graphs.single(num_beams=beams, repetition_penalty=1.3, no_repeat_ngram_size=2).same()


@pytest.mark.parametrize("beams", [1, 4])
def test_the_language_of_each_sentence_is_an_input(graphs_of: Callable[..., Graphs], beams: int) -> None:
    graphs = graphs_of("m2m_100")
    single = graphs.single(num_beams=beams, told="forced_bos_token_id")
    batch = Batch.of(SENTENCES, padding=1)
    named = np.array([117, 118, 119, 118, 117])
    found = single.run(batch, forced_bos_token_id=named)
    for row, token in enumerate(named.tolist()):
        settings = dataclasses.replace(single.settings, forced_bos_token_id=token)
        step = graphs.model.start(batch.input_ids, batch.attention_mask)
        assert found[row][0].tokens == search(step, rows=5, settings=settings)[row][0].tokens
        assert found[row][0].tokens[0] == token


def test_the_start_token_of_each_sentence_is_an_input(graphs_of: Callable[..., Graphs]) -> None:
    graphs = graphs_of("mbart")
    single = graphs.single(num_beams=2, told="decoder_start_token_id")
    batch, named = Batch.of(SENTENCES, padding=1), np.array([117, 118, 119, 118, 117])
    found = single.run(batch, decoder_start_token_id=named)
    for row, token in enumerate(named.tolist()):
        settings = dataclasses.replace(single.settings, decoder_start_token_id=token)
        step = graphs.model.start(batch.input_ids, batch.attention_mask)
        assert found[row][0].tokens == search(step, rows=5, settings=settings)[row][0].tokens


@pytest.mark.parametrize("beams", [1, 4])
def test_the_longest_output_may_be_given(graphs_of: Callable[..., Graphs], beams: int) -> None:
    single = graphs_of("bart").single(num_beams=beams)
    assert "max_new_tokens" not in {node.name for node in single.session.get_inputs()}, "it may be left out"
    for count in (1, 5, 60):
        short = dataclasses.replace(single, settings=dataclasses.replace(single.settings, max_new_tokens=count))
        batch = Batch.of(SENTENCES, padding=1)
        step = single.graphs.model.start(batch.input_ids, batch.attention_mask)
        wanted = search(step, rows=5, settings=short.settings)
        found = single.run(batch, max_new_tokens=np.array([count]))
        assert [h[0].tokens for h in found] == [h[0].tokens for h in wanted]


def test_the_position_table_bounds_the_output(graphs_of: Callable[..., Graphs]) -> None:
    graphs = graphs_of("bart")
    assert graphs.positions == 128
    single = graphs.single(eos_token_ids=(), forced_eos_token_ids=())
    found = single.run(Batch.of([[5, 2]], padding=1), max_new_tokens=np.array([5000]))
    assert len(found[0][0].tokens) == 128


@pytest.mark.parametrize("beams", [1, 4])
def test_where_every_token_is_banned(graphs_of: Callable[..., Graphs], beams: int) -> None:
    graphs = graphs_of("bart")
    single = graphs.single(num_beams=beams, suppress_tokens=tuple(range(graphs.vocabulary)), forced_eos_token_ids=())
    batch = Batch.of(SENTENCES, padding=1)
    with pytest.raises(DecodingError):
        search(graphs.model.start(batch.input_ids, batch.attention_mask), rows=5, settings=single.settings)
    with pytest.raises(Exception, match=NOT_FINITE if beams == 1 else f"{NOT_FINITE}|{NO_OUTPUT}"):
        single.run(batch)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"do_sample": True}, "do_sample: a graph draws nothing at random"),
        ({"remove_invalid_values": True}, "remove_invalid_values: a graph fails"),
        ({"exponential_decay_length_penalty": (3, 1.1)}, "exponential_decay_length_penalty: remove it"),
        ({"forced_eos_token_ids": (2,), "begin_suppress_tokens": (2,)}, "begin_suppress_tokens: it bans"),
    ],
)
def test_what_a_graph_cannot_express_is_refused_by_name(
    graphs_of: Callable[..., Graphs], changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(GenerationSettingsError, match=named):
        graphs_of("bart").single(**changes)


@pytest.mark.parametrize("beams", [1, 4])
def test_weights_are_there_once(graphs_of: Callable[..., Graphs], beams: int) -> None:
    """A tied int8 table has another shape in the embedding than in the head, and the same bytes."""
    graphs = graphs_of("marian", "int8")
    graphs.single(num_beams=beams)
    model = ir.load(graphs.folder / "single.onnx")
    found = []
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                found += [v.const_value for v in attribute.as_graph().initializers.values()]
    ranges = [(t.offset, t.length) for t in found if isinstance(t, ir.ExternalTensor)]
    assert len(ranges) == len(set(ranges)) > 10
    assert sum(length for _, length in ranges) <= (graphs.folder / "weights.bin").stat().st_size
