"""BART, mBART, and M2M100 with NLLB and small100, against transformers in seeded tiny models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from onnxmt.errors import UnsupportedModelError, WeightsError
from onnxmt.models import architecture_of
from tests.models.parity import Batch, assert_equal_to_torch, cache_of, export
from tests.models.variants import Family, Variant, Weights, assert_generates_as_torch, edit_weights, inputs_of, noisy
from tests.tiny import LANGUAGES, build_bart, build_m2m, build_mbart

SHARED, HEAD = "model.shared.weight", "lm_head.weight"
ENCODER_TABLE, DECODER_TABLE = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"


def _other(name: str) -> Callable[[Weights], object]:
    return lambda weights: weights.update({name: noisy(weights[SHARED])})


def _equal_copies(weights: Weights) -> None:
    for name in (HEAD, ENCODER_TABLE, DECODER_TABLE):
        weights[name] = weights[SHARED].copy()


def _only(name: str) -> Callable[[Weights], object]:
    return lambda weights: weights.update({name: weights.pop(SHARED)})


def _no_shared(weights: Weights) -> None:
    """The head is then the weight that the others are compared with."""
    weights[HEAD] = noisy(weights[SHARED])
    weights[ENCODER_TABLE] = weights.pop(SHARED)


def _old_extras(weights: Weights) -> None:
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.version"] = np.zeros(1, np.float32)


def _old_m2m_extras(weights: Weights) -> None:
    """Checkpoints of 2020 hold the computed positions; transformers computes them anew, so other values change nothing."""
    _old_extras(weights)
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_positions.weights"] = np.ones((130, 32), np.float32)


def _large(weights: Weights) -> None:
    """Feed-forward outputs of some thousands: what a pre-norm model adds up from layer to layer."""
    for name in weights:
        if ".fc2." in name:
            weights[name] *= 300


COMMON: Mapping[str, Variant] = {
    "plain": Variant(),
    "embedding scale": Variant(config={"scale_embedding": True}),
    "no embedding scale": Variant(config={"scale_embedding": False}),
    "head of its own": Variant(edit=_other(HEAD), untied=(HEAD,)),
    "decoder embedding of its own": Variant(edit=_other(DECODER_TABLE), untied=(DECODER_TABLE,)),
    "no shared weight": Variant(edit=_no_shared, untied=(ENCODER_TABLE,)),
    "equal copies of the tied weight": Variant(edit=_equal_copies),
    "only the head stored": Variant(edit=_only(HEAD)),
    "only the encoder embedding stored": Variant(edit=_only(ENCODER_TABLE)),
    "nothing tied": Variant(config={"tie_word_embeddings": False}),
    "unequal stacks": Variant(config={"encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_ffn_dim": 40}),
    "other pad": Variant(config={"pad_token_id": 4}),
    "large activations": Variant(edit=_large),
    "float16": Variant(builder={"dtype": "float16"}),
    "bfloat16": Variant(builder={"dtype": "bfloat16"}),
}  # fmt: skip
WITH_BIAS: Mapping[str, Variant] = {
    "logits bias of 5": Variant(builder={"logits_bias": 5.0}),
    "logits bias absent": Variant(edit=lambda weights: weights.pop("final_logits_bias")),
    "old extra weights": Variant(edit=_old_extras),
    "relu": Variant(config={"activation_function": "relu"}),
    "gelu_new, odd width": Variant(config={"activation_function": "gelu_new", "d_model": 27, "encoder_attention_heads": 3, "decoder_attention_heads": 9}),
}  # fmt: skip
FAMILIES: Mapping[str, tuple[Callable[..., object], Mapping[str, Variant]]] = {
    "bart": (build_bart, {**COMMON, **WITH_BIAS}),
    "mbart": (
        build_mbart,
        {**COMMON, **WITH_BIAS, "mbart-50 flags": Variant(config={"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": True})},
    ),
    "m2m_100": (
        build_m2m,
        {
            **COMMON,
            "old extra weights": Variant(edit=_old_m2m_extras),
            "odd width": Variant(config={"d_model": 33, "encoder_attention_heads": 11, "decoder_attention_heads": 3}),
            "swish": Variant(config={"activation_function": "swish"}),
            "shallow decoder, as small100": Variant(config={"encoder_layers": 4, "decoder_layers": 1}),
            "few positions": Variant(config={"max_position_embeddings": 101}),
        },
    ),
}  # fmt: skip
CASES = [(family, name) for family, (_, variants) in FAMILIES.items() for name in variants]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], object]:
    root = tmp_path_factory.mktemp("bart")
    families = {family: Family(builder, variants, root / family) for family, (builder, variants) in FAMILIES.items()}
    return lambda family, name: families[family](name)


def test_there_are_at_least_ten_variants_of_each():
    assert all(len(variants) >= 10 for _, variants in FAMILIES.values())


@pytest.mark.reference
@pytest.mark.parametrize(("family", "name"), CASES)
def test_equals_transformers(build, family, name):
    built = build(family, name)
    assert built.untied == FAMILIES[family][1][name].untied
    assert_equal_to_torch(built.graphs, built.torch, built.batch([2, 9, 100], 9))


@pytest.mark.reference
@pytest.mark.parametrize(("family", "name"), CASES)
def test_generates_as_transformers(build, family, name):
    built = build(family, name)
    batch = built.batch([2, 9, 30, 5], 1, seed=1)
    for beams in (1, 4):
        if family == "bart":
            assert_generates_as_torch(built, batch, num_beams=beams, max_length=20)
            continue
        for language in LANGUAGES[:2]:
            assert_generates_as_torch(built, batch, num_beams=beams, max_length=20, forced_bos_token_id=language)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("family", "layer"),
    [("bart", "BartEncoderLayer"), ("mbart", "MBartEncoderLayer"), ("m2m_100", "M2M100EncoderLayer")],
)
def test_large_activations_are_large(build, family, layer):
    built = build(family, "large activations")
    seen = inputs_of("LayerNorm", built.torch, built.batch([2, 9, 100], 1))
    assert max(seen) > 1e3


@pytest.mark.reference
@pytest.mark.lowest
@pytest.mark.parametrize("family", FAMILIES)
def test_any_shape_for_forty_steps(build, family):
    built = build(family, "plain")
    for lengths in ([3], [17, 9, 2]):
        assert_equal_to_torch(built.graphs, built.torch, built.batch(lengths, 40))


@pytest.mark.reference
def test_m2m_counts_real_tokens(build):
    """A padding token among real ones (a written "<pad>", or one that was generated) has the position of padding."""
    built = build("m2m_100", "plain")
    batch = built.batch([9, 6], 9)
    ids, decoder = batch.ids.copy(), batch.decoder.copy()
    ids[0, 3] = decoder[0, 4] = decoder[1, 1] = built.torch.config.pad_token_id
    odd = Batch(ids=ids, mask=batch.mask, decoder=decoder)
    import torch

    with torch.no_grad():
        wanted = built.torch(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(batch.mask),
            decoder_input_ids=torch.tensor(decoder),
        ).logits.numpy()
    cross = built.graphs.encode(odd.ids, odd.mask)
    found, _ = built.graphs.step(odd.decoder, odd.mask, cross, built.graphs.no_past(2))
    np.testing.assert_allclose(found, wanted[:, -1], atol=1e-4)
    # Token by token, transformers counts the cached places, padding among them: the graphs do the same.
    encoded = built.torch.get_encoder()(input_ids=torch.tensor(ids), attention_mask=torch.tensor(batch.mask))
    cache, past = None, built.graphs.no_past(2)
    for place in range(9):
        now = decoder[:, place : place + 1]
        with torch.no_grad():
            out = built.torch(
                encoder_outputs=encoded,
                attention_mask=torch.tensor(batch.mask),
                decoder_input_ids=torch.tensor(now),
                cache=cache,
                use_cache=True,
            )
        cache = cache_of(out)
        logits, past = built.graphs.step(now, odd.mask, cross, past)
        np.testing.assert_allclose(logits, out.logits[:, -1].numpy(), atol=1e-4)


@pytest.mark.reference
def test_untied_without_its_own_embeddings_lists_what_is_missing(tmp_path):
    """transformers would fill them with random numbers and a warning."""
    build_mbart(tmp_path, config={"tie_word_embeddings": False})
    edit_weights(tmp_path, lambda weights: [weights.pop(name) for name in (ENCODER_TABLE, DECODER_TABLE)])
    with pytest.raises(WeightsError) as caught:
        export(tmp_path)
    problems = " ".join(caught.value.problems)
    assert len(caught.value.problems) == 2
    assert ENCODER_TABLE in problems
    assert DECODER_TABLE in problems


@pytest.mark.parametrize("key", ["normalize_before", "add_final_layer_norm", "static_position_embeddings"])
def test_bart_refuses_what_transformers_ignores(key):
    with pytest.raises(UnsupportedModelError, match=rf"config\.json sets {key}=True, which bart in transformers 5"):
        architecture_of({"model_type": "bart", key: True})


@pytest.mark.reference
@pytest.mark.parametrize("family", FAMILIES)
def test_defaults_are_those_of_transformers(family):
    import math

    from transformers import AutoConfig

    wanted, found = AutoConfig.for_model(family), architecture_of({"model_type": family})
    sizes = found.dimensions
    for side, stack in (("encoder", sizes.encoder), ("decoder", sizes.decoder)):
        assert stack.layers == getattr(wanted, f"{side}_layers")
        assert stack.heads == getattr(wanted, f"{side}_attention_heads")
        assert stack.ffn_dim == getattr(wanted, f"{side}_ffn_dim")
    assert sizes.d_model == wanted.d_model
    assert sizes.source_vocab_size == sizes.target_vocab_size == wanted.vocab_size
    assert sizes.max_source_positions == sizes.max_target_positions == wanted.max_position_embeddings
    assert found.activation == wanted.activation_function
    assert found.pad_token_id == wanted.pad_token_id
    assert found.embedding_scale == (math.sqrt(wanted.d_model) if wanted.scale_embedding else 1.0)


@pytest.mark.reference
@pytest.mark.parametrize(("rows", "width", "pad"), [(1026, 64, 1), (130, 33, 4), (1026, 1024, 1)])
def test_m2m_positions_are_those_of_transformers(rows, width, pad):
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    from onnxmt.models.positions import m2m_sinusoids

    wanted = M2M100SinusoidalPositionalEmbedding.get_embedding(rows, width, pad).numpy()
    # The last bit of a frequency, times a position of a thousand.
    np.testing.assert_allclose(m2m_sinusoids(rows, width, pad), wanted, atol=3.1e-5)
    assert not m2m_sinusoids(rows, width, pad)[pad].any()
