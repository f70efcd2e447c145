"""`--layout single --text`: strings in, strings out, by onnxruntime-extensions' operators."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest

from onnxmt.errors import MissingExtraError, UsageError, VerificationError
from onnxmt.layouts import LayoutOptions, single_text
from onnxmt.layouts.single import export_single
from onnxmt.layouts.single_text import TextModel
from onnxmt.layouts.triton import export_triton
from onnxmt.precision import PRESETS
from onnxmt.runtime.tokenizers.marian import MarianTokenizer
from tests import tiny
from tests.cli.harness import invoke
from tests.layouts.single_demo import judged

FP32 = LayoutOptions(precision=PRESETS["fp32"], text=True)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_single("demo", tmp_path_factory.mktemp("text") / "out", options=FP32).folder / "model.onnx"


def test_200_sentences_alone_and_in_batches(graph: Path) -> None:
    model = TextModel(graph, threads=1)
    texts, wanted = [one.text for one in judged()], [one.translation[4] for one in judged()]
    assert [model.translate([text])[0] for text in texts] == wanted
    assert [t for first in range(0, 200, 25) for t in model.translate(texts[first : first + 25])] == wanted


def test_the_graph_takes_and_gives_strings(graph: Path) -> None:
    model = onnx.load(graph).graph
    assert next((node.name, node.type.tensor_type.elem_type) for node in model.input) == (
        "text",
        onnx.TensorProto.STRING,
    )
    assert [node.name for node in model.output] == ["translation", "scores"]
    assert {path.name for path in graph.parent.iterdir() if path.name.startswith(".")} == set()


def test_spaces_and_empty_texts_do_no_harm(graph: Path) -> None:
    model = TextModel(graph, threads=1)
    plain = model.translate(["The library opens at nine."])
    assert plain == ["图书馆九点开门。"]
    assert model.translate(["", "  The library  opens at nine. ", "   "])[1:2] == plain


@pytest.mark.reference
@pytest.mark.parametrize("separate", [False, True])
def test_tiny_models_with_one_vocabulary_and_with_two(tmp_path: Path, separate: bool) -> None:
    """The export itself compares 6 sentences with the library's ids."""
    model = tiny.build_marian(tmp_path / "model", separate_vocabs=separate, generation={"max_length": 20})
    written = export_single(model, tmp_path / "out", options=FP32)
    assert written.provenance["text"] is True
    found = TextModel(written.folder / "model.onnx").translate(list(tiny.SENTENCES))
    assert len(found) == len(tiny.SENTENCES)


@pytest.mark.reference
def test_other_tokenizers_are_refused_by_name(tmp_path: Path) -> None:
    from tests.families.checkpoints import FAMILIES, build

    options = LayoutOptions(
        precision=PRESETS["fp32"], text=True, source=FAMILIES["nllb"].source, target=FAMILIES["nllb"].targets[0]
    )
    with pytest.raises(UsageError, match="--text is for Marian models: the tokenizer of this one is nllb"):
        export_single(build("nllb", tmp_path / "model"), tmp_path / "out", options=options)
    assert not (tmp_path / "out").exists()


def test_other_layouts_take_ids(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--text is for --layout single"):
        export_triton("demo", tmp_path / "out", options=FP32)
    refused = invoke("export", "demo", "--text", "-o", str(tmp_path / "out"))
    assert (refused.code, "--text is for another --layout" in refused.err) == (2, True)


def test_without_the_package_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'onnxmt\[text-graph\]'"):
        export_single("demo", tmp_path / "out", options=FP32)
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_that_differs_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = MarianTokenizer.source_ids

    def wrong(self: MarianTokenizer, pieces: list[str]) -> list[int]:
        return [index + 1 for index in right(self, pieces)]

    monkeypatch.setattr(single_text.MarianTokenizer, "source_ids", wrong)
    with pytest.raises(VerificationError, match=r"translates \d of 6 sentences otherwise than the library"):
        export_single("demo", tmp_path / "out", options=FP32)
    assert not (tmp_path / "out").exists()
