"""What every layout is asked for and answers with, and the file in an exported folder that says where it came from."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxmt.errors import UsageError
from onnxmt.folder_writer import FolderKind
from onnxmt.versions import package_versions

if TYPE_CHECKING:
    from onnxmt.folder_writer import FolderWriter
    from onnxmt.plan import Plan
    from onnxmt.precision import Recipe

PROVENANCE_NAME = "onnxmt.json"
LAYOUT = FolderKind(noun="layout", marker=PROVENANCE_NAME)
_FORMAT = 1
_TOOLS = ("onnxmt", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy", "sentencepiece", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class LayoutOptions:
    """How a layout is exported; `opset` None is the layout's own choice.

    `source`, `target`: the languages that the folder's settings stand for; `prefix`: the task prefix of a T5 or BART
    model. `self_contained`: every graph holds its own weights, where the layout gives a choice. `beams`: how many the
    search that is part of the layout has, where one is; None: as the model says. `text`: the graph takes and gives
    text, where a layout can.
    """

    precision: Recipe
    opset: int | None = None
    self_contained: bool = False
    overwrite: bool = False
    source: str | None = None
    target: str | None = None
    prefix: str | None = None
    beams: int | None = None
    text: bool = False

    def __post_init__(self) -> None:
        if self.beams is not None and self.beams < 1:
            raise UsageError(f"beams is {self.beams}: at least 1 is needed, and 1 is greedy search")


@dataclass(frozen=True, kw_only=True)
class WrittenLayout:
    """A folder that was written: what its provenance file says, and what the user should know."""

    folder: Path
    provenance: Mapping[str, Any]
    warnings: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of all files, the provenance apart."""
        return sum(int(entry["bytes"]) for entry in self.provenance["files"])


def commit_layout(
    writer: FolderWriter,
    plan: Plan,
    *,
    layout: str,
    opset: int,
    precision: Recipe,
    facts: Mapping[str, Any],
    warnings: tuple[str, ...],
) -> WrittenLayout:
    """Write onnxmt.json (origin, opset, precision, versions, `facts` of the layout, hashes) and move the folder into
    place. Raises OutputError."""
    checkpoint = plan.checkpoint
    provenance = {
        "format": _FORMAT,
        "layout": layout,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "source": {"model": checkpoint.name, "revision": checkpoint.revision, "origin": plan.resolved.origin},
        "architecture": str(checkpoint.config["model_type"]),
        "licence": checkpoint.licence,
        "languages": {"source": plan.direction.source, "target": plan.direction.target},
        "opset": opset,
        "precision": precision.to_dict(),
        **facts,
        "tools": package_versions(_TOOLS),
        "files": [
            {"path": entry.path, "bytes": entry.bytes, "sha256": entry.sha256} for entry in writer.entries()
        ],
    }  # fmt: skip
    folder = writer.commit_file(json.dumps(provenance, ensure_ascii=False, indent=2) + "\n")
    return WrittenLayout(folder=folder, provenance=provenance, warnings=warnings)
