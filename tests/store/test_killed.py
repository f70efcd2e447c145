"""200 kills at random moments among concurrent writers: no reader ever sees a mixed or a missing version."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.harness import environment
from tests.store.bundles import make_bundle

pytestmark = [pytest.mark.load, pytest.mark.skipif(sys.platform == "win32", reason="the store needs flock and fork")]


def test_two_hundred_kills(tmp_path: Path) -> None:
    bundles = tmp_path / "bundles"
    for name in ("a", "b", "c", "d"):
        make_bundle(bundles / name, marker=name)
    command = [sys.executable, "-m", "tests.store.killing", str(bundles), "200", "7"]
    done = subprocess.run(
        command,
        env=environment(ONNXMT_STORE=str(tmp_path / "store")),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 200
    assert set(found["seen"]) == {"ok"}, found["seen"]
    assert found["seen"]["ok"] > 200
    assert found["faults"] == []
    assert found["contiguous"]
    assert found["unlocked"]
    assert {"promote", "rollback", "add", "remove", "gc"} <= set(found["events"]), found["events"]
