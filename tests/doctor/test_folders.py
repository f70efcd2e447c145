"""Twelve mistakes, each planted into a healthy folder, and folders in which nothing is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, compose, helper, numpy_helper

from onnxmt import demo
from onnxmt.doctor.examination import examine_folder
from onnxmt.doctor.findings import Finding
from onnxmt.errors import UsageError
from tests.cli.harness import invoke

DEMO_BUNDLE = Path(demo.__file__).parent / "bundle"
DATA = "model.onnx_data"
ALL = ("encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged")
DECODERS = ALL[1:]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model in the standard layout."""
    folder = tmp_path_factory.mktemp("doctor") / "standard"
    assert invoke("export", "demo", "--layout", "standard", "-o", folder).code == 0
    return folder


@pytest.fixture
def standard(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it to break."""
    return Path(shutil.copytree(pristine, tmp_path / "standard"))


def kinds(folder: Path) -> set[str]:
    return {finding.kind for finding in examine_folder(folder).findings}


def only(folder: Path) -> Finding:
    """The one finding, or the first of several of one kind."""
    findings = examine_folder(folder).findings
    assert len({finding.kind for finding in findings}) == 1, findings
    return findings[0]


def edit(folder: Path, name: str, change: Callable[[onnx.ModelProto], None], *, weights: bool = False) -> None:
    path = folder / "onnx" / f"{name}.onnx"
    model = onnx.load(path, load_external_data=weights)
    change(model)
    onnx.save(model, path)


def edit_json(path: Path, **values: object) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    content |= values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}), encoding="utf-8")


def renamed_uses(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                renamed_uses(attribute.g, old, new)


def without_input(graph: onnx.GraphProto, name: str, like: str) -> None:
    """Replace a mask by ones of the shape of another input's first two axes; the mask is no input any more."""
    ignore(graph, name, like)
    kept = [value for value in graph.input if value.name != name]
    del graph.input[:]
    graph.input.extend(kept)


def ignore(graph: onnx.GraphProto, name: str, like: str) -> None:
    """Let a mask be an input without effect: everywhere are ones, whatever it says."""
    renamed_uses(graph, name, "all_ones")
    graph.initializer.append(numpy_helper.from_array(np.array([0, 1], np.int64), "first_two"))
    nodes = [
        helper.make_node("Shape", [like], ["whole_shape"]),
        helper.make_node("Gather", ["whole_shape", "first_two"], ["mask_shape"]),
        helper.make_node(
            "ConstantOfShape", ["mask_shape"], ["all_ones"], value=numpy_helper.from_array(np.array([1], np.int64))
        ),
    ]
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])


def add_to_logits(model: onnx.ModelProto, value: np.ndarray) -> None:
    graph = model.graph
    for node in graph.node:
        node.output[:] = ["plain_logits" if name == "logits" else name for name in node.output]
    graph.initializer.append(numpy_helper.from_array(value, "added"))
    graph.node.append(helper.make_node("Add", ["plain_logits", "added"], ["logits"]))


def bias(token: int, amount: float) -> np.ndarray:
    values = np.zeros(10261, np.float32)
    values[token] = amount
    return values


# The twelve.


def test_a_wrong_start_token(standard: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        edit_json(standard / name, decoder_start_token_id=0)
    found = next(finding for finding in examine_folder(standard).findings if finding.kind == "start_token")
    assert found.found == "decoder_start_token_id is 0: outputs are fluent nonsense"
    assert found.mend == "set decoder_start_token_id to 10260 in generation_config.json (Marian begins with <pad>)"


def test_start_tokens_that_differ_or_are_missing(standard: Path) -> None:
    edit_json(standard / "config.json", decoder_start_token_id=0)
    assert only(standard).found == ("decoder_start_token_id differs: 10260 in generation_config.json, 0 in config.json")
    for name in ("config.json", "generation_config.json"):
        edit_json(standard / name, decoder_start_token_id=None)
    assert only(standard).found == "decoder_start_token_id is missing, and programs then begin with BOS or 0"


def test_a_missing_mask(standard: Path) -> None:
    edit(standard, "encoder_model", lambda model: without_input(model.graph, "attention_mask", "input_ids"))
    found = only(standard)
    assert (found.kind, found.where) == ("missing_mask", "encoder_model.onnx")
    assert "has no attention mask" in found.found


def test_a_decoder_without_the_mask(standard: Path) -> None:
    edit(
        standard,
        "decoder_model",
        lambda model: without_input(model.graph, "encoder_attention_mask", "encoder_hidden_states"),
    )
    (standard / "onnx/decoder_model_merged.onnx").unlink()
    found = only(standard)
    assert (found.kind, found.where) == ("missing_mask", "decoder_model.onnx")


def test_a_mask_without_effect(standard: Path) -> None:
    edit(standard, "encoder_model", lambda model: ignore(model.graph, "attention_mask", "input_ids"))
    edit(
        standard, "decoder_model", lambda model: ignore(model.graph, "encoder_attention_mask", "encoder_hidden_states")
    )
    found = only(standard)
    assert (found.kind, found.where) == ("missing_mask", "encoder_model.onnx, decoder_model.onnx")
    assert found.found.endswith("a mask has no effect")


def swap_outputs(model: onnx.ModelProto) -> None:
    """The keys of layers 0 and 1, under each other's names."""
    names = ("present.0.decoder.key", "present.1.decoder.key")
    for name in names:
        renamed_uses(model.graph, name, f"made {name}")
        for node in model.graph.node:
            node.output[:] = [f"made {name}" if output == name else output for output in node.output]
    for name, other in (names, names[::-1]):
        model.graph.node.append(helper.make_node("Identity", [f"made {other}"], [name]))


def test_a_past_wired_to_the_wrong_present(standard: Path) -> None:
    edit(standard, "decoder_with_past_model", swap_outputs)
    found = only(standard)
    assert (found.kind, found.where) == ("past_wiring", "decoder_with_past_model.onnx")
    assert found.found.startswith("token 3 over the past scores otherwise than all tokens at once")
    assert found.found.endswith(": 0.key holds what belongs into 1.key")


def test_presents_in_another_order(standard: Path) -> None:
    def shuffle(model: onnx.ModelProto) -> None:
        first, second, *rest = [output for output in model.graph.output if output.name != "logits"]
        logits = next(output for output in model.graph.output if output.name == "logits")
        ordered = [onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in (logits, second, first, *rest)]
        del model.graph.output[:]
        model.graph.output.extend(ordered)

    edit(standard, "decoder_with_past_model", shuffle)
    found = only(standard)
    assert (found.kind, found.where) == ("past_wiring", "decoder_with_past_model.onnx")
    assert "another order" in found.found


def test_static_axes(standard: Path) -> None:
    def fix(model: onnx.ModelProto) -> None:
        for value in model.graph.input:
            for axis, length in zip(value.type.tensor_type.shape.dim, (1, 16), strict=True):
                axis.dim_value = length

    edit(standard, "encoder_model", fix)
    found = next(finding for finding in examine_folder(standard).findings if finding.kind == "static_axes")
    assert found.where == "encoder_model.onnx"
    assert "input_ids [1, 16]" in found.found


def test_an_encoder_within_the_decoder(standard: Path) -> None:
    folder = standard / "onnx"
    encoder, decoder = (onnx.load(folder / f"{name}.onnx") for name in ALL[:2])
    decoder = compose.add_prefix(decoder, "decoder_")
    whole = compose.merge_models(encoder, decoder, io_map=[("last_hidden_state", "decoder_encoder_hidden_states")])
    for output in whole.graph.output:
        old, output.name = output.name, output.name.removeprefix("decoder_")
        for node in whole.graph.node:
            node.output[:] = [output.name if name == old else name for name in node.output]
        renamed_uses(whole.graph, old, output.name)
    for path in folder.glob("*"):
        path.unlink()
    onnx.save(whole, folder / "decoder_model.onnx")
    found = next(finding for finding in examine_folder(standard).findings if finding.kind == "encoder_in_decoder")
    assert "takes the source's tokens beside the decoder's" in found.found
    assert "the encoder runs again for each token" in found.found


def test_weights_stored_twice(standard: Path) -> None:
    def fold(model: onnx.ModelProto) -> None:
        """What constant folding does to a tied output projection."""
        head = next(value for value in model.graph.initializer if value.name == "lm_head.weight")
        gemm = next(node for node in model.graph.node if "lm_head.weight" in node.input)
        head.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(head).T), head.name))
        next(attribute for attribute in gemm.attribute if attribute.name == "transB").i = 0

    edit(standard, "decoder_model", fold, weights=True)
    found = only(standard)
    assert (found.kind, found.where) == ("duplicated_weights", "decoder_model.onnx")
    assert found.found.startswith("10.5 MB are stored a second time")
    assert "lm_head.weight" in found.found


def test_padding_that_nothing_bans(standard: Path) -> None:
    edit_json(standard / "generation_config.json", bad_words_ids=None)
    found = only(standard)
    assert (found.kind, found.mend) == ("unbanned_pad", "add [10260] to bad_words_ids in generation_config.json")


def test_a_missing_tokenizer_file(standard: Path) -> None:
    for name in ("source.spm", "tokenizer.json"):
        (standard / name).unlink()
    found = only(standard)
    assert (found.kind, found.mend) == ("tokenizer", "copy source.spm from the checkpoint")


def test_a_target_language_that_nobody_sets(standard: Path) -> None:
    edit_json(standard / "config.json", model_type="m2m_100", decoder_start_token_id=0)
    edit_json(standard / "generation_config.json", decoder_start_token_id=0)
    found = next(finding for finding in examine_folder(standard).findings if finding.kind == "language")
    assert "nothing says which of its languages it writes" in found.found


def test_a_quantised_file_that_is_not(standard: Path) -> None:
    for name in ALL:
        shutil.copy(standard / f"onnx/{name}.onnx", standard / f"onnx/{name}_quantized.onnx")
    found = only(standard)
    assert found.kind == "not_quantized"
    assert "of weights are not (FLOAT)" in found.found


def test_a_vocabulary_of_another_model(standard: Path) -> None:
    ids = json.loads((standard / "vocab.json").read_text(encoding="utf-8"))
    last = max(ids, key=ids.__getitem__)
    ids["of another model"] = ids[last] + 40
    (standard / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    found = only(standard)
    assert found.kind == "vocabulary"
    assert found.found == "the graph scores 10261 tokens, but the tokenizer's ids end at 10300"


def test_a_config_of_another_model(standard: Path) -> None:
    edit_json(standard / "config.json", vocab_size=65001, decoder_vocab_size=65001)
    assert "config.json says 65001" in only(standard).found


def test_not_a_number(standard: Path) -> None:
    def spoil(model: onnx.ModelProto) -> None:
        norm = next(value for value in model.graph.initializer if "layer_norm.weight" in value.name)
        values = numpy_helper.to_array(norm).copy()
        values[3] = np.nan
        norm.CopyFrom(numpy_helper.from_array(values, norm.name))

    edit(standard, "encoder_model", spoil, weights=True)
    found = only(standard)
    assert (found.kind, found.found) == ("not_finite", "the scores of a plain sentence are NaN or infinite")


def test_a_loop(standard: Path) -> None:
    for name in DECODERS:
        edit(standard, name, lambda model: add_to_logits(model, bias(500, 1000.0)))
    found = only(standard)
    assert (found.kind, found.found) == (
        "repetition", "4 of 4 plain sentences end in a loop (such as token 500)",
    )  # fmt: skip


# What else a folder may lack.


def test_graphs_that_are_missing_or_do_not_load(standard: Path) -> None:
    (standard / "onnx/encoder_model.onnx").write_bytes(b"not a graph")
    found = {finding.kind: finding for finding in examine_folder(standard).findings}
    assert set(found) == {"unloadable", "missing_graph"}
    assert found["unloadable"].where == "encoder_model.onnx"
    assert found["missing_graph"].found.startswith("these graphs lack an encoder (")
    (standard / "onnx" / DATA).unlink()
    assert "unloadable" in kinds(standard)


def test_a_bundle_with_an_altered_file(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DEMO_BUNDLE, tmp_path / "bundle"))
    with (folder / "source.spm").open("ab") as file:
        file.write(b"x")
    assert "altered_file" in kinds(folder)


@pytest.mark.parametrize("content", ["[]", "{", "\udcff"])
def test_a_config_that_is_no_object(standard: Path, content: str) -> None:
    (standard / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert "settings" in kinds(standard)


def test_nothing_to_examine(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \.onnx file"):
        examine_folder(tmp_path)
    outcome = invoke("doctor", tmp_path / "nowhere")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)


# Healthy folders, in which nothing may be found.


def in_the_root(folder: Path) -> Path:
    for path in (folder / "onnx").glob("*.onnx*"):
        path.rename(folder / path.name)
    return folder


def merged_only(folder: Path) -> Path:
    for name in ("decoder_model", "decoder_with_past_model"):
        (folder / f"onnx/{name}.onnx").unlink()
    return folder


def without_merged(folder: Path) -> Path:
    (folder / "onnx/decoder_model_merged.onnx").unlink()
    return folder


def by_hand(folder: Path) -> Path:
    """Three files with names of somebody's own."""
    without_merged(folder)
    files = {"encoder_model": "enc", "decoder_model": "dec_init", "decoder_with_past_model": "dec"}
    for old, new in files.items():
        model = onnx.load(folder / f"onnx/{old}.onnx", load_external_data=False)
        names = [value.name for value in (*model.graph.input, *model.graph.output)]
        wanted = {
            name: name.replace("past_key_values.", "past_").replace("present.", "present_").replace(".", "_")
            for name in names
        }
        for value in (*model.graph.input, *model.graph.output):
            value.name = wanted[value.name]
        for node in model.graph.node:
            node.input[:] = [wanted.get(name, name) for name in node.input]
            node.output[:] = [wanted.get(name, name) for name in node.output]
        onnx.save(model, folder / f"{new}.onnx")
        (folder / f"onnx/{old}.onnx").unlink()
    (folder / "onnx" / DATA).rename(folder / DATA)
    return folder


@pytest.mark.parametrize("change", [lambda folder: folder, in_the_root, merged_only, without_merged, by_hand])
def test_nothing_is_found_in_healthy_folders(standard: Path, change: Callable[[Path], Path]) -> None:
    assert examine_folder(change(standard)).findings == ()


def test_nothing_is_found_in_a_bundle() -> None:
    assert examine_folder(DEMO_BUNDLE).healthy


@pytest.mark.parametrize(
    "how", [("--precision", "int8"), ("--precision", "int8-dynamic", "--trim-head"), ("--layout", "single")]
)
def test_nothing_is_found_in_other_exports(tmp_path: Path, how: tuple[str, ...]) -> None:
    assert invoke("export", "demo", *how, "-o", tmp_path / "made").code == 0
    outcome = invoke("doctor", tmp_path / "made", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert (found["healthy"], found["findings"]) == (True, [])


def test_the_page_and_the_exit_code(standard: Path) -> None:
    edit_json(standard / "generation_config.json", bad_words_ids=None)
    outcome = invoke("doctor", standard)
    assert outcome.code == 1
    assert outcome.lines[0].endswith("standard: 1 found")
    assert "  unbanned_pad: generation_config.json" in outcome.lines
    assert "Mend: add [10260] to bad_words_ids" in outcome.text


def test_float_types_are_not_quantised() -> None:
    from onnxmt.doctor.graph_file import is_quantized

    names = [TensorProto.DataType.Name(number) for number in (1, 2, 3, 10, 16, 21, 22)]
    assert [name for name in names if is_quantized(name)] == ["UINT8", "INT8", "UINT4", "INT4"]
