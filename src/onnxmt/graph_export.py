"""Checkpoint → encoder graph, decoder graph and the weights file they share."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxmt.checkpoint import WeightSpec, check_weights, tied_group
from onnxmt.errors import MissingExtraError, OutputError, UsageError
from onnxmt.manifest import GraphInfo, Graphs, Precision, ShortlistInfo, TensorInfo
from onnxmt.precision import ActivationRange, Calibration, Recipe

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxmt.checkpoint import Checkpoint
    from onnxmt.head_trimming import HeadTrimming
    from onnxmt.models.config import Dimensions
    from onnxmt.models.graphs import Architecture

ENCODER_FILE, DECODER_FILE, WEIGHTS_FILE = "encoder.onnx", "decoder.onnx", "weights.bin"
HEAD_FILE = "head.onnx"


@dataclass(frozen=True, kw_only=True)
class ExportedGraphs:
    """What `export_graphs` wrote."""

    encoder: GraphInfo
    decoder: GraphInfo
    weights_file: str
    dimensions: Dimensions
    recipe: Recipe
    untied: tuple[str, ...]
    calibration: Mapping[str, Any] | None = None
    trimming: HeadTrimming | None = None
    head: GraphInfo | None = None
    shortlist: ShortlistInfo | None = None

    @property
    def graphs(self) -> Graphs:
        """What the manifest says of the graphs."""
        return Graphs(encoder=self.encoder, decoder=self.decoder, weights=(self.weights_file,), head=self.head)

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the graphs and of their weights."""
        return (*(graph.file for graph in self.graphs.all), self.weights_file)

    @property
    def precision(self) -> Precision:
        """What the manifest says of the recipe."""
        return Precision(
            encoder=self.recipe.encoder,
            decoder=self.recipe.decoder,
            cross_kv=self.recipe.cross_kv,
            lm_head=self.recipe.lm_head,
            embedding=self.recipe.embedding,
            keep_fp32=self.recipe.keep_fp32,
            calibration=self.calibration,
            trimmed_head=None if self.trimming is None else self.trimming.for_manifest(),
            shortlist=self.shortlist,
        )


def export_graphs(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    precision: Recipe,
    calibration: Calibration | None = None,
    trimming: HeadTrimming | None = None,
) -> ExportedGraphs:
    """Write encoder.onnx, decoder.onnx and weights.bin to `folder`.

    `calibration` holds the ranges that `measure.calibrate` measured, for recipes with int8-static, and `trimming` the
    tokens that a trimmed head keeps, for recipes with one. With a shortlist there is head.onnx as well; the table of
    candidates is the caller's to write (`shortlisting`). Raises UnsupportedModelError, WeightsError (every problem at
    once), UsageError for a recipe that does not fit the model, and OutputError.
    """
    _require_export_extra()
    if precision.trim_head != (trimming is not None):
        raise ValueError("a recipe with a trimmed head needs the tokens to keep, and no other recipe takes them")
    from onnxmt.models import architecture_of
    from onnxmt.models.graphs import FedHead, decoder_model, encoder_model, head_model
    from onnxmt.models.layers import StoredTensor, TableRows, WeightBinding, weighted_modules
    from onnxmt.precision.half import to_half
    from onnxmt.weights_file import WeightsFile

    architecture = architecture_of(checkpoint.config)
    ties = resolve_ties(checkpoint, architecture)
    trees = [architecture.encoder_graph(), architecture.decoder_graph()]
    _check(checkpoint, architecture, trees, ties)
    ranges = calibration.ranges if calibration is not None and precision.calibrated else {}
    _check_recipe(precision, trees, ranges)
    binding = WeightBinding(
        read=checkpoint.weights.read,
        present=checkpoint.weights.names(),
        recipe=precision,
        ties=ties.stored,
        ranges=ranges,
    )
    sizes = architecture.dimensions
    if precision.shortlist:
        trees.append(architecture.decoder_graph().head_graph())
    for tree, whole in zip(trees, (True, False, False)[: len(trees)], strict=True):
        rows = None
        if trimming is not None:
            rows = TableRows(kept=trimming.kept.ids, vocabulary=trimming.kept.vocabulary, whole=whole)
        for path, module in weighted_modules(tree):
            module.attach(path, dataclasses.replace(binding, rows=rows))
    scored = sizes if trimming is None else dataclasses.replace(sizes, target_vocab_size=trimming.kept.count)
    heads = [head_model(tree, sizes) for tree in trees[2:]]
    fed = FedHead(*_named_outputs(heads[0])) if heads else None
    models = (encoder_model(trees[0], sizes), decoder_model(trees[1], scored, fed=fed), *heads)
    if trimming is not None:
        models[1].metadata_props.update(trimming.kept.metadata())
    if precision.half:
        for tree, model in zip(trees, models, strict=True):  # no heads among them: refused by the recipe
            to_half(model, _half_weights(architecture, tree, precision), stored=StoredTensor)
    try:
        with WeightsFile(folder / WEIGHTS_FILE) as file:
            for model in models:
                file.externalise(model)
        names = (ENCODER_FILE, DECODER_FILE, HEAD_FILE)[: len(models)]
        saved = [_save(model, folder / name) for model, name in zip(models, names, strict=True)]
    except OSError as error:
        raise OutputError(f"cannot write the graphs to {folder}: {error.strerror or error}") from error
    return ExportedGraphs(
        encoder=saved[0],
        decoder=saved[1],
        head=saved[2] if heads else None,
        weights_file=WEIGHTS_FILE,
        dimensions=architecture.dimensions,
        recipe=precision,
        untied=ties.untied,
        calibration=calibration.to_dict() if calibration is not None and precision.calibrated else None,
        trimming=trimming,
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


def _check_recipe(recipe: Recipe, trees: Sequence[Any], ranges: Mapping[str, ActivationRange]) -> None:
    """Refuse patterns that match nothing, and an int8-static layer without a measured range."""
    from onnxmt.models.layers import TokenTable, quantizable_modules

    found = [(path, module) for tree in trees for path, module in quantizable_modules(tree)]
    names = {name for path, module in found for name in (path, *module.members(path))}
    if unmatched := recipe.unmatched(names):
        shown = ", ".join(sorted(name.removeprefix("model.") for name in names)[:3])
        raise UsageError(
            f"no layer of this model is called {', '.join(map(repr, unmatched))} (--keep-fp32); "
            f"its layers are called {shown} and so on"
        )
    missing = [
        path
        for path, module in found
        if module.precision(path, recipe) == "int8-static"
        and path not in ranges
        and not (isinstance(module, TokenTable) and module.use == "gather")
    ]
    if missing:
        raise UsageError(
            f"precision {recipe.name} needs the measured ranges of {len(missing)} layers, {missing[0]} first: "
            "calibrate it on text"
        )


def _half_weights(architecture: Architecture, tree: Any, recipe: Recipe) -> set[str]:
    """The graph's names of the weights that are stored and multiplied in fp16."""
    from onnxmt.models.layers import quantizable_modules
    from onnxmt.precision.recipe import matches

    wide = architecture.wide_layers()
    return {
        f"{path}.{name}"
        for path, module in quantizable_modules(tree)
        for name in ("weight", "others_weight")
        if module.precision(path, recipe) == "fp16" and not any(matches(pattern, path) for pattern in wide)
    }


def _named_outputs(model: ir.Model) -> tuple[Any, Any | None]:
    """The rows and, where there is one, the bias that a graph of candidates gives."""
    outputs = list(model.graph.outputs)
    return outputs[0], outputs[1] if len(outputs) > 1 else None


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
