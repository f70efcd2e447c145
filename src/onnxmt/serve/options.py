"""What an operator may set: limits, batching, keys, dialects, memory; checked when made."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxmt.errors import UsageError

DIALECTS = ("libretranslate", "deepl", "google", "immersive", "kiss", "deeplx")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most that one request may ask for, and the most that may wait.

    `characters` counts all texts of a request; `deadline_seconds` is from arrival to answer, and what a request may
    lower for itself; `bodies_bytes` bounds all bodies that are being received at once. `queue_requests` and
    `queue_characters` wait or run; what comes on top is answered with 429.
    """

    body_bytes: int = 1_048_576
    items: int = 256
    characters: int = 50_000
    beams: int = 8
    alternatives: int = 7
    new_tokens: int = 512
    glossary_terms: int = 1_000
    queue_requests: int = 256
    queue_characters: int = 500_000
    deadline_seconds: float = 30.0
    body_seconds: float = 15.0
    bodies_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}; a number above 0 is allowed"
            for name, value in vars(self).items()
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0
        ]
        if problems:
            raise UsageError(f"limits of the service: {'; '.join(problems)}")


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """How requests of different clients are joined.

    A batch waits at most `max_wait_ms` for company, and takes about `max_tokens` tokens (texts × beams × the longest).
    A request of more than `short_characters` characters × beams goes into the lane of long ones, which gives way to
    short ones at each step of decoding, for at most `give_way_ms` a step.
    """

    max_wait_ms: float = 2.0
    max_tokens: int = 1536
    short_characters: int = 1_200
    give_way_ms: float = 50.0

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}; a number of {least} or more is allowed"
            for name, value in vars(self).items()
            if not (isinstance(value, (int, float)) and value >= (least := 0 if name.endswith("_ms") else 1))
        ]
        if problems:
            raise UsageError(f"batching of the service: {'; '.join(problems)}")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The service as a whole.

    `keys`: who may translate; empty: everybody. `requests_per_minute` for each key (without keys: each address); None:
    no limit. `origins` may call from a browser (CORS); `*` is everybody. `memory_bytes`: above this much memory that
    cannot be given back, requests are answered with 503; None: 90 % of the cgroup's limit, where there is one.
    """

    limits: Limits = field(default_factory=Limits)
    batching: BatchOptions = field(default_factory=BatchOptions)
    keys: frozenset[str] = frozenset()
    requests_per_minute: int | None = None
    origins: tuple[str, ...] = ()
    dialects: frozenset[str] = frozenset(DIALECTS)
    memory_bytes: int | None = None
    page: bool = True

    def __post_init__(self) -> None:
        problems = [
            f"dialect {name!r}; there are: {', '.join(DIALECTS)}" for name in sorted(self.dialects - {*DIALECTS})
        ]
        problems += ["an API key has fewer than 8 characters" for key in self.keys if len(key) < 8][:1]
        problems += ["an API key is not plain ASCII without spaces" for key in self.keys if not _plain(key)][:1]
        if self.requests_per_minute is not None and self.requests_per_minute < 1:
            problems.append(f"requests_per_minute is {self.requests_per_minute!r}; 1 or more is allowed")
        if self.memory_bytes is not None and self.memory_bytes < 1:
            problems.append(f"memory_bytes is {self.memory_bytes!r}; 1 or more is allowed")
        if problems:
            raise UsageError(f"options of the service: {'; '.join(problems)}")


def _plain(key: str) -> bool:
    return key.isascii() and key.isprintable() and " " not in key
