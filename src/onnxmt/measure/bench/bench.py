"""The bench itself: settings, rounds in which the engines take turns, and the figures out of their answers."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxmt.bundle import read_bundle
from onnxmt.errors import BenchError, UsageError
from onnxmt.measure.bench.bandwidth import read_bandwidth
from onnxmt.measure.bench.engines import EngineProcess, EngineSpec, MissingPeer
from onnxmt.measure.bench.graph_file import weights_per_token
from onnxmt.measure.bench.results import MEGABYTE, BenchReport, BenchRow, length_classes
from onnxmt.measure.bench.workload import Workload
from onnxmt.measure.provenance import now
from onnxmt.runtime.cpu import cpu_limit
from onnxmt.runtime.cpu_features import cpu_features

# OpenMP's threads spin for 200 ms after their last work (KMP_BLOCKTIME), which would be charged to the next engine.
_SETTLE_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The settings: every combination is measured, of every engine that can run it.

    `batch` sentences a call, `threads` for each of `workers` callers at once. In each of `rounds` rounds every engine
    makes one pass over the workload.
    """

    batches: tuple[int, ...] = (1,)
    beams: tuple[int, ...] = (1, 4)
    threads: tuple[int, ...] = ()
    workers: tuple[int, ...] = (1,)
    rounds: int = 10

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {list(values)}; whole numbers from 1 on are allowed"
            for name, values in (
                ("batches", self.batches),
                ("beams", self.beams),
                ("threads", self.threads or (1,)),
                ("workers", self.workers),
                ("rounds", (self.rounds,)),
            )
            if not values or any(type(value) is not int or value < 1 for value in values)
        ]
        if problems:
            raise UsageError(f"bench options: {'; '.join(problems)}")


@dataclass(kw_only=True)
class _Measured:
    """What one engine process gave for one setting."""

    batch: int
    beams: int
    seconds: list[float] = field(default_factory=list)
    wholes: list[float] = field(default_factory=list)
    tokens: int = 0
    peak: int = 0
    steady: int | None = None


@dataclass(kw_only=True)
class _Runner:
    """One engine process, the time until its first translation, and its figures."""

    process: EngineProcess
    first_seconds: float
    settings: list[_Measured]


def run_bench(
    specs: Sequence[EngineSpec],
    workload: Workload,
    options: BenchOptions,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> BenchReport:
    """Measure the engines side by side, each in processes of its own, and return every figure.

    A peer that is not installed is named in the report. Raises BenchError for an engine that fails or that generates
    another number of tokens than it was told, UsageError where there is nothing to measure.
    """
    if not specs:
        raise UsageError("nothing to measure: name a bundle")
    threads = options.threads or (cpu_limit().threads,)
    missing: dict[str, None] = {}
    skipped: dict[str, None] = {}
    bandwidth = {count: read_bandwidth(count) for count in {t * w for t in threads for w in options.workers}}
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onnxmt-bench-")))
        runners: list[_Runner] = []
        for spec, count, workers in itertools.product(specs, threads, options.workers):
            if workers > 1 and not spec.takes_workers:
                skipped[f"{spec.label} with {workers} workers: it has one pool of threads for all"] = None
                continue
            try:
                process = EngineProcess(spec, threads=count, workers=workers, scratch=scratch)
            except MissingPeer as reason:
                missing[str(reason)] = None
                continue
            stack.callback(process.close)
            runners.append(_started(process, workload, options))
        _measure(runners, workload, options, progress)
        rows = [_row(runner, measured, workload, bandwidth) for runner in runners for measured in runner.settings]
    rows.sort(key=lambda row: (row.beams, row.batch, row.workers, row.threads))
    recipe: dict[str, Any] = {
        "workload": workload.name,
        "target": workload.target,
        "rounds": options.rounds,
        "date": now(),
        "cpu": cpu_features().model or cpu_features().architecture,
        "bandwidth_gb_s": round(max(bandwidth.values()), 2),
        "versions": _versions(runners),
    }
    return BenchReport(rows=tuple(rows), recipe=recipe, missing=tuple(missing), skipped=tuple(skipped))


def _started(process: EngineProcess, workload: Workload, options: BenchOptions) -> _Runner:
    """Let a loaded engine translate its first sentence."""
    settings = [
        _Measured(batch=batch, beams=beams)
        for beams, batch in sorted(
            itertools.product(options.beams, options.batches), key=lambda pair: pair[0] * pair[1]
        )
    ]
    process.run(workload.groups(1)[:1], settings[0].beams)
    return _Runner(process=process, first_seconds=process.age_seconds, settings=settings)


def _measure(
    runners: Sequence[_Runner],
    workload: Workload,
    options: BenchOptions,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Let the engines take turns, setting by setting; the first round is warming up, and shows what memory it takes."""
    count = len(runners[0].settings) if runners else 0
    for round_number in range(options.rounds + 1):
        for place in range(count):
            for runner in runners:
                measured = runner.settings[place]
                groups = workload.groups(measured.batch)
                time.sleep(_SETTLE_SECONDS)
                if round_number == 0:
                    answer = runner.process.run(groups[: max(2, runner.process.workers)], measured.beams)
                else:
                    answer = runner.process.run(groups, measured.beams)
                    measured.seconds += answer["seconds"]
                    measured.wholes.append(answer["whole"])
                    measured.tokens = sum(itertools.chain(*answer["lengths"]))
                _check_lengths(runner, measured, groups, answer["lengths"])
                if round_number <= 1:
                    memory = runner.process.memory()
                    measured.peak, measured.steady = memory["peak"] or 0, memory["now"]
        if progress is not None:
            progress(round_number, options.rounds)


def _check_lengths(
    runner: _Runner, measured: _Measured, groups: Sequence[Mapping[str, Any]], lengths: Sequence[Sequence[int]]
) -> None:
    """Refuse to compare engines that did not do the same work."""
    for group, found in zip(groups, lengths, strict=False):
        wanted = group["tokens"]
        if wanted is not None and any(length != wanted for length in found):
            lengths_found = ", ".join(map(str, sorted(set(found))))
            raise BenchError(
                f"{runner.process.spec.label} generated {lengths_found} tokens where {wanted} "
                f"were asked for (beams {measured.beams}, batch {measured.batch}): figures would not be comparable"
            )


def _row(runner: _Runner, measured: _Measured, workload: Workload, bandwidth: Mapping[int, float]) -> BenchRow:
    process, spec = runner.process, runner.process.spec
    milliseconds = 1e3 * np.array(measured.seconds)
    whole = float(np.median(measured.wholes))
    tokens = workload.wanted_tokens() or measured.tokens
    weights = share = None
    if spec.engine == "onnxmt":
        manifest = read_bundle(spec.model, check="size")
        weights = weights_per_token(manifest.path(manifest.manifest.graphs.decoder.file)) / MEGABYTE
        steps = tokens / measured.batch  # each step reads the weights once for all its rows
        share = weights * MEGABYTE * steps / whole / 1e9 / bandwidth[process.threads * process.workers]
    single = measured.batch == 1 and process.workers == 1 and workload.is_corpus
    return BenchRow(
        engine=spec.engine,
        precision=spec.precision,
        beams=measured.beams,
        batch=measured.batch,
        threads=process.threads,
        workers=process.workers,
        workload=workload.name,
        calls=len(measured.seconds),
        passes=len(measured.wholes),
        median_ms=float(np.median(milliseconds)),
        p90_ms=float(np.percentile(milliseconds, 90)),
        p99_ms=float(np.percentile(milliseconds, 99)),
        min_ms=float(milliseconds.min()),
        sentences_per_s=len(workload.sentences) / whole,
        tokens_per_s=tokens / whole,
        tokens=tokens,
        peak_rss_mb=measured.peak / MEGABYTE,
        steady_rss_mb=None if measured.steady is None else measured.steady / MEGABYTE,
        load_ms=1e3 * process.ready_seconds,
        first_ms=1e3 * runner.first_seconds,
        weights_mb_per_token=weights,
        share_of_bandwidth=share,
        by_source_length=length_classes([len(ids) for ids in workload.sentences], milliseconds.tolist())
        if single
        else (),
    )


def _versions(runners: Sequence[_Runner]) -> dict[str, str]:
    """The packages that computed; one that an engine has in another version appears under that engine's name too."""
    versions: dict[str, str] = {}
    for runner in runners:
        for name, version in runner.process.versions.items():
            if versions.setdefault(name, version) != version:
                versions[f"{name} ({runner.process.spec.engine})"] = version
    return versions
