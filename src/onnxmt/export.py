"""Checkpoint → encoder graph, decoder graph and the weights file they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxmt.checkpoint import WeightSpec, check_weights, tied_group
from onnxmt.errors import MissingExtraError, OutputError
from onnxmt.manifest import GraphInfo, TensorInfo
from onnxmt.precision import Recipe

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxmt.checkpoint import Checkpoint
    from onnxmt.models.config import Dimensions
    from onnxmt.models.graphs import Architecture

ENCODER_FILE, DECODER_FILE, WEIGHTS_FILE = "encoder.onnx", "decoder.onnx", "weights.bin"


@dataclass(frozen=True, kw_only=True)
class ExportedGraphs:
    """What `export_graphs` wrote."""

    encoder: GraphInfo
    decoder: GraphInfo
    weights_file: str
    dimensions: Dimensions
    recipe: Recipe
    untied: tuple[str, ...]


def export_graphs(checkpoint: Checkpoint, folder: Path, *, precision: Recipe) -> ExportedGraphs:
    """Write encoder.onnx, decoder.onnx and weights.bin to `folder`.

    Raises UnsupportedModelError, WeightsError (every problem at once) and OutputError.
    """
    _require_export_extra()
    from onnxmt.models import architecture_of
    from onnxmt.models.graphs import decoder_model, encoder_model
    from onnxmt.models.layers import WeightBinding, weighted_modules
    from onnxmt.weights_file import WeightsFile

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
    """Where each tied weight is stored, and which of the names that should be tied hold weights of their own."""

    stored: Mapping[str, str]
    untied: tuple[str, ...]


def resolve_ties(checkpoint: Checkpoint, architecture: Architecture) -> Ties:
    """Decide as transformers 5's `tie_weights` does: equal copies are one weight, others are not tied."""
    stored: dict[str, str] = {}
    untied: list[str] = []
    for source, targets in architecture.ties().items():
        group = tied_group(checkpoint.weights, (source, *targets))
        if group.source is not None:  # else check_weights reports the missing source by its name
            stored.update(dict.fromkeys(group.tied, group.source))
            untied.extend(group.untied)
    return Ties(stored=stored, untied=tuple(untied))


def _check(checkpoint: Checkpoint, architecture: Architecture, trees: Sequence[Any], ties: Ties) -> None:
    from onnxmt.models.layers import weighted_modules

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
        allowed_extra=(*ties.stored, *architecture.ignored_weights()),
    )


def _save(model: ir.Model, path: Path) -> GraphInfo:
    import onnx_ir as ir

    ir.save(model, path)
    graph = model.graph
    return GraphInfo(
        file=path.name,
        opset=graph.opset_imports[""],
        ir_version=model.ir_version,
        inputs=tuple(_tensor(value) for value in graph.inputs),
        outputs=tuple(_tensor(value) for value in graph.outputs),
        operators=dict(
            sorted(Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in graph).items())
        ),
    )


def _tensor(value: ir.Value) -> TensorInfo:
    assert value.name is not None
    assert value.shape is not None
    assert value.dtype is not None
    axes = tuple(axis if isinstance(axis, int) else str(axis.value) for axis in value.shape)
    return TensorInfo(name=value.name, dtype=str(value.dtype).lower(), axes=axes)


def _require_export_extra() -> None:
    try:
        import onnx_ir  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            needed_for="building graphs", extra="export", module=error.name or "onnxscript"
        ) from error
