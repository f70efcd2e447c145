"""The versions of the packages that made or measured something."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the version of Python and of each package; one that is not installed is left out."""
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
