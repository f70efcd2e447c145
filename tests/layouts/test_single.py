"""`--layout single` as a user meets it: 200 sentences, the folder, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxmt.errors import GenerationSettingsError, OutputError, UsageError, VerificationError
from onnxmt.layouts import LayoutOptions, single, single_run
from onnxmt.layouts.single import export_single
from onnxmt.layouts.single_run import Batch, SingleModel
from onnxmt.precision import PRESETS, recipe
from onnxmt.runtime.session import RuntimeOptions
from tests import tiny
from tests.cli.harness import invoke
from tests.layouts.single_demo import BEAMS, cut, export_demo, judged

FP32 = LayoutOptions(precision=PRESETS["fp32"])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("single")
    return {beams: export_demo(folder, beams=beams) for beams in BEAMS}


@pytest.mark.parametrize("beams", BEAMS)
def test_200_sentences_give_the_library_tokens(demo: dict[int, Path], beams: int) -> None:
    sentences = judged()
    assert len(sentences) == 200
    graph = SingleModel(demo[beams] / "model.onnx", options=RuntimeOptions(threads=1))
    wanted = [one.tokens[beams] for one in sentences]
    alone = [graph.run(Batch.of([one.ids], padding=0))[0][0].tokens for one in sentences]
    together: list[tuple[int, ...]] = []
    for some in cut(range(200), 25):  # as they come: lengths are mixed
        found = graph.run(Batch.of([sentences[index].ids for index in some], padding=10260))
        together += [answers[0].tokens for answers in found]
    graph.close()
    assert alone == wanted
    assert together == wanted
    assert len({len(one.ids) for one in sentences}) > 20


def test_the_folder_says_where_it_comes_from(demo: dict[int, Path]) -> None:
    folder = demo[4]
    names = {path.name for path in folder.iterdir()}
    assert names >= {"model.onnx", "onnxmt.json", "source.spm", "target.spm", "vocab.json", "generation_config.json"}
    assert not {path for path in names if path.startswith(".")}
    told = json.loads((folder / "onnxmt.json").read_text(encoding="utf-8"))
    assert (told["layout"], told["opset"], told["generation"]["num_beams"]) == ("single", 18, 4)
    assert told["compared_with_library"] == {"sentences": 6, "max_new_tokens": 48, "same": 6}
    assert {entry["path"] for entry in told["files"]} == names - {"onnxmt.json"}
    assert json.loads((demo[1] / "onnxmt.json").read_text())["generation"]["num_beams"] == 1


def test_the_graph_is_one_valid_file_with_the_names_that_the_docs_give(demo: dict[int, Path]) -> None:
    model = onnx.load(demo[4] / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [node.name for node in model.graph.input] == ["input_ids", "attention_mask", "max_new_tokens"]
    assert [node.name for node in model.graph.output] == ["output_ids", "output_lengths", "scores"]
    assert (demo[4] / "model.onnx").stat().st_size < 30_000_000  # the weights, once: 28.8 MB


def test_the_score_is_the_library_score(demo: dict[int, Path]) -> None:
    from onnxmt import Translator
    from onnxmt.runtime.search import search

    graph, one = SingleModel(demo[4] / "model.onnx"), judged()[0]
    batch = Batch.of([one.ids], padding=0)
    with Translator.load("demo") as translator:
        step = translator.model.start(batch.input_ids, batch.attention_mask)
        wanted = search(step, rows=1, settings=translator.settings)[0][0].score
    assert graph.run(batch)[0][0].score == pytest.approx(wanted, abs=1e-5)
    graph.close()


def test_large_weights_lie_beside_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "LARGEST_FILE", 1000)
    written = export_single("demo", tmp_path / "out", options=LayoutOptions(precision=PRESETS["int8"]))
    assert (written.folder / "model.onnx").stat().st_size < 700_000
    assert (written.folder / "model.onnx.data").stat().st_size > 6_000_000
    graph = SingleModel(written.folder / "model.onnx")
    assert graph.run(Batch.of([judged()[0].ids], padding=0))[0][0].tokens
    graph.close()


def test_a_precision_that_depends_on_the_batch_is_compared_alone(tmp_path: Path) -> None:
    options = LayoutOptions(precision=PRESETS["int8-dynamic"], beams=1)
    written = export_single("demo", tmp_path / "out", options=options)
    assert any("int8-dynamic takes one scale" in warning for warning in written.warnings)


def test_a_graph_that_differs_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = SingleModel.run

    def wrong(self: SingleModel, batch: Batch, **told: object) -> object:
        found = right(self, batch, **told)  # type: ignore[arg-type]
        return [[h.__class__(tokens=(*h.tokens, 7), score=0.0, finished=True) for h in one] for one in found]

    monkeypatch.setattr(single_run.SingleModel, "run", wrong)
    with pytest.raises(VerificationError, match="gives other tokens than the library for 6 of 6 sentences"):
        export_single("demo", tmp_path / "out", options=FP32)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (LayoutOptions(precision=PRESETS["fp32"], opset=17), "--opset is 17: the single layout has opset 18 alone"),
        (LayoutOptions(precision=PRESETS["fp32"], self_contained=True), "--self-contained is for --layout standard"),
        (LayoutOptions(precision=recipe("int8-static")), "does not hold the precision int8-static"),
    ],
)
def test_options_that_it_does_not_have(tmp_path: Path, options: LayoutOptions, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        export_single("demo", tmp_path / "out", options=options)
    assert list(tmp_path.iterdir()) == []


def test_beams_below_one_are_refused() -> None:
    with pytest.raises(UsageError, match="beams is 0"):
        LayoutOptions(precision=PRESETS["fp32"], beams=0)


def test_a_folder_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        export_single("demo", tmp_path / "out", options=FP32)
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


@pytest.mark.reference
def test_settings_that_it_cannot_express_are_refused_before_the_work(tmp_path: Path) -> None:
    model = tiny.build_marian(tmp_path / "model", generation={"do_sample": True, "remove_invalid_values": True})
    with pytest.raises(GenerationSettingsError, match=r"2 of the model's .*do_sample: .*remove_invalid_values: "):
        export_single(model, tmp_path / "out", options=FP32)
    assert not (tmp_path / "out").exists()


@pytest.mark.reference
@pytest.mark.parametrize("name", ["nllb", "mbart", "mbart50"])
def test_the_language_is_an_input_of_multilingual_models(tmp_path: Path, name: str) -> None:
    from onnxmt.migration import MigrateOptions, export
    from onnxmt.runtime.translation import TranslateOptions
    from onnxmt.runtime.translator import Translator
    from tests.families.checkpoints import FAMILIES, build

    family, checkpoint = FAMILIES[name], build(name, tmp_path / "model")
    first, second = family.targets
    options = LayoutOptions(precision=PRESETS["fp32"], source=family.source, target=first, beams=2)
    written = export_single(checkpoint, tmp_path / "out", options=options)
    named = written.provenance["language_input"]
    assert named == ("decoder_start_token_id" if name == "mbart" else "forced_bos_token_id")
    tokens = written.provenance["language_tokens"]
    assert {first, second} <= set(tokens)
    bundle_options = MigrateOptions(precision=PRESETS["fp32"], source=family.source, target=first)
    export(checkpoint, tmp_path / "bundle", options=bundle_options)
    graph = SingleModel(written.folder / "model.onnx")
    with Translator.load(tmp_path / "bundle") as translator:
        for target in family.targets:
            ids = translator.tokenizer.encode("The library opens at nine.", source=family.source, target=target)
            found = graph.run(Batch.of([ids], padding=1), told={named: np.array([tokens[target]])})[0][0]
            wanted = translator.translate_detailed(
                "The library opens at nine.", options=TranslateOptions(target=target, beams=2, split=False)
            )
            kept = found.tokens[:-1] if found.tokens[-1] in translator.settings.eos_token_ids else found.tokens
            assert kept == wanted.tokens
    graph.close()


def test_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    found = invoke("export", "demo", "--layout", "single", "--beams", "1", "--precision", "int8", "-o", str(folder))
    assert found.code == 0
    assert found.out.decode().splitlines() == [str(folder)]
    assert "compared with the library's own graphs, not with PyTorch" in found.err
    assert json.loads((folder / "onnxmt.json").read_text())["precision"]["name"] == "int8"
    refused = invoke("export", "demo", "--beams", "1", "-o", str(tmp_path / "other"))
    assert refused.code == 2
    assert "--beams is for another --layout" in refused.err
    assert not (tmp_path / "other").exists()
