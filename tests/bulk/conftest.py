from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxmt.bulk import BulkOptions, BulkResult, run_job
from onnxmt.runtime.translation import TranslateOptions
from tests.cli.harness import GOLDEN

KNOWN = {
    "Yes.": "是的。",
    "It rained.": "下雨了。",
}


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., tuple[BulkResult, bytes, list[dict[str, Any]]]]:
    """Runs a job of the golden bundle on some content; gives its result, its output and its errors."""

    def run(content: bytes, name: str = "in.txt", **options: Any) -> tuple[BulkResult, bytes, list[dict[str, Any]]]:
        source, output = tmp_path / name, tmp_path / f"out{Path(name).suffix}"
        source.write_bytes(content)
        options.setdefault("options", TranslateOptions(beams=1, max_new_tokens=16))
        runner = options.pop("runner", None)
        result = run_job(BulkOptions(source=source, output=output, model=GOLDEN, **options), runner=runner)
        return result, output.read_bytes(), errors_of(result)

    return run


def errors_of(result: BulkResult) -> list[dict[str, Any]]:
    if result.errors_file is None:
        return []
    return [json.loads(line) for line in result.errors_file.read_text(encoding="utf-8").splitlines()]
