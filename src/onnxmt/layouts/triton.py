"""`--layout triton`: the single graph as a model repository for Triton's ONNX Runtime backend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxmt.errors import UsageError
from onnxmt.folder_writer import FolderWriter
from onnxmt.layouts.single import (
    MODEL_NAME,
    OPSET,
    layout_warnings,
    read_plan,
    write_single,
)
from onnxmt.layouts.written import LAYOUT, LayoutOptions, WrittenLayout, commit_layout
from onnxmt.plan import Plan, copy_files
from onnxmt.progress import Progress, Silent
from onnxmt.runtime.session import NodeInfo, Session

CONFIG_NAME, LABELS_NAME, VERSION = "config.pbtxt", "languages.txt", "1"
# Beside each other: Triton takes every folder of a repository for a model, and stops at one that is none.
REPOSITORY, TOKENIZER_FOLDER = "models", "tokenizer"
# A row of a beam search holds a row of scores for each beam: a batch of 32 with 4 beams is 33 MB of them for opus-mt.
LARGEST_BATCH = 32
_QUEUE_MICROSECONDS = 5_000
_TYPES = {"int64": "TYPE_INT64", "float32": "TYPE_FP32"}


def export_triton(
    model: str | Path, output: str | Path, *, options: LayoutOptions, progress: Progress | None = None
) -> WrittenLayout:
    """Write `model` to `output` as a model repository: models/NAME/config.pbtxt and models/NAME/1/model.onnx.

    The tokenizer's files lie in tokenizer/, for the client. Raises as `export_single` does.
    """
    progress = progress or Silent()
    plan = read_plan(model, output, options, progress, layout="triton")
    name = repository_name(plan.checkpoint.name)
    with FolderWriter(output, kind=LAYOUT, overwrite=options.overwrite) as writer:
        folder = writer.folder / REPOSITORY / name
        version, tokenizer = folder / VERSION, writer.folder / TOKENIZER_FOLDER
        version.mkdir(parents=True)
        tokenizer.mkdir()
        copy_files(plan, tokenizer)
        single = write_single(plan, version, options, progress)
        graph = Session(version / MODEL_NAME)
        labelled = None
        if single.languages:
            by_token = sorted(single.languages.items(), key=lambda item: item[1])
            text = "".join(f"{token}\t{code}\n" for code, token in by_token)
            (tokenizer / LABELS_NAME).write_text(text, encoding="utf-8")
            labelled = f"{TOKENIZER_FOLDER}/{LABELS_NAME}"
        config = model_config(name, inputs=list(graph.inputs.values()), outputs=list(graph.outputs.values()))
        graph.close()
        (folder / CONFIG_NAME).write_text(config, encoding="utf-8")
        return commit_layout(
            writer,
            plan,
            layout="triton",
            opset=OPSET,
            precision=options.precision,
            facts={
                **single.to_dict(),
                "triton": {"repository": REPOSITORY, "name": name, "languages": labelled},
            },
            warnings=_warnings(plan, options),
        )


def repository_name(model: str) -> str:
    """A name that Triton takes as a folder and in an address. Raises UsageError where nothing is left of `model`."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", model.rpartition("/")[2]).strip("-.")
    if not name:
        raise UsageError(f"no model name for Triton can be made of {model!r}: rename the model's folder")
    return name


@dataclass(frozen=True)
class _Field:
    """One input or output of config.pbtxt: Triton takes the batch axis away before it compares dims."""

    node: NodeInfo

    def lines(self) -> str:
        axes = [axis if isinstance(axis, int) else -1 for axis in self.node.axes[1:]]
        # A tensor of the batch axis alone: a client sends [batch, 1], and the graph gets [batch].
        dims, reshape = (axes, "") if axes else ([1], "\n    reshape: { shape: [ ] }")
        return f"""  {{
    name: "{self.node.name}"
    data_type: {_TYPES[str(np.dtype(self.node.dtype))]}
    dims: [ {", ".join(map(str, dims))} ]{reshape}
  }}"""


def model_config(name: str, *, inputs: Sequence[NodeInfo], outputs: Sequence[NodeInfo]) -> str:
    """Return config.pbtxt for a graph whose inputs and outputs all begin with the batch axis."""

    def fields(nodes: Sequence[NodeInfo]) -> str:
        return ",\n".join(_Field(node).lines() for node in nodes)

    return f"""# Requests are joined where their input_ids have one length: pad to a few lengths (attention_mask 0).
name: "{name}"
backend: "onnxruntime"
default_model_filename: "{MODEL_NAME}"
max_batch_size: {LARGEST_BATCH}
input [
{fields(inputs)}
]
output [
{fields(outputs)}
]
dynamic_batching {{
  max_queue_delay_microseconds: {_QUEUE_MICROSECONDS}
}}
instance_group [
  {{
    count: 1
    kind: KIND_CPU
  }}
]
"""


def _warnings(plan: Plan, options: LayoutOptions) -> tuple[str, ...]:
    return (
        *layout_warnings(plan, options),
        "Triton itself was not run: the files follow its documentation, and the graph was run by ONNX Runtime",
    )
