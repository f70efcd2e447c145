"""What manifest.json of a bundle holds, as frozen dataclasses: the keys, their types, and the format's version."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from onnxmt import records
from onnxmt.errors import BundleFormatError

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
CONFIG_NAME = "config.json"
GENERATION_CONFIG_NAME = "generation_config.json"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the weights came from: a hub id or a folder's name (never its path), and the commit if there is one."""

    model: str
    revision: str | None
    origin: Literal["folder", "hub", "demo"]


@dataclass(frozen=True, kw_only=True)
class Languages:
    """Codes as the checkpoint names them; empty where the checkpoint does not say.

    `default_source` and `default_target` are what the tokenizer is told where a call names no language, as chosen at
    the migration; None: nothing.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    default_source: str | None = records.added(None)
    default_target: str | None = records.added(None)


@dataclass(frozen=True, kw_only=True)
class Licence:
    """The licence on the model's card, and what a user has to be told about it (missing, non-commercial)."""

    id: str | None
    warning: str | None


@dataclass(frozen=True, kw_only=True)
class TrimmedHead:
    """An output projection that scores `rows` of `of` tokens, and `why` these."""

    rows: int
    of: int
    why: str


@dataclass(frozen=True, kw_only=True)
class ShortlistInfo:
    """A table in `file` of the target tokens that are candidates for each source token (docs/bundle-format.md).

    Learnt from `pairs` pairs of lines, of which `left_out` more were empty or too long; at most `per_token` for each
    source token, `candidates` in all, and `always` for every sentence.
    """

    file: str
    pairs: int
    left_out: int
    per_token: int
    always: int
    candidates: int

    def __post_init__(self) -> None:
        check_relative(self.file)

    @property
    def words(self) -> str:
        """What a person is told of it."""
        return (
            f"a shortlist for each sentence: {self.always:,} tokens always, and at most {self.per_token} learnt for "
            f"each source token, from {self.pairs:,} pairs of lines"
        )


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The number format of each component's weights, for example "fp32" or "int8".

    `keep_fp32` are patterns of layers that are in fp32 all the same, `calibration` says on what the ranges of
    activations were measured, where there are any. `trimmed_head` is there where the head does not score every token,
    `shortlist` where it scores those that are likely for the sentence.
    """

    encoder: str
    decoder: str
    cross_kv: str
    lm_head: str
    embedding: str
    keep_fp32: tuple[str, ...] = records.added(())
    calibration: Mapping[str, Any] | None = records.added(None)
    trimmed_head: TrimmedHead | None = records.added(None)  # noqa: RUF009 (a field, as dataclasses.field gives)
    shortlist: ShortlistInfo | None = records.added(None)  # noqa: RUF009

    @property
    def scored(self) -> int | None:
        """How many tokens a trimmed head scores; None: all."""
        return None if self.trimmed_head is None else self.trimmed_head.rows

    @property
    def exact(self) -> bool:
        """Whether every component is fp32, and whole, so that the graphs must equal PyTorch."""
        parts = (self.encoder, self.decoder, self.cross_kv, self.lm_head, self.embedding)
        return all(part == "fp32" for part in parts) and self.trimmed_head is None and self.shortlist is None


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """A graph's input or output; an axis is a length or the name of a dynamic one."""

    name: str
    dtype: str
    axes: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class GraphInfo:
    """One ONNX file, described so that `inspect` needs no onnx; `operators` counts nodes by qualified name."""

    file: str
    opset: int
    ir_version: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Graphs:
    """The two graphs of format 1 and the external data files that they map; `head` is there with a shortlist."""

    encoder: GraphInfo
    decoder: GraphInfo
    weights: tuple[str, ...]
    head: GraphInfo | None = records.added(None)  # noqa: RUF009

    @property
    def all(self) -> tuple[GraphInfo, ...]:
        """Every graph that there is."""
        return (self.encoder, self.decoder, *(() if self.head is None else (self.head,)))


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """Sizes of the model; `positions` is the length of its position table, None where it has none (T5)."""

    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    head_dim: int
    d_model: int
    source_vocabulary: int
    target_vocabulary: int
    positions: int | None


@dataclass(frozen=True, kw_only=True)
class VerificationRow:
    """One layer of the proof: what was compared, how far it was off, and what was allowed.

    `max_abs_error`, `cosine` and `limit` are None in a row that compares tokens or text; `compared` counts tensors or
    sentences, `different` those of them that missed.
    """

    layer: str
    compared: int
    different: int
    max_abs_error: float | None
    cosine: float | None
    limit: float | None
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Verification:
    """How the graphs were proved equal to the reference: against it, against a recording of it, or not at all.

    `graphs` says which: the bundle's "own", or, of a bundle in another precision, the "fp32" graphs of the same weights
    that its own were then compared with (`quality`).
    """

    status: Literal["live", "recording", "unverified"]
    judge: Mapping[str, str]
    rows: tuple[VerificationRow, ...]
    graphs: Literal["own", "fp32"] = records.added("own")

    @property
    def passed(self) -> bool:
        """True when something was compared and nothing missed."""
        return self.status != "unverified" and all(row.passed for row in self.rows)


UNVERIFIED = Verification(status="unverified", judge={}, rows=())


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file of the bundle: path inside it with forward slashes, size, lower-case hexadecimal SHA-256."""

    path: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        check_relative(self.path)
        if self.path == MANIFEST_NAME:
            raise ValueError("the manifest cannot list itself")
        if self.bytes < 0 or not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ValueError(f"size or sha256 of {self.path!r} is not valid")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """manifest.json of format 1; docs/bundle-format.md explains each key.

    `quality`, `speed` and `cpu` are null until something was measured; what they then hold belongs to the tool that
    measured. `tokenizer` is a TokenizerSpec as JSON, `tools` maps a package to its version.
    """

    name: str
    version: str | None
    created: str
    source: Source
    architecture: str
    languages: Languages
    licence: Licence
    recipe: str
    precision: Precision
    graphs: Graphs
    dimensions: Dimensions
    tokenizer: Mapping[str, Any]
    verification: Verification
    quality: Mapping[str, Any] | None = None
    speed: Mapping[str, Any] | None = None
    cpu: Mapping[str, Any] | None = None
    tools: Mapping[str, str]
    files: tuple[FileEntry, ...] = ()
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if self.format_version != FORMAT_VERSION:
            raise ValueError(f"format_version is {self.format_version}; this version writes {FORMAT_VERSION}")
        paths = [entry.path for entry in self.files]
        if twice := sorted({path for path in paths if paths.count(path) > 1}):
            raise ValueError(f"files lists {', '.join(twice)} more than once")
        if (self.graphs.head is None) != (self.precision.shortlist is None):
            raise ValueError("graphs.head and precision.shortlist are there together, or neither is")

    @property
    def required_files(self) -> tuple[str, ...]:
        """The files that a program cannot run the bundle without, the tokenizer's apart."""
        graphs, shortlist = self.graphs, self.precision.shortlist
        return (
            *(graph.file for graph in graphs.all),
            *graphs.weights,
            *(() if shortlist is None else (shortlist.file,)),
            CONFIG_NAME,
            GENERATION_CONFIG_NAME,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, `format_version` first: a reader must see it before anything else."""
        plain: dict[str, Any] = records.to_json(self)
        return {"format_version": plain.pop("format_version"), **plain}

    @classmethod
    def from_dict(cls, value: object, *, where: str = MANIFEST_NAME) -> Manifest:
        """Read a parsed manifest; raises BundleFormatError that names every missing, unknown or wrong key."""
        if not isinstance(value, dict):
            raise BundleFormatError(f"{where} holds {type(value).__name__}; a JSON object was expected")
        check_format_version(value, where=where)
        try:
            manifest = records.from_json(cls, value)
        except records.RecordProblems as error:
            raise BundleFormatError(
                f"{where} is not a manifest of format {FORMAT_VERSION}: {'; '.join(error.problems)}. "
                "Copy the bundle again, or run onnxmt migrate again"
            ) from None
        listed = {entry.path for entry in manifest.files}
        if unlisted := [name for name in manifest.required_files if name not in listed]:
            raise BundleFormatError(f"{where}: its list of files lacks {', '.join(unlisted)}, which the bundle needs")
        return manifest

    def to_text(self) -> str:
        """Return the text of manifest.json."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"

    def with_files(self, files: tuple[FileEntry, ...]) -> Manifest:
        """Return a copy that lists `files`."""
        return dataclasses.replace(self, files=files)


def check_format_version(value: Mapping[str, Any], *, where: str) -> None:
    """Refuse a format that this version does not read, and say which onnxmt does."""
    found = value.get("format_version")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise BundleFormatError(
            f"{where}: format_version is {found!r}; a whole number from 1 to {FORMAT_VERSION} was expected"
        )
    if found > FORMAT_VERSION:
        tools = value.get("tools")
        writer = tools.get("onnxmt") if isinstance(tools, dict) else None
        fix = f"install onnxmt {writer} or newer" if isinstance(writer, str) else "install a newer onnxmt"
        raise BundleFormatError(f"{where} is of format {found}; this onnxmt reads formats 1 to {FORMAT_VERSION}: {fix}")


def check_relative(path: str) -> None:
    """Raise ValueError unless `path` stays inside the bundle on every platform."""
    parts = PurePosixPath(path).parts
    if not path or path != str(PurePosixPath(path)) or path.startswith("/") or ".." in parts or path == ".":
        raise ValueError(f"the path {path!r} is not a plain path inside the bundle")
    if "\\" in path or ":" in path or "\0" in path:  # a drive, a stream or a separator on Windows
        raise ValueError(f"the path {path!r} holds a character that a bundle's paths may not have")
