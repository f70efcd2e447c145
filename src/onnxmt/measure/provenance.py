"""What a measured figure has to say about its making: model, precision, decoding, machine, versions, date."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from onnxmt import records
from onnxmt.manifest import Manifest
from onnxmt.runtime.cpu_features import cpu_features
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.versions import package_versions

_PACKAGES = ("onnxmt", "onnxruntime", "numpy", "sacrebleu")


def now() -> str:
    """Return the date and time, ISO 8601 with time zone."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def measuring_versions() -> dict[str, str]:
    """Return the versions that a measured figure can depend on."""
    return package_versions(_PACKAGES)


def model_facts(manifest: Manifest) -> dict[str, Any]:
    """Return which model this is, and in which precision."""
    return {
        "model": manifest.source.model,
        "revision": manifest.source.revision,
        "name": manifest.name,
        "version": manifest.version,
        "recipe": manifest.recipe,
        "precision": records.to_json(manifest.precision),
    }


def run_facts(runtime: RuntimeOptions, *, provider: str) -> dict[str, Any]:
    """Return how the model was run."""
    return {"threads": runtime.resolved_threads(), "provider": provider, "cpu": cpu_features().to_dict()}


def described(facts: Mapping[str, Any]) -> str:
    """Return model facts in a few words."""
    revision = f" at {facts['revision']}" if facts.get("revision") else ""
    return f"{facts['model']}{revision}, {facts['recipe']}"
