"""The figures of a bench: one row an engine and setting, and the report that prints, saves and compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.console import Console

MEGABYTE = 1e6
_LENGTH_CLASSES = (10, 20, 40)  # source tokens; longer ones are the last class


@dataclass(frozen=True, kw_only=True)
class LengthClass:
    """Latency of single sentences with `from_tokens` to `to_tokens` source tokens (None: no end)."""

    from_tokens: int
    to_tokens: int | None
    sentences: int
    median_ms: float
    p99_ms: float


@dataclass(frozen=True, kw_only=True)
class BenchRow:
    """One engine in one setting.

    Times are those of one call, a batch of `batch` sentences; rates are over whole passes (median), with `workers`
    batches side by side. `peak_rss_mb` is the peak of the process up to and with this setting, loading included;
    settings run from the smallest batch to the largest. `load_ms` and `first_ms` count from the start of the process,
    until the model was loaded and until its first translation. `tokens` counts what is of use: in a batch, more may be
    generated for shorter sentences.
    """

    engine: str
    precision: str
    beams: int
    batch: int
    threads: int
    workers: int
    workload: str
    calls: int
    passes: int
    median_ms: float
    p90_ms: float
    p99_ms: float
    min_ms: float
    sentences_per_s: float
    tokens_per_s: float
    tokens: int
    peak_rss_mb: float
    steady_rss_mb: float | None
    load_ms: float
    first_ms: float
    weights_mb_per_token: float | None = None
    share_of_bandwidth: float | None = None
    by_source_length: tuple[LengthClass, ...] = ()

    @property
    def setting(self) -> tuple[int, int, int, int]:
        """What has to be equal between two rows that are compared: beams, batch, threads, workers."""
        return self.beams, self.batch, self.threads, self.workers


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """All rows, with what they depend on. `missing` and `skipped` name what was asked for and not measured."""

    rows: tuple[BenchRow, ...]
    recipe: Mapping[str, Any]
    missing: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object; `results` holds the rows."""
        return {
            "results": [_rounded(asdict(row)) for row in self.rows],
            "missing": list(self.missing),
            "skipped": list(self.skipped),
            **self.recipe,
        }

    def speed(self, precision: str) -> dict[str, Any]:
        """Return what a manifest's `speed` keeps: the rows of onnxmt in this precision, and the recipe."""
        rows = [row for row in self.rows if row.engine == "onnxmt" and row.precision == precision]
        return {"results": [_rounded(asdict(row)) for row in rows], **self.recipe}

    def ratio(self, row: BenchRow) -> float | None:
        """How many times faster this row is than the slowest measured one in the same setting."""
        same = [other.tokens_per_s for other in self.rows if other.setting == row.setting]
        return row.tokens_per_s / min(same) if len(same) > 1 else None

    def _cells(self, row: BenchRow) -> list[str]:
        ratio = self.ratio(row)
        return [
            f"{row.engine} {row.precision}",
            str(row.beams),
            str(row.batch),
            f"{row.threads} × {row.workers}" if row.workers > 1 else str(row.threads),
            *(f"{value:.1f}" for value in (row.median_ms, row.p90_ms, row.p99_ms)),
            f"{row.sentences_per_s:.1f}",
            f"{row.tokens_per_s:.0f}",
            "" if ratio is None else f"{ratio:.2f}",
            f"{row.peak_rss_mb:.0f}",
            f"{row.first_ms:.0f}",
            "" if row.share_of_bandwidth is None else f"{100 * row.share_of_bandwidth:.0f} %",
        ]

    def markdown(self) -> str:
        """Return the table for a README, with its recipe under it."""
        lines = [f"| {' | '.join(_HEADINGS)} |", f"|{'|'.join(['---'] + ['---:'] * (len(_HEADINGS) - 1))}|"]
        lines += [f"| {' | '.join(self._cells(row))} |" for row in self.rows]
        return "\n".join([*lines, "", *self._notes(), ""])

    def print_to(self, console: Console) -> None:
        """Print the table."""
        from rich.table import Table

        table = Table(*_HEADINGS, title=str(self.recipe.get("workload", "")), title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        for row in self.rows:
            table.add_row(*self._cells(row))
        console.print(table)
        for row in self.rows:
            for part in row.by_source_length:
                end = "" if part.to_tokens is None else f"–{part.to_tokens}"
                console.print(
                    f"{row.engine} {row.precision}, beams {row.beams}, {part.from_tokens}{end or '+'} source tokens "
                    f"({part.sentences} sentences): P50 {part.median_ms:.1f} ms, P99 {part.p99_ms:.1f} ms"
                )
        for note in self._notes():
            console.print(note, markup=False)

    def _notes(self) -> list[str]:
        recipe = self.recipe
        versions = ", ".join(f"{name} {version}" for name, version in recipe["versions"].items())
        how = f"{recipe['workload']}; {recipe['rounds']} rounds, engines in turn, warm"
        memory = f"memory bandwidth {recipe['bandwidth_gb_s']:.1f} GB/s"
        return [
            f"{how}; {recipe['cpu']}, {memory}; {versions}; {recipe['date']}. × is to the slowest in the same setting.",
            *(f"Not measured: {line}" for line in (*self.missing, *self.skipped)),
        ]


_HEADINGS = (
    "engine", "beams", "batch", "threads", "P50 ms", "P90 ms", "P99 ms",
    "sentences/s", "tokens/s", "×", "peak RSS MB", "first ms", "of bandwidth",
)  # fmt: skip


def length_classes(lengths: Sequence[int], milliseconds: Sequence[float]) -> tuple[LengthClass, ...]:
    """Sort single sentences' times into classes of source length; `milliseconds` may hold several passes."""
    tokens = np.tile(np.array(lengths), len(milliseconds) // max(1, len(lengths)))
    times = np.array(milliseconds)
    found = []
    for first, last in zip((0, *_LENGTH_CLASSES), (*_LENGTH_CLASSES, None), strict=True):
        inside = (tokens > first) & (tokens <= (last or np.inf))
        if inside.any():
            found.append(
                LengthClass(
                    from_tokens=first + 1,
                    to_tokens=last,
                    sentences=int(inside.sum()),
                    median_ms=float(np.median(times[inside])),
                    p99_ms=float(np.percentile(times[inside], 99)),
                )
            )
    return tuple(found)


def _rounded(value: Any) -> Any:
    """Figures with four digits after the point: the rest is noise."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
