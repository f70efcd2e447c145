"""One line of waiting requests: which of them go together, and which have waited for nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxmt.serve.batcher import Job


@dataclass
class Lane:
    """The jobs of one kind, in order of arrival. Its owner locks."""

    name: str
    waiting: deque[Job]
    running: set[Job] = field(default_factory=set)
    patient_until: float = 0.0  # how long a batch that is not full waits for clients who have just been answered

    def full(self, tokens: int) -> bool:
        """Whether the first job and those that fit beside it use the budget up."""
        chosen = self._fitting(tokens)
        return len(chosen) < sum(job.options == self.waiting[0].options for job in self.waiting)

    def take(self, tokens: int) -> list[Job]:
        """Remove and return the first job and those behind it that share its options and the budget of tokens."""
        for job in [job for job in self.waiting if job.dead]:
            self.waiting.remove(job)
        chosen = self._fitting(tokens)
        for job in chosen:
            self.waiting.remove(job)
        return chosen

    def forget(self, job: Job) -> None:
        """Drop a job that nobody waits for."""
        if job in self.waiting:
            self.waiting.remove(job)

    def _fitting(self, tokens: int) -> list[Job]:
        chosen: list[Job] = []
        rows, width = 0, 0
        for job in self.waiting:
            if chosen and job.options != chosen[0].options:
                continue
            rows_then, width_then = rows + job.rows, max(width, job.width)
            if chosen and rows_then * width_then > tokens:
                break  # no later one overtakes it: a large request would else wait for ever
            chosen.append(job)
            rows, width = rows_then, width_then
        return chosen
