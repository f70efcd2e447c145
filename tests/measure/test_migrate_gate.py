"""The gate inside migrate, on the demo model: int8 passes and is described, a broken layer stops it and leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from onnxmt import migration as job
from onnxmt.bundle import read_bundle
from onnxmt.errors import MissingExtraError, QualityGateError, SessionError
from onnxmt.measure import scores
from onnxmt.measure.gate_report import GateLimits
from onnxmt.measure.outputs import Output
from onnxmt.measure.quality import read_evaluation
from onnxmt.measure.texts import EvaluationSet, shipped_texts
from onnxmt.migration import MigrateOptions, MigrateResult, migrate
from onnxmt.precision import PRESETS
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from tests.cli.harness import invoke
from tests.measure.damage import multiply_scales


def chosen(every: int, *, shipped: bool = False) -> EvaluationSet:
    """Each n-th line of the shipped set."""
    whole = shipped_texts()
    lines = range(0, whole.lines, every)
    return EvaluationSet(
        name="some",
        sources=tuple((whole.sources or ())[i] for i in lines),
        references=(tuple(whole.references[0][i] for i in lines),),
        domains=tuple(whole.domains[i] for i in lines),
        source_language="en",
        target_language="zh",
        shipped=shipped,
    )


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> MigrateResult:
    """The demo model in int8, as `make demo` makes it."""
    return migrate("demo", tmp_path_factory.mktemp("gate") / "int8", options=MigrateOptions(verify="recording"))


def test_int8_is_the_default_and_passes(int8: MigrateResult) -> None:
    assert int8.bundle.manifest.recipe == "int8"
    assert int8.quality is not None
    assert int8.quality.misses == ()
    assert int8.warnings == ()
    assert int8.bundle.size < 0.36 * read_bundle(Path(job.__file__).parent / "demo" / "bundle").size
    for mode in ("greedy", "beam 4"):
        row = int8.quality.row(mode)
        assert row.bleu_drop is not None
        assert row.bleu_drop.value <= 0.3
        assert row.identical > 0.5


def test_the_manifest_traces_the_figures_back(int8: MigrateResult) -> None:
    manifest = read_bundle(int8.bundle.folder).manifest
    assert manifest.verification.graphs == "fp32"
    assert manifest.verification.passed
    assert (manifest.name, manifest.version, manifest.speed) == ("demo", None, None)
    assert manifest.graphs.decoder.opset == 18
    quality: Mapping[str, Any] = manifest.quality or {}
    beam = quality["modes"]["beam 4"]
    assert quality["beams"] == beam["beams"] == 4
    assert quality["bleu"] == pytest.approx(beam["bleu"], abs=1e-4)
    assert beam["fp32_bleu"] - beam["bleu"] == pytest.approx(beam["bleu_drop"]["value"], abs=2e-4)
    assert quality["gate"] == "passed"
    assert quality["how"]["sha256"] == shipped_texts().sha256
    assert quality["how"]["lines"] == shipped_texts().lines
    assert "tok:zh" in quality["how"]["signatures"]["bleu"]
    assert {"threads", "provider", "cpu", "versions", "date"} <= set(quality["how"])
    assert quality["limits"]["max_bleu_drop"] == 0.5
    assert {part["kind"] for part in beam["parts"]} == {"domain", "third"}
    assert {line["source"] for line in quality["worst"]} <= set(shipped_texts().sources or ())


def test_the_bundle_keeps_what_both_precisions_said(int8: MigrateResult) -> None:
    recorded = read_evaluation(int8.bundle)
    assert recorded is not None
    assert recorded.sha256 == shipped_texts().sha256
    fp32, own = recorded.of("greedy", "fp32"), recorded.of("greedy", "int8")
    assert fp32 is not None
    assert own is not None
    assert int8.quality is not None
    same = sum(a == b for a, b in zip(fp32, own, strict=True)) / len(own)
    assert same == pytest.approx(int8.quality.row("greedy").identical)
    with Translator.load(int8.bundle.folder) as translator:
        line = recorded.lines[3]["source"]
        assert own[3] == Output(text=translator.translate(line, options=TranslateOptions(beams=1)))
    assert not list(int8.bundle.folder.glob(".*")), "the fp32 graphs are not left in the bundle"


def test_inspect_says_in_which_precision_it_was_verified(int8: MigrateResult) -> None:
    outcome = invoke("inspect", int8.bundle.folder)
    assert outcome.lines[0] == "demo: marian, int8, verified in fp32"
    page = " ".join(outcome.text.split())
    assert "the fp32 graphs of the same weights" in page
    assert "beside fp32 passed" in page
    assert "BLEU drop" in page


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage the candidate's graphs after they are written, before they are first run."""
    run = job._run

    def damaged(built: Any) -> None:
        multiply_scales(built.folder)
        run(built)

    monkeypatch.setattr(job, "_run", damaged)


def options(**changes: Any) -> MigrateOptions:
    given: dict[str, Any] = {"verify": "none", "evaluation": chosen(12), **changes}
    return MigrateOptions(**given)


@pytest.mark.usefixtures("broken")
def test_a_layer_wrong_by_8_is_caught_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(QualityGateError) as caught:
        migrate("demo", tmp_path / "new" / "bundle", options=options())
    assert list(tmp_path.iterdir()) == []
    report = caught.value.report
    assert report is not None
    assert not report.passed
    drop = report.row("greedy").bleu_drop
    assert drop is not None
    assert drop.lower > 0.5
    message = str(caught.value)
    assert message.startswith("demo in int8 misses ")
    worst = report.worst[0]
    assert worst.source in chosen(12).sources  # type: ignore[operator]
    assert f"line {worst.line} ({worst.domain})" in message
    assert "Nothing was written" in message


@pytest.mark.usefixtures("broken")
def test_reporting_writes_the_bundle_and_says_what_it_lost(tmp_path: Path) -> None:
    result = migrate("demo", tmp_path / "bundle", options=options(gate="report"))
    quality: Mapping[str, Any] = result.bundle.manifest.quality or {}
    assert quality["gate"] == "missed"
    assert len(quality["misses"]) == len(result.warnings) - 1 > 0  # and that it is unverified
    assert result.warnings[-1].startswith("a quality limit was missed: ")
    # The texts were not the shipped ones: nothing of them is in the bundle.
    assert not (tmp_path / "bundle" / "evaluation.json").exists()
    text = (tmp_path / "bundle" / "manifest.json").read_text(encoding="utf-8")
    assert not [source for source in chosen(12).sources or () if json.dumps(source, ensure_ascii=False)[1:-1] in text]


@pytest.mark.usefixtures("broken")
def test_the_command_exits_with_1_and_shows_every_figure(tmp_path: Path) -> None:
    texts = chosen(24)
    table = tmp_path / "texts.tsv"
    rows = zip(texts.domains, texts.sources or (), texts.references[0], strict=True)
    table.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    outcome = invoke("migrate", "demo", "-o", tmp_path / "b", "--verify", "none", "--evaluation", table, "--no-bench")
    assert outcome.code == 1
    assert not (tmp_path / "b").exists()
    assert outcome.err.splitlines()[-1].startswith("onnxmt: error: demo in int8 misses ")
    assert any(line.startswith("greedy") and line.rstrip().endswith("MISSED") for line in outcome.lines)
    assert outcome.lines[-1].startswith("Quality gate FAILED: ")
    quick = ("migrate", "demo", "-o", tmp_path / "b", "--verify", "none", "--evaluation", table, "--no-bench", "--json")
    as_json = invoke(*quick)
    assert as_json.code == 1
    assert json.loads(as_json.text)["kind"] == "QualityGateError"


def test_gate_off_evaluates_nothing_and_needs_no_sacrebleu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtraError(needed_for="scoring translations", extra="eval", module="sacrebleu")

    monkeypatch.setattr(scores, "require_sacrebleu", missing)
    with pytest.raises(MissingExtraError, match=r"onnxmt\[eval\]"):
        migrate("demo", tmp_path / "b", options=MigrateOptions(verify="none"))
    result = migrate("demo", tmp_path / "b", options=MigrateOptions(verify="none", gate="off"))
    assert result.quality is result.bundle.manifest.quality is None
    assert not (tmp_path / "b" / "evaluation.json").exists()


def test_fp32_is_measured_and_has_nothing_to_miss(tmp_path: Path) -> None:
    result = migrate(
        "demo", tmp_path / "b", options=options(precision=PRESETS["fp32"], limits=GateLimits(max_bleu_drop=0))
    )
    quality: Mapping[str, Any] = result.bundle.manifest.quality or {}
    assert quality["gate"] == "not needed"
    assert quality["bleu"] > 5
    console = Console(width=200, record=True, file=(tmp_path / "page").open("w"))
    assert result.quality is not None
    result.quality.print_to(console)
    page = console.export_text()
    assert page.startswith("Quality of fp32 on 54 lines of some, against references\n")
    assert "drop" not in page


def test_values_that_are_no_numbers_stop_the_work_before_anything_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job._run

    def damaged(built: Any) -> None:
        multiply_scales(built.folder, by=float("inf"))
        run(built)

    monkeypatch.setattr(job, "_run", damaged)
    with pytest.raises(QualityGateError, match=r"the graphs in int8 give nan in logits \(decoder step 1, '") as caught:
        migrate("demo", tmp_path / "b", options=options(gate="off"))
    assert caught.value.report is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_loaded_is_found_while_migrating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case Q4: every file is loaded and run before it is handed over."""
    run = job._run

    def damaged(built: Any) -> None:
        np.zeros(10, np.uint8).tofile(built.folder / "weights.bin")
        run(built)

    monkeypatch.setattr(job, "_run", damaged)
    with pytest.raises(SessionError):
        migrate("demo", tmp_path / "b", options=options(gate="off"))
    assert list(tmp_path.iterdir()) == []
