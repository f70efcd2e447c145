"""What commands print with: tables, warnings, JSON, and progress that only a person at a terminal sees."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

# A pipe has no width: tables get the room that they need, up to this.
_PIPE_WIDTH = 200


def stdout_console() -> Console:
    """Return rich's console on standard output; texts may hold brackets and figures, so it interprets neither."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, emoji=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print one JSON document, indented: a person reads it too."""
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def warn(message: str) -> None:
    """Tell a warning in one line on standard error."""
    from onnxmt.cli import printable

    print(f"onnxmt: warning: {printable(message)}", file=sys.stderr)


class Steps(Protocol):
    """Who is told how far the work is; `migrate.Progress` has the same methods."""

    def step(self, name: str) -> None:
        """A step begins."""

    def advance(self, done: int, total: int) -> None:
        """Part of the present step is done."""


class _Unseen:
    """Tells nobody."""

    def step(self, name: str) -> None:
        """Ignore it."""

    def advance(self, done: int, total: int) -> None:
        """Ignore it."""


class _Bars:
    """Lines on a terminal: the present step with a bar, the finished ones with their time.

    The first step is a plain line: a download in it shows bars of its own, and two live displays would mix.
    """

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: TaskID | None = None
        self._first = True

    def step(self, name: str) -> None:
        """Finish the step before, and begin another."""
        self.finish()
        if self._first:
            self._first = False
            self._bars.console.print(f"  {name}", markup=False)
            return
        self._bars.start()
        self._task = self._bars.add_task(name, total=None)

    def advance(self, done: int, total: int) -> None:
        """Move the present step's bar."""
        if self._task is not None:
            self._bars.update(self._task, completed=done, total=total)

    def finish(self) -> None:
        """The present step is done."""
        if self._task is not None:
            total = self._bars.tasks[self._task].total or 1
            self._bars.update(self._task, completed=total, total=total)
            self._task = None


@contextmanager
def step_progress() -> Iterator[Steps]:
    """Show steps on standard error while the block runs, if a person watches."""
    if not sys.stderr.isatty():
        yield _Unseen()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
    )
    bars = Progress(*columns, console=Console(file=sys.stderr, highlight=False))
    progress = _Bars(bars)
    try:
        yield progress
        progress.finish()
    finally:
        bars.stop()


class Meter:
    """A bar that fills with the input, or none; lines printed meanwhile go above it."""

    def __init__(self, bars: Progress | None = None, task: TaskID | None = None) -> None:
        self._bars, self._task = bars, task

    def advance(self, amount: int) -> None:
        """So much more of the input is done."""
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, amount)

    def print(self, message: str) -> None:
        """Print one line on standard error."""
        from onnxmt.cli import printable

        if self._bars is None:
            print(printable(message), file=sys.stderr)
        else:
            self._bars.console.print(printable(message), markup=False, soft_wrap=True)


@contextmanager
def byte_progress(name: str, total: int | None) -> Iterator[Meter]:
    """Show how much of `total` bytes is done on standard error, if a person watches and the total is known."""
    if not total or not sys.stderr.isatty():
        yield Meter()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr, highlight=False)) as bars:
        yield Meter(bars, bars.add_task(name, total=total))
