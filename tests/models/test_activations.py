"""Each activation as one small graph against transformers' ACT2FN, far into both tails."""

from __future__ import annotations

import numpy as np
import pytest

from onnxmt.models.activations import ACTIVATIONS


def _run(name: str, x: np.ndarray) -> np.ndarray:
    import onnx_ir as ir
    import onnxruntime
    from onnxscript import GraphBuilder

    graph = ir.Graph([], [], nodes=[], name=name, opset_imports={"": 18, "com.microsoft": 1})
    builder = GraphBuilder(graph)
    y = ACTIVATIONS[name](builder.op, builder.input("x", ir.DataType.FLOAT, ["n"]))
    y.shape, y.type = ir.Shape(["n"]), ir.TensorType(ir.DataType.FLOAT)
    builder.add_output(y, "y")
    assert not [node for node in graph if node.op_type.startswith("Cast")]
    model = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
    return onnxruntime.InferenceSession(model).run(None, {"x": x})[0]


@pytest.mark.reference
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_equals_transformers(name):
    import torch
    from transformers.activations import ACT2FN

    x = np.concatenate([np.linspace(-12, 12, 2001), [-1e4, -300, 0, 300, 1e4]]).astype(np.float32)
    wanted = ACT2FN[name](torch.tensor(x)).numpy()
    np.testing.assert_allclose(_run(name, x), wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.reference
def test_what_is_left_out_has_weights_of_its_own():
    from transformers.activations import ACT2CLS

    assert set(ACT2CLS) - set(ACTIVATIONS) == {"prelu", "xielu"}
