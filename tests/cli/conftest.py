from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.checkpoints import write_checkpoint
from tests.cli.harness import invoke


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint that nothing may change."""
    return write_checkpoint(tmp_path_factory.mktemp("pristine") / "tiny-en-zh")


@pytest.fixture
def checkpoint(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it to break."""
    return Path(shutil.copytree(pristine, tmp_path / "tiny-en-zh"))


@pytest.fixture(scope="session")
def bundle(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unverified bundle of the small checkpoint."""
    folder = tmp_path_factory.mktemp("bundles") / "tiny"
    assert invoke("export", pristine, "-o", folder).code == 0
    return folder
