"""What `export --layout standard` writes, refuses, and leaves behind."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxmt.errors import OutputError, UsageError, VerificationError
from onnxmt.layouts import LayoutOptions, WrittenLayout
from onnxmt.layouts import standard as standard_layout
from onnxmt.layouts.standard import export_standard
from onnxmt.layouts.standard_run import StandardModel
from onnxmt.models.standard_ops import PlainMicrosoft
from onnxmt.precision import recipe
from onnxmt.runtime.tokenizer import load_tokenizer, tokenizer_spec
from tests import tiny
from tests.cli.harness import invoke
from tests.families.checkpoints import FAMILIES, build
from tests.layouts import standard_demo as demo

FP32 = recipe("fp32")


def export(model: Path | str, output: Path, **options: Any) -> WrittenLayout:
    return export_standard(model, output, options=LayoutOptions(**{"precision": FP32, **options}))


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marian") / "tiny-en-zh"
    return tiny.build_marian(
        folder,
        logits_bias=5.0,
        config={"num_beams": 6, "max_length": 512, "bad_words_ids": [[3]]},
        generation={"num_beams": 3, "max_length": 20},
    )


@pytest.fixture(scope="module")
def written(marian: Path, tmp_path_factory: pytest.TempPathFactory) -> WrittenLayout:
    return export(marian, tmp_path_factory.mktemp("standard") / "layout")


def test_the_files_of_the_folder(written: WrittenLayout) -> None:
    found = {path.relative_to(written.folder).as_posix() for path in written.folder.rglob("*") if path.is_file()}
    assert found == {
        "config.json", "generation_config.json", "onnxmt.json", "source.spm", "target.spm", "vocab.json",
        "tokenizer_config.json", "tokenizer.json", "onnx/README.md", "onnx/encoder_model.onnx", "onnx/decoder_model.onnx",
        "onnx/decoder_with_past_model.onnx", "onnx/decoder_model_merged.onnx", "onnx/model.onnx_data",
    }  # fmt: skip
    assert [path.name for path in written.folder.parent.iterdir()] == ["layout"]


def test_onnxmt_json_says_where_it_came_from(written: WrittenLayout) -> None:
    facts = json.loads((written.folder / "onnxmt.json").read_text())
    assert facts == written.provenance
    assert (facts["layout"], facts["opset"], facts["precision"]["name"]) == ("standard", 18, "fp32")
    assert facts["architecture"] == "marian"
    assert facts["compared_with_own_graphs"]["same"] == facts["compared_with_own_graphs"]["sentences"] == 8
    assert facts["compared_with_own_graphs"]["largest_logit_difference"] < 1e-3
    assert facts["tokenizer_json"]["compared_with_ours"] == {"sentences": 66, "different": 0, "first": None}
    assert {"onnxmt", "onnx", "onnxruntime"} <= facts["tools"].keys()
    for entry in facts["files"]:
        content = (written.folder / entry["path"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (entry["bytes"], entry["sha256"])
    assert len(facts["files"]) == 13
    assert written.size == sum(
        path.stat().st_size for path in written.folder.rglob("*.*") if path.name != "onnxmt.json"
    )


def test_settings_stand_in_one_place_and_keep_their_meaning(written: WrittenLayout, marian: Path) -> None:
    """transformers lets what config.json says of generation win, so that it must not say another thing (cases G1, G2)."""
    config, generation = (
        json.loads((written.folder / name).read_text()) for name in ("config.json", "generation_config.json")
    )
    original = json.loads((marian / "config.json").read_text())
    pad = original["vocab_size"] - 1
    assert not {"num_beams", "max_length", "bad_words_ids", "forced_eos_token_id"} & config.keys()
    assert (config["decoder_start_token_id"], generation["decoder_start_token_id"]) == (pad, pad)
    assert (generation["num_beams"], generation["max_length"]) == (3, 20)
    assert generation["bad_words_ids"] == [[pad]]
    assert generation["forced_eos_token_id"] == 0
    assert config["transformers.js_config"] == {"dtype": "fp32"}


@pytest.mark.reference
def test_transformers_reads_the_settings_as_we_do(written: WrittenLayout) -> None:
    from transformers import AutoConfig, GenerationConfig

    settings = GenerationConfig.from_pretrained(written.folder)
    assert (settings.num_beams, settings.max_length, settings.early_stopping) == (3, 20, False)
    assert AutoConfig.from_pretrained(written.folder).model_type == "marian"


@pytest.mark.reference
def test_the_tokenizer_beside_it_is_the_checkpoints(written: WrittenLayout, marian: Path) -> None:
    from transformers import AutoTokenizer

    first, second = (AutoTokenizer.from_pretrained(folder) for folder in (marian, written.folder))
    for text in tiny.SENTENCES:
        assert first(text)["input_ids"] == second(text)["input_ids"]


@pytest.mark.parametrize("name", FAMILIES)
def test_tokenizer_json_of_every_family(name: str, tmp_path: Path) -> None:
    """What transformers.js reads: ids with the special tokens of the default direction."""
    from tokenizers import Tokenizer

    family = FAMILIES[name]
    checkpoint = build(name, tmp_path / name)
    target = family.targets[0] if family.targets else None
    found = export(checkpoint, tmp_path / "layout", source=family.source, target=target, prefix=family.prefix)
    assert found.provenance["compared_with_own_graphs"]["same"] == 8
    pipeline = Tokenizer.from_file(str(found.folder / "tokenizer.json"))
    config = json.loads((checkpoint / "config.json").read_text())
    ours = load_tokenizer(checkpoint, tokenizer_spec(checkpoint, config, prefix=family.prefix))
    told = ours.written(source=family.source, target=target)
    made_here = found.provenance["tokenizer_json"]["origin"] == "made here"
    assert made_here == (not (checkpoint / "tokenizer.json").exists())
    for text in tiny.SENTENCES:
        ids = ours.encode(text, source=family.source, target=target)
        assert not made_here or pipeline.encode(told + text).ids == ids
    assert not list(found.folder.glob("*.py"))  # small100: other people's code is not handed on


def test_a_vocabulary_for_each_side_has_no_tokenizer_json(tmp_path: Path) -> None:
    checkpoint = tiny.build_marian(tmp_path / "two", separate_vocabs=True)
    found = export(checkpoint, tmp_path / "layout")
    assert not (found.folder / "tokenizer.json").exists()
    assert any("there is no tokenizer.json: this model has a vocabulary of its own" in line for line in found.warnings)


def test_a_forced_first_token_is_the_targets(tmp_path: Path) -> None:
    checkpoint = build("m2m_100", tmp_path / "m2m")
    forced = set()
    for target in ("zh", "fr"):
        found = export(checkpoint, tmp_path / target, source="en", target=target)
        generation = json.loads((found.folder / "generation_config.json").read_text())
        forced.add(generation["forced_bos_token_id"])
        assert found.provenance["languages"] == {"source": "en", "target": target}
    assert len(forced) == 2


@pytest.mark.parametrize(
    ("precision", "found"),
    [("int8", "int8"), ("int4", "int4"), ("fp16", "fp16"), ("int8-dynamic,encoder=fp32", "encoder")],
)
def test_a_precision_that_plain_operators_do_not_hold(precision: str, found: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"does not hold the precision .*{found}.*allowed: fp32, int8-dynamic"):
        export("demo", tmp_path / "layout", precision=recipe(precision))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"beams": 2}, "--beams is for a layout with the search inside"),
        ({"text": True}, "--text is for the single layout"),
    ],
)
def test_search_and_text_are_not_a_part_of_it(option: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        export("demo", tmp_path / "layout", **option)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opset", [13, 24, 0, -1])
def test_an_opset_that_is_not_offered(opset: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--opset is {opset}; the standard layout is written in 14 to 23"):
        export("demo", tmp_path / "layout", opset=opset)
    assert list(tmp_path.iterdir()) == []


def test_dynamic_int8_is_a_quarter_and_named_as_transformers_js_wants_it(tmp_path: Path) -> None:
    small, large = demo.layout("int8-dynamic"), demo.layout()
    assert small.size < 0.35 * large.size
    names = {path.name for path in (small.folder / "onnx").glob("*.onnx")}
    assert "decoder_model_merged_quantized.onnx" in names
    assert json.loads((small.folder / "config.json").read_text())["transformers.js_config"] == {"dtype": "q8"}
    proto = onnx.load(str(small.folder / "onnx" / "decoder_with_past_model_quantized.onnx"), load_external_data=False)
    assert {node.domain for node in proto.graph.node} == {""}
    assert sum(node.op_type == "MatMulInteger" for node in proto.graph.node) == 2 * 6 + 1  # 2 layers, and the head
    rows = demo.wanted()[::10]
    model = StandardModel.load(small.folder / "onnx", suffix="_quantized")
    same = 0
    for row in rows:
        found = demo.decode(model.start(np.array([row.ids]), np.ones((1, len(row.ids)), np.int64)), 1, beams=1)
        same += found[0] == row.greedy
    assert same >= 0.6 * len(rows)
    assert any("int8-dynamic takes one scale" in line for line in small.warnings)


def test_self_contained_files_need_nothing_beside_them(marian: Path, tmp_path: Path) -> None:
    found = export(marian, tmp_path / "layout", self_contained=True)
    for name in ("encoder_model", "decoder_model_merged"):
        content = (found.folder / "onnx" / f"{name}.onnx").read_bytes()
        (tmp_path / f"{name}.onnx").write_bytes(content)
        assert not any(tensor.external_data for tensor in onnx.load_from_string(content).graph.initializer)
    assert not (found.folder / "onnx" / "model.onnx_data").exists()
    model = StandardModel.load(tmp_path)
    logits = model.start(np.array([[5, 6, 0]]), np.ones((1, 3), np.int64))(np.array([[1]]), None)
    assert np.isfinite(logits).all()


def test_weights_that_one_file_cannot_hold_are_refused(
    marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_layout, "_MESSAGE_LIMIT", (1 << 20) + 1000)
    with pytest.raises(OutputError, match=r"encoder_model.onnx would hold 0.0 GB of weights, and one file can hold 2"):
        export(marian, tmp_path / "layout", self_contained=True)
    assert list(tmp_path.iterdir()) == []


def _no_mask(self: PlainMicrosoft, mask: Any) -> Any:
    op = self._op
    return op.Unsqueeze(op.Mul(op.Cast(mask, to=1), 0.0), [1, 2])


def _no_scale(self: PlainMicrosoft, queries: Any, scale: float | None) -> Any:
    return queries


@pytest.mark.parametrize(("method", "damaged"), [("_padding", _no_mask), ("_scaled", _no_scale)])
def test_graphs_that_say_something_else_are_not_written(
    method: str, damaged: Any, marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost mask shows in a batch alone (case B1): the comparison is one."""
    monkeypatch.setattr(PlainMicrosoft, method, damaged)
    with pytest.raises(VerificationError, match="the standard graphs do not do what our own do"):
        export(marian, tmp_path / "layout")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_replaced_only_when_asked(marian: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(OutputError, match="is not a layout"):
        export(marian, tmp_path / "mine", overwrite=True)
    first = export(marian, tmp_path / "layout", opset=17)
    with pytest.raises(OutputError, match="exists and is not empty"):
        export(marian, tmp_path / "layout")
    second = export(marian, tmp_path / "layout", opset=19, overwrite=True)
    assert (first.provenance["opset"], second.provenance["opset"]) == (17, 19)
    assert json.loads((tmp_path / "layout" / "onnxmt.json").read_text())["opset"] == 19
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_the_readme_says_what_can_be_deleted(written: WrittenLayout) -> None:
    text = (written.folder / "onnx" / "README.md").read_text()
    assert "transformers.js needs the encoder and the merged decoder; the other two can be deleted" in text
    for path in (written.folder / "onnx").glob("*.onnx*"):
        assert f"`{path.name}`" in text


def test_the_command(marian: Path, tmp_path: Path) -> None:
    done = invoke("export", marian, "--layout", "standard", "--opset", "17", "-o", tmp_path / "layout", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.text)
    assert (answer["layout"], answer["opset"], answer["folder"]) == ("standard", 17, str(tmp_path / "layout"))
    assert invoke("export", marian, "-o", tmp_path / "b", "--opset", "17").error().startswith("--opset is for another")
    assert "allowed: bundle, standard" in invoke("export", marian, "-o", tmp_path / "c", "--layout", "other").error()
    bad = invoke("export", marian, "--layout", "standard", "--opset", "9", "-o", tmp_path / "d")
    assert bad.error() == "--opset is 9; the standard layout is written in 14 to 23"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layout"]
