"""When a canary is returned, what is kept of it, and whether there is memory for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from onnxmt.bundle import read_bundle
from onnxmt.errors import UsageError
from onnxmt.serve import ServeOptions
from onnxmt.serve.rollout_loading import NoMemoryError, free_memory, require_memory
from onnxmt.serve.rollout_options import CanaryLimits, RolloutPlan, rollout_plan
from onnxmt.serve.rollout_stats import CanaryStats, Side, judge, likeness
from onnxmt.store.adding import AddOptions, add
from onnxmt.store.promoting import promote
from onnxmt.store.shelf import shelf_of
from tests.cli.harness import ROOT, invoke
from tests.store.bundles import GOLDEN

LIMITS = CanaryLimits()


def stats(canary: dict[str, Any] | None = None, production: dict[str, Any] | None = None, **values: Any) -> CanaryStats:
    """A healthy canary, but for what is given."""
    ours = {"requests": 40, "errors": 0, "warned": 2, "seconds": [0.1] * 40, **(canary or {})}
    theirs = {"requests": 400, "errors": 0, "warned": 20, "seconds": [0.1] * 200, **(production or {})}
    return CanaryStats(
        **{"since": 1, "canary": Side(**ours), "production": Side(**theirs), "compared": 40, "likeness": 36.0, **values}
    )


def test_a_healthy_canary_stays() -> None:
    assert judge(stats(), LIMITS) is None
    assert judge(CanaryStats(since=1), LIMITS) is None


@pytest.mark.parametrize(
    ("found", "reason", "said"),
    [
        (stats({"errors": 3}), "errors", "3 of 40 requests failed, at most 2% may"),
        (stats({"requests": 3, "errors": 3, "seconds": []}), "errors", "3 of 3 requests failed"),
        (stats({"warned": 12}), "warnings", "30% of its answers have warnings, at most 22% may"),
        (stats({"seconds": [0.21] * 40}), "latency", "210 ms and production's 100 ms, at most 2 times"),
        (stats(likeness=23.0), "agreement", r"by 0\.57 over 40 requests, at least 0\.6"),
        (stats({"requests": 1, "seconds": [0.1]}, compared=10, likeness=1.0), "agreement", "over 10 requests"),
    ],
)
def test_each_limit(found: CanaryStats, reason: str, said: str) -> None:
    verdict = judge(found, LIMITS)
    assert verdict is not None
    assert verdict.reason == reason
    assert re.search(said, verdict.message), verdict.message


@pytest.mark.parametrize(
    "found",
    [
        stats({"errors": 2}),  # by chance
        stats({"requests": 1000, "errors": 20, "seconds": [0.1] * 200}),
        stats({"requests": 19, "warned": 19, "seconds": [9.0] * 19}),  # too few
        stats({"warned": 12}, {"warned": 100}),  # production warns as often
        stats({"seconds": [0.021] * 40}, {"seconds": [0.002] * 200}),  # milliseconds are no latency
        stats({"seconds": [0.5] * 40}, {"seconds": [0.1] * 19}),
        stats(compared=9, likeness=0.0),
    ],
)
def test_what_is_within_limits_or_too_little_to_say(found: CanaryStats) -> None:
    assert judge(found, LIMITS) is None


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        ("", "", 1.0),
        ("a", "a", 1.0),
        ("", "a", 0.0),
        ("a", "b", 0.0),
        ("请把门关上", "请把窗关上", 0.5),
        ("ab", "abab", 0.5),
    ],
)
def test_likeness(first: str, second: str, value: float) -> None:
    assert likeness(first, second) == pytest.approx(value)


def test_statistics_are_kept_for_one_time_as_a_canary(tmp_path: Path) -> None:
    path, found = tmp_path / "rollout" / "2.json", stats(since=7)
    found.save(path)
    again = CanaryStats.read(path, since=7)
    assert again == found
    assert again.summary() == {
        "requests": 40, "errors": 0, "warned": 2, "median_ms": 100.0, "production_requests": 400,
        "production_warned": 20, "production_median_ms": 100.0, "compared": 40, "agreement": 0.9,
    }  # fmt: skip
    assert CanaryStats.read(path, since=8) == CanaryStats(since=8)
    assert CanaryStats.read(tmp_path / "none.json", since=8) == CanaryStats(since=8)
    for text in ("{", "[]", '{"format": 1, "since": 7}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"2\.json|Expecting|delimiter"):
            CanaryStats.read(path, since=7)


def test_the_latest_latencies_count() -> None:
    side = Side()
    for number in range(300):
        side.answered(number, warned=False)
    assert (len(side.seconds), side.seconds[0], side.seconds[-1]) == (200, 100, 299)


def test_wrong_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UsageError, match=r"min_agreement is 2; a number from 0 to 1 is allowed; max_latency|max_latency"
    ):
        CanaryLimits(min_agreement=2, max_latency=-1)
    with pytest.raises(UsageError, match="2 or more"):
        CanaryLimits(min_requests=1)
    monkeypatch.setenv("ONNXMT_STORE", str(tmp_path))
    add(GOLDEN, options=AddOptions(name="m", run=False))
    promote(shelf_of("m"), "1")
    plan = rollout_plan("m:production", "m:canary", percent=10)
    assert plan is not None
    assert (plan.version, plan.ref, plan.canary) == ("1", "production", "canary")
    assert rollout_plan(str(GOLDEN), None) is None
    assert rollout_plan(None, None) is None
    for model, canary, shadow, said in (
        (str(GOLDEN), "m:canary", False, "for a model in the store"),
        ("m:production", None, True, "name it with --canary"),
        ("m:production", "other:canary", False, "m:canary"),
        ("m:production", "canary", False, "an alias of m is allowed"),
        ("m:production", "m:production", False, "served already"),
    ):
        with pytest.raises(UsageError, match=said):
            rollout_plan(model, canary, shadow=shadow)
    with pytest.raises(UsageError, match="0 to 100"):
        RolloutPlan(shelf=shelf_of("m"), ref="1", version="1", percent=101)


def test_the_command_refuses_a_canary_without_a_store(tmp_path: Path) -> None:
    assert "are for a model in the store" in invoke("serve", "--model", GOLDEN, "--canary", "m:canary").error()
    assert "max_errors" not in invoke("serve", "--model", GOLDEN, "--shadow").error()


def test_the_docs_tell_the_defaults() -> None:
    text = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `--(canary-\w+)` \| ([\d.]+) \|", text, re.MULTILINE))
    assert rows == {
        "canary-requests": f"{LIMITS.min_requests}",
        "canary-errors": f"{LIMITS.max_errors:g}",
        "canary-warnings": f"{LIMITS.max_warnings:g}",
        "canary-latency": f"{LIMITS.max_latency:g}",
        "canary-agreement": f"{LIMITS.min_agreement:g}",
    }
    help_text = invoke("serve", "--help").text
    assert all(f"--{option}" in help_text for option in rows)


def test_memory_is_what_the_limit_and_the_machine_leave(tmp_path: Path) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("RssAnon:  100000 kB\nRssShmem:  0 kB\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  300000 kB\n")
    assert free_memory(ServeOptions(), root=tmp_path) == 300_000 * 1024
    options = ServeOptions(memory_bytes=150_000 * 1024)
    assert free_memory(options, root=tmp_path) == 50_000 * 1024
    bundle = read_bundle(GOLDEN, check="size")
    with pytest.raises(NoMemoryError, match="needs about 96 MB beside what is loaded, and 51 MB are free"):
        require_memory(bundle, options, root=tmp_path)
    require_memory(bundle, ServeOptions(), root=tmp_path)
    assert free_memory(ServeOptions(memory_bytes=1), root=tmp_path) == 0
