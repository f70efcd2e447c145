"""Hand-made graphs with the inputs and outputs of format 1, whose arithmetic can be followed on paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

INT64 = TensorProto.INT64


def _save(path: Path, nodes: list, inputs: list, outputs: list, constants: dict[str, np.ndarray]) -> None:
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, tensors)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def write_fake_graphs(folder: Path, *, half: bool = False) -> Path:
    """Write encoder.onnx and decoder.onnx, in float32 or (`half`) float16.

    The encoder keeps the ids: cross.0.key[b, 0, s, 0] = input_ids[b, s], and value = 10 × that. The decoder keeps the
    tokens: present.0.key = past.0.key followed by input_ids, present.0.value = the positions. Its logits are
    [sum of all tokens, number of tokens, sum of the sentence's ids under the mask, sum of values under the mask].
    """
    kind, dtype = (TensorProto.FLOAT16, np.float16) if half else (TensorProto.FLOAT, np.float32)
    value = helper.make_tensor_value_info
    node = helper.make_node
    shape4 = {"shape": np.array([0, 1, -1, 1], np.int64), "ten": np.array(10, dtype)}
    _save(
        folder / "encoder.onnx",
        [
            node("Cast", ["input_ids"], ["ids"], to=kind),
            node("Cast", ["attention_mask"], ["unused"], to=kind),
            node("Reshape", ["ids", "shape"], ["cross.0.key"]),
            node("Mul", ["cross.0.key", "ten"], ["cross.0.value"]),
        ],
        [value("input_ids", INT64, ["batch", "source"]), value("attention_mask", INT64, ["batch", "source"])],
        [value(f"cross.0.{part}", kind, ["batch", 1, "source", 1]) for part in ("key", "value")],
        shape4,
    )
    axes = np.array([1, 2, 3], np.int64)
    _save(
        folder / "decoder.onnx",
        [
            node("Cast", ["input_ids"], ["new"], to=kind),
            node("Reshape", ["new", "shape"], ["new4"]),
            node("Concat", ["past.0.key", "new4"], ["present.0.key"], axis=2),
            node("Shape", ["present.0.key"], ["length"], start=2, end=3),
            node("Squeeze", ["length"], ["length0"]),
            node("Range", ["zero", "length0", "one"], ["positions"]),
            node("Cast", ["positions"], ["positionsf"], to=kind),
            node("Reshape", ["positionsf", "row"], ["positions4"]),
            node("Mul", ["present.0.key", "nought"], ["zeros"]),
            node("Add", ["zeros", "positions4"], ["present.0.value"]),
            node("ReduceSum", ["present.0.key", "axes"], ["tokens"], keepdims=0),
            node("Add", ["zeros", "onef"], ["ones"]),
            node("ReduceSum", ["ones", "axes"], ["count"], keepdims=0),
            node("Cast", ["attention_mask"], ["mask"], to=kind),
            node("Reshape", ["mask", "shape"], ["mask4"]),
            node("Mul", ["cross.0.key", "mask4"], ["keys"]),
            node("ReduceSum", ["keys", "axes"], ["keysum"], keepdims=0),
            node("Mul", ["cross.0.value", "mask4"], ["values"]),
            node("ReduceSum", ["values", "axes"], ["valuesum"], keepdims=0),
            *(node("Unsqueeze", [name, "last"], [f"{name}1"]) for name in ("tokens", "count", "keysum", "valuesum")),
            node("Concat", ["tokens1", "count1", "keysum1", "valuesum1"], ["logits"], axis=1),
        ],
        [
            value("input_ids", INT64, ["batch", "target"]),
            value("attention_mask", INT64, ["batch", "source"]),
            *(value(f"cross.0.{part}", kind, ["batch", 1, "source", 1]) for part in ("key", "value")),
            *(value(f"past.0.{part}", kind, ["batch", 1, "past", 1]) for part in ("key", "value")),
        ],
        [
            value("logits", kind, ["batch", 4]),
            *(value(f"present.0.{part}", kind, ["batch", 1, "present", 1]) for part in ("key", "value")),
        ],
        {
            "shape": shape4["shape"], "row": np.array([1, 1, -1, 1], np.int64), "axes": axes,
            "last": np.array([1], np.int64), "zero": np.array(0, np.int64), "one": np.array(1, np.int64),
            "nought": np.array(0, dtype), "onef": np.array(1, dtype),
        },
    )  # fmt: skip
    return folder
