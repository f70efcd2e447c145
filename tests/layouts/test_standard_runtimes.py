"""The demo model's standard layout under every runtime that is named in docs/layouts.md: the library's tokens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxmt.layouts.standard_run import StandardModel
from onnxmt.runtime.session import RuntimeOptions
from tests.layouts import standard_demo as demo
from tests.layouts.plain_loop import PlainLoop

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformersjs"
OPTIMUM = "ONNXMT_OPTIMUM_PYTHON"
FEW = 25  # of the 200, for the judges that are slow to run: docs/layouts.md has the figures for all
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "two files"])
def test_onnxruntime_greedy_by_a_plain_loop(merged: bool) -> None:
    loop = PlainLoop(demo.layout().folder, merged=merged)
    different = []
    for batch in demo.batches(demo.wanted()):
        tokens, _ = loop.decode(*demo.inputs(batch))
        different += [row.text for row, found in zip(batch, tokens, strict=True) if found != row.greedy]
    assert different == []


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "two files"])
def test_onnxruntime_with_four_beams(merged: bool) -> None:
    folder = demo.layout().folder / "onnx"
    model = StandardModel.load(folder, merged=merged, options=RuntimeOptions(threads=1))
    different = []
    for batch in demo.batches(demo.wanted()):
        tokens = demo.decode(model.start(*demo.inputs(batch)), len(batch), beams=4)
        different += [row.text for row, found in zip(batch, tokens, strict=True) if found != row.beam]
    model.close()
    assert different == []


@pytest.mark.slow
@pytest.mark.skipif(
    OPTIMUM not in os.environ,
    reason=f"set {OPTIMUM} to a Python with optimum[onnxruntime]: it needs transformers 4, and this one has 5",
)
@pytest.mark.parametrize("merged", [True, False], ids=["merged", "two files"])
def test_optimum(merged: bool) -> None:
    rows = demo.wanted()[:: demo.SENTENCES // FEW]
    padded = [rows[0], rows[-1], rows[len(rows) // 2]]
    asked = {
        "folder": str(demo.layout().folder),
        "merged": merged,
        "rows": [row.ids for row in rows],
        "padded": [row.ids for row in padded],
    }
    judge = Path(__file__).with_name("optimum_judge.py")
    done = subprocess.run(
        [os.environ[OPTIMUM], str(judge)], input=json.dumps(asked), capture_output=True, text=True, env=ONE_THREAD,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    end = demo.plan().settings.eos_token_ids[0]
    for beams, tokens in (("1", [row.greedy for row in rows]), ("4", [row.beam for row in rows])):
        assert found[beams]["alone"] == tokens
        together = [row[: row.index(end) + 1] if end in row else row for row in found[beams]["together"]]
        assert together == [row.greedy if beams == "1" else row.beam for row in padded]


class OpenVinoSession:
    """What StandardModel asks of a session, by OpenVINO's own runtime."""

    def __init__(self, openvino: Any, path: Path) -> None:
        core = openvino.Core()
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
        self._request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
        compiled = self._request.get_compiled_model()
        self._outputs = [output.get_any_name() for output in compiled.outputs]
        self.inputs = {node.get_any_name(): _Node(node.get_partial_shape()) for node in compiled.inputs}

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = self._request.infer(feeds)
        return {name: np.array(results[place]) for place, name in enumerate(self._outputs)}


class _Node:
    def __init__(self, shape: Any) -> None:
        self.axes = [axis.get_length() if axis.is_static else "any" for axis in shape]


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "two files"])
def test_openvino_on_cpu(merged: bool) -> None:
    openvino = pytest.importorskip("openvino", reason="openvino is not installed: pip install openvino")
    folder = demo.layout().folder / "onnx"
    names = ("decoder_model_merged",) if merged else ("decoder_model", "decoder_with_past_model")
    decoders = [OpenVinoSession(openvino, folder / f"{name}.onnx") for name in names]
    encoder: Any = OpenVinoSession(openvino, folder / "encoder_model.onnx")
    model = StandardModel(encoder=encoder, first=decoders[0], later=decoders[-1])
    for batch in demo.batches(demo.wanted())[::2]:
        for beams, tokens in ((1, [row.greedy for row in batch]), (4, [row.beam for row in batch])):
            assert demo.decode(model.start(*demo.inputs(batch)), len(batch), beams=beams) == tokens


needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (EXAMPLE / "node_modules" / "@huggingface" / "transformers").is_dir(),
    reason="needs node, and `npm install` in examples/transformersjs",
)


def run_example(*arguments: str, given: str = "") -> list[str]:
    command = ["node", "translate.mjs", *arguments]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, cwd=EXAMPLE, env=ONE_THREAD, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@needs_node
@pytest.mark.node
def test_transformers_js_given_our_ids() -> None:
    rows = demo.wanted()[:: demo.SENTENCES // FEW]
    given = "\n".join(json.dumps(row.ids) for row in rows)
    found = [json.loads(line) for line in run_example(str(demo.layout().folder), "--ids", given=given)]
    assert found == [row.greedy for row in rows]


@needs_node
@pytest.mark.node
@pytest.mark.parametrize("precision", ["fp32", "int8-dynamic"])
def test_transformers_js_with_its_own_tokenizer(precision: str) -> None:
    texts = ["The library opens at nine.", "He bought three books yesterday."]
    assert run_example(str(demo.layout(precision).folder), *texts) == ["图书馆九点开门。", "他昨天买了三本书。"]
