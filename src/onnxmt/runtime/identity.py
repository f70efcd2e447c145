"""What makes a bundle this model and no other."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from onnxmt.manifest import Manifest

__all__ = ["model_digest"]

_FOR_PEOPLE = (".html", ".md", ".txt", ".svg")


def model_digest(manifest: Manifest) -> str:
    """A SHA-256 of what decides a bundle's translations: its files but for what is only read by people."""
    data = {
        "files": sorted([entry.path, entry.sha256] for entry in manifest.files if not entry.path.endswith(_FOR_PEOPLE)),
        "tokenizer": manifest.tokenizer,
        "languages": dataclasses.asdict(manifest.languages),
    }
    return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
