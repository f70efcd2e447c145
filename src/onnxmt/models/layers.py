"""The building blocks of the graphs, as onnxscript.nn modules whose weights load by their Hugging Face names.

A module is built without data. `wanted` says which weights it wants, `attach` gives it stored arrays in the
precision that the recipe asks for, and calling it emits operators. Build a fresh tree for each graph: onnxscript 0.7
emits a module into one graph only, a second graph silently gets no initializers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
from onnxscript import nn

from onnxmt.precision import ActivationRange, Array, Recipe, StoredArray, TableForm, matrix_form, table_form


class ReadWeight(Protocol):
    """Read one checkpoint weight in float32 by its name."""

    def __call__(self, name: str) -> Array:
        """Return the weight."""
        ...


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A weight that a module reads from the checkpoint; `optional` ones have a defined value when absent."""

    name: str
    shape: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class TableRows:
    """In which rows a trimmed model's token tables are stored: those of `kept` (ids, ascending), then all others.

    They are two arrays of the weights file. A decoder and its head use the first alone, an encoder (`whole`) both.
    """

    kept: Array
    vocabulary: int
    whole: bool

    @property
    def others(self) -> Array:
        """The ids that are not kept, ascending."""
        return np.setdiff1d(np.arange(self.vocabulary), self.kept)

    def places(self) -> StoredArray:
        """Return the row of each id, int32 [vocabulary]; an id that is not kept has a row beyond those of the head."""

        def make() -> Array:
            rows = np.empty(self.vocabulary, np.int32)
            rows[np.concatenate([self.kept, self.others])] = np.arange(self.vocabulary, dtype=np.int32)
            return rows

        return StoredArray(key="rows of tokens", shape=(self.vocabulary,), dtype=np.dtype(np.int32), make=make)

    def own_rows(self) -> StoredArray:
        """Return the rows that a decoder has, int32 [kept]: a look-up in it refuses all others."""
        count = len(self.kept)
        return StoredArray(
            key="rows of the head",
            shape=(count,),
            dtype=np.dtype(np.int32),
            make=lambda: np.arange(count, dtype=np.int32),
        )


@dataclass(frozen=True, kw_only=True)
class WeightBinding:
    """What `attach` needs: the reader, the names present, the recipe, and where each tied weight is really stored.

    `ranges` holds the measured range of a layer's input by the layer's path, for recipes with int8-static. `rows` says
    how token tables are stored where the head is trimmed.
    """

    read: ReadWeight
    present: frozenset[str]
    recipe: Recipe
    ties: Mapping[str, str]
    ranges: Mapping[str, ActivationRange] = field(default_factory=dict)
    rows: TableRows | None = None

    def stored_name(self, name: str) -> str:
        """Return the checkpoint's name for the weight that transformers would use as `name`."""
        return self.ties.get(name, name)


_FLOAT32 = np.dtype(np.float32)


class StoredTensor(ir.LazyTensor):  # type: ignore[misc]  # onnx_ir is untyped here
    """A lazy tensor that knows the key of its content, so that the weights file can store it once."""

    def __init__(self, array: StoredArray, name: str) -> None:
        super().__init__(
            lambda: ir.tensor(array.make(), name=name),
            dtype=ir.DataType.from_numpy(array.dtype),
            shape=ir.Shape(array.shape),
            name=name,
        )
        self.array = array


def parameter(array: StoredArray, name: str) -> nn.Parameter:
    """Return a parameter whose values are made when the weights file is written."""
    return nn.Parameter(
        list(array.shape), dtype=ir.DataType.from_numpy(array.dtype), name=name, data=StoredTensor(array, name)
    )


StoredFp32 = Mapping[str, Callable[[], Array]]
"""The float32 initializers of an fp32 graph by name, read when they are called."""


class Weighted(nn.Module):  # type: ignore[misc]
    """A module that holds weights of its own."""

    def wanted(self, path: str) -> Iterator[Wanted]:
        """Yield the checkpoint weights wanted, given this module's own `path` in the checkpoint."""
        raise NotImplementedError

    def attach(self, path: str, binding: WeightBinding) -> None:
        """Create the parameters, in the precision the recipe asks for."""
        raise NotImplementedError

    def recovered(self, path: str, stored: StoredFp32) -> Iterator[tuple[str, Callable[[], Array]]]:
        """Yield the checkpoint weights that an fp32 graph of this module holds: the inverse of `attach`.

        `stored` are the graph's initializers by name. Weights that are stored as they are need no inverse of their own.
        """
        for wanted in self.wanted(path):
            if wanted.name in stored:
                yield wanted.name, lambda wanted=wanted: stored[wanted.name]().reshape(wanted.shape)  # type: ignore[misc]


class Quantizable(Weighted):
    """A module whose weight a recipe stores in the precision of its component."""

    component: str

    def members(self, path: str) -> list[str]:
        """Return the checkpoint layers whose weights are stacked in this module's."""
        return [path]

    def precision(self, path: str, recipe: Recipe) -> str:
        """Return the precision that the recipe gives this module."""
        return recipe.precision_of(self.component, path, members=self.members(path))


def weighted_modules(root: nn.Module) -> Iterator[tuple[str, Weighted]]:
    """Yield every module with weights below `root`, with its path in the checkpoint."""
    for path, module in root.named_modules(root.name or ""):
        if isinstance(module, Weighted):
            yield path, module


def quantizable_modules(root: nn.Module) -> Iterator[tuple[str, Quantizable]]:
    """Yield every module that a recipe gives a precision, with its path."""
    for path, module in weighted_modules(root):
        if isinstance(module, Quantizable):
            yield path, module


def _as_stored(full: str, shape: tuple[int, ...], read: ReadWeight) -> StoredArray:
    return StoredArray(key=f"{full}|fp32", shape=shape, dtype=_FLOAT32, make=lambda: read(full).reshape(shape))


class Norm(Weighted):
    """The weights of a norm over the last axis; the dialect emits the operator, and fuses the residual sum into it."""

    parts: tuple[str, ...]

    def __init__(self, size: int, *, epsilon: float) -> None:
        super().__init__()
        self._size, self.epsilon = size, epsilon

    def wanted(self, path: str) -> Iterator[Wanted]:
        """Yield each part, [size]."""
        for name in self.parts:
            yield Wanted(name=f"{path}.{name}", shape=(self._size,))

    def attach(self, path: str, binding: WeightBinding) -> None:
        """Create the parameters."""
        for name in self.parts:
            setattr(self, name, parameter(_as_stored(f"{path}.{name}", (self._size,), binding.read), name))

    def forward(self, op: Any, emit: Callable[..., Any]) -> Any:
        """Realise the parts in the graph and let `emit(op, *parts)` use them."""
        return emit(op, *(getattr(self, name) for name in self.parts))


class LayerNorm(Norm):
    """Scale and shift of a layer norm."""

    parts = ("weight", "bias")


class RmsNorm(Norm):
    """Scale of a root-mean-square norm: no mean is subtracted and nothing is added (Zhang and Sennrich, 2019)."""

    parts = ("weight",)


class Linear(Quantizable):
    """y = x W^T + b, for one checkpoint layer or several stacked along their outputs (query, key and value in one)."""

    def __init__(
        self, *, inputs: int, outputs: int, component: str, sources: Sequence[str] = (), bias: bool = True
    ) -> None:
        """`sources` are sibling layers of equal size, such as q_proj, k_proj and v_proj; none: this layer itself."""
        super().__init__()
        self._inputs, self._outputs = inputs, outputs
        self.component, self._sources, self._has_bias = component, tuple(sources), bias
        self._stored: dict[str, Any] = {}
        self.bias = None

    def members(self, path: str) -> list[str]:
        """Return the stacked layers, or this one."""
        parent = path.rpartition(".")[0]
        return [f"{parent}.{source}" for source in self._sources] or [path]

    def wanted(self, path: str) -> Iterator[Wanted]:
        """Yield weight [out, in] and bias [out] of each source layer."""
        layers = self.members(path)
        for layer in layers:
            yield Wanted(name=f"{layer}.weight", shape=(self._outputs // len(layers), self._inputs))
            if self._has_bias:
                yield Wanted(name=f"{layer}.bias", shape=(self._outputs // len(layers),))

    def attach(self, path: str, binding: WeightBinding) -> None:
        """Store the stacked weight in the recipe's precision, and the stacked bias in fp32."""
        layers, read = self.members(path), binding.read
        precision, measured = self.precision(path, binding.recipe), binding.ranges.get(path)
        self._form = matrix_form(precision, rows=self._outputs, columns=self._inputs, measured=measured)

        def stacked(kind: str) -> Array:
            parts = [read(f"{layer}.{kind}") for layer in layers]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)

        key = "+".join(layers)
        arrays = self._form.arrays(f"{key}.weight", lambda: stacked("weight"))
        for name, array in arrays.items():
            self._stored[name] = parameter(array, name)
            setattr(self, name, self._stored[name])
        if self._has_bias:
            self.bias = parameter(
                StoredArray(
                    key=f"{key}.bias|fp32",
                    shape=(self._outputs,),
                    dtype=_FLOAT32,
                    make=lambda: stacked("bias"),
                ),
                "bias",
            )

    def recovered(self, path: str, stored: StoredFp32) -> Iterator[tuple[str, Callable[[], Array]]]:
        """Yield each stacked layer's rows of the transposed weight, and its part of the bias."""
        layers = self.members(path)
        rows = self._outputs // len(layers)
        for number, layer in enumerate(layers):
            part = slice(number * rows, (number + 1) * rows)
            yield f"{layer}.weight", lambda part=part: stored[f"{path}.weight"]()[:, part].T  # type: ignore[misc]
            if self._has_bias:
                yield f"{layer}.bias", lambda part=part: stored[f"{path}.bias"]()[part]  # type: ignore[misc]

    def forward(self, op: Any, x: Any) -> Any:
        """Emit the product and the bias."""
        return self._form.multiply(op, x, self._stored, self.bias)


class TokenTable(Quantizable):
    """A table with a row for each token, stored once for the embedding and, when tied, the output projection."""

    def __init__(self, *, rows: int, width: int, component: str, use: str) -> None:
        super().__init__()
        self._rows, self._width, self.component, self.use = rows, width, component, use
        self._stored: dict[str, Any] = {}
        self._others: dict[str, Any] = {}
        self._trimmed: TableRows | None = None

    def wanted(self, path: str) -> Iterator[Wanted]:
        """Yield the table [rows, width]."""
        yield Wanted(name=f"{path}.weight", shape=(self._rows, self._width))

    def attach(self, path: str, binding: WeightBinding) -> None:
        """Store the table in the recipe's precision, under the name of the weight that it is tied to."""
        self._trimmed = rows = binding.rows
        if rows is None:
            self._form = self._attach_part(path, binding, self._stored, None)
            return
        self._form = self._attach_part(path, binding, self._stored, rows.kept)
        if self.use == "gather":
            self.places = parameter(rows.places(), "places")
            if not rows.whole:
                self.own_rows = parameter(rows.own_rows(), "own_rows")
        if rows.whole:
            self._others_form = self._attach_part(path, binding, self._others, rows.others, label="others")

    def _attach_part(
        self, path: str, binding: WeightBinding, stored: dict[str, Any], ids: Array | None, *, label: str = ""
    ) -> TableForm:
        """Store the rows `ids` of the table (None: all of them)."""
        full = binding.stored_name(f"{path}.weight")
        precision, measured = self.precision(path, binding.recipe), binding.ranges.get(path)
        count = self._rows if ids is None else len(ids)
        form = table_form(precision, rows=count, columns=self._width, measured=measured)
        key = full if ids is None else f"{full}[{label or 'kept'}]"
        read = (lambda: binding.read(full)) if ids is None else (lambda: binding.read(full)[ids])
        for name, array in form.arrays(key, read, use=self.use).items():
            own = f"{label}_{name}" if label else name
            stored[name] = parameter(array, own)
            setattr(self, own, stored[name])
        return form


class Embedding(TokenTable):
    """Row lookup, scaled."""

    def __init__(self, *, rows: int, width: int, scale: float = 1.0) -> None:
        super().__init__(rows=rows, width=width, component="embedding", use="gather")
        self._scale = scale

    def forward(self, op: Any, ids: Any) -> Any:
        """Emit E[ids] · scale, [B, T, width]."""
        rows = self._looked_up(op, ids)
        return rows if self._scale == 1.0 else op.Mul(rows, self._scale)

    def _looked_up(self, op: Any, ids: Any) -> Any:
        """Emit E[ids]. In a trimmed decoder an id that is not kept has no row, which the look-up refuses."""
        if self._trimmed is None:
            return self._form.gather(op, ids, self._stored)
        places = op.Gather(self.places, ids)
        if not self._trimmed.whole:
            # GatherBlockQuantized reads beyond its table for such a row, Gather does not.
            return self._form.gather(op, op.Gather(self.own_rows, places), self._stored)
        kept, last = (_int32(op, number) for number in (len(self._trimmed.kept), len(self._trimmed.kept) - 1))
        first = self._form.gather(op, op.Min(places, last), self._stored)
        second = self._others_form.gather(op, op.Max(op.Sub(places, kept), _int32(op, 0)), self._others)
        return op.Where(op.Unsqueeze(op.Less(places, kept), [-1]), first, second)


def _int32(op: Any, number: int) -> Any:
    return op.Constant(value=ir.tensor(np.array(number, np.int32)))


class LogitsBias(Weighted):
    """`final_logits_bias`, [1, vocabulary] in the checkpoint; transformers takes zeros when it is absent."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def wanted(self, path: str) -> Iterator[Wanted]:
        """Yield the bias; `path` is its whole name."""
        yield Wanted(name=path, shape=(1, self._size), optional=True)

    def attach(self, path: str, binding: WeightBinding) -> None:
        """Create the parameter when the checkpoint has it."""
        self.value = None
        if path in binding.present:
            array = _as_stored(path, (self._size,), binding.read)
            if binding.rows is not None:
                kept, whole = binding.rows.kept, array.make
                array = StoredArray(
                    key=f"{path}[kept]|fp32", shape=(len(kept),), dtype=_FLOAT32, make=lambda: whole()[kept]
                )
            self.value = parameter(array, "value")

    def recovered(self, path: str, stored: StoredFp32) -> Iterator[tuple[str, Callable[[], Array]]]:
        """Yield the bias where the graph has one."""
        if f"{path}.value" in stored:
            yield path, lambda: stored[f"{path}.value"]()[None]

    def forward(self, _op: Any) -> Any | None:
        """Return the bias [vocabulary], or None."""
        return self.value


class Head(TokenTable):
    """The output projection to the vocabulary."""

    def __init__(self, *, rows: int, width: int) -> None:
        super().__init__(rows=rows, width=width, component="lm_head", use="project")

    def forward(self, op: Any, x: Any, bias: Any | None) -> Any:
        """Emit x E^T + bias for x [B, width] → logits [B, rows]."""
        return self._form.project(op, x, self._stored, bias)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self._width

    def candidates(self) -> CandidateRows:
        """Return the same table, without data, as one that rows are gathered from."""
        return CandidateRows(rows=self._rows, width=self._width)


class CandidateRows(TokenTable):
    """Rows of the output projection in float32, for a decoder that is fed its head."""

    def __init__(self, *, rows: int, width: int) -> None:
        super().__init__(rows=rows, width=width, component="lm_head", use="gather")

    def forward(self, op: Any, ids: Any) -> Any:
        """Emit E[ids], [K, width]."""
        return self._form.gather(op, ids, self._stored)


class PositionTable(Weighted):
    """Position embeddings [positions, width]: from the checkpoint when it holds them, else computed."""

    def __init__(self, *, rows: int, width: int, compute: Callable[[], Array] | None, stored: bool) -> None:
        """`compute` gives the table when the checkpoint has none; `stored`: a table in the checkpoint is used."""
        super().__init__()
        self._rows, self._width, self._compute, self._read_stored = rows, width, compute, stored

    def wanted(self, path: str) -> Iterator[Wanted]:
        """Yield the table, and say that a computed one may be absent."""
        if self._read_stored:
            yield Wanted(name=f"{path}.weight", shape=(self._rows, self._width), optional=self._compute is not None)

    def attach(self, path: str, binding: WeightBinding) -> None:
        """Store the checkpoint's table, or the computed one under a key that both stacks share."""
        full = f"{path}.weight"
        compute = self._compute
        if compute is not None and not (self._read_stored and full in binding.present):
            array = StoredArray(
                key=f"sinusoidal|{self._rows}x{self._width}",
                shape=(self._rows, self._width),
                dtype=_FLOAT32,
                make=compute,
            )
        else:
            array = _as_stored(full, (self._rows, self._width), binding.read)
        self.weight = parameter(array, "weight")

    def forward(self, op: Any, rows: Any) -> Any:
        """Emit the given rows: int64 [T] or [B, T] → [T, width] or [B, T, width]."""
        return op.Gather(self.weight, rows)
