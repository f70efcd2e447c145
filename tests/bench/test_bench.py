"""The bench: equal work for every engine, figures that follow from the answers, peers in processes of their own."""

from __future__ import annotations

import io
import json
import shutil
import stat
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxmt.bundle import read_bundle
from onnxmt.errors import BenchError, UsageError
from onnxmt.hub import resolve
from onnxmt.measure.bench import BenchOptions, EngineSpec, Workload, parse_peers, run_bench, shape_workload
from onnxmt.measure.bench.bench import _check_lengths, _Measured
from onnxmt.measure.bench.graph_file import weights_per_token
from onnxmt.measure.bench.results import length_classes
from onnxmt.measure.bench.worker import run as worker
from tests.cli.harness import GOLDEN, invoke

THREE = Workload(name="three", sentences=((1, 2, 3), (4, 5, 6, 7, 8), (9, 10)), target="source")


def spec(model: Path = GOLDEN) -> EngineSpec:
    return EngineSpec(engine="onnxmt", precision="fp32", model=model)


@pytest.fixture
def no_packages(tmp_path: Path) -> Path:
    """A Python with the standard library alone."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -E -S "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("batch", "target", "groups"),
    [
        (1, "source", [([1, 2, 3], 3), ([4, 5, 6, 7, 8], 5), ([9, 10], 2)]),
        (1, 7, [([1, 2, 3], 7), ([4, 5, 6, 7, 8], 7), ([9, 10], 7)]),
        (2, "source", [([4, 5, 6, 7, 8], 5), ([9, 10], 2)]),
        (2, "model", [([4, 5, 6, 7, 8], None), ([9, 10], None)]),
    ],
)
def test_groups(batch: int, target: Any, groups: list[tuple[list[int], int | None]]) -> None:
    work = Workload(name="w", sentences=THREE.sentences, target=target)

    found = work.groups(batch)

    assert [(group["ids"][0], group["tokens"]) for group in found] == groups
    assert sorted(len(row) for group in found for row in group["ids"]) == [2, 3, 5]


def test_tokens_of_use_do_not_depend_on_the_batch() -> None:
    assert THREE.wanted_tokens() == 10
    assert Workload(name="w", sentences=THREE.sentences, target=7).wanted_tokens() == 21
    assert Workload(name="w", sentences=THREE.sentences, target="model").wanted_tokens() is None


def test_a_shape_is_the_same_each_time_and_ends_each_sentence() -> None:
    work = shape_workload(source_tokens=5, target_tokens=6, sentences=3, vocabulary=100, end=0)

    assert [len(ids) for ids in work.sentences] == [5, 5, 5]
    assert all(ids[-1] == 0 and min(ids[:-1]) >= 2 for ids in work.sentences)
    assert work == shape_workload(source_tokens=5, target_tokens=6, sentences=3, vocabulary=100, end=0)
    assert not work.is_corpus
    assert THREE.is_corpus


def test_lengths_are_sorted_into_classes() -> None:
    classes = length_classes([10, 11, 60, 5], [1.0, 2.0, 3.0, 5.0, 3.0, 4.0, 5.0, 7.0])

    assert [(c.from_tokens, c.to_tokens, c.sentences, c.median_ms) for c in classes] == [
        (1, 10, 4, 4.0), (11, 20, 2, 3.0), (41, None, 2, 4.0),
    ]  # fmt: skip


def test_weights_that_a_step_reads() -> None:
    """As onnx itself sees the graph: everything stored outside it, but tables that only rows are taken from."""
    path = GOLDEN / "decoder.onnx"
    graph = onnx.load(path, load_external_data=False).graph
    users: dict[str, set[str]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, set()).add(node.op_type)
    wanted = {
        (entries["offset"], int(entries["length"]))
        for tensor in graph.initializer
        if (entries := {e.key: e.value for e in tensor.external_data}) and users[tensor.name] != {"Gather"}
    }

    assert weights_per_token(path) == sum(length for _, length in wanted)
    assert 0 < weights_per_token(path) < (GOLDEN / "weights.bin").stat().st_size


def test_peers_are_read_with_every_fault_named(tmp_path: Path) -> None:
    found = parse_peers("torch, ctranslate2:float32", checkpoint=tmp_path, pythons=[f"ctranslate2={sys.executable}"])

    assert [(peer.engine, peer.precision, peer.takes_workers) for peer in found] == [
        ("torch", "float32", False), ("ctranslate2", "float32", True),
    ]  # fmt: skip
    assert parse_peers("", checkpoint=None) == []
    with pytest.raises(UsageError) as caught:
        parse_peers("marian,torch:int8", checkpoint=None, pythons=["torch", f"optimum={tmp_path}/none"])
    message = str(caught.value)
    assert "'marian' is no peer; allowed: torch, ctranslate2, optimum" in message
    assert "'torch:int8': torch is measured in float32" in message
    assert "--peer-python 'torch' is not ENGINE=PATH" in message
    assert "there is no file" in message
    assert "name it with --checkpoint" in message


def test_options_are_checked_together() -> None:
    with pytest.raises(UsageError, match=r"batches is \[0\].*beams is \[\].*rounds is \[0\]"):
        BenchOptions(batches=(0,), beams=(), rounds=0)


def test_figures_of_a_bundle() -> None:
    work = Workload(name="three", sentences=((5, 6, 0), (7, 8, 9, 0), (5, 0)), target="source")

    report = run_bench([spec()], work, BenchOptions(batches=(2, 1), beams=(2, 1), threads=(1,), rounds=2))

    assert [(r.beams, r.batch, r.calls, r.passes, r.tokens) for r in report.rows] == [
        (1, 1, 6, 2, 9), (1, 2, 4, 2, 9), (2, 1, 6, 2, 9), (2, 2, 4, 2, 9),
    ]  # fmt: skip
    for row in report.rows:
        assert 0 < row.min_ms <= row.median_ms <= row.p90_ms <= row.p99_ms
        assert row.tokens_per_s == pytest.approx(3 * row.sentences_per_s)
        assert row.peak_rss_mb > 20
        assert row.first_ms > row.load_ms > 0
        assert sum(c.sentences for c in row.by_source_length) == (6 if row.batch == 1 else 0)
    written = json.loads(json.dumps(report.to_dict()))
    assert written["results"][0]["engine"] == "onnxmt"
    assert written["results"][0]["peak_rss_mb"] > 20
    assert written["missing"] == []
    assert set(written["versions"]) == {"onnxmt", "onnxruntime", "numpy"}


def test_workers_are_measured_where_an_engine_has_them(no_packages: Path, tmp_path: Path) -> None:
    specs = [spec(), EngineSpec(engine="torch", precision="float32", model=tmp_path, python=str(no_packages))]

    report = run_bench(specs, THREE, BenchOptions(beams=(1,), threads=(1,), workers=(1, 2), rounds=1))

    assert [(row.engine, row.workers) for row in report.rows] == [("onnxmt", 1), ("onnxmt", 2)]
    assert report.missing == (f"torch: the package 'torch' is not in {no_packages}",)
    assert report.skipped == ("torch float32 with 2 workers: it has one pool of threads for all",)
    assert "Not measured: torch: the package 'torch'" in report.markdown()


def test_an_engine_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"onnxmt fp32: .*no bundle|onnxmt fp32: Bundle"):
        run_bench([spec(tmp_path)], THREE, BenchOptions(threads=(1,)))
    with pytest.raises(UsageError, match="nothing to measure"):
        run_bench([], THREE, BenchOptions())


def test_other_work_than_asked_for_is_refused() -> None:
    runner = types.SimpleNamespace(process=types.SimpleNamespace(spec=spec()))
    groups = THREE.groups(2)

    _check_lengths(runner, _Measured(batch=2, beams=1), groups, [[5, 5], [2]])  # type: ignore[arg-type]
    with pytest.raises(BenchError, match="onnxmt fp32 generated 4, 5 tokens where 5 were asked for"):
        _check_lengths(runner, _Measured(batch=2, beams=1), groups, [[5, 4], [2]])  # type: ignore[arg-type]


class Fake:
    """An engine that generates as many tokens as it is told, and fails on token 13."""

    def versions(self) -> dict[str, str]:
        return {"fake": "1"}

    def translate(self, ids: list[list[int]], *, beams: int, tokens: int | None) -> list[int]:
        if ids[0][0] == 13:
            raise RuntimeError("unlucky\nmore")
        return [tokens or beams for _ in ids]


def answers_to(commands: Sequence[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setitem(sys.modules, "engine_fake", types.SimpleNamespace(load=lambda **_: Fake()))
    out = io.StringIO()
    worker.serve("fake", io.StringIO("".join(json.dumps(c) + "\n" for c in commands)), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("pool", [1, 2])
def test_the_process_of_an_engine(pool: int, monkeypatch: pytest.MonkeyPatch) -> None:
    load = {"do": "load", "options": {}, "pool": pool}
    groups = [{"ids": [[1], [2]], "tokens": 4}, {"ids": [[3]], "tokens": None}]

    loaded, done, failed, memory = answers_to(
        [load, {"do": "run", "groups": groups, "beams": 3},
         {"do": "run", "groups": [{"ids": [[13]], "tokens": 1}], "beams": 1}, {"do": "memory"}],
        monkeypatch,
    )  # fmt: skip

    assert loaded == {"versions": {"fake": "1"}}
    assert done["lengths"] == [[4, 4], [3]]
    assert len(done["seconds"]) == 2
    assert done["whole"] > 0
    assert failed == {"error": "RuntimeError: unlucky"}
    assert memory["peak"] > 0


def test_command_line(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(GOLDEN, bundle)
    chart = tmp_path / "chart.svg"

    done = invoke(
        "bench", bundle, "--rounds", "1", "--beams", "1", "--batch", "1,2", "--threads", "1", "--source-tokens", "6",
        "--target-tokens", "4", "--write", "--chart", chart, "--json",
    )  # fmt: skip

    assert done.code == 0, done.err
    results = json.loads(done.text)["results"]
    assert [(row["batch"], row["threads"], row["precision"]) for row in results] == [(1, 1, "fp32"), (2, 1, "fp32")]
    speed = read_bundle(bundle).manifest.speed
    assert speed is not None
    assert [row["batch"] for row in speed["results"]] == [1, 2]
    assert speed["results"][0]["median_ms"] == results[0]["median_ms"]
    assert chart.read_text().count("onnxmt fp32") >= 1


def test_a_file_of_sentences_as_markdown(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("It rained.\n\nThe library opens at nine.\nYes.\n", encoding="utf-8")

    done = invoke(
        "bench", GOLDEN, "--sentences", lines, "--limit", "3", "--target-tokens", "source", "--beams", "1",
        "--rounds", "1", "--threads", "1", "--markdown",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert done.lines[0].startswith("| engine | beams | batch |")
    assert done.lines[2].startswith("| onnxmt fp32 | 1 | 1 | 1 |")
    assert "2 lines of lines.txt, as many tokens out as in; 1 rounds" in done.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([GOLDEN, "--beams", "1,x"], "--beams is '1,x'"),
        ([GOLDEN, GOLDEN], "two bundles are of one precision"),
        ([GOLDEN, "--target-tokens", "model"], "--target-tokens model needs --sentences"),
        ([GOLDEN, "--target-tokens", "-1"], "--target-tokens is '-1'"),
        ([GOLDEN, "--chart", "x.gif"], "has to end in .png or .svg"),
        ([GOLDEN, "--json", "--markdown"], "--json or --markdown, not both"),
        ([GOLDEN, "--sentences", "no-such-file"], "cannot read no-such-file"),
        ([GOLDEN, "--peers", "torch"], "name it with --checkpoint"),
    ],
)
def test_wrong_use(arguments: list[str | Path], message: str) -> None:
    assert message in invoke("bench", *arguments).error()


def test_bundles_of_two_models_are_refused() -> None:
    demo = Path(__file__).parents[2] / "src" / "onnxmt" / "demo" / "bundle"

    assert "only bundles of one model can be compared" in invoke("bench", GOLDEN, demo).error()


@pytest.mark.reference
def test_pytorch_does_the_same_work() -> None:
    """The demo model in both engines: as many tokens, and float32 in PyTorch."""
    checkpoint = resolve("demo").folder
    demo = Path(__file__).parents[2] / "src" / "onnxmt" / "demo" / "bundle"
    work = Workload(name="two", sentences=((5, 6, 0), (7, 8, 9, 10, 0)), target=3)

    report = run_bench(
        [spec(demo), *parse_peers("torch", checkpoint=checkpoint)],
        work,
        BenchOptions(batches=(2,), beams=(1, 2), threads=(1,), rounds=1),
    )

    assert [(row.engine, row.beams, row.tokens) for row in report.rows] == [
        ("onnxmt", 1, 6), ("torch", 1, 6), ("onnxmt", 2, 6), ("torch", 2, 6),
    ]  # fmt: skip
    assert {"torch", "transformers", "onnxruntime"} <= set(report.recipe["versions"])
    assert np.isfinite([report.ratio(row) or 0 for row in report.rows]).all()
