"""Lazy, read-only access to a checkpoint's weights as float32, whatever format and number type they are stored in."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

import numpy as np

from onnxmt.errors import CheckpointError, MissingFileError
from onnxmt.json_file import read_json_object
from onnxmt.mapped_file import FLOATS, MappedFile, StoredTensor, shown
from onnxmt.safetensors_file import read_safetensors
from onnxmt.torch_pickle import read_torch_file

# In the order in which transformers 5 looks for them (modeling_utils.py, _get_resolved_checkpoint_files).
WEIGHT_ENTRIES = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip
OTHER_WEIGHTS = (
    "tf_model.h5", "flax_model.msgpack", "rust_model.ot", "model.ckpt.index", "adapter_model.safetensors",
)  # fmt: skip
RELEASE_AFTER = 8 * 2**20  # numbers: so much of a file stays in memory during a pass over one weight
CHUNK = 2**20  # numbers: 4 MiB of float32, enough that the Python loop around a chunk costs nothing

FloatArray = np.ndarray[Any, np.dtype[np.float32]]


class Weights:
    """The weights of one checkpoint by name; a weight costs no memory until it is read, and the files stay mapped.

    Tensors saved as views of one storage (tied weights in a pytorch_model.bin) stay views: `same_storage` tells.
    """

    def __init__(self, tensors: Mapping[str, StoredTensor], *, source: str) -> None:
        self.source = source
        self._tensors = dict(tensors)

    def names(self) -> frozenset[str]:
        """The names of all weights."""
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of a weight."""
        return self._tensor(name).shape

    def dtype(self, name: str) -> str:
        """The number type as stored: float32, float16, bfloat16, float64 (or an integer type, which `read` refuses)."""
        return self._tensor(name).dtype

    def read(self, name: str) -> FloatArray:
        """The weight as float32, C-contiguous; a read-only view of the mapped file where it is stored so, else a copy.

        float16, bfloat16 and float64 are converted; a float64 beyond float32's range becomes infinite, as in PyTorch.
        CheckpointError when there is no such weight, or when it holds no floating-point numbers.
        """
        return self._float_tensor(name).float32()

    def chunks(self, name: str, *, limit: int = CHUNK) -> Iterator[FloatArray]:
        """The numbers of a weight, row-major, as flat float32 pieces of at most `limit`: for passes in bounded memory.

        Two weights of one shape are cut at the same places. Pages of the file that were read are given back afterwards.
        """
        tensor = self._float_tensor(name)
        held = 0
        for piece in tensor.chunks(limit):
            yield piece
            held += piece.size
            if held >= RELEASE_AFTER:
                tensor.file.release()
                held = 0
        tensor.file.release()

    def same_storage(self, first: str, second: str) -> bool:
        """Whether two weights are the very same numbers in the file, so that they need no comparing."""
        return self._tensor(first).place == self._tensor(second).place

    def close(self) -> None:
        """Unmap the files. Arrays that `read` returned stay valid; further reading is a CheckpointError."""
        for file in {id(tensor.file): tensor.file for tensor in self._tensors.values()}.values():
            file.close()

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def __enter__(self) -> Weights:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tensor(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            near = nearest(name, self._tensors)
            hint = f"; nearest is {near}" if near else ""
            raise CheckpointError(f"{self.source} has no weight {shown(name)}{hint}")
        return self._tensors[name]

    def _float_tensor(self, name: str) -> StoredTensor:
        tensor = self._tensor(name)
        if tensor.dtype not in FLOATS:
            raise CheckpointError(
                f"{self.source}: the weight {shown(name)} holds {tensor.dtype}; allowed are {', '.join(FLOATS)}"
            )
        return tensor


def nearest(name: str, present: Collection[str]) -> str | None:
    """The name among `present` that looks most like `name`, quoted, for a message; None where none is close."""
    found = difflib.get_close_matches(name, present, n=1, cutoff=0.7)
    return shown(found[0]) if found else None


def preferred_entry(names: Collection[str]) -> str | None:
    """Which of the file `names` of a folder or a hub repository is the way in to its weights; None where none is."""
    return next((entry for entry in WEIGHT_ENTRIES if entry in names), None)


def shard_files(index: Path) -> dict[str, str]:
    """The `weight_map` of an index file: the file name of the shard by the name of the weight."""
    found = read_json_object(index).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise CheckpointError(f"{index} has no weight_map that says which file holds which weight")
    for name, shard in found.items():
        # A shard lies beside its index: a path would let a downloaded index point at any file of this machine.
        if not isinstance(shard, str) or PurePosixPath(shard).name != shard or "\\" in shard or "\0" in shard:
            raise CheckpointError(f"{index} puts the weight {shown(name)} into {shown(shard)}, not a plain file name")
    return found


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files that hold the weights in `folder`, of the format that transformers takes; MissingFileError if none.

    For sharded weights these are the shards that the index names, and each of them exists.
    """
    entry = _entry(folder)
    if not entry.endswith(".index.json"):
        return (folder / entry,)
    shards = sorted(set(shard_files(folder / entry).values()))
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise MissingFileError(
            f"{folder} lacks {', '.join(missing)}, which {entry} names ({len(missing)} of {len(shards)} shards): "
            "copy or download the folder again"
        )
    return tuple(folder / shard for shard in shards)


def _entry(folder: Path) -> str:
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be listed: {error.strerror or error}") from error
    entry = preferred_entry(names)
    if entry is None:
        raise MissingFileError(no_weights(str(folder), names))
    return entry


def no_weights(where: str, names: Collection[str]) -> str:
    """The message that `where`, a folder or hub repository with files `names`, holds no weights that can be read."""
    allowed = "model.safetensors, pytorch_model.bin, or either's .index.json with its shards"
    others = [name for name in OTHER_WEIGHTS if name in names]
    if others:
        return (
            f"{where} has no weights that onnxmt reads ({allowed}), only {', '.join(others)}: "
            "load it with transformers and save_pretrained() it"
        )
    if "manifest.json" in names:
        return f"{where} has no weights ({allowed}): it looks like an onnxmt bundle, which is migrated already"
    return f"{where} has no weights; expected {allowed}"


def open_weights(folder: Path) -> Weights:
    """Open the weights in `folder`, safetensors before pytorch_model.bin as transformers does.

    MissingFileError when there are none or a shard is absent; UnsafePickleError when a pickle holds more than tensors;
    CheckpointError when a file is damaged. Only headers are read here.
    """
    files = weight_files(folder)
    tensors: dict[str, StoredTensor] = {}
    for path in files:
        found = _read(path)
        twice = sorted(tensors.keys() & found.keys())
        if twice:
            other = tensors[twice[0]].file.path.name
            raise CheckpointError(f"{folder}: the weight {shown(twice[0])} is both in {other} and in {path.name}")
        tensors.update(found)
    entry = _entry(folder)
    if entry.endswith(".index.json"):
        _check_index(folder / entry, tensors)
    source = str(files[0]) if len(files) == 1 else f"{folder} ({len(files)} files, {files[0].name} to {files[-1].name})"
    return Weights(tensors, source=source)


def _read(path: Path) -> dict[str, StoredTensor]:
    file = MappedFile(path)
    tensors = read_safetensors(file) if path.suffix == ".safetensors" else read_torch_file(file)
    if not tensors:
        raise CheckpointError(f"{path} holds no tensors at all")
    return tensors


def _check_index(index: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Every weight that the index lists must be in the very file that it names."""
    problems = []
    for name, shard in shard_files(index).items():
        if name not in tensors:
            problems.append(f"{shown(name)} is not in {shard}")
        elif tensors[name].file.path.name != shard:
            problems.append(f"{shown(name)} is in {tensors[name].file.path.name}, not in {shard}")
    if problems:
        more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise CheckpointError(f"{index} does not describe its shards: {'; '.join(problems[:8])}{more}")
