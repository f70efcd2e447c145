"""Engines side by side: what each takes for the same work, in one run."""

from __future__ import annotations

from onnxmt.measure.bench.bench import BenchOptions, run_bench
from onnxmt.measure.bench.engines import PEERS, EngineSpec, parse_peers
from onnxmt.measure.bench.results import BenchReport, BenchRow
from onnxmt.measure.bench.workload import Workload, shape_workload

__all__ = [
    "PEERS",
    "BenchOptions",
    "BenchReport",
    "BenchRow",
    "EngineSpec",
    "Workload",
    "parse_peers",
    "run_bench",
    "shape_workload",
]
