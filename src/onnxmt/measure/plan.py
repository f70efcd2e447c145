"""What fits into a container: a short calibration of one bundle, and from it every precision, beams and batch."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxmt.bundle import Bundle, read_bundle
from onnxmt.errors import UsageError
from onnxmt.measure.bench.engines import EngineProcess, EngineSpec
from onnxmt.measure.bench.workload import shape_workload
from onnxmt.runtime.batching import LEAST_TOKENS
from onnxmt.runtime.memory import BatchNeeds
from onnxmt.runtime.translator import read_settings

if TYPE_CHECKING:
    from rich.console import Console

# Bytes that one weight takes with its scale, in the blocks that `precision` writes.
_BYTES_A_WEIGHT: Mapping[str, float] = {"fp32": 4, "int8": 1 + 4 / 64, "int8-dynamic": 1, "int4": 0.5 + 4 / 32}
_BEAMS = (1, 4)
_CALIBRATION = 8  # sentences a batch, of 20 tokens in and 30 out
_WORTH_WHILE = 1024  # tokens a batch: larger ones gain little (TranslateOptions.batch_tokens)


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One way to run: `loaded_mb` is the process with the model warm, `batch_tokens` the largest budget that fits."""

    precision: str
    measured: bool
    beams: int
    loaded_mb: float
    sentence_mb: float
    batch_tokens: int
    threads: int
    workers: int

    @property
    def fits(self) -> bool:
        """Whether at least one sentence can be translated."""
        return self.batch_tokens > 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All rows for one limit; `correction` is how much more a batch took in the calibration than reckoned (1: less)."""

    bundle: str
    memory_mb: float
    cpus: float
    correction: float
    rows: tuple[PlanRow, ...]

    @property
    def fits(self) -> bool:
        """Whether the bundle itself fits, in some way."""
        return any(row.fits for row in self.rows if row.measured)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        rows = [{**asdict(row), "fits": row.fits} for row in self.rows]
        return {**asdict(self), "rows": rows, "fits": self.fits}

    def print_to(self, console: Console) -> None:
        """Print the table."""
        from rich.table import Table

        table = Table("precision", "beams", "loaded MB", "a sentence MB", "batch tokens", "threads × workers", "fits")
        for row in self.rows:
            table.add_row(
                row.precision + ("" if row.measured else " (estimated)"),
                str(row.beams),
                f"{row.loaded_mb:.0f}",
                f"{row.sentence_mb:.1f}",
                str(row.batch_tokens) if row.fits else "",
                f"{row.threads} × {row.workers}",
                "yes" if row.fits else "no",
            )
        console.print(table)
        console.print(
            f"{self.memory_mb:.0f} MB, {self.cpus:g} CPUs. For one text after another use the threads together (the "
            f"default); for many texts --mode throughput gives each thread a batch of its own."
        )


def make_plan(folder: Path, *, memory: int, cpus: float) -> Plan:
    """Load and run the bundle once in a process of its own, and reckon from that. Raises BenchError, UsageError."""
    if not cpus > 0:
        raise UsageError(f"cpus is {cpus!r}; a number above 0, such as 2 or 0.5, is allowed")
    bundle, threads = read_bundle(folder), max(1, int(cpus))
    settings = read_settings(bundle)
    needs = BatchNeeds.of(
        bundle.manifest.dimensions,
        length_limit=settings.length_limit,
        scored=bundle.manifest.precision.scored,
    )
    work = shape_workload(
        source_tokens=20,
        target_tokens=min(30, settings.length_limit - 1),
        sentences=_CALIBRATION,
        vocabulary=bundle.manifest.dimensions.source_vocabulary,
        end=settings.eos_token_ids[0],
    )
    spec = EngineSpec(engine="onnxmt", precision=bundle.manifest.recipe, model=folder)
    with (
        tempfile.TemporaryDirectory(prefix="onnxmt-plan-") as scratch,
        EngineProcess(spec, threads=threads, workers=1, scratch=Path(scratch)) as process,
    ):
        process.run(work.groups(1), 1)
        loaded = process.memory()["peak"] or 0
        process.run(work.groups(_CALIBRATION), 1)
        grown = max(0, (process.memory()["peak"] or 0) - loaded)
    own = bundle.manifest.recipe
    reckoned = needs.batch(rows=_CALIBRATION - 1, source=20)  # one row's worth was there already
    correction = max(1.0, grown / reckoned)
    rows = tuple(
        _row(
            precision,
            loaded + more,
            needs,
            beams=beams,
            memory=memory,
            correction=correction,
            threads=threads,
            measured=precision == own,
        )
        for precision, more in _precisions(bundle).items()
        for beams in dict.fromkeys((*_BEAMS, settings.num_beams))
    )
    return Plan(
        bundle=bundle.manifest.name,
        memory_mb=memory / 1e6,
        cpus=cpus,
        correction=round(correction, 2),
        rows=tuple(sorted(rows, key=lambda row: (row.precision != own, row.loaded_mb, row.beams))),
    )


def _precisions(bundle: Bundle) -> dict[str, float]:
    """How many bytes more than this bundle each precision takes; only this bundle's own where it is a mixture."""
    own = bundle.manifest.recipe
    found = {own: 0.0}
    if own in _BYTES_A_WEIGHT:
        listed = {entry.path: entry.bytes for entry in bundle.manifest.files}
        size = sum(listed[name] for name in bundle.manifest.graphs.weights)
        found |= {name: size * (each / _BYTES_A_WEIGHT[own] - 1) for name, each in _BYTES_A_WEIGHT.items()}
    return found


def _row(
    precision: str,
    loaded: float,
    needs: BatchNeeds,
    *,
    beams: int,
    memory: int,
    correction: float,
    threads: int,
    measured: bool,
) -> PlanRow:
    spare = int(max(0.0, memory - loaded) / correction)
    tokens = needs.batch_tokens(spare, rows_each=beams)
    # Workers share what is left: no more of them than leave each a batch worth having.
    workers = max(1, min(threads, tokens // _WORTH_WHILE))
    return PlanRow(
        precision=precision,
        measured=measured,
        beams=beams,
        loaded_mb=loaded / 1e6,
        sentence_mb=needs.batch(rows=beams, source=LEAST_TOKENS) * correction / 1e6,
        batch_tokens=tokens // workers,
        threads=max(1, threads // workers),
        workers=workers,
    )
