"""migrate's own bench: equal inputs for PyTorch and the bundle, limits that stop the work, a baseline or why not."""

from __future__ import annotations

import functools
import json
import stat
import sys
from pathlib import Path

import pytest

from onnxmt.bundle import read_bundle
from onnxmt.errors import BenchError, SizeLimitError, SpeedLimitError, UsageError
from onnxmt.hub import resolve
from onnxmt.measure import migration_speed
from onnxmt.measure.bench import EngineSpec
from onnxmt.measure.bench.migration import (
    MigrationSpeed,
    SpeedLimits,
    SpeedRow,
    SpeedText,
    measure_migration,
    spread,
)
from onnxmt.measure.quality import add_to_evaluation
from onnxmt.measure.texts import EvaluationSet
from onnxmt.migration import MigrateOptions, migrate
from onnxmt.precision import PRESETS, recipe
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from tests.cli.harness import GOLDEN, invoke

LINES = ("Yes.", "The library opens at nine.", "Where is the station?", "A black cat is sleeping.")
TEXTS = EvaluationSet(
    name="four", sources=LINES, references=(("是。", "图书馆九点开门。", "车站在哪里？", "一只黑猫在睡觉。"),),
    domains=("a",) * 4, source_language="en", target_language="zh",
)  # fmt: skip
TOLD = {"max_new_tokens": 60}
QUICK = MigrateOptions(verify="none", gate="off", evaluation=TEXTS, bench=True)


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration_speed, "missing_package", lambda: "torch")


def own(model: Path = GOLDEN, precision: str = "fp32") -> EngineSpec:
    return EngineSpec(engine="onnxmt", precision=precision, model=model)


def text(translator: Translator) -> SpeedText:
    sentences = tuple(tuple(translator.tokenizer.encode(line)) for line in LINES)
    return SpeedText(name="four", sentences=sentences, lines=(0, 1, 2, 3))


def row(**changes: object) -> SpeedRow:
    values: dict[str, object] = {
        "engine": "onnxmt", "precision": "int8", "beams": 4, "batch": 1, "threads": 2, "sentences": 9, "tokens": 90,
        "median_ms": 20.0, "p99_ms": 41.5, "sentences_per_s": 100.0, "tokens_per_s": 1000.0, "peak_rss_mb": 200.0,
        "load_ms": 300.0,
    }  # fmt: skip
    return SpeedRow(**{**values, **changes})  # type: ignore[arg-type]


def speed(*rows: SpeedRow, reason: str | None = None) -> MigrationSpeed:
    return MigrationSpeed(rows=rows, outputs=(), lines=(), recipe={"workload": "w"}, no_baseline=reason)


def test_every_beginning_of_the_sentences_is_spread_over_the_lengths() -> None:
    lengths = [length * 7 % 101 for length in range(100)]
    order = spread(lengths, 64)
    assert len(set(order)) == 64
    for count in (4, 8, 16, 32, 64):
        chosen = sorted(lengths[place] for place in order[:count])
        assert max(b - a for a, b in zip([0, *chosen], [*chosen, 100], strict=False)) <= 2.7 * 100 / count
    assert spread([3, 1], 64) == [1, 0]
    assert spread([], 64) == []


def test_the_bundle_translates_at_its_own_length_as_the_translator_does() -> None:
    with Translator.load(GOLDEN) as translator:
        beams = translator.settings.num_beams
        wanted = translator.translate_detailed(list(LINES), options=TranslateOptions(split=False))
        found = measure_migration(own(), "torch is not there", text(translator), beams=beams, told=TOLD)
        end = translator.settings.eos_token_ids[0]
        assert [tuple(t for t in tokens if t != end) for tokens in found.outputs[0]] == [one.tokens for one in wanted]
        cut = measure_migration(own(), "none", text(translator), beams=beams, told={"max_new_tokens": 2})
        assert {len(tokens) for tokens in cut.outputs[0]} == {2}
    assert found.baseline is None
    assert found.no_baseline == "torch is not there"
    assert found.own.sentences == 4
    assert found.own.p99_ms >= found.own.median_ms > 0
    assert found.own.sentences_per_s is not None  # four are all there are
    assert found.to_dict()["baseline"] == "torch is not there"
    assert found.to_dict()["p50_ms"] == round(found.own.median_ms, 3)


def test_what_takes_too_long_is_measured_on_fewer_sentences() -> None:
    with Translator.load(GOLDEN) as translator:
        sentences = text(translator)
    many = SpeedText(name="many", sentences=sentences.sentences * 5, lines=tuple(range(20)))
    found = measure_migration(own(), "none", many, beams=1, told=TOLD, seconds=0.0)
    assert found.own.sentences == 1
    assert found.own.sentences_per_s is None
    assert found.lines == (0,)
    assert "1 single sentences of many" in found.recipe["workload"]


def test_a_baseline_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -E -S "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    torch = EngineSpec(engine="torch", precision="fp32", model=tmp_path, python=str(python))
    with Translator.load(GOLDEN) as translator:
        found = measure_migration(own(), torch, text(translator), beams=1, told=TOLD)
    assert len(found.rows) == 1
    assert "torch" in (found.no_baseline or "")
    with pytest.raises(BenchError), Translator.load(GOLDEN) as translator:
        measure_migration(own(tmp_path / "nothing"), "none", text(translator), beams=1, told=TOLD)


def test_nothing_to_measure_on() -> None:
    with pytest.raises(UsageError, match="no sentence in empty"):
        measure_migration(own(), "none", SpeedText(name="empty", sentences=(), lines=()), beams=1, told=TOLD)


def test_limits() -> None:
    assert not SpeedLimits().any
    found = speed(row())
    assert found.misses(SpeedLimits(max_p50_ms=20, max_p99_ms=41.5)) == []
    assert found.misses(SpeedLimits(max_p50_ms=19.9, max_p99_ms=41)) == [
        "the median of single sentences is 20.0 ms, and at most 19.9 ms are allowed",
        "the P99 of single sentences is 41.5 ms, and at most 41 ms are allowed",
    ]
    with pytest.raises(SpeedLimitError, match=r"m in int8 is too slow here: .*9 sentences, 4 beams, 2 threads"):
        found.raise_if_missed(SpeedLimits(max_p99_ms=1), model="m")
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="max_p50_ms is"):
            SpeedLimits(max_p50_ms=wrong)
    with pytest.raises(UsageError, match="leave --no-bench"):
        MigrateOptions(speed=SpeedLimits(max_p50_ms=1))


def test_the_table_says_how_much_faster_or_why_not() -> None:
    import io

    from rich.console import Console

    for one, said in (
        (speed(row(engine="torch", precision="fp32", median_ms=90.0), row()), "4.5 times as fast as PyTorch"),
        (speed(row(), reason="the package 'torch' is not installed"), "No PyTorch baseline: the package 'torch'"),
    ):
        out = io.StringIO()
        one.print_to(Console(file=out, width=120))
        assert said in out.getvalue()
        assert "onnxmt int8" in out.getvalue()


@pytest.mark.usefixtures("no_torch")
def test_migrate_keeps_the_figures_and_says_that_there_is_no_baseline(tmp_path: Path) -> None:
    result = migrate("demo", tmp_path / "out", options=QUICK)
    assert result.speed is not None
    manifest = read_bundle(tmp_path / "out").manifest
    assert manifest.speed == result.speed.to_dict()
    assert "'torch' is not installed" in manifest.speed["baseline"]
    [measured] = manifest.speed["results"]
    assert (measured["engine"], measured["precision"], measured["sentences"]) == ("onnxmt", "int8", 4)
    assert measured["bleu"] > 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "is not installed (pip install" in page
    assert "no benchmark was run" not in page
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.usefixtures("no_torch")
def test_a_missed_limit_leaves_what_was_there(tmp_path: Path) -> None:
    import dataclasses

    slow = dataclasses.replace(QUICK, speed=SpeedLimits(max_p50_ms=0.001), overwrite=True)
    with pytest.raises(SpeedLimitError, match="the median of single sentences"):
        migrate("demo", tmp_path / "new", options=slow)
    assert list(tmp_path.iterdir()) == []
    before = migrate("demo", tmp_path / "out", options=dataclasses.replace(QUICK, bench=False)).bundle.manifest
    with pytest.raises(SpeedLimitError):
        migrate("demo", tmp_path / "out", options=slow)
    assert read_bundle(tmp_path / "out").manifest == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.usefixtures("no_torch")
def test_the_command_line(tmp_path: Path) -> None:
    table = tmp_path / "lines.tsv"
    table.write_text("".join(f"a\t{line}\t是。\n" for line in LINES), encoding="utf-8")
    asked = ("migrate", "demo", "--verify", "none", "--gate", "off", "--evaluation", str(table))
    outcome = invoke(*asked, "-o", tmp_path / "out", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.text)["speed"]["results"][0]["beams"] == 4
    missed = invoke(*asked, "-o", tmp_path / "slow", "--max-p99-ms", "0.001")
    assert missed.code == 1
    assert "is too slow here" in missed.err
    assert not (tmp_path / "slow").exists()
    assert "leave --no-bench" in invoke(*asked, "-o", tmp_path / "x", "--no-bench", "--max-p50-ms", "5").error()
    plain = invoke(*asked, "-o", tmp_path / "plain", "--no-bench", "--json")
    assert json.loads(plain.text)["speed"] is None


def test_no_smaller_than_fp32_is_refused_or_told(tmp_path: Path) -> None:
    """A tied table in two precisions is stored twice (case Q2)."""
    larger = MigrateOptions(precision=recipe("fp32,embedding=int8"), verify="none", evaluation=TEXTS)
    with pytest.raises(SizeLimitError, match="quantising it so wins nothing"):
        migrate("demo", tmp_path / "out", options=larger)
    assert list(tmp_path.iterdir()) == []
    import dataclasses

    told = migrate("demo", tmp_path / "out", options=dataclasses.replace(larger, gate="report"))
    assert any("quantising it so wins nothing" in warning for warning in told.warnings)


def test_what_pytorch_translated_is_kept_beside_the_others(tmp_path: Path) -> None:
    add_to_evaluation(tmp_path, "pytorch", {"lines": [1]})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "evaluation.json").write_text('{"format": 1}', encoding="utf-8")
    add_to_evaluation(tmp_path, "pytorch", {"lines": [1]})
    found = json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))
    assert found == {"format": 1, "pytorch": {"lines": [1]}}


@pytest.mark.reference
def test_pytorch_is_measured_on_the_same_sentences_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp32 both give the same tokens, so the same BLEU: the inputs, the settings and the ends are the same."""
    slow_machine = functools.partial(measure_migration, seconds=600.0)
    monkeypatch.setattr(migration_speed, "measure_migration", slow_machine)
    options = MigrateOptions(precision=PRESETS["fp32"], verify="none", evaluation=TEXTS, bench=True)
    result = migrate(resolve("demo").folder, tmp_path / "out", options=options)
    found = result.speed
    assert found is not None
    assert found.no_baseline is None
    assert found.outputs[0] == found.outputs[1]
    assert [one.engine for one in found.rows] == ["torch", "onnxmt"]
    quality = result.bundle.manifest.quality
    assert quality is not None
    assert quality["pytorch"]["lines"] == 4
    assert quality["pytorch"]["identical"] == 1.0
    assert quality["pytorch"]["bleu"] == quality["pytorch"]["own_bleu"] == found.rows[0].bleu
    assert "torch fp32" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
