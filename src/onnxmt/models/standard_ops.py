"""The standard dialect: what the modules ask of ONNX Runtime's own operators, in plain ONNX operators of a given opset.

The modules are written once, for the fused dialect (`fused.py`). Here the builder that they emit into answers with
plain operators instead: whatever com.microsoft operator a module asks for is a method below, and what the opset has not
yet is taken apart. An operator without a method is an error, so nothing that is not plain can get into a graph.
"""

# ruff: noqa: N802  (the methods are named as the operators that they stand for)
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript import GraphBuilder, OpBuilder

from onnxmt.errors import UnsupportedModelError

from .fused import MASKED

_MICROSOFT = "com.microsoft"


class StandardBuilder(GraphBuilder):  # type: ignore[misc]  # onnxscript is untyped
    """A graph builder whose operators are all of the default domain at the graph's opset."""

    def __init__(self, graph: ir.Graph, *, parent: StandardBuilder | None = None) -> None:
        super().__init__(graph, parent=parent)
        if parent is not None:
            # A weight is named by the scopes of the outermost builder, so an inner one has to use the same scopes.
            self._scope_stack: list[Any] = parent._scope_stack
        self._shared: dict[tuple[str, ...], Any] = {}

    def opset(self, domain: str, version: int = 1) -> OpBuilder:
        """The operators of a domain; those of com.microsoft are plain ones put together."""
        return PlainMicrosoft(self) if domain == _MICROSOFT else PlainOps(self, domain, version)

    def shared(self, key: tuple[str, ...], make: Callable[[], Any]) -> Any:
        """What several layers need, such as a mask: made where it is first asked for."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def branch(self, name: str, trace: Callable[[Any], Sequence[Any]]) -> ir.Graph:
        """A graph without inputs for an If: what `trace` emits into it and returns."""
        graph = ir.Graph([], [], nodes=[], name=name, opset_imports=dict(self.graph.opset_imports))
        inner = StandardBuilder(graph, parent=self)
        inner.push_module(name)
        try:
            graph.outputs.extend(trace(inner.op))
        finally:
            inner.pop_module()
        return graph


class PlainOps(OpBuilder):  # type: ignore[misc]
    """The default domain, with what an older opset lacks taken apart."""

    @property
    def _opset(self) -> int:
        version: int = self.builder.graph.opset_imports[""]
        return version

    def _emit(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        return self._call_op(operator, inputs, attributes)

    def Shape(self, x: Any, *, start: int = 0, end: int | None = None) -> Any:
        """Axes `start` to `end`; None for `x` stands for a past with nothing in it, whose axes are 0 long."""
        if x is None:
            assert end is not None
            return self.Constant(value=ir.tensor(np.zeros(end - start, np.int64)))
        if self._opset >= 15:
            return self._emit("Shape", x, start=start, **({} if end is None else {"end": end}))
        whole = self._emit("Shape", x)
        return whole if start == 0 and end is None else self.Slice(whole, [start], [2**31 if end is None else end], [0])

    def Split(self, x: Any, *, axis: int, num_outputs: int, _outputs: int) -> Any:
        """Equal parts; before opset 18 that is what Split does when it is told nothing."""
        told = {"num_outputs": num_outputs} if self._opset >= 18 else {}
        return self._emit("Split", x, axis=axis, _outputs=_outputs, **told)

    def ReduceMean(self, x: Any) -> Any:
        """The mean over the last axis, which is kept. Axes are an attribute before opset 18."""
        if self._opset >= 18:
            return self._emit("ReduceMean", x, [-1], keepdims=1)
        return self._emit("ReduceMean", x, axes=[-1], keepdims=1)

    def LayerNormalization(self, x: Any, scale: Any, bias: Any, *, axis: int, epsilon: float) -> Any:
        """Mean and variance over the last axis (before opset 17 in steps that ONNX Runtime puts together again)."""
        assert axis == -1
        if self._opset >= 17:
            return self._emit("LayerNormalization", x, scale, bias, axis=axis, epsilon=epsilon)
        centred = self.Sub(x, self.ReduceMean(x))
        variance = self.ReduceMean(self.Pow(centred, 2.0))
        normed = self.Div(centred, self.Sqrt(self.Add(variance, epsilon)))
        return self.Add(self.Mul(normed, scale), bias)

    def SimplifiedLayerNormalization(self, x: Any, scale: Any, *, axis: int, epsilon: float) -> Any:
        """The root-mean-square norm; RMSNormalization is an operator from opset 23 on only, so it is never used."""
        assert axis == -1
        mean = self.ReduceMean(self.Pow(x, 2.0))
        return self.Mul(self.Div(x, self.Sqrt(self.Add(mean, epsilon))), scale)


class PlainMicrosoft:
    """The com.microsoft operators that the modules use, with their inputs and attributes, in plain ones."""

    def __init__(self, builder: StandardBuilder) -> None:
        self._builder, self._op = builder, builder.op

    def __getattr__(self, operator: str) -> Any:
        raise UnsupportedModelError(
            f"the operator {operator} of onnxruntime has no form in plain ONNX operators here: export a bundle instead"
        )

    def Gelu(self, x: Any, *, _outputs: int = 1) -> Any:
        """x · ½(1 + erf(x/√2))."""
        op = self._op
        return op.Mul(op.Mul(x, op.Add(op.Erf(op.Div(x, math.sqrt(2.0))), 1.0)), 0.5)

    def FastGelu(self, x: Any, *, _outputs: int = 1) -> Any:
        """0.5x(1 + tanh(√(2/π)(x + 0.044715x³))), as transformers' NewGELUActivation."""
        op = self._op
        inner = op.Mul(op.Add(x, op.Mul(op.Pow(x, 3.0), 0.044715)), math.sqrt(2.0 / math.pi))
        return op.Mul(op.Mul(x, 0.5), op.Add(op.Tanh(inner), 1.0))

    def QuickGelu(self, x: Any, *, alpha: float, _outputs: int = 1) -> Any:
        """x · sigmoid(alpha·x)."""
        op = self._op
        return op.Mul(x, op.Sigmoid(x if alpha == 1.0 else op.Mul(x, alpha)))

    def SkipSimplifiedLayerNormalization(
        self, x: Any, residual: Any, scale: Any, *, epsilon: float, _outputs: int
    ) -> Any:
        """The root-mean-square norm of x + residual; → it, or it, two that nobody uses, and the sum."""
        total = self._op.Add(x, residual)
        normed = self._op.SimplifiedLayerNormalization(total, scale, axis=-1, epsilon=epsilon)
        return normed if _outputs == 1 else (normed, ir.Value(), ir.Value(), total)

    def DynamicQuantizeMatMul(
        self, x: Any, weight: Any, scale: Any, zero: Any = None, bias: Any = None, *, _outputs: int = 1
    ) -> Any:
        """x in 8 bits with one scale for all of it, times `weight` int8 [in, out] with a `scale` for each output."""
        assert zero is None
        op = self._op
        values, step, middle = op.DynamicQuantizeLinear(x, _outputs=3)
        product = op.Cast(op.MatMulInteger(values, weight, middle), to=ir.DataType.FLOAT)
        result = op.Mul(product, op.Mul(step, scale))
        return result if bias is None else op.Add(result, bias)

    def MultiHeadAttention(
        self,
        query: Any,
        key: Any,
        value: Any,
        bias: Any = None,
        mask: Any = None,
        position_bias: Any = None,
        past_key: Any = None,
        past_value: Any = None,
        *,
        num_heads: int,
        mask_filter_value: float,
        scale: float | None = None,
        unidirectional: int = 0,
        _outputs: int = 1,
    ) -> Any:
        """Attention of `query` [B, T, d]: keys and values [B, L, d], or [B, heads, L, head size] where they are ready.

        `mask` int32 [B, L], `position_bias` [1, heads, T, P + L]. → [B, T, d]; with three outputs also present key and
        value [B, heads, P + L, head size].
        """
        assert bias is None
        assert mask_filter_value == MASKED
        op = self._op
        queries, keys, values = (self._heads(x, num_heads) for x in (query, key, value))
        if past_key is not None:
            keys, values = op.Concat(past_key, keys, axis=2), op.Concat(past_value, values, axis=2)
        scores = op.MatMul(self._scaled(queries, scale), op.Transpose(keys, perm=[0, 1, 3, 2]))
        if position_bias is not None:
            scores = op.Add(scores, position_bias)
        if mask is not None:
            scores = op.Add(scores, self._padding(mask))
        if unidirectional:
            scores = op.Add(scores, self._causal(query, past_key))
        attended = op.MatMul(op.Softmax(scores, axis=-1), values)
        output = op.Reshape(op.Transpose(attended, perm=[0, 2, 1, 3]), [0, 0, -1])
        return output if _outputs == 1 else (output, keys, values)

    def _heads(self, x: Any, heads: int) -> Any:
        """[B, L, heads · size] → [B, heads, L, size]; what has four axes is so already."""
        if x.shape is not None and len(x.shape) == 4:
            return x
        return self._op.Transpose(self._op.Reshape(x, [0, 0, heads, -1]), perm=[0, 2, 1, 3])

    def _scaled(self, queries: Any, scale: float | None) -> Any:
        """Queries times the scale of the scores; None stands for 1/√(head size), which their own shape says."""
        op = self._op
        if scale is None:
            size = op.Cast(op.Shape(queries, start=3, end=4), to=ir.DataType.FLOAT)
            return op.Div(queries, op.Sqrt(size))
        return queries if scale == 1.0 else op.Mul(queries, scale)

    def _padding(self, mask: Any) -> Any:
        """0 for a token and MASKED for padding, [B, 1, 1, L]."""
        op = self._op

        def make() -> Any:
            absent = op.Sub(1.0, op.Cast(mask, to=ir.DataType.FLOAT))
            return op.Mul(op.Unsqueeze(absent, [1, 2]), MASKED)

        return self._builder.shared(("padding", str(mask.name)), make)

    def _causal(self, query: Any, past_key: Any | None) -> Any:
        """0 where a position may look and MASKED where it would look ahead, [T, P + T]."""
        op = self._op

        def make() -> Any:
            length = op.Squeeze(op.Shape(query, start=1, end=2), [0])
            cached = op.Squeeze(op.Shape(past_key, start=2, end=3), [0])
            places = op.Add(op.Range(0, length, 1), cached)
            ahead = op.Greater(op.Range(0, op.Add(length, cached), 1), op.Unsqueeze(places, [1]))
            return op.Mul(op.Cast(ahead, to=ir.DataType.FLOAT), MASKED)

        return self._builder.shared(("causal",), make)
