"""Emitting operators into nested ONNX graphs: constants, names, and the one error that a graph can raise itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

FLOAT, DOUBLE, INT64, BOOL = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64, ir.DataType.BOOL
_END = np.iinfo(np.int64).max


def value(name: str, dtype: ir.DataType, axes: Sequence[str | int | None] | None = None) -> ir.Value:
    """A named value with its type, and its shape where that is known."""
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=None if axes is None else ir.Shape(list(axes)))


class Emit:
    """Adds operators to one graph. Python numbers and numpy arrays become constants of that graph, each once.

    int is int64 and float is float32; a list stands for a tensor of one axis. Value names are unique over all graphs
    that share `numbers`, because ONNX forbids a name of an outer graph inside.
    """

    def __init__(self, graph: ir.Graph, *, numbers: Iterator[int] | None = None) -> None:
        self.graph = graph
        self._numbers = itertools.count() if numbers is None else numbers
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}

    def inner(self, name: str, inputs: Sequence[ir.Value]) -> Emit:
        """An emitter for a graph inside this one, such as a loop's body."""
        graph = ir.Graph(list(inputs), [], nodes=[], name=name, opset_imports=dict(self.graph.opset_imports))
        return Emit(graph, numbers=self._numbers)

    def __call__(
        self,
        operator: str,
        *inputs: Any,
        outputs: int = 1,
        domain: str = "",
        name: str | None = None,
        **attributes: Any,
    ) -> Any:
        """Add one operator; → its output, or a list of them."""
        number = next(self._numbers)
        node = ir.Node(
            domain,
            operator,
            [self.constant(given) for given in inputs],
            ir.convenience.convert_attributes(attributes),
            num_outputs=outputs,
            name=name or f"{operator}.{number}",
        )
        for place, output in enumerate(node.outputs):
            output.name = f"{operator}.{number}" if outputs == 1 else f"{operator}.{number}.{place}"
        self.graph.append(node)
        return node.outputs[0] if outputs == 1 else list(node.outputs)

    def constant(self, given: Any) -> ir.Value | None:
        """The value of a constant; values and None stay what they are."""
        if given is None or isinstance(given, ir.Value):
            return given
        array = _array(given)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constant.{next(self._numbers)}"
            made = ir.Value(
                name=name,
                type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
                shape=ir.Shape(array.shape),
                const_value=ir.tensor(array, name=name),
            )
            self.graph.register_initializer(made)
            self._constants[key] = made
        return self._constants[key]

    def cast(self, x: Any, dtype: ir.DataType) -> Any:
        """Cast."""
        return self("Cast", x, to=dtype.value)

    def axis_length(self, x: Any, axis: int) -> Any:
        """The length of one axis, int64 [1]."""
        return self("Shape", x, start=axis, end=axis + 1)

    def cut(self, x: Any, axis: int, start: Any, end: Any = _END) -> Any:
        """x from `start` to `end` along an axis; each is a number, or int64 [1]."""
        first, last = ([bound] if isinstance(bound, int) else bound for bound in (start, end))
        return self("Slice", x, first, last, [axis])

    def join(self, *parts: Any, axis: int) -> Any:
        """Concatenate."""
        return self("Concat", *parts, axis=axis)

    def rows(self, x: Any, which: Any) -> Any:
        """x[which]."""
        return self("Gather", x, which, axis=0)

    def all_of(self, x: Any, axis: int) -> Any:
        """Whether all of a boolean axis hold; that axis is left out."""
        return self._reduced("ReduceMin", x, axis)

    def any_of(self, x: Any, axis: int) -> Any:
        """Whether any of a boolean axis holds; that axis is left out."""
        return self._reduced("ReduceMax", x, axis)

    def _reduced(self, operator: str, x: Any, axis: int) -> Any:
        # ONNX has minima of booleans from opset 20 on only; of bytes it always had them.
        small = self.cast(x, ir.DataType.UINT8)
        return self.cast(self(operator, small, [axis], keepdims=0), BOOL)

    def loop(self, body: ir.Graph, *initial: Any) -> list[Any]:
        """A Loop that goes on while the body's first output is true; → the last state."""
        found = self("Loop", None, True, *initial, outputs=len(initial), body=body)
        return [found] if len(initial) == 1 else found

    def require(self, x: Any, holds: Any, *, otherwise: str) -> Any:
        """x [...], where `holds` (a boolean scalar) is true; else running the graph fails in a node named `otherwise`.

        ONNX has no operator that fails on purpose. A Gather from outside its input does, and ONNX Runtime's message
        has the node's name.
        """
        row = self("Where", holds, 0, 1)
        return self("Gather", self("Unsqueeze", x, [0]), row, axis=0, name=otherwise)

    def finish(self, outputs: Sequence[tuple[Any, ir.Value]]) -> ir.Graph:
        """Give the graph its outputs, each with the name, type and shape of a value that describes it."""
        for output, described in outputs:
            # a graph may hand on neither its own inputs nor what lies outside it
            own = output if output.producer() is not None and output.producer().graph is self.graph else None
            made = self("Identity", output) if own is None or own in self.graph.outputs else own
            made.name, made.type, made.shape = described.name, described.type, described.shape
            self.graph.outputs.append(made)
        return self.graph


def _array(given: Any) -> np.ndarray[Any, Any]:
    if isinstance(given, bool):
        return np.array(given, np.bool_)
    if isinstance(given, int):
        return np.array(given, np.int64)
    if isinstance(given, float):
        return np.array(given, np.float32)
    if isinstance(given, list):
        return np.array(given, np.int64)
    return np.ascontiguousarray(given) if given.ndim else np.asarray(given)
