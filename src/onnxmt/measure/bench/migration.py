"""The speed of a new bundle beside PyTorch: single sentences at the default beams, the same token ids to both."""

from __future__ import annotations

import contextlib
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxmt.errors import BenchError, SpeedLimitError, UsageError
from onnxmt.measure.bench.engines import EngineProcess, EngineSpec, MissingPeer
from onnxmt.measure.bench.results import MEGABYTE
from onnxmt.measure.provenance import now
from onnxmt.runtime.cpu import cpu_limit
from onnxmt.runtime.cpu_features import cpu_features
from onnxmt.runtime.memory import usual_target

if TYPE_CHECKING:
    from rich.console import Console

SENTENCES = 64
"""Lines that are translated at most; fewer where they take too long."""
BATCH = 16
"""Lines of a batch when throughput is measured."""
_SECONDS = 16.0  # for all engines and single sentences together, once they are loaded; the last turn may pass it
_TURN = 8  # sentences that an engine translates before the other has its turn
_LEAST_FOR_BATCHES = 16  # where even so few sentences were too slow, batches would take long as well
_SETTLE_SECONDS = 0.25  # OpenMP's threads spin for 200 ms after their last work (KMP_BLOCKTIME)
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, kw_only=True)
class SpeedLimits:
    """The most milliseconds that the median and the slowest hundredth of single sentences may take. None: no limit."""

    max_p50_ms: float | None = None
    max_p99_ms: float | None = None

    def __post_init__(self) -> None:
        wrong = [f"{name} is {value}" for name, value in asdict(self).items() if value is not None and not value > 0]
        if wrong:
            raise UsageError(f"limits of speed are milliseconds above 0: {', '.join(wrong)}")

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return self.max_p50_ms is not None or self.max_p99_ms is not None


@dataclass(frozen=True, kw_only=True)
class SpeedText:
    """What is translated: ids as the model's tokenizer gives them, and the place of each line in its set."""

    name: str
    sentences: tuple[tuple[int, ...], ...]
    lines: tuple[int, ...]


def spread(lengths: Sequence[int], count: int = SENTENCES) -> list[int]:
    """Return the places of `count` sentences of all lengths, in an order of which every beginning is such a choice."""
    by_length = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    order = sorted(range(len(by_length)), key=lambda rank: (rank * _GOLDEN) % 1)
    return [by_length[rank] for rank in order[:count]]


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """One engine: milliseconds of single sentences, rates of batches (None: not measured), peak memory before those.

    `bleu` and `chrf` are of the same translations against the set's references, where it has any.
    """

    engine: str
    precision: str
    beams: int
    batch: int
    threads: int
    sentences: int
    tokens: int
    median_ms: float
    p99_ms: float
    sentences_per_s: float | None
    tokens_per_s: float | None
    peak_rss_mb: float
    load_ms: float
    bleu: float | None = None
    chrf: float | None = None


@dataclass(frozen=True, kw_only=True)
class MigrationSpeed:
    """The rows, PyTorch's first where it is there, else `no_baseline` says why; `outputs`: the tokens, row by row."""

    rows: tuple[SpeedRow, ...]
    outputs: tuple[tuple[tuple[int, ...], ...], ...]
    lines: tuple[int, ...]
    recipe: Mapping[str, Any]
    no_baseline: str | None = None

    @property
    def own(self) -> SpeedRow:
        """The bundle's row."""
        return self.rows[-1]

    @property
    def baseline(self) -> SpeedRow | None:
        """PyTorch's row."""
        return self.rows[0] if len(self.rows) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Return what a manifest's `speed` keeps."""
        return {
            "p50_ms": round(self.own.median_ms, 3),
            "p99_ms": round(self.own.p99_ms, 3),
            "results": [
                {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(row).items()}
                for row in self.rows
            ],
            "baseline": self.no_baseline or "measured here, on the same sentences",
            **self.recipe,
        }

    def misses(self, limits: SpeedLimits) -> list[str]:
        """Return what is over a limit."""
        measured = (("median", self.own.median_ms, limits.max_p50_ms), ("P99", self.own.p99_ms, limits.max_p99_ms))
        return [
            f"the {name} of single sentences is {value:.1f} ms, and at most {limit:g} ms are allowed"
            for name, value, limit in measured
            if limit is not None and value > limit
        ]

    def raise_if_missed(self, limits: SpeedLimits, *, model: str) -> None:
        """Raise SpeedLimitError where a limit is missed."""
        if misses := self.misses(limits):
            raise SpeedLimitError(
                f"{model} in {self.own.precision} is too slow here: {'; '.join(misses)} ({self.own.sentences} "
                f"sentences, {self.own.beams} beams, {self.own.threads} threads). Nothing was written. Take a faster "
                "precision (int4, --trim-head), fewer beams, or raise the limit"
            )

    def print_to(self, console: Console) -> None:
        """Print the table."""
        from rich.table import Table

        table = Table(
            "engine", "P50 ms", "P99 ms", "sentences/s", "tokens/s", "peak RSS MB", "BLEU",
            title=f"Speed: {self.recipe['workload']}", title_justify="left",
        )  # fmt: skip
        for column in table.columns[1:]:
            column.justify = "right"
        for row in self.rows:
            rates = ("" if rate is None else f"{rate:.1f}" for rate in (row.sentences_per_s, row.tokens_per_s))
            table.add_row(
                f"{row.engine} {row.precision}",
                f"{row.median_ms:.1f}",
                f"{row.p99_ms:.1f}",
                *rates,
                f"{row.peak_rss_mb:.0f}",
                "" if row.bleu is None else f"{row.bleu:.2f}",
            )
        console.print(table)
        if self.baseline is not None:
            console.print(f"{self.baseline.median_ms / self.own.median_ms:.1f} times as fast as PyTorch (medians).")
        else:
            console.print(
                f"No PyTorch baseline: {self.no_baseline}.", markup=False
            )  # it names extras: onnxmt[reference]


@dataclass(kw_only=True)
class _Runner:
    process: EngineProcess
    seconds: list[float] = field(default_factory=list)
    tokens: list[tuple[int, ...]] = field(default_factory=list)
    peak: int = 0
    batches: float | None = None


def measure_migration(
    own: EngineSpec,
    baseline: EngineSpec | str,
    text: SpeedText,
    *,
    beams: int,
    told: Mapping[str, int],
    seconds: float = _SECONDS,
    progress: Callable[[int, int], None] | None = None,
) -> MigrationSpeed:
    """Let PyTorch and the bundle translate the sentences by turns, each in a process of its own, at the model's length.

    `baseline` is PyTorch's spec, or why there is none. `told`: what generation is told of the target, and the model's
    max_new_tokens. After `seconds` no further turn begins. A PyTorch that cannot do it is named as no baseline; raises
    BenchError where the bundle cannot, and UsageError without sentences.
    """
    if not text.sentences:
        raise UsageError(f"there is no sentence in {text.name} to measure the speed on")
    threads = cpu_limit().threads
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onnxmt-bench-")))

        def started(spec: EngineSpec) -> _Runner:
            process = EngineProcess(spec, threads=threads, workers=1, scratch=scratch)
            stack.callback(process.close)
            shortest = min(text.sentences, key=len)
            process.run([{"ids": [list(shortest)], "tokens": 2}] * 2, beams)  # warm
            return _Runner(process=process)

        runners, reason = [], baseline if isinstance(baseline, str) else None
        if isinstance(baseline, EngineSpec):
            try:
                runners.append(started(baseline))
            except (BenchError, MissingPeer) as error:
                reason = str(error)
        runners.append(started(own))
        done = _singles(runners, text, beams, told, seconds, progress)
        if done >= min(_LEAST_FOR_BATCHES, len(text.sentences)):
            _batches(runners, text.sentences[:done], beams, told)
        rows = tuple(_row(runner, beams, threads) for runner in runners)
        versions = dict(itertools.chain.from_iterable(runner.process.versions.items() for runner in runners))
    return MigrationSpeed(
        rows=rows,
        outputs=tuple(tuple(runner.tokens) for runner in runners),
        lines=text.lines[:done],
        no_baseline=reason,
        recipe={
            "workload": f"{done} single sentences of {text.name}, {beams} beams, the model's own lengths",
            "throughput": "not measured: single sentences take too long"
            if rows[-1].sentences_per_s is None
            else f"the same sentences in batches of {BATCH}",
            "date": now(),
            "cpu": cpu_features().model or cpu_features().architecture,
            "versions": versions,
        },
    )


def _singles(
    runners: Sequence[_Runner],
    text: SpeedText,
    beams: int,
    told: Mapping[str, int],
    seconds: float,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Translate sentence by sentence, by turns; return how many there was time for."""
    begin, done = time.perf_counter(), 0
    while done < len(text.sentences) and (done == 0 or time.perf_counter() - begin < seconds):
        # The first turn is of one sentence, and where that takes long, so are the others.
        spent = time.perf_counter() - begin
        count = max(1, min(_TURN, int((seconds - spent) * done / spent))) if done else 1
        turn = text.sentences[done : done + count]
        for runner in runners:
            if len(runners) > 1:
                time.sleep(_SETTLE_SECONDS)
            answer = runner.process.outputs([[ids] for ids in turn], beams, _limited(told, turn))
            runner.seconds += answer["seconds"]
            runner.tokens += [tuple(tokens) for (tokens,) in answer["tokens"]]
        done += len(turn)
        if progress is not None:
            progress(done, len(text.sentences))
    for runner in runners:
        runner.peak = runner.process.memory()["peak"] or 0
    return done


def _batches(
    runners: Sequence[_Runner], sentences: Sequence[Sequence[int]], beams: int, told: Mapping[str, int]
) -> None:
    """Translate the same sentences in batches of like length."""
    ordered = sorted(sentences, key=lambda ids: -len(ids))
    groups = [ordered[first : first + BATCH] for first in range(0, len(ordered), BATCH)]
    for runner in runners:
        time.sleep(_SETTLE_SECONDS)
        runner.batches = sum(runner.process.outputs(groups, beams, _limited(told, ordered))["seconds"])


def _limited(told: Mapping[str, int], sentences: Sequence[Sequence[int]]) -> dict[str, int]:
    """Add a limit on the output that only a model in a loop reaches: hundreds of tokens say nothing of its speed."""
    longest = usual_target(max(map(len, sentences)), told["max_new_tokens"])
    return {**told, "max_new_tokens": longest}


def _row(runner: _Runner, beams: int, threads: int) -> SpeedRow:
    spec, milliseconds = runner.process.spec, 1e3 * np.array(runner.seconds)
    tokens = sum(map(len, runner.tokens))
    return SpeedRow(
        engine=spec.engine,
        precision=spec.precision,
        beams=beams,
        batch=1,
        threads=threads,
        sentences=len(milliseconds),
        tokens=tokens,
        median_ms=float(np.median(milliseconds)),
        p99_ms=float(np.percentile(milliseconds, 99)),
        sentences_per_s=None if runner.batches is None else len(milliseconds) / runner.batches,
        tokens_per_s=None if runner.batches is None else tokens / runner.batches,
        peak_rss_mb=runner.peak / MEGABYTE,
        load_ms=1e3 * runner.process.ready_seconds,
    )
