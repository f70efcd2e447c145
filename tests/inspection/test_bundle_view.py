"""What `inspect` says of a bundle."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onnxmt.bundle import read_bundle
from onnxmt.commands._options import DEMO_BUNDLE
from onnxmt.inspection.bundle_view import bundle_page, threads_reason, verification_word
from onnxmt.manifest import Verification, VerificationRow
from onnxmt.runtime.cpu import CpuLimit, cpu_limit
from tests.cli.harness import GOLDEN, environment, invoke

pytestmark = pytest.mark.lowest


def test_the_page_answers_the_usual_questions() -> None:
    outcome = invoke("inspect", GOLDEN)
    assert (outcome.code, outcome.err) == (0, "")
    manifest = read_bundle(GOLDEN).manifest
    assert outcome.lines[0] == f"{manifest.name}: marian, fp32, {verification_word(manifest)}"
    page = " ".join(outcome.text.split())
    for words in (
        f"made of {manifest.source.model}",
        f"onnxruntime {manifest.tools['onnxruntime']}",
        "Graph encoder.onnx (opset 18, IR 10)",
        "input_ids int64 [batch, source]",
        "past.0.key|value float32 [batch, 2, past, 16]",
        "encoder 1 layer, 2 heads",
        "ONNX Runtime's own (com.microsoft): SkipLayerNormalization",
        f"threads {threads_reason(cpu_limit())}",
        "num_beams 4",
        "weights.bin 111 kB",
    ):
        assert words in page, words


def test_json_holds_the_manifest_and_what_is_found_here() -> None:
    found = json.loads(invoke("inspect", GOLDEN, "--json").text)
    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    assert manifest.items() <= found.items()
    assert (found["kind"], found["path"]) == ("bundle", str(GOLDEN))
    assert found["generation"] == json.loads((GOLDEN / "generation_config.json").read_text())
    assert set(found["dynamic_axes"]) == {"batch", "source", "target", "past", "present"}
    assert found["threads"]["threads"] == cpu_limit().threads
    assert found["bytes"] == sum(entry["bytes"] for entry in manifest["files"])


def test_it_needs_no_onnx() -> None:
    """The base install holds neither; importing one of them here would be an error."""
    code = (
        "import sys\nfor name in ('onnx', 'onnx_ir', 'onnxscript', 'torch', 'ml_dtypes'): sys.modules[name] = None\n"
        f"from onnxmt.cli import main\nsys.exit(main(['inspect', {str(GOLDEN)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (CpuLimit(affinity=8, quota=None), "8: this process may run on 8 CPUs, and no cgroup quota is below that"),
        (CpuLimit(affinity=1, quota=None), "1: this process may run on 1 CPU, and no cgroup quota is below that"),
        (CpuLimit(affinity=8, quota=2.5), "2: this process may run on 8 CPUs, and its cgroup has a quota of 2.5 CPUs"),
        (CpuLimit(affinity=2, quota=0.5), "1: this process may run on 2 CPUs, and its cgroup has a quota of 0.5 CPUs"),
    ],
)
def test_threads_say_why(limit: CpuLimit, said: str) -> None:
    assert threads_reason(limit).startswith(said)


def _row(*, passed: bool) -> VerificationRow:
    return VerificationRow(
        layer="logits step 2", compared=66, different=0 if passed else 3, max_abs_error=2e-6 if passed else 0.5,
        cosine=1.0, limit=1e-3, passed=passed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verification", "word", "said"),
    [
        (Verification(status="unverified", judge={}, rows=()), "unverified", "nothing has compared its graphs"),
        (
            Verification(status="live", judge={"torch": "2.13.0"}, rows=(_row(passed=True),)),
            "verified",
            "1 of 1 passed, largest error 2.0e-06",
        ),
        (
            Verification(status="recording", judge={"torch": "2.13.0"}, rows=(_row(passed=True), _row(passed=False))),
            "verification failed",
            "missed logits step 2: 3 of 66 differ",
        ),
    ],
)
def test_how_it_was_verified_is_in_the_first_line(verification: Verification, word: str, said: str) -> None:
    bundle = read_bundle(GOLDEN)
    changed = dataclasses.replace(bundle, manifest=dataclasses.replace(bundle.manifest, verification=verification))
    page = bundle_page(changed)
    assert page.splitlines()[0].endswith(f", {word}")
    assert said in " ".join(page.split())


def test_the_drawing_is_written_beside_the_facts(tmp_path: Path) -> None:
    outcome = invoke("inspect", GOLDEN, "--graph", tmp_path / "g.svg")
    assert outcome.code == 0
    assert outcome.text == invoke("inspect", GOLDEN).text
    root = ElementTree.parse(tmp_path / "g.svg").getroot()
    assert "encoder.onnx and decoder.onnx" in root.attrib["aria-label"]
    assert [path.name for path in tmp_path.iterdir()] == ["g.svg"]


def test_drawing_something_else_is_refused(tmp_path: Path) -> None:
    assert (
        "--graph draws a bundle, and demo is none" in invoke("inspect", "demo", "--graph", tmp_path / "g.svg").error()
    )
    assert not (tmp_path / "g.svg").exists()


def test_an_altered_bundle_is_named(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN, tmp_path / "b"))
    (folder / "weights.bin").write_bytes(b"short")
    assert "weights.bin has 5 bytes" in invoke("inspect", folder).error()


def test_without_a_name_it_is_the_packaged_bundle() -> None:
    assert invoke("inspect").text == invoke("inspect", DEMO_BUNDLE).text
    assert invoke("inspect").lines[0] == "demo: marian, fp32, verified"
