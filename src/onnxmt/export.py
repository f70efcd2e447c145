"""Checkpoint → encoder graph, decoder graph and the weights file they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checkpoint import WeightSpec, check_weights
from .errors import MissingExtraError, OutputError
from .precision import Recipe

if TYPE_CHECKING:
    import onnx_ir as ir

    from .checkpoint import Checkpoint
    from .models.config import Dimensions
    from .models.graphs import Architecture

ENCODER_FILE, DECODER_FILE, WEIGHTS_FILE = "encoder.onnx", "decoder.onnx", "weights.bin"


@dataclass(frozen=True, kw_only=True)
class GraphTensor:
    """One input or output of a graph; an axis is a number or a symbol."""

    name: str
    dtype: str
    axes: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class ExportedGraph:
    """What was written for one graph."""

    file: str
    opset: int
    ir_version: int
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    operators: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ExportedGraphs:
    """What `export_graphs` wrote."""

    encoder: ExportedGraph
    decoder: ExportedGraph
    weights_file: str
    dimensions: Dimensions
    recipe: Recipe
    untied: tuple[str, ...]


def export_graphs(checkpoint: Checkpoint, folder: Path, *, precision: Recipe) -> ExportedGraphs:
    """Write encoder.onnx, decoder.onnx and weights.bin to `folder`.

    Raises UnsupportedModelError, WeightsError (every problem at once) and OutputError.
    """
    _require_export_extra()
    from .models import architecture_of
    from .models.graphs import decoder_model, encoder_model
    from .models.layers import WeightBinding, weighted_modules
    from .weights_file import WeightsFile

    architecture = architecture_of(checkpoint.config)
    ties = resolve_ties(checkpoint, architecture)
    trees = (architecture.encoder_graph(), architecture.decoder_graph())
    _check(checkpoint, architecture, trees, ties)
    binding = WeightBinding(
        read=checkpoint.weights.read, present=checkpoint.weights.names(), recipe=precision, ties=ties.stored
    )
    for tree in trees:
        for path, module in weighted_modules(tree):
            module.attach(path, binding)
    models = (
        encoder_model(trees[0], architecture.dimensions),
        decoder_model(trees[1], architecture.dimensions),
    )
    try:
        with WeightsFile(folder / WEIGHTS_FILE) as file:
            for model in models:
                file.externalise(model)
        encoder, decoder = (
            _save(model, folder / name) for model, name in zip(models, (ENCODER_FILE, DECODER_FILE), strict=True)
        )
    except OSError as error:
        raise OutputError(f"cannot write the graphs to {folder}: {error.strerror or error}") from error
    return ExportedGraphs(
        encoder=encoder,
        decoder=decoder,
        weights_file=WEIGHTS_FILE,
        dimensions=architecture.dimensions,
        recipe=precision,
        untied=ties.untied,
    )


@dataclass(frozen=True, kw_only=True)
class Ties:
    """Where each tied weight is stored, which names are redundant copies, and which differ and are kept apart."""

    stored: Mapping[str, str]
    redundant: tuple[str, ...]
    untied: tuple[str, ...]


def resolve_ties(checkpoint: Checkpoint, architecture: Architecture) -> Ties:
    """Decide as transformers 5's `tie_weights` does: equal copies are one weight, others are not tied.

    A source that is absent is replaced by the first target that is present.
    """
    weights = checkpoint.weights
    present = weights.names()
    stored: dict[str, str] = {}
    redundant: list[str] = []
    untied: list[str] = []
    for source, targets in architecture.ties().items():
        names = [name for name in (source, *targets) if name in present]
        if not names:
            continue  # check_weights reports the missing source by its name
        home = names[0]
        stored[source] = home
        for target in targets:
            if target not in present:
                stored[target] = home
            elif target == home or weights.equal(home, target):
                stored[target] = home
                redundant.append(target)
            else:
                untied.append(target)
    return Ties(stored=stored, redundant=tuple(redundant), untied=tuple(untied))


def _check(checkpoint: Checkpoint, architecture: Architecture, trees: Sequence[Any], ties: Ties) -> None:
    from .models.layers import weighted_modules

    present = checkpoint.weights.names()
    required: dict[str, WeightSpec] = {}
    for tree in trees:
        for path, module in weighted_modules(tree):
            for wanted in module.wanted(path):
                name = ties.stored.get(wanted.name, wanted.name)
                if name in present or not wanted.optional:
                    required[name] = WeightSpec(name=name, shape=wanted.shape)
    check_weights(
        checkpoint.weights,
        list(required.values()),
        allowed_extra=(*ties.redundant, *ties.stored, *architecture.ignored_weights()),
    )


def _save(model: ir.Model, path: Path) -> ExportedGraph:
    import onnx_ir as ir

    ir.save(model, path)
    graph = model.graph
    return ExportedGraph(
        file=path.name,
        opset=graph.opset_imports[""],
        ir_version=model.ir_version,
        inputs=tuple(_tensor(value) for value in graph.inputs),
        outputs=tuple(_tensor(value) for value in graph.outputs),
        operators=dict(
            sorted(Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in graph).items())
        ),
    )


def _tensor(value: ir.Value) -> GraphTensor:
    assert value.name is not None
    assert value.shape is not None
    assert value.dtype is not None
    axes = tuple(axis if isinstance(axis, int) else str(axis.value) for axis in value.shape)
    return GraphTensor(name=value.name, dtype=str(value.dtype).lower(), axes=axes)


def _require_export_extra() -> None:
    try:
        import onnx_ir  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            needed_for="building graphs", extra="export", module=error.name or "onnxscript"
        ) from error
