"""Every recipe for every family, odd sizes included: it exports, loads, runs, gives numbers, and is near fp32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxmt.precision import recipe
from tests.precision.families import VARIANTS, Tiny, build, distance, logits

# Root mean square error of the logits over their spread. Weights of a random model carry no redundancy: a trained model
# loses a tenth of this.
LIMITS = {
    "fp16": 0.01,
    "int8": 0.2,
    "int8-dynamic": 0.4,
    "int8-static": 0.4,
    "int4": 1.0,
    "int8,encoder=fp32": 0.16,
    "encoder=int8-static,decoder=int8,lm_head=int4": 0.8,
}


@pytest.fixture(scope="module", params=VARIANTS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build(request.param, tmp_path_factory.mktemp("family"))


@pytest.mark.reference
def test_every_recipe_runs_and_is_near_fp32(tiny: Tiny, tmp_path: Path) -> None:
    wanted = logits(tiny.fp32, tiny.batch)
    assert np.isfinite(wanted).all()
    found = {}
    for name in LIMITS:
        values = logits(tiny.export(recipe(name), tmp_path / name), tiny.batch)
        assert values.dtype == np.float32
        assert np.isfinite(values).all(), name
        found[name] = distance(values, wanted)
    assert {name: value for name, value in found.items() if not 0 < value <= LIMITS[name]} == {}, found
    assert found["fp16"] < found["int8"] < found["int4"], found
