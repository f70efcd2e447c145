"""A bundle → a version: copied, checked and run once before anybody can see it."""

from __future__ import annotations

import datetime
import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxmt.bundle import Bundle, read_bundle
from onnxmt.errors import StoreError
from onnxmt.manifest import MANIFEST_NAME, Manifest
from onnxmt.progress import Progress, Silent
from onnxmt.store import regression
from onnxmt.store.files import TEMPORARY, copy_file, delete_folder, flush, owned_folder
from onnxmt.store.names import PRODUCTION, StoreName, check_part, usable_part
from onnxmt.store.shelf import VERSIONS, Change, Shelf, shelf_of, writing
from onnxmt.store.state import State, Version

# What says something of a model and decides nothing: two bundles that differ in these alone translate alike.
_SAID_OF_IT = ("report.html", "evaluation.json", "verification.npz")


@dataclass(frozen=True, kw_only=True)
class AddOptions:
    """How a bundle becomes a version.

    `name`: the manifest's where None. `version`: the next number where None. `run` translates the regression set with
    it first, so that what cannot translate is not added.
    """

    name: str | None = None
    version: str | None = None
    reason: str | None = None
    run: bool = True

    def __post_init__(self) -> None:
        for what, value in (("name", self.name), ("version", self.version)):
            if value is not None:
                check_part(what, value)


@dataclass(frozen=True, kw_only=True)
class Added:
    """The version that is there now; others of the model with the same content; what it changed, and against whom."""

    name: StoreName
    folder: Path
    bytes: int
    same_as: tuple[str, ...]
    changes: regression.Comparison | None


def add(
    bundle: str | Path, *, options: AddOptions | None = None, root: Path | None = None, progress: Progress | None = None
) -> Added:
    """Copy a bundle into the store as an immutable version.

    Raises BundleError where it is not whole, StoreError where the version's name is taken, and what Translator raises
    for one that cannot translate; the store is then as it was.
    """
    options, progress = options or AddOptions(), progress or Silent()
    progress.step("read the bundle")
    found = read_bundle(bundle)
    shelf = shelf_of(options.name or usable_part(found.manifest.name), root=root)
    with shelf.changing() as change:
        _check_free(change, options.version)
    partial = shelf.folder / VERSIONS / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"
    with writing(shelf), owned_folder(partial):
        progress.step("copy it")
        _copy(found, partial)
        read_bundle(partial)  # what was copied, not what was to be
        outputs = _run(partial, shelf, progress) if options.run else None
        with shelf.changing() as change:
            return _enter(change, found, partial, outputs, options)


def digest_of(manifest: Manifest) -> str:
    """SHA-256 over the names and hashes of the files that decide a bundle's translations."""
    files = sorted((entry.path, entry.sha256) for entry in manifest.files if entry.path not in _SAID_OF_IT)
    return hashlib.sha256("".join(f"{path}\n{sha256}\n" for path, sha256 in files).encode()).hexdigest()


def _check_free(change: Change, version: str | None) -> None:
    """A version's name is used once, ever: it never means something else."""
    state, name = change.state, change.shelf.name
    if version is None:
        return
    if version in state.versions or version in state.removed:
        was = "is there already" if version in state.versions else "was there and was removed"
        raise StoreError(
            f"{name}:{version} {was}, and a version never changes: leave the version out (the next is "
            f"{state.next_version()}), or name another"
        )
    if version in state.aliases:
        raise StoreError(f"{name}:{version} is an alias of version {state.aliases[version].version}: name another")


def _copy(bundle: Bundle, partial: Path) -> None:
    """Copy the files that the manifest lists, and it.

    No hard links, though nothing in the store ever changes: onnx refuses weights of several links, as a possible
    attack, when such a bundle is quantised (found with onnx-ir 1.1). A copy by reference takes no room either.
    """
    for name in (*(entry.path for entry in bundle.manifest.files), MANIFEST_NAME):
        target = partial / name
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_file(bundle.folder / name, target)
        target.chmod(0o444)
    for path in (*partial.rglob("*"), partial):
        if path.is_dir():
            flush(path)


def _run(partial: Path, shelf: Shelf, progress: Progress) -> dict[str, regression.Output]:
    from onnxmt.runtime.translator import Translator

    progress.step("translate the regression set")
    with Translator.load(partial, check="size") as translator:
        return regression.translated(translator, shelf, known={}, progress=progress.advance)


def _enter(
    change: Change,
    bundle: Bundle,
    partial: Path,
    outputs: dict[str, regression.Output] | None,
    options: AddOptions,
) -> Added:
    """Rename the copy to its place, and make it known."""
    shelf, state = change.shelf, change.state
    _check_free(change, options.version)
    version = options.version or state.next_version()
    while version in state.aliases:  # somebody called an alias "7"
        version = str(int(version) + 1)
    digest = digest_of(bundle.manifest)
    same = tuple(name for name, one in state.versions.items() if one.digest == digest)
    changes = None if outputs is None else changes_against(shelf, state, version, outputs)
    folder = shelf.version_folder(version)
    delete_folder(folder)  # of a process that was killed between the renaming and the commit: no state ever had it
    partial.rename(folder)
    flush(folder.parent)
    if outputs is not None:
        regression.write_outputs(shelf, version, outputs)
    entry = Version(
        digest=digest,
        bytes=bundle.size,
        recipe=bundle.manifest.recipe,
        added=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        revision=state.revision + 1,
    )
    evidence = {
        "digest": digest,
        "recipe": bundle.manifest.recipe,
        "bytes": bundle.size,
        "same_as": list(same),
        **({} if changes is None else {"regression": summary(changes)}),
    }
    change.commit(state.with_version(version, entry), "add", version=version, reason=options.reason, evidence=evidence)
    return Added(
        name=StoreName(name=shelf.name, ref=version), folder=folder, bytes=bundle.size, same_as=same, changes=changes
    )


def changes_against(
    shelf: Shelf, state: State, version: str, outputs: Mapping[str, regression.Output]
) -> regression.Comparison | None:
    """Compare a version's outputs with the approved ones; where none are, with production's, else an earlier one's."""
    label = f"{shelf.name}:{version}"
    if approved := regression.approved_outputs(shelf):
        return regression.compare(approved, outputs, labels=("approved", label))
    own = state.versions.get(version)
    earlier = [name for name, one in state.versions.items() if own is None or one.revision < own.revision]
    for other in dict.fromkeys((state.version_of(PRODUCTION), *reversed(earlier))):
        if other is not None and other != version and (kept := regression.read_outputs(shelf, other)) is not None:
            return regression.compare(kept.outputs, outputs, labels=(f"{shelf.name}:{other}", label))
    return None


def summary(changes: regression.Comparison) -> dict[str, object]:
    """What the history keeps of a comparison."""
    return {
        "against": changes.before,
        "compared": changes.compared,
        "changed": len(changes.changed),
        "tokens_only": changes.tokens_only,
    }
