"""Recipes as text: presets, mixtures, canonical names, kept layers, and every kind of mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.errors import UsageError
from onnxmt.precision import COMPONENTS, PRECISIONS, PRESETS, Recipe, recipe, search_order
from onnxmt.precision.recipe import canonical_name, matches


def parts(text: str) -> tuple[str, ...]:
    return tuple(
        recipe(text).components[component] for component in ("encoder", "decoder", "cross_kv", "lm_head", "embedding")
    )


@pytest.mark.parametrize(
    ("text", "wanted", "name"),
    [
        ("int8", ("int8",) * 5, "int8"),
        ("int8,encoder=fp32", ("fp32", "int8", "int8", "int8", "int8"), "int8,encoder=fp32"),
        ("encoder=fp32,decoder=int8", ("fp32", "int8", "int8", "int8", "int8"), "int8,encoder=fp32"),
        (
            "encoder=fp32,decoder=int8,lm_head=int4",
            ("fp32", "int8", "int8", "int4", "int4"),
            "int8,encoder=fp32,lm_head=int4,embedding=int4",
        ),
        (" decoder = int8 , encoder = int4 ", ("int4", "int8", "int8", "int8", "int8"), "int8,encoder=int4"),
        ("lm_head=int4", ("fp32", "fp32", "fp32", "int4", "int4"), "fp32,lm_head=int4,embedding=int4"),
        ("embedding=int8", ("fp32", "fp32", "fp32", "int8", "int8"), "fp32,lm_head=int8,embedding=int8"),
        ("lm_head=int4,embedding=int8", ("fp32", "fp32", "fp32", "int4", "int8"), "fp32,lm_head=int4,embedding=int8"),
        ("encoder=int8", ("int8", "fp32", "fp32", "fp32", "fp32"), "fp32,encoder=int8"),
        ("int8-static,cross_kv=fp32", ("int8-static", "int8-static", "fp32", "int8-static", "int8-static"), "int8-static,cross_kv=fp32"),
    ],
)  # fmt: skip
def test_a_text_names_a_precision_for_every_component(text: str, wanted: tuple[str, ...], name: str) -> None:
    assert parts(text) == wanted
    assert recipe(text).name == name


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("int9", "'int9' is no preset"),
        ("", "'' is no preset"),
        ("int8,int4", "'int4' is no preset that can stand there"),
        ("encoder=int8,encoder=fp32", "encoder is named twice"),
        ("encodr=int8", "'encodr' is no component"),
        ("encoder=int3", "'encoder=int3' is no precision"),
        ("encoder=", "'encoder=' is no precision"),
        ("int8,", "'' is no preset"),
        ("keep_fp32=", "'keep_fp32' is no component"),
        ("fp16,encoder=int8", "fp16 is the format of a whole model"),
        ("encoder=fp16", "fp16 is the format of a whole model"),
    ],
)
def test_a_mistake_is_named(text: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        recipe(text)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(UsageError, match=r"'x' is no component.*'decoder=y' is no precision.*encoder is named twice"):
        recipe("x=int8,decoder=y,encoder=int8,encoder=int4")


mixtures = st.fixed_dictionaries({c: st.sampled_from([p for p in PRECISIONS if p != "fp16"]) for c in COMPONENTS})
patterns = st.lists(st.sampled_from(["decoder.layers.5.*", "lm_head", "*.fc2"]), unique=True, max_size=2)


@given(mixtures, patterns)
def test_a_canonical_name_reads_back_as_the_recipe(components: dict[str, str], keep: list[str]) -> None:
    name = canonical_name(components, keep)
    found = recipe(name)
    assert found == Recipe(name=name, keep_fp32=tuple(keep), **components)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_named_as_they_are_written(name: str) -> None:
    assert recipe(name) == PRESETS[name]
    assert set(PRESETS[name].components.values()) == {name}


@pytest.mark.parametrize(
    ("pattern", "path", "means"),
    [
        ("decoder.layers.5.*", "model.decoder.layers.5.fc1", True),
        ("model.decoder.layers.5.*", "model.decoder.layers.5.fc1", True),
        ("decoder.layers.5.*", "model.decoder.layers.15.fc1", False),
        ("lm_head", "lm_head", True),
        ("lm_head.weight", "lm_head", True),
        ("*.fc2", "model.encoder.layers.0.fc2", True),
        ("decoder.block.*.wo", "decoder.block.3.layer.2.DenseReluDense.wo", True),
        ("Decoder.*", "model.decoder.layers.0.fc1", False),
        ("layers.0.*", "model.decoder.layers.0.fc1", False),
    ],
)
def test_patterns_match_with_or_without_model_in_front(pattern: str, path: str, means: bool) -> None:
    assert matches(pattern, path) is means


def test_a_stacked_layer_is_kept_when_one_of_its_members_is() -> None:
    kept = recipe("int8", keep_fp32=["decoder.layers.0.self_attn.k_proj"])
    members = [f"model.decoder.layers.0.self_attn.{part}_proj" for part in "qkv"]
    assert kept.precision_of("decoder", "model.decoder.layers.0.self_attn.qkv", members=members) == "fp32"
    assert kept.precision_of("decoder", "model.decoder.layers.1.self_attn.qkv", members=["x"]) == "int8"
    assert kept.name == "int8,keep_fp32=decoder.layers.0.self_attn.k_proj"
    assert kept.unmatched([*members]) == ()
    assert kept.unmatched(["model.decoder.layers.1.fc1"]) == ("decoder.layers.0.self_attn.k_proj",)


def test_what_a_user_should_know_of_a_recipe() -> None:
    assert [name for name, found in PRESETS.items() if found.warnings] == ["fp16", "int8-dynamic"]
    assert "slower" in PRESETS["fp16"].warnings[0]
    assert "unverified" in PRESETS["fp16"].warnings[0]
    assert "neighbours" in PRESETS["int8-dynamic"].warnings[0]


def test_a_search_never_chooses_what_depends_on_the_batch_or_needs_a_gpu() -> None:
    assert [found.name for found in search_order()] == ["int4", "int8-static", "int8", "int8,encoder=fp32"]
    assert all(found.batch_invariant and not found.half and not found.exact for found in search_order())
