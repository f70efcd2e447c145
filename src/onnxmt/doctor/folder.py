"""A folder of ONNX graphs as models: which files belong together, what they are told, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxmt.doctor.findings import Finding
from onnxmt.doctor.graph_file import GraphFile, Part
from onnxmt.errors import OnnxmtError, SessionError, UsageError
from onnxmt.json_file import read_json_object
from onnxmt.manifest import MANIFEST_NAME
from onnxmt.runtime.session import RuntimeOptions, Session

# How exporters mark a file in another precision: transformers.js and Optimum put it at the end of the name.
_MARK = re.compile(r"[_.-](quantized|quant|int8|uint8|int4|q8|q4|q4f16|fp16|bnb4)$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Model:
    """The graphs of one precision. `mark`: what their names end with, "" for the plain ones."""

    mark: str
    graphs: tuple[GraphFile, ...]

    def part(self, *parts: Part) -> GraphFile | None:
        """The first graph that is one of these parts."""
        return next((graph for part in parts for graph in self.graphs if graph.part == part), None)

    @property
    def claims_quantized(self) -> bool:
        """Whether its name says that the weights are stored in 8 or 4 bits."""
        return bool(self.mark) and self.mark.lower() != "fp16"


@dataclass(kw_only=True)
class ModelFolder:
    """A folder that was read, with what was found while reading."""

    folder: Path
    models: list[Model] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    is_bundle: bool = False

    @property
    def family(self) -> str:
        """The config's model_type; "" where it says none."""
        return str(self.config.get("model_type", ""))

    def setting(self, name: str) -> Any:
        """What generation_config.json says, else config.json."""
        value = self.generation.get(name)
        return self.config.get(name) if value is None else value

    @property
    def precision(self) -> Mapping[str, Any]:
        """What a bundle's or an exported folder's own record says of its precision; empty where there is none."""
        for name in (MANIFEST_NAME, "onnxmt.json"):
            if (self.folder / name).is_file():
                found = read_json_object(self.folder / name).get("precision", {})
                return found if isinstance(found, dict) else {}
        return {}

    def tokenizer_settings(self) -> Mapping[str, Any]:
        """tokenizer_config.json; empty where there is none."""
        path = self.folder / "tokenizer_config.json"
        return read_json_object(path) if path.is_file() else {}

    def largest_token(self) -> int | None:
        """The largest id of the tokenizer; None where the folder does not say."""
        for name in ("target_vocab.json", "vocab.json"):
            path = self.folder / name
            if path.is_file():
                ids = [index for index in read_json_object(path).values() if isinstance(index, int)]
                return max(ids, default=None)
        path = self.folder / "tokenizer.json"
        if not path.is_file():
            return None
        from tokenizers import Tokenizer

        return max(Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True).values(), default=None)

    def close(self) -> None:
        """Give the memory of all graphs back."""
        for model in self.models:
            for graph in model.graphs:
                graph.session.close()


def read_folder(folder: Path) -> ModelFolder:
    """Load every graph in a folder and its `onnx` folder.

    Raises UsageError where there is none, and for a bundle with a shortlist.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: doctor examines a folder of ONNX graphs")
    paths = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx"), *folder.glob("1/*.onnx")])
    if not paths:
        raise UsageError(f"{folder} has no .onnx file, nor has its folder onnx: there is nothing to examine")
    read = ModelFolder(folder=folder, is_bundle=(folder / MANIFEST_NAME).is_file())
    read.config, read.generation = (_object(read, name) for name in ("config.json", "generation_config.json"))
    if read.is_bundle and read.precision.get("shortlist"):
        raise UsageError(
            f"{folder} is a bundle with a shortlist: its decoder is fed its head from a table, which doctor's probes "
            "do not do. Check it with: onnxmt verify, and its quality with: onnxmt evaluate"
        )
    graphs: dict[str, list[GraphFile]] = {}
    for path in paths:
        mark = found[1] if (found := _MARK.search(path.stem)) else ""
        try:
            session = Session(path, options=RuntimeOptions(threads=None))
        except SessionError as error:
            read.findings.append(_unloadable(path, error))
        else:
            graphs.setdefault(mark, []).append(GraphFile(path, session))
    read.models = [Model(mark=mark, graphs=tuple(files)) for mark, files in graphs.items()]
    return read


def _object(read: ModelFolder, name: str) -> Mapping[str, Any]:
    path = read.folder / name
    if not path.is_file():
        return {}
    try:
        return read_json_object(path)
    except OnnxmtError as error:
        read.findings.append(
            Finding(kind="settings", where=name, found=str(error), mend=f"copy {name} from the checkpoint again")
        )
        return {}


def _unloadable(path: Path, error: SessionError) -> Finding:
    data = "external" in str(error).lower() or "No such file" in str(error)
    mend = (
        "copy the file of weights that belongs beside it, under its own name"
        if data
        else "export it again, or install an onnxruntime that knows its operators and opset"
    )
    return Finding(kind="unloadable", where=path.name, found=str(error), mend=mend)
