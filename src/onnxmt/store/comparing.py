"""Two versions side by side: settings, precision, sizes, figures, and the translations that changed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxmt import records
from onnxmt.bundle import Bundle, read_bundle
from onnxmt.errors import StoreError
from onnxmt.manifest import GENERATION_CONFIG_NAME
from onnxmt.progress import Progress, Silent
from onnxmt.store import regression
from onnxmt.store.figures import Check, PromoteLimits, compare_figures, figures_of
from onnxmt.store.names import StoreName
from onnxmt.store.shelf import ROLLOUT, Shelf


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Something that differs: what the first version says, and the second; None: says nothing."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True, kw_only=True)
class Difference:
    """All that differs between two versions; `changes` is None where the regression set was not asked for."""

    first: StoreName
    second: StoreName
    same_content: bool
    facts: tuple[Fact, ...]
    files: tuple[Fact, ...]
    checks: tuple[Check, ...]
    changes: regression.Comparison | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        plain: dict[str, Any] = records.to_json(self)
        return {**plain, "first": str(self.first), "second": str(self.second)}


def diff(
    first: tuple[Shelf, str],
    second: tuple[Shelf, str],
    *,
    translations: bool = True,
    limits: PromoteLimits | None = None,
    progress: Progress | None = None,
) -> Difference:
    """Compare two versions, of one model or of two; the second is the newer one.

    `translations` runs whichever version has no outputs yet for the present regression set (of the first one's model).
    Raises ModelNotFoundError, BundleError, and what Translator raises.
    """
    progress = progress or Silent()
    bundles, names, digests = [], [], []
    for shelf, ref in (first, second):
        state = shelf.require()
        version = shelf.version(ref, state)
        bundles.append(read_bundle(shelf.version_folder(version), check="size"))
        names.append(StoreName(name=shelf.name, ref=version))
        digests.append(state.versions[version].digest)
    changes = None
    if translations:
        outputs = []
        for (shelf, _), name in zip((first, second), names, strict=True):
            progress.step(f"translate the regression set with {name}")
            outputs.append(regression.outputs_of(shelf, name.ref, progress=progress.advance))
        changes = regression.compare(outputs[0], outputs[1], labels=(str(names[0]), str(names[1])))
    old, new = bundles
    return Difference(
        first=names[0],
        second=names[1],
        same_content=digests[0] == digests[1],
        facts=tuple(_facts(_described(old), _described(new))),
        files=tuple(_facts(_sizes(old), _sizes(new))),
        checks=compare_figures(figures_of(new), figures_of(old), limits or PromoteLimits()),
        changes=changes,
    )


def _facts(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Fact]:
    names = dict.fromkeys((*first, *second))
    return [
        Fact(name=name, first=first.get(name), second=second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    ]


def _described(bundle: Bundle) -> dict[str, Any]:
    """What a person calls the settings of a version, by name."""
    manifest = bundle.manifest
    generation = json.loads(bundle.path(GENERATION_CONFIG_NAME).read_text(encoding="utf-8"))
    figures = figures_of(bundle)
    tokenizer = json.dumps(dict(manifest.tokenizer), sort_keys=True)
    return {
        "model": manifest.source.model,
        "revision": manifest.source.revision,
        "created": manifest.created,
        "architecture": manifest.architecture,
        "precision": manifest.recipe,
        **{f"precision.{part}": value for part, value in records.to_json(manifest.precision).items()},
        **{f"languages.{part}": value for part, value in records.to_json(manifest.languages).items()},
        **{f"dimensions.{part}": value for part, value in records.to_json(manifest.dimensions).items()},
        **{f"generation.{name}": value for name, value in generation.items()},
        "tokenizer": tokenizer if len(tokenizer) < 200 else f"{tokenizer[:200]}…",
        "licence": manifest.licence.id,
        "opset": manifest.graphs.decoder.opset,
        "verification": figures.verification,
        "gate": figures.gate,
        **{f"tools.{name}": value for name, value in manifest.tools.items()},
    }


def _sizes(bundle: Bundle) -> dict[str, Any]:
    """Each file by size and hash, so that equal sizes of different contents show."""
    return {entry.path: {"bytes": entry.bytes, "sha256": entry.sha256[:12]} for entry in bundle.manifest.files} | {
        "all": {"bytes": bundle.size}
    }


def described_version(shelf: Shelf, version: str) -> dict[str, Any]:
    """All that `models show` tells of a version, as JSON values."""
    state = shelf.require()
    bundle = read_bundle(shelf.version_folder(version), check="size")
    kept = regression.read_outputs(shelf, version)
    return {
        "name": f"{shelf.name}:{version}",
        "folder": str(bundle.folder),
        "stage": state.stage_of(version),
        "aliases": list(state.aliases_of(version)),
        **dataclasses.asdict(state.versions[version]),
        "same_as": [
            other
            for other, one in state.versions.items()
            if other != version and one.digest == state.versions[version].digest
        ],
        "figures": figures_of(bundle).to_dict(),
        "regression_outputs": None if kept is None else len(kept.outputs),
        "rollout": _rollout(shelf, version),
    }


def _rollout(shelf: Shelf, version: str) -> dict[str, Any] | None:
    """What the service has written down of a version as a canary; None where it never was one."""
    path = shelf.folder / ROLLOUT / f"{version}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}. Delete it: the service then counts anew") from error
    return found if isinstance(found, dict) else None
