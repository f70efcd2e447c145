"""Each com.microsoft operator beside its form in plain operators, run by ONNX Runtime, at old and new opsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnxscript import GraphBuilder

from onnxmt.errors import UnsupportedModelError
from onnxmt.models import fused
from onnxmt.models.activations import ACTIVATIONS
from onnxmt.models.standard import IR_VERSIONS, checked_opset
from onnxmt.models.standard_ops import StandardBuilder
from onnxmt.precision.dynamic import dynamic_arrays

Emit = Callable[[Any, list[Any]], Sequence[Any]]
_RANDOM = np.random.default_rng(11)
B, T, P, S, HEADS, SIZE = 2, 3, 4, 5, 2, 4
D = HEADS * SIZE
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], np.int32)


def floats(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (_RANDOM.standard_normal(shape) * scale).astype(np.float32)


def run(
    emit: Emit, inputs: Sequence[np.ndarray], *, opset: int | None, outputs: int
) -> tuple[list[np.ndarray], set[str]]:
    """Build and run a graph of plain operators at `opset`, or (None) one with onnxruntime's own; → values, domains."""
    imports = {"": fused.OPSET, "com.microsoft": 1} if opset is None else {"": opset}
    graph = ir.Graph([], [], nodes=[], name="one", opset_imports=imports)
    builder = GraphBuilder(graph) if opset is None else StandardBuilder(graph)
    types = {
        np.dtype(np.float32): ir.DataType.FLOAT,
        np.dtype(np.int32): ir.DataType.INT32,
        np.dtype(np.int8): ir.DataType.INT8,
    }
    given = [builder.input(f"x{i}", types[x.dtype], [f"a{i}{k}" for k in range(x.ndim)]) for i, x in enumerate(inputs)]
    for place, value in enumerate(emit(builder.op, given)):
        value.type = ir.TensorType(ir.DataType.FLOAT)
        builder.add_output(value, f"y{place}")
    proto = ir.to_proto(ir.Model(graph, ir_version=10 if opset is None else IR_VERSIONS[opset]))
    if opset is not None:
        onnx.checker.check_model(proto, full_check=True)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {f"x{i}": x for i, x in enumerate(inputs)})
    assert len(found) == outputs
    return found, {node.domain for node in proto.graph.node}


def attention(**options: Any) -> Emit:
    def emit(op: Any, given: list[Any]) -> Sequence[Any]:
        query, key, value, *rest = given
        return [fused.cross_attention(op, query, key, value, heads=HEADS, mask=rest[0], **options)]

    return emit


def cached(**options: Any) -> Emit:
    def emit(op: Any, given: list[Any]) -> Sequence[Any]:
        qkv, key, value, *bias = given
        return fused.cached_attention(
            op, qkv, key, value, heads=HEADS, position_bias=bias[0] if bias else None, **options
        )

    return emit


def self_attention(op: Any, given: list[Any]) -> Sequence[Any]:
    return [fused.self_attention(op, given[0], heads=HEADS, mask=given[1], position_bias=given[2])]


def rms(op: Any, given: list[Any]) -> Sequence[Any]:
    emit = op.builder.opset("com.microsoft", 1).SkipSimplifiedLayerNormalization
    normed, _mean, _inverse, total = emit(*given, epsilon=1e-6, _outputs=4)
    return [normed, total]


def dynamic(op: Any, given: list[Any]) -> Sequence[Any]:
    x, weight, scale, bias = given
    product = op.builder.opset("com.microsoft", 1).DynamicQuantizeMatMul(x, weight, scale, None, bias)
    product.type = ir.TensorType(ir.DataType.FLOAT)
    return [product]


def quantised() -> tuple[np.ndarray, ...]:
    weight = floats(6, D)
    arrays = dynamic_arrays("w", 6, D, lambda: weight)
    return floats(B, T, D), arrays["weight_quantized"].make(), arrays["weight_scales"].make(), floats(6)


KEYS = (floats(B, HEADS, S, SIZE), floats(B, HEADS, S, SIZE))
PAST = (floats(B, HEADS, P, SIZE), floats(B, HEADS, P, SIZE))
NOTHING = (floats(B, HEADS, 0, SIZE), floats(B, HEADS, 0, SIZE))
CASES: dict[str, tuple[Emit, tuple[np.ndarray, ...], int]] = {
    "cross attention with padding": (attention(), (floats(B, T, D), *KEYS, MASK), 1),
    "large scores with padding": (attention(), (floats(B, T, D, scale=90), *KEYS, MASK), 1),
    "a scale of 1": (attention(scale=1.0), (floats(B, T, D), *KEYS, MASK), 1),
    "another scale": (attention(scale=0.3), (floats(B, T, D), *KEYS, MASK), 1),
    "self-attention with padding and a bias": (self_attention, (floats(B, S, 3 * D), MASK, floats(1, HEADS, S, S)), 1),
    "one token behind a past": (cached(), (floats(B, 1, 3 * D), *PAST), 3),
    "several tokens behind a past": (cached(), (floats(B, T, 3 * D), *PAST), 3),
    "several tokens behind nothing": (cached(), (floats(B, T, 3 * D), *NOTHING), 3),
    "a bias of positions": (cached(), (floats(B, T, 3 * D), *PAST, floats(1, HEADS, T, P + T)), 3),
    "root-mean-square norm of a sum": (rms, (floats(B, T, D), floats(B, T, D), floats(D)), 2),
    "dynamic int8": (dynamic, quantised(), 1),
}


@pytest.mark.parametrize("opset", [14, 17, 23])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_in_plain_ones(name: str, opset: int) -> None:
    emit, inputs, outputs = CASES[name]
    wanted, own = run(emit, inputs, opset=None, outputs=outputs)
    found, domains = run(emit, inputs, opset=opset, outputs=outputs)
    assert "com.microsoft" in own
    assert domains == {""}
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_in_plain_operators(name: str) -> None:
    x = np.concatenate([floats(200, scale=3), np.array([0.0, -0.0, 60.0, -60.0], np.float32)])
    wanted, _ = run(lambda op, given: [ACTIVATIONS[name](op, given[0])], [x], opset=None, outputs=1)
    for opset in (14, 23):
        found, domains = run(lambda op, given: [ACTIVATIONS[name](op, given[0])], [x], opset=opset, outputs=1)
        assert domains == {""}
        np.testing.assert_allclose(found[0], wanted[0], rtol=2e-5, atol=2e-6)


def test_an_operator_without_a_plain_form_is_refused_by_name() -> None:
    builder = StandardBuilder(ir.Graph([], [], nodes=[], name="one", opset_imports={"": 18}))
    with pytest.raises(UnsupportedModelError, match="MatMulNBits of onnxruntime has no form in plain ONNX operators"):
        _ = builder.opset("com.microsoft", 1).MatMulNBits


def test_opsets_are_those_of_the_table(tmp_path: Path) -> None:
    assert checked_opset(None) == 18
    assert [checked_opset(opset) for opset in range(14, 24)] == list(range(14, 24))
