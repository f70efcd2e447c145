"""The picture of a bench: tokens a second of each engine, setting by setting, as PNG or SVG."""

from __future__ import annotations

from pathlib import Path

from onnxmt.errors import MissingExtraError, OutputError, UsageError
from onnxmt.measure.bench.results import BenchReport


def check_chart(path: Path) -> None:
    """Raise before anything is measured: UsageError for another ending, MissingExtraError without matplotlib."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"--chart {path.name}: the file has to end in .png or .svg")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(needed_for="drawing a chart", extra="eval", module="matplotlib") from error


def write_chart(report: BenchReport, path: Path) -> None:
    """Draw one bar an engine and setting, slower ones like any other. Raises OutputError."""
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(row.setting for row in report.rows))
    figure = Figure(figsize=(8, 1.2 + 0.34 * len(report.rows) + 0.5 * len(settings)), layout="constrained")
    panels = figure.subplots(len(settings), 1, squeeze=False, sharex=True)[:, 0]
    for panel, setting in zip(panels, settings, strict=True):
        rows = sorted((row for row in report.rows if row.setting == setting), key=lambda row: row.tokens_per_s)
        bars = panel.barh(
            [f"{row.engine} {row.precision}" for row in rows],
            [row.tokens_per_s for row in rows],
            color=["#1f6feb" if row.engine == "onnxmt" else "#8b949e" for row in rows],
        )
        panel.bar_label(bars, labels=[f"{row.tokens_per_s:,.0f} ({row.median_ms:.0f} ms)" for row in rows], padding=3)
        beams, batch, threads, workers = setting
        panel.set_title(f"beams {beams}, batch {batch}, threads {threads} × {workers}", loc="left", fontsize=9)
        panel.margins(x=0.2)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel(f"tokens a second, and the median time of a call; {report.recipe['workload']}")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise OutputError(f"cannot write the chart {path}: {error.strerror or error}") from error
