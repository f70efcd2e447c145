"""The standard graphs of every family at every opset, run by a plain onnxruntime loop and held to our own graphs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from onnxmt.checkpoint import Checkpoint, read_checkpoint
from onnxmt.graph_export import export_graphs, resolve_ties
from onnxmt.hub import resolve
from onnxmt.models import architecture_of
from onnxmt.models.layers import WeightBinding
from onnxmt.models.standard import IR_VERSIONS, standard_graphs
from onnxmt.precision import recipe
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.search import search
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.weights_file import WeightsFile
from tests import tiny
from tests.layouts.plain_loop import PlainLoop, padded

FAMILIES = {
    "marian": lambda folder: tiny.build_marian(folder, logits_bias=5.0),
    "bart": tiny.build_bart,
    "mbart": tiny.build_mbart,
    "m2m_100": lambda folder: tiny.build_m2m(folder, generation={"forced_bos_token_id": tiny.LANGUAGES[0]}),
    "t5": lambda folder: tiny.build_t5(folder, seed=7),
    "mt5": tiny.build_mt5,
    "umt5": tiny.build_umt5,
}
TEXTS = [[7, 5, 9, 2], [11, 3, 4, 8, 17, 21, 5, 6, 30, 2], [12, 2]]
STEPS = 12


@dataclass(frozen=True)
class Built:
    """A checkpoint, and our own graphs of it."""

    checkpoint: Checkpoint
    own: Seq2SeqModel
    settings: GenerationSettings


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Built]:
    made: dict[str, Built] = {}

    def of(name: str) -> Built:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            checkpoint = read_checkpoint(resolve(FAMILIES[name](folder / "checkpoint")))
            export_graphs(checkpoint, folder, precision=recipe("fp32"))
            settings = GenerationSettings.from_checkpoint(checkpoint.config, checkpoint.generation)
            own = load_model(folder, options=RuntimeOptions(threads=1))
            made[name] = Built(checkpoint, own, settings)
        return made[name]

    return of


def write(built: Built, folder: Path, *, opset: int, precision: str = "fp32") -> dict[str, ir.Model]:
    """Write the four files as the layout does, without what is around them; → the models."""
    (folder / "onnx").mkdir(parents=True)
    checkpoint = built.checkpoint
    architecture = architecture_of(checkpoint.config)
    binding = WeightBinding(
        read=checkpoint.weights.read,
        present=checkpoint.weights.names(),
        recipe=recipe(precision),
        ties=resolve_ties(checkpoint, architecture).stored,
    )
    models = {}
    with WeightsFile(folder / "onnx" / "model.onnx_data") as file:
        for graph in standard_graphs(architecture, binding, opset=opset):
            file.externalise(graph.model)
            ir.save(graph.model, folder / "onnx" / f"{graph.name}.onnx")
            models[graph.name] = graph.model
    (folder / "generation_config.json").write_text(json.dumps(built.settings.to_dict()))
    return models


def own_tokens(built: Built, texts: list[list[int]], *, steps: int) -> list[list[int]]:
    """What our own graphs say, greedily, without the rule on the last token."""
    settings = dataclasses.replace(
        built.settings, num_beams=1, max_new_tokens=steps, forced_eos_token_ids=(), max_length=None
    )
    ids, mask = padded(texts, built.settings.pad_token_id or 0)
    return [list(found[0].tokens) for found in search(built.own.start(ids, mask), rows=len(texts), settings=settings)]


@pytest.mark.parametrize("opset", sorted(IR_VERSIONS))
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_at_an_opset(name: str, opset: int, built: Callable[[str], Built], tmp_path: Path) -> None:
    one = built(name)
    write(one, tmp_path, opset=opset)
    for path in (tmp_path / "onnx").glob("*.onnx"):
        onnx.checker.check_model(str(path), full_check=True)
        proto = onnx.load(str(path), load_external_data=False)
        assert [(entry.domain, entry.version) for entry in proto.opset_import] == [("", opset)]
        assert {node.domain for node in proto.graph.node} == {""}
        assert proto.ir_version == IR_VERSIONS[opset]
    wanted = own_tokens(one, TEXTS, steps=STEPS)
    assert len({tuple(tokens) for tokens in wanted}) > 1
    ids, mask = padded(TEXTS, one.settings.pad_token_id or 0)
    start = np.full((len(TEXTS), 1), one.settings.decoder_start_token_id, np.int64)
    logits = one.own.start(ids, mask)(start, None)
    for merged in (True, False):
        tokens, found = PlainLoop(tmp_path, merged=merged).decode(ids, mask, steps=STEPS)
        np.testing.assert_allclose(found[:, -1], logits, rtol=1e-4, atol=1e-4)
        assert tokens == wanted


def names(session: ort.InferenceSession) -> tuple[list[str], list[str]]:
    return [node.name for node in session.get_inputs()], [node.name for node in session.get_outputs()]


def test_tensors_are_named_as_optimum_names_them(built: Callable[[str], Built], tmp_path: Path) -> None:
    write(built("marian"), tmp_path, opset=18)
    sides = [(i, part) for i in range(2) for part in ("key", "value")]
    own = [f"{i}.decoder.{part}" for i, part in sides]
    both = [f"{i}.{side}.{part}" for i in range(2) for side in ("decoder", "encoder") for part in ("key", "value")]
    past = [f"past_key_values.{name}" for name in both]
    loops = [PlainLoop(tmp_path, merged=merged) for merged in (True, False)]
    assert names(loops[0].encoder) == (["input_ids", "attention_mask"], ["last_hidden_state"])
    assert names(loops[1].first) == (
        ["encoder_attention_mask", "input_ids", "encoder_hidden_states"],
        ["logits", *(f"present.{name}" for name in both)],
    )
    assert names(loops[1].later) == (
        ["encoder_attention_mask", "input_ids", *past],
        ["logits", *(f"present.{name}" for name in own)],
    )
    assert names(loops[0].first) == (
        ["encoder_attention_mask", "input_ids", "encoder_hidden_states", *past, "use_cache_branch"],
        ["logits", *(f"present.{name}" for name in both)],
    )


def test_no_axis_is_fixed_that_should_not_be(built: Callable[[str], Built], tmp_path: Path) -> None:
    """Batch and length at run time (case E2)."""
    one = built("marian")
    write(one, tmp_path, opset=18)
    random = np.random.default_rng(0)
    for rows, length in ((1, 3), (3, 17), (7, 101)):
        texts = [[*random.integers(2, 100, length - 1 - row % 2).tolist(), 0] for row in range(rows)]
        ids, mask = padded(texts, one.settings.pad_token_id or 0)
        wanted = own_tokens(one, texts, steps=40)
        for merged in (True, False):
            assert PlainLoop(tmp_path, merged=merged).decode(ids, mask, steps=40)[0] == wanted


def test_a_prefix_of_several_tokens_gives_the_logits_of_each(built: Callable[[str], Built], tmp_path: Path) -> None:
    """Logits are [B, T, V], and a later position sees no further than itself."""
    one = built("mbart")
    write(one, tmp_path, opset=18)
    loop = PlainLoop(tmp_path, merged=False)
    ids, mask = padded(TEXTS, 1)
    (states,) = loop.encoder.run(None, {"input_ids": ids, "attention_mask": mask})
    prefix = np.array([[2, 5, 9, 4]] * 3, np.int64)
    given = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
    together = loop.first.run(["logits"], {"input_ids": prefix, **given})[0]
    assert together.shape == (3, 4, tiny.BART_VOCAB)
    for length in range(1, 5):
        alone = loop.first.run(["logits"], {"input_ids": prefix[:, :length], **given})[0]
        np.testing.assert_allclose(alone, together[:, :length], rtol=1e-4, atol=1e-5)


def test_a_t5_whose_heads_are_wider_than_its_states(tmp_path: Path) -> None:
    """mT5-small and MADLAD: Optimum's empty past has another head size then, and the first step must not look at it."""
    checkpoint = read_checkpoint(resolve(tiny.build_t5(tmp_path / "checkpoint", config={"d_kv": 16})))
    export_graphs(checkpoint, tmp_path, precision=recipe("fp32"))
    settings = GenerationSettings.from_checkpoint(checkpoint.config, checkpoint.generation)
    one = Built(checkpoint, load_model(tmp_path, options=RuntimeOptions(threads=1)), settings)
    write(one, tmp_path / "standard", opset=18)
    loop = PlainLoop(tmp_path / "standard", merged=True)
    ids, mask = padded(TEXTS, 0)
    assert loop.decode(ids, mask, steps=STEPS)[0] == own_tokens(one, TEXTS, steps=STEPS)
    past = next(node for node in loop.first.get_inputs() if node.name == "past_key_values.0.decoder.key")
    assert past.shape[3] == "past head size"  # any: Optimum passes d_model / heads, which is 8 where 16 is right


def test_weights_are_stored_once(built: Callable[[str], Built], tmp_path: Path) -> None:
    """Four files over one of weights, which is not larger than the unique parameters (case E1)."""
    one = built("marian")
    models = write(one, tmp_path, opset=18)
    weights = one.checkpoint.weights
    ties = resolve_ties(one.checkpoint, architecture_of(one.checkpoint.config)).stored
    unique = {ties.get(name, name) for name in weights.names()}
    parameters = sum(int(np.prod(weights.shape(name))) for name in unique)
    size = (tmp_path / "onnx" / "model.onnx_data").stat().st_size
    assert size < 1.2 * 4 * parameters  # small tensors are inside the graphs, large ones begin on a page
    table = {}
    for name, model in models.items():
        values = model.graph.initializers.values()
        table[name] = {
            value.const_value.offset for value in values if "embed_tokens" in value.name or "lm_head" in value.name
        }
    assert len(set.union(*table.values())) == 1
