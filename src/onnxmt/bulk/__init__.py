"""Large files, cut into shards that are translated apart, kept, and put together again; `run_job` is its entrance."""

from __future__ import annotations

from onnxmt.bulk.job import BulkOptions, BulkResult, run_job

__all__ = ["BulkOptions", "BulkResult", "run_job"]
