"""Requests of many clients → calls of one Translator on a few threads: bounded queues, deadlines, short before long."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from onnxmt.errors import OnnxmtError
from onnxmt.runtime.translation import TranslateOptions, Translation
from onnxmt.runtime.translator import Translator
from onnxmt.serve.lane import Lane
from onnxmt.serve.metrics import Metrics
from onnxmt.serve.options import BatchOptions, Limits
from onnxmt.serve.problems import Problem, problem_of
from onnxmt.serve.watched import CallStopped, Watch

_log = logging.getLogger("onnxmt.serve")
# A language pair's source has so many characters a token or more; an estimate is enough to fill a batch.
_CHARACTERS_A_TOKEN = 3
_LEAST_TOKENS = 16
# Clients who have just been answered often ask again at once. After a batch of many the next waits for them, a small
# part of what the last took: else those who came meanwhile would go alone, and two halves cost more than a whole.
_MANY, _PATIENCE, _MOST_PATIENCE = 4, 0.05, 0.06


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A request's translations, and where its time went."""

    translations: tuple[Translation, ...]
    queue_seconds: float
    compute_seconds: float
    input_tokens: int

    def with_(self, other: Answer) -> Answer:
        """Both together, as of one request that asked twice."""
        return Answer(
            translations=self.translations + other.translations,
            queue_seconds=self.queue_seconds + other.queue_seconds,
            compute_seconds=self.compute_seconds + other.compute_seconds,
            input_tokens=self.input_tokens + other.input_tokens,
        )


class Job:
    """One request in the queue; `abandoned` is set when nobody waits for it any more."""

    def __init__(self, *, texts: Sequence[str], options: TranslateOptions, beams: int, deadline: float) -> None:
        self.texts, self.options, self.deadline = tuple(texts), options, deadline
        self.characters = sum(map(len, texts))
        self.cost = self.characters * beams
        longest = max((len(text) for text in texts), default=0)
        self.width = max(_LEAST_TOKENS, longest // _CHARACTERS_A_TOKEN)
        self.rows = len(texts) * beams
        self.arrived = time.monotonic()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Answer] = self.loop.create_future()
        self.abandoned = False

    @property
    def dead(self) -> bool:
        """Whether working on it would be for nobody."""
        return self.abandoned or time.monotonic() >= self.deadline

    def finish(self, result: Answer | Problem) -> None:
        """Hand over the result, from any thread."""

        def settle() -> None:
            if self.future.done():
                return
            if isinstance(result, Problem):
                self.future.set_exception(result)
            else:
                self.future.set_result(result)

        try:
            self.loop.call_soon_threadsafe(settle)
        except RuntimeError:  # its event loop is closed: nobody waits any more
            self.abandoned = True


class Batcher:
    """The queue in front of a Translator. `submit` from the event loop; everything else happens on its own threads.

    The translator asks `watch` before each step (serve.watched); so many calls for short requests run side by side as
    there are `workers`.
    """

    def __init__(
        self,
        translator: Translator,
        *,
        watch: Watch,
        limits: Limits,
        options: BatchOptions,
        metrics: Metrics,
        workers: int = 1,
    ) -> None:
        self._translator, self._watch = translator, watch
        self._limits, self._options, self._metrics = limits, options, metrics
        self._count, self._characters = 0, 0  # waiting or running
        self._seconds_a_character = 0.0
        self._changed = threading.Condition()
        self._lanes = (Lane("short", deque()), Lane("long", deque()))
        self._closing = False
        lanes = [self._lanes[0]] * workers + [self._lanes[1]]
        self._threads = [
            threading.Thread(target=self._serve, args=(lane,), name=f"onnxmt-{lane.name}-{number}", daemon=True)
            for number, lane in enumerate(lanes)
        ]
        for thread in self._threads:
            thread.start()

    async def submit(self, texts: Sequence[str], options: TranslateOptions, *, beams: int, seconds: float) -> Answer:
        """Translate the texts of one request.

        Raises Problem: 429 where the queue is full, 504 at the deadline, 503 while closing, 422 or 500 as the library
        says. Cancelling the caller abandons the work at its next step.
        """
        job = Job(texts=texts, options=options, beams=beams, deadline=time.monotonic() + seconds)
        self._enter(job)
        try:
            async with asyncio.timeout(seconds):
                return await job.future
        except TimeoutError:
            self._metrics.rejected.labels("deadline").inc()
            raise Problem(
                504,
                "deadline",
                f"not done within {seconds:g} s: send less text at once, or try again later",
                details={"limit": seconds},
            ) from None
        except asyncio.CancelledError:
            self._metrics.stopped.inc()
            raise
        finally:
            job.abandoned = True
            with self._changed:
                self._count -= 1
                self._characters -= job.characters
                for lane in self._lanes:
                    lane.forget(job)
                self._show()
                self._changed.notify_all()

    def close(self, *, seconds: float = 30.0) -> None:
        """Take nothing new, finish what waits, and end the threads; what is not done in time is answered with 503."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        with self._changed:
            for lane in self._lanes:
                for job in (*lane.waiting, *lane.running):
                    job.abandoned = True
                    job.finish(_closing())

    def _enter(self, job: Job) -> None:
        with self._changed:
            if self._closing:
                raise _closing()
            full = self._count >= self._limits.queue_requests
            if full or (self._count and self._characters + job.characters > self._limits.queue_characters):
                self._metrics.rejected.labels("queue_full").inc()
                what = f"{self._count:,} requests with {self._characters:,} characters"
                wait = min(60, max(1, round(self._characters * self._seconds_a_character)))
                raise Problem(429, "queue_full", f"{what} are waiting; try again in {wait} s", retry_after=wait)
            self._count += 1
            self._characters += job.characters
            self._lanes[job.cost > self._options.short_characters].waiting.append(job)
            self._show()
            self._changed.notify_all()

    def _show(self) -> None:
        waiting = [job for lane in self._lanes for job in lane.waiting]
        self._metrics.queue_size.set(len(waiting))
        self._metrics.queue_characters.set(sum(job.characters for job in waiting))

    def _serve(self, lane: Lane) -> None:
        while jobs := self._next(lane):
            began = time.monotonic()
            self._run(lane, jobs)
            now = time.monotonic()
            with self._changed:
                lane.running -= set(jobs)
                if len(jobs) >= _MANY:
                    lane.patient_until = now + min(_PATIENCE * (now - began), _MOST_PATIENCE)
                self._changed.notify_all()

    def _next(self, lane: Lane) -> list[Job]:
        """Wait for jobs that can share a batch, and mark them as running; empty at the end."""
        with self._changed:
            while True:
                while not lane.waiting:
                    if self._closing:
                        return []
                    self._changed.wait()
                while lane.waiting and not self._closing and not lane.full(self._options.max_tokens):
                    until = max(lane.waiting[0].arrived + self._options.max_wait_ms / 1000, lane.patient_until)
                    left = until - time.monotonic()
                    if left <= 0:
                        break
                    self._changed.wait(left)
                jobs = lane.take(self._options.max_tokens)
                if jobs:
                    lane.running |= set(jobs)
                    self._show()
                    return jobs

    def _run(self, lane: Lane, jobs: Sequence[Job]) -> None:
        """Translate the texts of all jobs in one call; where that fails, of each by itself."""
        alive = [job for job in jobs if not job.dead]
        if not alive:
            return
        began = time.monotonic()
        texts = [text for job in alive for text in job.texts]

        def check() -> None:
            if all(job.dead for job in alive):
                raise CallStopped
            if lane.name == "long":
                self._give_way()

        try:
            with self._watch.watching(check):
                found = self._translator.translate_detailed(texts, options=alive[0].options, errors="return")
        except CallStopped:
            return
        except Exception as error:  # noqa: BLE001  whatever it is, the thread must live and the clients hear of it
            if len(alive) > 1:  # one client's text must not fail another's
                for job in alive:
                    self._run(lane, [job])
            else:
                alive[0].finish(_told(error))
            return
        seconds = time.monotonic() - began
        self._learn(seconds, sum(job.characters for job in alive))
        self._metrics.batch_texts.observe(len(texts))
        self._metrics.batch_requests.observe(len(alive))
        results = iter(found)
        for job in alive:
            translations = tuple(next(results) for _ in job.texts)
            answer = Answer(
                translations=translations,
                queue_seconds=began - job.arrived,
                compute_seconds=seconds,
                input_tokens=self._tokens(translations),
            )
            job.finish(answer)

    def _give_way(self) -> None:
        """Let short ones go first; not for ever, so that long ones get on under any load."""
        until = time.monotonic() + self._options.give_way_ms / 1000
        short = self._lanes[0]
        with self._changed:
            while (short.waiting or short.running) and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)

    def _learn(self, seconds: float, characters: int) -> None:
        pace = seconds / max(1, characters)
        self._seconds_a_character = (
            pace if not self._seconds_a_character else (0.9 * self._seconds_a_character + 0.1 * pace)
        )

    def _tokens(self, translations: Sequence[Translation]) -> int:
        encode = self._translator.tokenizer.encode
        return sum(
            len(encode(segment.source)) for one in translations for segment in one.segments if segment.score is not None
        )


def _closing() -> Problem:
    return Problem(503, "closing", "the server is stopping; try another one", retry_after=5)


def _told(error: Exception) -> Problem:
    """What the client hears; a fault of ours goes to the log, without the text."""
    problem = problem_of(error) if isinstance(error, OnnxmtError) else Problem(500, "internal", "the server failed")
    if problem.status >= 500:
        # The message may quote the text (a note of the translator does), so only its kind and place are logged.
        trace, place = error.__traceback__, "?"
        while trace is not None:
            place, trace = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}", trace.tb_next
        _log.error("translation failed: %s in %s", type(error).__name__, place)
    return problem
