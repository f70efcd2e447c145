"""Who may call, and how often: API keys and a bucket of requests for each."""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from onnxmt.errors import UsageError
from onnxmt.serve.problems import Problem

# More callers than this at once: the longest unseen is forgotten, and so gets a full bucket when it comes back.
_MOST_CALLERS = 10_000


def read_keys(path: Path) -> frozenset[str]:
    """Read API keys from a file: one a line; blank lines and those that begin with # do not count."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the file of API keys {path} cannot be read ({error})") from error
    keys = frozenset(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not keys:
        raise UsageError(f"the file of API keys {path} holds none: write one a line, or leave the option out")
    return keys


class Keyring:
    """The keys that are allowed, as digests; comparing takes as long for a wrong key as for a right one."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in sorted(keys))

    @property
    def needed(self) -> bool:
        """Whether a key is needed at all."""
        return bool(self._digests)

    def check(self, given: str | None) -> str | None:
        """Return the caller's name for the rate limit, None where no key is needed; raises Problem 401."""
        if not self.needed:
            return None
        digest = _digest(given or "")
        # every digest is compared, so that the time tells nothing about which one is near
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            reason = "an API key is needed" if not given else "this API key is not known"
            raise Problem(401, "unauthorized", f"{reason}: send it as 'Authorization: Bearer KEY'")
        return digest.hex()


class RateLimit:
    """A bucket of requests for each caller, which fills evenly; it holds a quarter of a minute's, at least 1."""

    def __init__(self, per_minute: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = None if per_minute is None else per_minute / 60
        self._size = max(1.0, (per_minute or 0) / 4)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Take one request out of the caller's bucket; raises Problem 429."""
        if self._rate is None:
            return
        now = self._clock()
        level, then = self._buckets.pop(caller, (self._size, now))
        level = min(self._size, level + (now - then) * self._rate)
        allowed = level >= 1
        self._buckets[caller] = (level - 1 if allowed else level, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = max(1, math.ceil((1 - level) / self._rate))
            limit = round(self._rate * 60)
            raise Problem(
                429,
                "rate_limited",
                f"too many requests: at most {limit} a minute; try again in {wait} s",
                retry_after=wait,
                details={"limit": limit},
            )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
