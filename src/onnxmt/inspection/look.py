"""`inspect` as a function: a bundle, or a checkpoint before its weights are fetched, as plain data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from onnxmt.bundle import read_bundle
from onnxmt.hub import resolve
from onnxmt.inspection.bundle_view import bundle_facts
from onnxmt.inspection.checkpoint_facts import Asked, checkpoint_facts
from onnxmt.inspection.checkpoint_view import checkpoint_json
from onnxmt.manifest import MANIFEST_NAME
from onnxmt.store.resolving import find


def inspect(
    what: str | os.PathLike[str], *, source: str | None = None, target: str | None = None, prefix: str | None = None
) -> dict[str, Any]:
    """Return what `onnxmt inspect --json` prints of a bundle's folder, a checkpoint's folder, a hub id or `demo`.

    NAME:VERSION and NAME:ALIAS are bundles in the store.

    `source`, `target` and `prefix` are for checkpoints: they ask whether a migration with them will be accepted. Of a
    model on the hub only small files are fetched. Raises OnnxmtError.
    """
    if (found := find(what)) is not None:
        return bundle_facts(read_bundle(found.folder, check="size"))
    if (Path(what) / MANIFEST_NAME).is_file():
        return bundle_facts(read_bundle(what, check="size"))
    asked = Asked(source=source, target=target, prefix=prefix)
    return checkpoint_json(checkpoint_facts(resolve(os.fspath(what), files="small"), asked))
