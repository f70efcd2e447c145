"""docs/service.md: its commands work as printed, and its figures are the defaults."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from onnxmt.runtime.translator import Translator
from onnxmt.serve import Limits, create_app
from onnxmt.serve.options import DIALECTS
from tests.cli.harness import ROOT, invoke
from tests.serve.live import listening

SERVICE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_curl_command_works_as_printed(translator: Translator) -> None:
    blocks = [block for block in re.findall(r"```bash\n(.*?)```", SERVICE, re.DOTALL) if block.startswith("curl ")]
    commands = "".join(blocks).replace("curl ", "curl --fail-with-body --max-time 20 ")
    assert commands.count("curl ") == 10
    with listening(create_app(translator)) as address:
        script = "set -e\n" + commands.replace("localhost:8000", address)
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "error" not in done.stdout


def test_its_limits_are_the_defaults() -> None:
    limits = Limits()
    rows = dict(re.findall(r"^\| `--(max-\w+|deadline)` \| ([\d,]+) \|", SERVICE, re.MULTILINE))
    assert rows == {
        "max-body": f"{limits.body_bytes:,}",
        "max-items": f"{limits.items}",
        "max-characters": f"{limits.characters:,}",
        "max-beams": f"{limits.beams}",
        "max-queue": f"{limits.queue_requests}",
        "deadline": f"{limits.deadline_seconds:g}",
    }
    assert f"| – | {limits.new_tokens} | tokens" in SERVICE
    assert f"and {limits.queue_characters:,} characters" in SERVICE


def test_every_option_that_it_names_exists() -> None:
    help_text = invoke("serve", "--help").text
    deploy = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    named = set(
        re.findall(
            r"(?<![-\w])--[a-z][a-z-]+", re.sub(r"^(docker|kubectl|curl|python).*$", "", SERVICE + deploy, flags=re.M)
        )
    )
    foreign = {"--read-only", "--profile", "--from-literal", "--no-compile"}
    assert {option for option in named - foreign if option not in help_text} == set()
    assert all(name in SERVICE.lower() for name in DIALECTS)
