"""Bundles of every family, each migrated once, verified against PyTorch, and moved away from its checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from onnxmt.migration import MigrateOptions, MigrateResult, migrate
from onnxmt.precision import PRESETS
from tests.families.checkpoints import FAMILIES, build, sentences_file


@dataclass(frozen=True, kw_only=True)
class Migrated:
    """A checkpoint, its bundle at another place than it was written to, and what the migration said."""

    checkpoint: Path
    bundle: Path
    result: MigrateResult


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Migrated]:
    """Migrate a family at its first use."""
    made: dict[str, Migrated] = {}

    def of(name: str) -> Migrated:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            family = FAMILIES[name]
            checkpoint = build(name, folder / "checkpoint")
            options = MigrateOptions(
                precision=PRESETS["fp32"],
                verify="live",
                gate="off",
                source=family.source,
                target=family.targets[0] if family.targets else None,
                prefix=family.prefix,
                sentences=sentences_file(folder),
            )
            result = migrate(checkpoint, folder / "written", options=options)
            (folder / "elsewhere").mkdir()
            shutil.move(folder / "written", folder / "elsewhere" / "bundle")
            made[name] = Migrated(checkpoint=checkpoint, bundle=folder / "elsewhere" / "bundle", result=result)
        return made[name]

    return of
