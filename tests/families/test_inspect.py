"""`inspect` before any weights are fetched: family, languages, what must be said, licence, memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import environment, invoke, run
from tests.families.checkpoints import build
from tests.hub.standin import Hub, Repository, serving

pytestmark = pytest.mark.reference
NAME = "facebook/nllb-200-distilled-600M"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving() as standin:
        yield standin


@pytest.fixture
def published(hub: Hub, tmp_path: Path) -> Callable[[str], Callable[..., Any]]:
    """Put a family on the hub; what comes back runs `inspect` on it and returns its JSON."""

    def publish(family: str) -> Callable[..., Any]:
        folder = build(family, tmp_path / family)
        (folder / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
        hub.repositories[NAME] = Repository()
        hub.repositories[NAME].commit({path.name: path.read_bytes() for path in folder.iterdir()})
        settings = environment(HF_ENDPOINT=hub.endpoint, HF_HOME=str(tmp_path / "hf"), HF_HUB_DISABLE_TELEMETRY="1")

        def inspect(*arguments: str) -> Any:
            outcome = run("inspect", NAME, "--json", *arguments, env=settings)
            assert (outcome.code, outcome.err) == (0, "")
            cached = [path.name for path in (tmp_path / "hf").glob("hub/models--*/snapshots/*/*")]
            assert cached
            assert not [name for name in cached if name.endswith((".safetensors", ".bin"))], "weights were fetched"
            return json.loads(outcome.text)

        return inspect

    return publish


def test_a_model_of_many_languages_says_that_it_needs_a_target(published: Callable[[str], Callable[..., Any]]) -> None:
    inspect = published("nllb")
    found = inspect()
    assert (found["supported"], found["reasons"], found["model_type"]) == (True, [], "m2m_100")
    assert len(found["languages"]["target"]) == 202
    assert "pass --target LANG" in found["direction"]["needed"]
    assert (found["direction"]["source"], found["direction"]["target"]) == ("eng_Latn", None)
    assert found["direction"]["longest_input"] == 128
    assert found["licence"] == "cc-by-nc-4.0"
    assert "commercial" in found["licence_warning"]
    assert found["memory"]["build"] > found["memory"]["weights"] == 4 * found["parameters"] > 0
    told = inspect("--target", "Chinese", "--source", "en")["direction"]
    assert (told["source"], told["target"], told["needed"]) == ("eng_Latn", "zho_Hans", None)
    refused = inspect("--target", "tlh")
    assert not refused["supported"]
    assert "the nearest of its 202 are" in refused["reasons"][0]


def test_small100_is_told_apart_on_the_hub(published: Callable[[str], Callable[..., Any]]) -> None:
    found = published("small100")()
    assert found["supported"]
    assert found["direction"]["source"] is None  # it is not told its source
    assert "--target" in found["direction"]["needed"]


def test_the_page_says_what_to_pass(tmp_path: Path) -> None:
    folder = build("m2m_100", tmp_path / "m2m")
    page = invoke("inspect", folder).text
    assert "target language  needed: --target LANG, one of 100" in page
    assert "longest input" in page
    assert "zh (Chinese (Simplified)): as asked" in invoke("inspect", folder, "--target", "zh-CN").text


def test_a_bundle_shows_its_defaults_and_takes_no_languages(tmp_path: Path) -> None:
    folder = build("t5", tmp_path / "t5")
    made = invoke("export", folder, "-o", tmp_path / "bundle", "--target", "German")
    assert made.code == 0, made.err
    assert "by default de" in invoke("inspect", tmp_path / "bundle").text
    assert "are for checkpoints" in invoke("inspect", tmp_path / "bundle", "--target", "fr").error()
