"""The plan: what a bundle was measured to take, what others are estimated at, and which batches fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxmt.errors import UsageError
from onnxmt.measure.plan import make_plan
from tests.cli.harness import GOLDEN, invoke


def test_a_plan_with_room() -> None:
    plan = make_plan(GOLDEN, memory=2_000_000_000, cpus=2.5)

    own = [row for row in plan.rows if row.measured]
    assert {row.precision for row in own} == {"fp32"}
    assert {row.precision for row in plan.rows} == {"fp32", "int8", "int8-dynamic", "int4"}
    assert plan.fits
    assert all(row.threads * row.workers == 2 for row in plan.rows)
    assert all(row.batch_tokens > 1000 and row.loaded_mb > 20 for row in plan.rows)
    loaded = {row.precision: row.loaded_mb for row in plan.rows}
    assert loaded["int4"] < loaded["int8-dynamic"] < loaded["int8"] < loaded["fp32"]


def test_what_does_not_fit_is_exit_code_1() -> None:
    done = invoke("plan", GOLDEN, "--memory", "10Mi", "--cpus", "1", "--json")

    assert done.code == 1
    found = json.loads(done.text)
    assert found["fits"] is False
    assert {row["batch_tokens"] for row in found["rows"]} == {0}


def test_a_table_for_people() -> None:
    done = invoke("plan", GOLDEN, "--memory", "1Gi", "--cpus", "1")

    assert done.code == 0, done.err
    assert "int8 (estimated)" in done.text
    assert "1074 MB, 1 CPUs" in done.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--memory", "much"], "an amount of memory is 'much'"), (["--cpus", "0"], "cpus is 0.0; a number above 0")],
)
def test_wrong_use(arguments: list[str | Path], message: str) -> None:
    assert message in invoke("plan", GOLDEN, *arguments).error()
    with pytest.raises(UsageError):
        make_plan(GOLDEN, memory=10**9, cpus=-1)
