"""`onnxmt translate --ray`: one large file, spread over a Ray cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from onnxmt.errors import UsageError

if TYPE_CHECKING:
    from onnxmt.bulk import BulkResult
    from onnxmt.runtime.translation import TranslateOptions

_ADDRESS = re.compile(r"auto|local|ray://\S+|[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


@dataclass(frozen=True, kw_only=True)
class RayCall:
    """What the command line said. `arguments` are what is no option: the file, and Ray's address if one is given."""

    arguments: Sequence[str]
    files: Sequence[Path]
    output: Path | None
    model: str | None
    field: str | None
    options: TranslateOptions
    threads: int | None
    workers: int | None
    provider: str
    as_json: bool


def translate_with_ray(call: RayCall) -> None:
    """Run the job and say how it went; exits with 1 where rows could not be translated."""
    from onnxmt.bulk import BulkOptions, run_job
    from onnxmt.bulk.ray_cluster import RayRunner
    from onnxmt.commands._console import byte_progress, print_json

    source, address = _file_and_address(call.arguments, call.files)
    if call.output is None or str(call.output) == "-":
        raise UsageError("--ray needs -o FILE: finished shards are kept beside it")
    job = BulkOptions(
        source=source,
        output=call.output,
        model=call.model,
        field=call.field,
        options=call.options,
        threads=call.threads or 1,
        provider=call.provider,
    )
    runner = RayRunner(address=address, workers=call.workers)
    result = run_job(job, runner=runner, progress=lambda rows: byte_progress("translate", rows))
    if call.as_json:
        print_json(_values(result))
    else:
        _tell(result)
    if result.bad:
        raise typer.Exit(1)


def _file_and_address(arguments: Sequence[str], files: Sequence[Path]) -> tuple[Path, str]:
    """Tell the file from the address; a path that exists is a file, whatever it looks like."""
    from onnxmt.bulk.ray_cluster import LOCAL

    addresses = [one for one in arguments if _ADDRESS.fullmatch(one) and not Path(one).exists()]
    paths = [*files, *(Path(one) for one in arguments if one not in addresses)]
    if len(addresses) > 1:
        raise UsageError(f"--ray takes one address; found {', '.join(addresses)}")
    if len(paths) != 1 or str(paths[0]) == "-":
        found = ", ".join(map(str, paths)) or "none"
        raise UsageError(f"--ray translates one file (.txt, .jsonl, .parquet); found: {found}")
    return paths[0], addresses[0] if addresses else LOCAL


def _values(result: BulkResult) -> dict[str, Any]:
    return {
        "output": str(result.output),
        "rows": result.rows,
        "bad": result.bad,
        "warnings": dict(result.warnings),
        "shards": result.shards,
        "kept": result.kept,
        "errors_file": None if result.errors_file is None else str(result.errors_file),
        "warnings_file": None if result.warnings_file is None else str(result.warnings_file),
    }


def _tell(result: BulkResult) -> None:
    from onnxmt.cli import printable
    from onnxmt.commands._console import warn

    if result.kept:
        line = f"{result.kept} of {result.shards} shards had been finished before"
        print(f"onnxmt: {printable(line)}", file=sys.stderr)
    if result.warnings_file is not None:
        kinds = ", ".join(f"{count:,} × {kind}" for kind, count in sorted(result.warnings.items()))
        warn(f"{kinds}: see {result.warnings_file}")
    if result.errors_file is not None:
        line = f"{result.bad:,} of {result.rows:,} rows could not be translated: see {result.errors_file}"
        print(f"onnxmt: error: {printable(line)}", file=sys.stderr)
