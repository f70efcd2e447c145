"""`--layout triton`: the repository against the graph's real inputs and outputs, and against Triton's own schema."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnxruntime as ort
import pytest

from onnxmt.errors import UsageError
from onnxmt.layouts import LayoutOptions
from onnxmt.layouts.single_run import Batch, SingleModel
from onnxmt.layouts.triton import export_triton, repository_name
from onnxmt.precision import PRESETS
from onnxmt.runtime.translator import Translator
from tests.cli.harness import invoke
from tests.layouts.single_demo import texts

TYPES = {"tensor(int64)": "TYPE_INT64", "tensor(float)": "TYPE_FP32"}


def fields(config: str, kind: str) -> dict[str, tuple[str, list[int], bool]]:
    """name → type, dims, and whether the batch axis is all there is, of the inputs or outputs."""
    block = re.search(rf"^{kind} \[\n(.*?)^\]", config, re.MULTILINE | re.DOTALL)
    assert block is not None
    found = re.findall(
        r'name: "(\w+)"\s+data_type: (\w+)\s+dims: \[ ([-\d, ]+) \](\s+reshape: { shape: \[ \] })?', block[1]
    )
    return {name: (kind, [int(n) for n in dims.split(",")], bool(reshape)) for name, kind, dims, reshape in found}


def expected(nodes: list[ort.NodeArg]) -> dict[str, tuple[str, list[int], bool]]:
    found = {}
    for node in nodes:
        assert node.shape[0] == "batch"
        axes = [axis if isinstance(axis, int) else -1 for axis in node.shape[1:]]
        found[node.name] = (TYPES[node.type], axes or [1], not axes)
    return found


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("triton") / "out"
    return export_triton("demo", folder, options=LayoutOptions(precision=PRESETS["int8"])).folder


def test_the_configuration_is_that_of_the_graph(repository: Path) -> None:
    model = repository / "models" / "demo"
    config = (model / "config.pbtxt").read_text()
    session = ort.InferenceSession(model / "1" / "model.onnx", ort.SessionOptions())
    assert fields(config, "input") == expected(session.get_inputs())
    assert fields(config, "output") == expected(session.get_outputs())
    assert fields(config, "output")["scores"] == ("TYPE_FP32", [1], True)
    for line in ('name: "demo"', 'backend: "onnxruntime"', "max_batch_size: 32", "dynamic_batching {"):
        assert line in config.splitlines()


def test_the_repository_holds_models_alone(repository: Path) -> None:
    """Triton stops at a folder in a repository that is no model."""
    assert [path.name for path in (repository / "models").iterdir()] == ["demo"]
    assert {path.name for path in (repository / "models" / "demo").iterdir()} == {"1", "config.pbtxt"}
    assert {"source.spm", "vocab.json"} <= {path.name for path in (repository / "tokenizer").iterdir()}
    told = json.loads((repository / "onnxmt.json").read_text())
    assert (told["layout"], told["triton"]["name"]) == ("triton", "demo")


def test_padded_batches_give_what_single_requests_give(repository: Path) -> None:
    """A client pads to one of a few lengths, so that the server can join requests."""
    graph = SingleModel(repository / "models" / "demo" / "1" / "model.onnx")
    with Translator.load("demo") as translator:
        sentences = [translator.tokenizer.encode(text) for text in texts()[:8]]
    alone = [graph.run(Batch.of([ids], padding=0))[0][0].tokens for ids in sentences]
    width = 64
    wide = Batch.of([*sentences, [0] * width], padding=0)
    batch = Batch(input_ids=wide.input_ids[:-1], attention_mask=wide.attention_mask[:-1])
    assert batch.input_ids.shape == (8, width)
    assert [answers[0].tokens for answers in graph.run(batch)] == alone
    graph.close()


@pytest.mark.reference
def test_the_languages_are_listed_by_token(tmp_path: Path) -> None:
    from tests.families.checkpoints import FAMILIES, build

    family = FAMILIES["nllb"]
    options = LayoutOptions(precision=PRESETS["fp32"], source=family.source, target=family.targets[0])
    written = export_triton(build("nllb", tmp_path / "model"), tmp_path / "out", options=options)
    config = (written.folder / "models" / "model" / "config.pbtxt").read_text()
    assert fields(config, "input")["forced_bos_token_id"] == ("TYPE_INT64", [1], True)
    rows = (written.folder / "tokenizer" / "languages.txt").read_text().splitlines()
    assert [int(row.split("\t")[0]) for row in rows] == sorted(written.provenance["language_tokens"].values())
    assert any(row.endswith("\tzho_Hans") for row in rows)


@pytest.mark.parametrize(
    ("model", "name"), [("Helsinki-NLP/opus-mt-en-zh", "opus-mt-en-zh"), ("a b/c d!", "c-d"), ("demo", "demo")]
)
def test_names_that_triton_takes(model: str, name: str) -> None:
    assert repository_name(model) == name


def test_a_name_of_which_nothing_is_left() -> None:
    with pytest.raises(UsageError, match="no model name for Triton"):
        repository_name("机器翻译")


def test_the_command(tmp_path: Path) -> None:
    found = invoke("export", "demo", "--layout", "triton", "--precision", "int8", "-o", str(tmp_path / "out"))
    assert found.code == 0
    assert "Triton itself was not run" in found.err
    assert (tmp_path / "out" / "models" / "demo" / "1" / "model.onnx").is_file()


def test_tritons_own_schema_reads_the_configuration(repository: Path) -> None:
    pb = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="tritonclient[grpc] is not installed")
    from google.protobuf import text_format

    config = pb.ModelConfig()
    text_format.Parse((repository / "models" / "demo" / "config.pbtxt").read_text(), config)
    assert config.max_batch_size == 32
    assert [entry.name for entry in config.output] == ["output_ids", "output_lengths", "scores"]
