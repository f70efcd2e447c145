"""Versions behind one service: following the store's names, a canary beside production, and its return by itself."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from onnxmt.errors import OnnxmtError
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
from onnxmt.serve.metrics import Metrics
from onnxmt.serve.options import ServeOptions
from onnxmt.serve.rollout_loading import Loaded, NoMemoryError, load_version, loaded_version
from onnxmt.serve.rollout_metrics import RolloutMetrics, show_levels
from onnxmt.serve.rollout_options import RolloutPlan
from onnxmt.serve.rollout_request import Outcome, PinnedRequest, Role, outcome_of
from onnxmt.serve.rollout_stats import CanaryStats, Verdict, judge, likeness
from onnxmt.serve.service import Results, Service, Wish
from onnxmt.store.promoting import clear, record_return
from onnxmt.store.shelf import ROLLOUT
from onnxmt.store.state import State

_log = logging.getLogger("onnxmt.serve")
# A version that could not be loaded is tried again when the store has changed, or after so many seconds.
_RETRY_SECONDS = 60.0
_SAVE_SECONDS = 5.0
# With so many requests at once for each worker, copies for a shadow are not made.
_BUSY_REQUESTS = 32
_HASH_SPAN = 2**64


class Rollout:
    """The versions that one service has loaded; `use` is told the service of each version that comes into production.

    Everything but loading happens on the event loop.
    """

    def __init__(
        self,
        translator: Translator,
        plan: RolloutPlan,
        *,
        options: ServeOptions,
        metrics: Metrics,
        use: Callable[[Service], None],
    ) -> None:
        self.plan, self._options, self._metrics, self._use = plan, options, metrics, use
        self._runtime: RuntimeOptions = translator.runtime
        self._counts = RolloutMetrics(metrics)
        self.production = loaded_version(plan.version, translator, options, metrics)
        self.canary: Loaded | None = None
        self.stats: CanaryStats | None = None
        self._all: list[Loaded] = [self.production]
        self._characters_before = 0
        self._comparing: set[asyncio.Task[None]] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._returned: dict[str, int] = {}
        self._seen: tuple[int, int, int] | None = None
        self._retry_at: float | None = None
        self._saved_at, self._complaint = 0.0, ""
        show_levels(metrics, lambda: [one.metrics for one in self._all])

    async def start(self) -> None:
        """Warm the served version, and begin to follow the store."""
        await self.production.warm()
        self._use(self.production.service)
        self._counts.loaded.labels(self.production.version, "production").set(1)
        self._metrics.ready.set(1)
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop following, keep the statistics, and end all versions after their requests."""
        self._metrics.ready.set(0)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for task in list(self._comparing):
            task.cancel()
        await asyncio.gather(*self._comparing, return_exceptions=True)
        await self._save()
        await asyncio.gather(*self._retiring, *(one.retire() for one in self._present()))

    def pin(self, request_id: str) -> PinnedRequest:
        """Settle which version a request gets, for as long as it lasts: by its id, so that a repeated id gets the same.

        Its `release` must be called.
        """
        chosen = self.canary if self.canary is not None and self._is_chosen(request_id) else None
        shadow = chosen if self.plan.shadow else None
        return PinnedRequest(
            self, production=self.production, canary=None if self.plan.shadow else chosen, shadow=shadow
        )

    def models(self) -> list[tuple[Loaded, str]]:
        """The loaded versions and what they are there for."""
        found = [(self.production, "production")]
        if self.canary is not None:
            found.append((self.canary, "shadow" if self.plan.shadow else "canary"))
        return found

    @property
    def characters(self) -> int:
        """Source characters of all requests since the start, whichever version answered."""
        return self._characters_before + sum(one.service.characters for one in self._all)

    def _present(self) -> list[Loaded]:
        return [self.production] if self.canary is None else [self.production, self.canary]

    def _is_chosen(self, request_id: str) -> bool:
        digest = hashlib.sha256(request_id.encode("utf-8", "replace")).digest()
        return int.from_bytes(digest[:8], "big") < self.plan.percent / 100 * _HASH_SPAN

    # What requests report ---------------------------------------------------------------------------------------

    def answered(self, loaded: Loaded, role: Role, results: Results) -> None:
        """Count an answer of a version, and judge the canary by it."""
        warned = any(result.warnings for result in results.results)
        self._counts.requests.labels(loaded.version, role, "ok").inc()
        self._counts.seconds.labels(loaded.version, role).observe(results.total_seconds)
        for result in results.results:
            for warning in result.warnings:
                self._counts.warnings.labels(loaded.version, role, warning["kind"]).inc()
        if self.stats is None:
            return
        if loaded is self.canary:
            self.stats.canary.answered(results.total_seconds, warned=warned)
            self._judge(loaded)
        elif loaded is self.production:
            self.stats.production.answered(results.total_seconds, warned=warned)

    def failed(self, loaded: Loaded, role: Role, outcome: Outcome, *, counts: bool) -> None:
        """Count a request that a version did not answer; `counts`: against it, for the other one could."""
        self._counts.requests.labels(loaded.version, role, outcome).inc()
        if role == "canary":
            self._counts.fallbacks.inc()
        if self.stats is not None and loaded is self.canary and counts:
            self.stats.canary.failed()
            self._judge(loaded)

    def compare_later(self, loaded: Loaded, role: Role, wish: Wish, results: Results) -> None:
        """Let the other version translate the same, after the answer, and compare; dropped where too much waits.

        `role` says who answered: production, whose shadow is then asked, or a canary, beside which production is.
        """
        asked = self.production if role == "canary" else self.canary
        busy = role == "production" and self.production.users > _BUSY_REQUESTS * self._runtime.workers
        if asked is None or busy or len(self._comparing) >= self.plan.pending:
            self._counts.not_compared.inc()
            return
        canary = loaded if role == "canary" else asked
        asked.users += 1
        task = asyncio.create_task(self._compare(asked, canary, wish, results, shadow=role == "production"))
        self._comparing.add(task)
        task.add_done_callback(self._comparing.discard)

    async def _compare(self, asked: Loaded, canary: Loaded, wish: Wish, results: Results, *, shadow: bool) -> None:
        try:
            other = await asked.quiet.translate(wish)
        except OnnxmtError as error:
            if shadow:
                outcome = outcome_of(error)
                self.failed(asked, "shadow", outcome, counts=outcome != "busy")
            return
        except Exception as error:  # noqa: BLE001  a fault of the model that is tried must not reach the loop
            _log.error("comparing version %s failed: %s", asked.version, type(error).__name__)
            if shadow:
                self.failed(asked, "shadow", "error", counts=True)
            return
        finally:
            asked.users -= 1
        if shadow:
            self.answered(asked, "shadow", other)
        self.compared(canary, results, other)

    def compared(self, canary: Loaded, results: Results, other: Results) -> None:
        """Count how alike the outputs of a canary and of production are, and judge the canary by it."""
        if self.stats is None or self.canary is not canary:
            return
        pairs = zip(results.results, other.results, strict=True)
        alike = [likeness(one.text, two.text) for one, two in pairs]
        if alike:
            self.stats.agreed(sum(alike) / len(alike))
            self._counts.agreement.set(self.stats.agreement or 0.0)
        self._judge(canary)

    # The canary's return ----------------------------------------------------------------------------------------

    def _judge(self, canary: Loaded) -> None:
        if self.stats is None or self.canary is not canary:
            return
        verdict = judge(self.stats, self.plan.limits)
        if verdict is not None:
            self._return(canary, self.stats, verdict)

    def _return(self, canary: Loaded, stats: CanaryStats, verdict: Verdict) -> None:
        """Send it nothing from this moment on; the store is told, and its memory given back, beside the requests."""
        stats.returned = verdict.message
        self._returned[canary.version] = stats.since
        self._counts.returned.labels(verdict.reason).inc()
        _log.warning("canary %s:%s returned: %s", self.plan.shelf.name, canary.version, verdict.message)
        self.canary = self.stats = None
        self._spawn(self._record_return(canary, stats, verdict))
        self._retire(canary, "canary")

    async def _record_return(self, canary: Loaded, stats: CanaryStats, verdict: Verdict) -> None:
        shelf, alias, version = self.plan.shelf, self.plan.canary, canary.version
        reason = f"returned by the service: {verdict.message}"
        evidence = {"rule": verdict.reason, **stats.summary()}

        def record() -> None:
            stats.save(self._stats_path(version))
            if alias is None or alias == version:
                record_return(shelf, version, reason=reason, evidence=evidence)
            else:
                clear(shelf, alias, expected=version, reason=reason, evidence=evidence, action="return")

        try:
            await asyncio.to_thread(record)
        except (
            OnnxmtError,
            OSError,
        ) as error:  # a store that can only be read here: this process returns it all the same
            _log.error("the return of canary %s could not be recorded: %s", canary.version, error)

    # Following the store ----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            try:
                await self._look()
            except (OnnxmtError, OSError) as error:
                self._complain(f"the store cannot be followed: {error}")
            except Exception as error:  # noqa: BLE001  whatever it is, what is served must stay, and be followed again
                self._complain(f"the store cannot be followed: {type(error).__name__}: {error}")
            else:
                self._complaint = ""
            if self.stats is not None and time.monotonic() - self._saved_at > _SAVE_SECONDS:
                await self._save()
            await asyncio.sleep(self.plan.poll_seconds)

    async def _look(self) -> None:
        """Read the state if its file is another one than last time, and load what the names mean now."""
        found = await asyncio.to_thread(self.plan.shelf.state_path.stat)
        signature = (found.st_ino, found.st_mtime_ns, found.st_size)
        due = self._retry_at is not None and time.monotonic() >= self._retry_at
        if signature == self._seen and not due:
            return
        state = await asyncio.to_thread(self.plan.shelf.state)
        self._seen, self._retry_at = signature, None
        await self.follow(state)

    def _complain(self, message: str) -> None:
        """Say it once, not at every look."""
        if message != self._complaint:
            _log.error("%s", message)
        self._complaint = message

    async def follow(self, state: State) -> None:
        """Make the loaded versions those that the names mean in `state`."""
        plan = self.plan
        wanted = state.version_of(plan.ref)
        if wanted is None:
            _log.error(
                "%s:%s means nothing any more; version %s stays", plan.shelf.name, plan.ref, self.production.version
            )
            wanted = self.production.version
        canary, since = self._wanted_canary(state, wanted)
        if self.canary is not None and self.canary.version not in (canary, wanted):
            await self._drop_canary()
        if wanted != self.production.version:
            await self._switch(wanted)
        if canary is not None and self.canary is None and canary != self.production.version:
            await self._take_canary(canary, since)

    def _wanted_canary(self, state: State, production: str) -> tuple[str | None, int]:
        """The version that should be the canary, and since which revision it is."""
        ref = self.plan.canary
        version = None if ref is None else state.version_of(ref)
        if ref is None or version is None or version == production:
            return None, 0
        since = state.versions[version].revision if ref == version else state.aliases[ref].revision
        return (None, 0) if self._returned.get(version) == since else (version, since)

    async def _switch(self, version: str) -> None:
        """Serve another version: loaded and warm before any request gets it; the old one ends after its requests."""
        old = self.production
        if self.canary is not None and self.canary.version == version:
            new, self.canary = self.canary, None
            await self._save()
            self.stats = None
            self._counts.loaded.labels(version, "canary").set(0)
        else:
            loaded = await self._load(version)
            if loaded is None:
                return
            new = loaded
        self.production = new
        self._use(new.service)
        self._counts.switches.labels("production").inc()
        self._counts.loaded.labels(version, "production").set(1)
        _log.info("%s:%s is version %s now, and was %s", self.plan.shelf.name, self.plan.ref, version, old.version)
        self._retire(old, "production")

    async def _take_canary(self, version: str, since: int) -> None:
        path = self._stats_path(version)
        try:
            stats = await asyncio.to_thread(CanaryStats.read, path, since=since)
        except (OSError, ValueError) as error:
            _log.error("the canary's statistics are begun anew: %s", error)
            stats = CanaryStats(since=since)
        if stats.returned is not None:
            self._returned[version] = since
            _log.warning("version %s is no canary again: it was returned: %s", version, stats.returned)
            return
        loaded = await self._load(version)
        if loaded is None:
            return
        self.canary, self.stats = loaded, stats
        self._counts.switches.labels("canary").inc()
        self._counts.loaded.labels(version, "canary").set(1)
        self._counts.agreement.set(stats.agreement or 0.0)
        how = "gets copies of" if self.plan.shadow else "answers"
        _log.info("canary %s:%s %s %g %% of the requests", self.plan.shelf.name, version, how, self.plan.percent)

    async def _drop_canary(self) -> None:
        canary = self.canary
        if canary is None:
            return
        await self._save()
        self.canary = self.stats = None
        _log.info("version %s is no canary any more", canary.version)
        self._retire(canary, "canary")

    async def _load(self, version: str) -> Loaded | None:
        """Load a version, or say why not; what is served stays as it is."""
        try:
            loaded = await load_version(
                self.plan.shelf, version, options=self._options, runtime=self._runtime, metrics=self._metrics
            )
        except (OnnxmtError, OSError) as error:
            reason = "memory" if isinstance(error, NoMemoryError) else "load"
            self._counts.refused.labels(reason).inc()
            _log.error("version %s is not loaded, %s stays: %s", version, self.production.version, error)
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            return None
        self._all.append(loaded)
        return loaded

    def _retire(self, loaded: Loaded, role: Role) -> None:
        self._counts.loaded.labels(loaded.version, role).set(0)
        self._spawn(self._ended(loaded))

    async def _ended(self, loaded: Loaded) -> None:
        await loaded.retire()
        self._all.remove(loaded)
        self._characters_before += loaded.service.characters
        if all(one.version != loaded.version for one in self._all):
            self._metrics.forget(loaded.translator)
        _log.info("version %s is unloaded", loaded.version)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _save(self) -> None:
        stats, canary = self.stats, self.canary
        if stats is None or canary is None:
            return
        self._saved_at = time.monotonic()
        with contextlib.suppress(OSError):  # a store that can only be read here: they last as long as this process
            await asyncio.to_thread(stats.save, self._stats_path(canary.version))

    def _stats_path(self, version: str) -> Path:
        return self.plan.shelf.folder / ROLLOUT / f"{version}.json"
