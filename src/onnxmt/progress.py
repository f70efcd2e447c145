"""How long work tells how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Who is told how far the work is."""

    def step(self, name: str) -> None:
        """A step begins."""

    def advance(self, done: int, total: int) -> None:
        """Part of the present step is done."""


class Silent:
    """Tells nobody."""

    def step(self, name: str) -> None:
        """Ignore it."""

    def advance(self, done: int, total: int) -> None:
        """Ignore it."""
