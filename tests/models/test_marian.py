"""Marian graphs against transformers: every setting that transformers 5 implements, in seeded tiny models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnxmt.errors import UnsupportedModelError
from onnxmt.models import architecture_of
from onnxmt.models.activations import ACTIVATIONS
from tests.models.parity import Batch, assert_close, assert_equal_to_torch
from tests.models.variants import Family, Variant, Weights, assert_generates_as_torch, inputs_of, noisy
from tests.tiny import build_marian

SHARED, HEAD = "model.shared.weight", "lm_head.weight"
ENCODER_TABLE, DECODER_TABLE = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def _equal_copies(weights: Weights) -> None:
    for name in (HEAD, ENCODER_TABLE, DECODER_TABLE):
        weights[name] = weights[SHARED].copy()


def _other(name: str) -> Callable[[Weights], None]:
    def edit(weights: Weights) -> None:
        weights[name] = noisy(weights[SHARED])

    return edit


def _only(name: str) -> Callable[[Weights], None]:
    def edit(weights: Weights) -> None:
        weights[name] = weights.pop(SHARED)

    return edit


def _position_tables(weights: Weights) -> None:
    for seed, name in enumerate(POSITIONS):
        weights[name] = np.random.default_rng(seed).normal(size=(128, 32)).astype(np.float32)


def _old_extras(weights: Weights) -> None:
    weights["model.encoder.version"] = np.zeros(1, np.float32)
    weights["model.encoder.embed_positions._float_tensor"] = np.zeros(1, np.float32)


def _large(weights: Weights) -> None:
    weights[SHARED] *= 300
    for name in weights:
        if ".fc2." in name:
            weights[name] *= 300
        if ".layers.0.self_attn.q_proj" in name or ".layers.0.self_attn.k_proj" in name:
            weights[name] *= 0.005


SMALL_TARGET = {"vocab_size": 150, "decoder_vocab_size": 90, "pad_token_id": 89, "decoder_start_token_id": 89}
BAN = {"generation": {"bad_words_ids": [[89]]}}
VARIANTS = {
    **{f"activation {name}": Variant(config={"activation_function": name}, builder={"logits_bias": 1.0}) for name in ACTIVATIONS},
    "plain": Variant(),
    "embeddings not scaled": Variant(config={"scale_embedding": False}),
    "logits bias of 5": Variant(builder={"logits_bias": 5.0}),
    "logits bias absent": Variant(edit=lambda weights: weights.pop("final_logits_bias")),
    "head not tied": Variant(config={"tie_word_embeddings": False}, builder={"logits_bias": 1.0}),
    "equal copies of the tied weight": Variant(edit=_equal_copies),
    "head of its own": Variant(edit=_other(HEAD), untied=(HEAD,)),
    "decoder embedding of its own": Variant(edit=_other(DECODER_TABLE), untied=(DECODER_TABLE,)),
    "encoder embedding of its own": Variant(edit=_other(ENCODER_TABLE), untied=(ENCODER_TABLE,)),
    "only the head stored": Variant(edit=_only(HEAD)),
    "only the decoder embedding stored": Variant(edit=_only(DECODER_TABLE)),
    "two vocabularies": Variant(builder={"separate_vocabs": True, "logits_bias": 1.0}),
    "two vocabularies, head not tied": Variant(builder={"separate_vocabs": True}, config={"tie_word_embeddings": False}),
    "two vocabularies of two sizes": Variant(config=SMALL_TARGET, builder={"separate_vocabs": True, "logits_bias": 1.0, **BAN}),
    "two vocabularies of two sizes, not tied": Variant(builder={"separate_vocabs": True, **BAN}, config=SMALL_TARGET | {"tie_word_embeddings": False}),
    "stored position tables": Variant(edit=_position_tables),
    "few positions": Variant(config={"max_position_embeddings": 101}),
    "odd width": Variant(config={"d_model": 33, "encoder_attention_heads": 3, "decoder_attention_heads": 11}),
    "odd width, one head": Variant(config={"d_model": 27, "encoder_attention_heads": 1, "decoder_attention_heads": 9}),
    "unequal layers": Variant(config={"encoder_layers": 3, "decoder_layers": 1}),
    "unequal layers, the other way": Variant(config={"encoder_layers": 1, "decoder_layers": 3}),
    "unequal heads": Variant(config={"encoder_attention_heads": 2, "decoder_attention_heads": 8}),
    "unequal feed-forward sizes": Variant(config={"encoder_ffn_dim": 48, "decoder_ffn_dim": 80}),
    "float16": Variant(builder={"dtype": "float16", "logits_bias": 1.0}),
    "bfloat16": Variant(builder={"dtype": "bfloat16", "logits_bias": 1.0}),
    "old extra weights": Variant(edit=_old_extras),
    "large activations": Variant(edit=_large, config={"activation_function": "relu"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(build_marian, VARIANTS, tmp_path_factory.mktemp("marian"))


def test_there_are_at_least_forty_variants():
    assert len(VARIANTS) >= 40


@pytest.mark.reference
@pytest.mark.parametrize("name", VARIANTS)
def test_equals_transformers(build, name):
    built = build(name)
    assert built.untied == VARIANTS[name].untied
    # One row of two tokens beside one of a hundred: padding that lets anything through shows at once.
    assert_equal_to_torch(built.graphs, built.torch, built.batch([2, 9, 100], 9))


@pytest.mark.reference
@pytest.mark.parametrize("name", VARIANTS)
def test_generates_as_transformers(build, name):
    built = build(name)
    batch = built.batch([2, 9, 30, 5], 1, seed=1)
    for beams in (1, 2, 4, 5):
        assert_generates_as_torch(built, batch, num_beams=beams, max_length=20)


@pytest.mark.reference
def test_large_activations_are_large(build):
    built = build("large activations")
    assert max(inputs_of("MarianEncoderLayer", built.torch, built.batch([2, 9, 100], 1))) > 1e3


@pytest.mark.reference
@pytest.mark.lowest
@pytest.mark.parametrize(("rows", "length"), [(1, 3), (3, 17), (7, 101)])
def test_any_shape_for_forty_steps(build, rows, length):
    """Case E2."""
    built = build("plain")
    lengths = [max(2, length - 5 * row) for row in range(rows)]
    assert_equal_to_torch(built.graphs, built.torch, built.batch(lengths, 40))


@pytest.mark.reference
def test_the_start_token_is_not_assumed(build):
    """Case G1: decoding that begins at id 0 instead of the decoder's start token gives other logits."""
    built = build("logits bias of 5")
    batch = built.batch([9], 2)
    wrong = Batch(ids=batch.ids, mask=batch.mask, decoder=np.where(np.arange(2) == 0, 0, batch.decoder))
    right, other = built.graphs.run(batch), built.graphs.run(wrong)
    assert np.abs(right.logits[:, 0] - other.logits[:, 0]).max() > 0.1


@pytest.mark.reference
def test_rows_do_not_depend_on_each_other(build):
    """Case B1: alone, together, in another order."""
    built = build("plain")
    batch = built.batch([2, 60, 9], 6)
    together = built.graphs.run(batch)
    for row, length in enumerate([2, 60, 9]):
        alone = built.graphs.run(
            Batch(
                ids=batch.ids[row : row + 1, :length],
                mask=batch.mask[row : row + 1, :length],
                decoder=batch.decoder[row : row + 1],
            )
        )
        assert_close(f"row {row}", together.logits[row : row + 1], alone.logits)
    order = [2, 0, 1]
    turned = built.graphs.run(Batch(ids=batch.ids[order], mask=batch.mask[order], decoder=batch.decoder[order]))
    assert_close("turned", turned.logits, together.logits[order])


@pytest.mark.reference
@pytest.mark.parametrize(("past", "new"), [(101, 1), (100, 2), (0, 102)])
def test_a_position_beyond_the_table_is_an_error(build, past, new):
    """The runtime checks lengths first; should a caller not, nothing is clipped or repeated in silence."""
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

    graphs = build("few positions").graphs
    ids = np.ones((1, 102), np.int64)
    with pytest.raises((InvalidArgument, Fail, RuntimeException)):
        graphs.encode(ids, ids)
    mask = ids[:, :3]
    cross = graphs.encode(mask, mask)
    cache = {name: np.zeros((1, 4, past, 8), np.float32) for name in graphs.no_past(1)}
    with pytest.raises(InvalidArgument, match="Gather"):
        graphs.step(ids[:, :new], mask, cross, cache)
    within = {name: value[:, :, : max(0, past - 2)] for name, value in cache.items()}
    assert graphs.step(ids[:, : min(new, 101)], mask, cross, within)[0].shape == (
        1,
        build("few positions").torch.config.vocab_size,
    )


BASE = {"model_type": "marian", "d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            {"normalize_before": True},
            r"config\.json sets normalize_before=True, which marian in transformers 5 does not",
        ),
        ({"add_final_layer_norm": True}, r"config\.json sets add_final_layer_norm=True"),
        ({"normalize_embedding": True}, r"config\.json sets normalize_embedding=True"),
        ({"add_bias_logits": True}, r"config\.json sets add_bias_logits=True"),
        (
            {"activation_function": "prelu"},
            r"the activation 'prelu', which is not implemented; implemented: gelu, gelu_10",
        ),
        ({"activation_function": 3}, r"activation_function is 3, and must be a string"),
        ({"d_model": 30}, r"d_model=30 cannot be divided among encoder_attention_heads=4"),
        ({"decoder_layers": 0}, r"decoder_layers is 0, and must be a whole number of at least 1"),
        ({"decoder_layers": True}, r"decoder_layers is True"),
        ({"encoder_ffn_dim": 2.5}, r"encoder_ffn_dim is 2.5"),
        ({"scale_embedding": "yes"}, r"scale_embedding is 'yes', and must be true or false"),
        ({"pad_token_id": -1}, r"pad_token_id is -1, and must be a token id"),
        ({"model_type": "nllb-moe"}, r"model_type is 'nllb-moe', which cannot be migrated; supported: .*marian"),
        ({"model_type": None}, r"model_type is None"),
    ],
)
def test_what_transformers_does_not_do_is_refused(extra, message):
    with pytest.raises(UnsupportedModelError, match=message):
        architecture_of(BASE | extra)


def test_flags_that_are_off_are_not_refused():
    off = dict.fromkeys(("normalize_before", "add_final_layer_norm", "normalize_embedding", "add_bias_logits"), False)
    assert architecture_of(BASE | off).dimensions.encoder.head_dim == 8


@pytest.mark.reference
def test_defaults_are_those_of_transformers():
    from transformers import MarianConfig

    wanted, found = MarianConfig(), architecture_of({"model_type": "marian"})
    sizes = found.dimensions
    for side, stack in (("encoder", sizes.encoder), ("decoder", sizes.decoder)):
        assert stack.layers == getattr(wanted, f"{side}_layers")
        assert stack.heads == getattr(wanted, f"{side}_attention_heads")
        assert stack.ffn_dim == getattr(wanted, f"{side}_ffn_dim")
    assert sizes.d_model == wanted.d_model
    assert (sizes.source_vocab_size, sizes.target_vocab_size) == (wanted.vocab_size, wanted.decoder_vocab_size)
    assert sizes.max_source_positions == sizes.max_target_positions == wanted.max_position_embeddings


@pytest.mark.reference
@pytest.mark.parametrize(
    "extra",
    [
        {"num_hidden_layers": 3},
        {"encoder_layers": 6, "num_hidden_layers": 3},
        {"hidden_size": 64},
        {"num_attention_heads": 2},
    ],
)
def test_second_names_of_keys_win_as_in_transformers(extra):
    from transformers import MarianConfig

    wanted = MarianConfig.from_dict(BASE | extra)
    sizes = architecture_of(BASE | extra).dimensions
    assert (sizes.encoder.layers, sizes.d_model, sizes.encoder.heads) == (
        wanted.encoder_layers,
        wanted.d_model,
        wanted.encoder_attention_heads,
    )
