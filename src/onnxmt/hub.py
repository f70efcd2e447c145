"""From what a person calls a MODEL (a folder, `demo`, or ORG/NAME on the hub) to a local folder at one commit."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onnxmt.errors import DownloadError, MissingExtraError, MissingFileError, ModelNotFoundError
from onnxmt.store.names import parse_name
from onnxmt.weights import open_weights, preferred_entry, shard_files, weight_files

FORMS = (
    "allowed are an existing folder, 'demo', and the ORG/NAME of a model on the hub, with @REVISION where wanted "
    "(a branch, a tag or a commit)"
)
# ORG/NAME as the hub defines it (huggingface_hub's validate_repo_id), and a revision that git would accept.
HUB_ID = re.compile(r"(?P<id>[A-Za-z0-9][\w.-]*/[\w.-]+)(?:@(?P<revision>[\w][\w./+-]*))?", re.ASCII)
# The hub's cache keeps a commit's files in models--ORG--NAME/snapshots/COMMIT.
SNAPSHOT = re.compile(r"models--(?P<org>[^/]+?)--(?P<name>[^/]+)/snapshots/(?P<commit>[0-9a-f]{40})$")
DEMO = Path(__file__).parent / "demo" / "checkpoint"

Files = Literal["all", "small"]


@dataclass(frozen=True, kw_only=True)
class ResolvedModel:
    """A checkpoint folder on this machine: what it is called, and which commit of the hub it is (None if unknown)."""

    folder: Path
    name: str
    revision: str | None
    origin: Literal["folder", "hub", "demo"]


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A file of a model; `size` in bytes, None where the hub does not say."""

    name: str
    size: int | None


def resolve(model: str | Path, *, files: Files = "all") -> ResolvedModel:
    """Find the folder of `model`, downloading a hub model's files (all that are needed, or only the small ones).

    An existing path is that folder; `demo` is the packaged model; ORG/NAME is fetched from the hub, or from its cache
    under HF_HUB_OFFLINE=1, all files at one commit. HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are honoured.

    Raises ModelNotFoundError when `model` is none of these, DownloadError when the hub or its cache does not give the
    files, MissingFileError when the model there has none that can be used, MissingExtraError without huggingface_hub.
    """
    if model and os.path.exists(model):  # noqa: PTH110  (Path.exists raises OSError for a string too long for a name)
        return _folder(Path(model))
    text = str(model)
    if text == "demo":
        return _demo()
    if parse_name(text) is not None:
        raise ModelNotFoundError(
            f"{_quoted(text)} names no model: there is no such file or folder; {FORMS}. What is called NAME:VERSION is "
            "a bundle in the store (onnxmt models list), and a checkpoint is read here"
        )
    match = HUB_ID.fullmatch(text)
    if match is None or isinstance(model, Path) or not _is_hub_id(match["id"]) or ".." in (match["revision"] or ""):
        raise ModelNotFoundError(f"{_quoted(text)} names no model: there is no such file or folder; {FORMS}")
    with _hub_library(text):
        from onnxmt.hub_download import fetch
    fetched = fetch(match["id"], match["revision"], files=files)
    return ResolvedModel(folder=fetched.folder, name=match["id"], revision=fetched.commit, origin="hub")


def model_files(resolved: ResolvedModel) -> tuple[ModelFile, ...]:
    """All files of the model with their sizes: for a hub model those on the hub, downloaded or not.

    That needs a connection: DownloadError when the hub cannot be asked.
    """
    if resolved.origin == "hub" and resolved.revision is not None:
        with _hub_library(resolved.name):
            from onnxmt.hub_download import remote_files
        sizes = remote_files(resolved.name, resolved.revision)
        return tuple(ModelFile(name=name, size=size) for name, size in sorted(sizes.items()))
    paths = sorted(path for path in resolved.folder.iterdir() if path.is_file())
    return tuple(ModelFile(name=path.name, size=path.stat().st_size) for path in paths)


def weights_among(resolved: ResolvedModel, files: Sequence[ModelFile]) -> tuple[ModelFile, ...]:
    """Those of the model's `files` that a migration reads as weights: of one format, empty where there are none.

    Shards are those that the index file names, which is among the small files that `resolve` fetches.
    """
    entry = preferred_entry({file.name for file in files})
    if entry is None:
        return ()
    index = resolved.folder / entry
    wanted = set(shard_files(index).values()) if entry.endswith(".index.json") else {entry}
    return tuple(file for file in files if file.name in wanted)


def weight_shapes(resolved: ResolvedModel) -> dict[str, tuple[int, ...]] | None:
    """The shapes of all weights, from the files' headers alone; of safetensors also where they are still on the hub.

    None for a pytorch_model.bin that is still on the hub: its shapes are known once it is here.
    MissingFileError or CheckpointError as for `open_weights`, DownloadError when the hub cannot be asked.
    """
    if resolved.origin == "hub" and resolved.revision is not None and not _has_weights(resolved.folder):
        files = [file.name for file in weights_among(resolved, model_files(resolved))]
        if not all(name.endswith(".safetensors") for name in files):
            return None
        with _hub_library(resolved.name):
            from onnxmt.hub_download import remote_shapes
        return remote_shapes(resolved.name, resolved.revision, files)
    with open_weights(resolved.folder) as weights:
        return {name: weights.shape(name) for name in sorted(weights.names())}


def _has_weights(folder: Path) -> bool:
    try:
        return all(path.is_file() for path in weight_files(folder))
    except MissingFileError:
        return False


@contextlib.contextmanager
def _hub_library(model: str) -> Iterator[None]:
    """Around an import of hub_download, which is done for a hub model only: huggingface_hub is optional, and slow."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "huggingface_hub":
            raise
        needed_for = f"the hub model {model!r}"
        raise MissingExtraError(needed_for=needed_for, extra="export", module="huggingface_hub") from error
    except ValueError as error:  # huggingface_hub reads its variables when imported: a port or a timeout of letters
        raise DownloadError(f"huggingface_hub cannot use the HF_… variables of this environment: {error}") from error


def _folder(path: Path) -> ResolvedModel:
    if not path.is_dir():
        raise ModelNotFoundError(f"{path} is a file; name the folder that holds the model's files")
    folder = path.resolve()
    snapshot = SNAPSHOT.search(folder.as_posix())
    if snapshot:  # a folder of the hub's cache: its path says what it is
        name = f"{snapshot['org']}/{snapshot['name']}"
        return ResolvedModel(folder=folder, name=name, revision=snapshot["commit"], origin="folder")
    return ResolvedModel(folder=folder, name=folder.name, revision=None, origin="folder")


def _demo() -> ResolvedModel:
    if not DEMO.is_dir():
        raise ModelNotFoundError(f"the demo model is not in this installation ({DEMO}): install onnxmt again")
    return ResolvedModel(folder=DEMO, name="demo", revision=None, origin="demo")


def _is_hub_id(name: str) -> bool:
    """The hub's further rules for ORG/NAME."""
    owner, _, repository = name.partition("/")
    ends = all(part[-1] not in "-." and part[0] not in "-." for part in (owner, repository))
    return ends and len(name) <= 96 and "--" not in name and ".." not in name and not name.endswith(".git")


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= 200 else repr(text[:200]) + "…"
