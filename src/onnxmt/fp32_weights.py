"""The weights of an fp32 bundle under their checkpoint names, so that quantising needs no checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxmt.bundle import Bundle
from onnxmt.checkpoint import Checkpoint, read_config
from onnxmt.errors import CheckpointError, UsageError
from onnxmt.weights import CHUNK, FloatArray, Weights

if TYPE_CHECKING:
    import onnx_ir as ir


def checkpoint_of(bundle: Bundle) -> Checkpoint:
    """Return an fp32 bundle as the checkpoint that it was made of, as far as building graphs needs one.

    Raises UsageError for a bundle in another precision, UnsupportedModelError and CheckpointError.
    """
    manifest = bundle.manifest
    if not manifest.precision.exact:
        raise UsageError(
            f"the bundle {bundle.folder} is in {manifest.recipe}, and its fp32 weights are gone: quantise the fp32 "
            "bundle (onnxmt migrate MODEL --precision fp32)"
        )
    return Checkpoint(
        folder=bundle.folder,
        name=manifest.source.model,
        revision=manifest.source.revision,
        config=read_config(bundle.folder),
        generation={},
        generation_file="generation_config.json",
        weights=BundleWeights(bundle),
        tokenizer_files=(),
        licence=manifest.licence.id,
        card=None,
    )


class BundleWeights(Weights):
    """Reads the initializers of an fp32 bundle's graphs, split, transposed and named as a checkpoint's weights."""

    def __init__(self, bundle: Bundle) -> None:
        import onnx_ir as ir

        from onnxmt.models import architecture_of
        from onnxmt.models.layers import weighted_modules

        super().__init__({}, source=f"the bundle {bundle.folder}")
        graphs = bundle.manifest.graphs
        architecture = architecture_of(read_config(bundle.folder))
        trees = (architecture.encoder_graph(), architecture.decoder_graph())
        self._reads: dict[str, Callable[[], FloatArray]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, tuple[Path, int] | None] = {}
        for tree, info in zip(trees, (graphs.encoder, graphs.decoder), strict=True):
            tensors = _float_tensors(ir.load(bundle.path(info.file)))
            stored = {name: _reader(tensor) for name, tensor in tensors.items()}
            for path, module in weighted_modules(tree):
                shapes = {wanted.name: wanted.shape for wanted in module.wanted(path)}
                for name, read in module.recovered(path, stored):
                    self._reads[name], self._shapes[name] = read, shapes[name]
                    self._places[name] = _place(tensors.get(name))

    def names(self) -> frozenset[str]:
        """The names of all weights."""
        return frozenset(self._reads)

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of a weight."""
        return self._shapes[self._known(name)]

    def dtype(self, name: str) -> str:
        """Always float32."""
        self._known(name)
        return "float32"

    def read(self, name: str) -> FloatArray:
        """The weight, C-contiguous; CheckpointError when there is none of that name, or when its shape is not right."""
        read = self._reads[self._known(name)]
        try:
            values = read()
        except KeyError as error:
            raise CheckpointError(f"{self.source} has no initializer {error}: its graphs are not its model's") from None
        if values.shape != self._shapes[name]:
            raise CheckpointError(
                f"{self.source}: the weight {name} has the shape {values.shape}, expected {self._shapes[name]}"
            )
        return np.ascontiguousarray(values, dtype=np.float32)

    def chunks(self, name: str, *, limit: int = CHUNK) -> Iterator[FloatArray]:
        """The numbers of a weight, row-major, in flat pieces of at most `limit`."""
        flat = self.read(name).reshape(-1)
        for first in range(0, flat.size, limit):
            yield flat[first : first + limit]

    def same_storage(self, first: str, second: str) -> bool:
        """Whether two weights are one range of the weights file."""
        places = [self._places[self._known(name)] for name in (first, second)]
        return places[0] is not None and places[0] == places[1]

    def close(self) -> None:
        """Let the mapped files go."""
        self._reads, self._shapes, self._places = {}, {}, {}

    def __contains__(self, name: object) -> bool:
        return name in self._reads

    def __len__(self) -> int:
        return len(self._reads)

    def _known(self, name: str) -> str:
        if name not in self._reads:
            raise CheckpointError(f"{self.source} has no weight {name!r}")
        return name


def _float_tensors(model: ir.Model) -> dict[str, Any]:
    import onnx_ir as ir

    found = ((name, value.const_value) for name, value in model.graph.initializers.items())
    return {name: tensor for name, tensor in found if tensor is not None and tensor.dtype == ir.DataType.FLOAT}


def _reader(tensor: Any) -> Callable[[], FloatArray]:
    return lambda: np.asarray(tensor.numpy())


def _place(tensor: Any) -> tuple[Path, int] | None:
    """Where an external tensor lies; None for one inside the graph, or for none."""
    offset = getattr(tensor, "offset", None)
    return None if offset is None else (Path(tensor.location), int(offset))


def float_leftovers(model_files: Sequence[Path], *, least: int = 1 << 16) -> dict[str, int]:
    """Return the bytes of each float32 weight of at least `least` bytes that graphs still hold, largest first."""
    import onnx_ir as ir

    found: dict[str, int] = {}
    for file in model_files:
        for name, tensor in _float_tensors(ir.load(file)).items():
            if tensor.nbytes >= least and not name.endswith("_scales"):
                found[name] = tensor.nbytes
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
