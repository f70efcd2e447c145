"""The only importer of Ray: a local cluster or one that is there, and Ray Data over the shards of a job."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from onnxmt.bulk.parts import ShardRecord
from onnxmt.bulk.rows import Shard
from onnxmt.bulk.shard_work import ShardWorker, Task
from onnxmt.errors import BulkError, MissingExtraError, OnnxmtError, UsageError
from onnxmt.runtime.cpu import cpu_limit

LOCAL = "local"
# Shards are not sent through the object store, only what says where they are; Ray takes no less than this.
_OBJECT_STORE = 80 << 20
_KNOCK_SECONDS = 10.0
# What Ray reads when it starts. The first keeps it off the network: every socket is bound to the loopback address.
_QUIET: Mapping[str, str] = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


class RayRunner:
    """Translates shards on a Ray cluster: `workers` actors (None: as many as there are CPUs for), each with its CPUs.

    `address` is `local` for a cluster of this machine that lives as long as the job and listens on 127.0.0.1 only, or
    what `ray.init` takes: HOST:PORT, auto, ray://HOST:PORT. On other machines the bundle, the input and the output must
    be at the same paths. Raises MissingExtraError.
    """

    def __init__(self, *, address: str = LOCAL, workers: int | None = None) -> None:
        for module in ("ray", "pyarrow", "pandas"):
            if importlib.util.find_spec(module) is None:
                raise MissingExtraError(needed_for="--ray", extra="ray", module=module)
        if workers is not None and workers < 1:
            raise UsageError(f"workers is {workers}; 1 or more is allowed")
        self._address, self._workers = address, workers

    def __call__(self, task: Task, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
        """Yield each shard's record when it is finished. Raises BulkError, and what ShardWorker raises."""
        with _cluster(self._address) as ray:
            cpus = int(ray.cluster_resources().get("CPU", 0))
            workers = self._workers or max(1, cpus // task.threads)
            workers = min(workers, len(shards))
            if workers * task.threads > cpus:
                raise UsageError(
                    f"{workers} workers of {task.threads} threads need {workers * task.threads} CPUs, and the cluster "
                    f"has {cpus}: ask for fewer"
                )
            yield from _records(ray, task, shards, workers)


def _records(ray: Any, task: Task, shards: Sequence[Shard], workers: int) -> Iterator[ShardRecord]:
    import ray.data as data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # one block a shard: a block is what an actor takes, and takes again when another has died over it
    items = data.from_items([asdict(shard) for shard in shards], override_num_blocks=len(shards))
    found = items.map_batches(
        _Actor,
        fn_constructor_args=(task,),
        batch_size=1,
        compute=data.ActorPoolStrategy(size=workers),
        num_cpus=task.threads,
    )
    try:
        for row in found.iter_rows():
            if row["error"]:
                raise _error_of(row)
            record = task.parts.finished([Shard(**{name: int(row[name]) for name in _SHARD})])
            if not record:
                raise BulkError(
                    f"shard {row['index']} was done, but {task.parts.folder} does not hold it: all machines of the "
                    "cluster must see the output's folder"
                )
            yield from record.values()
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise BulkError(
            f"Ray could not go on ({type(error).__name__}: {first[0][:200]}). Finished shards are kept: begin the job "
            "again"
        ) from error


_SHARD = ("index", "first_row", "rows", "start", "end")


class _Actor:
    """A ShardWorker in Ray Data's shape: a batch of one shard in, the same with an error or none out."""

    def __init__(self, task: Task) -> None:
        self._worker: ShardWorker | None = None
        self._error: OnnxmtError | None = None
        try:
            self._worker = ShardWorker(task)
        except OnnxmtError as error:  # a constructor that raises would be tried again and again
            self._error = error

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Do one shard."""
        error = self._error
        if self._worker is not None:
            try:
                self._worker(Shard(**{name: int(batch[name][0]) for name in _SHARD}))
            except OnnxmtError as failed:
                error = failed
        said = ("", "") if error is None else (type(error).__name__, str(error))
        return {**batch, "kind": [said[0]], "error": [said[1]]}


def _error_of(row: Mapping[str, Any]) -> OnnxmtError:
    """A worker's error as it was raised there, or as a BulkError where its class takes more than a message."""
    from onnxmt import errors

    kind = getattr(errors, row["kind"], BulkError)
    try:
        raised: OnnxmtError = kind(row["error"])
    except TypeError:
        raised = BulkError(row["error"])
    return raised


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Start a local cluster or connect to one; on the way out everything that was started has ended."""
    with contextlib.ExitStack() as stack:
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == LOCAL:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="onnxmt-ray-", ignore_cleanup_errors=True))
            stack.enter_context(_environment({**_QUIET, **_token()}))
            settings |= {
                "num_cpus": cpu_limit().threads,
                "include_dashboard": False,
                "object_store_memory": _OBJECT_STORE,
                "_temp_dir": folder,
            }
        else:
            _knock(address)
        # what Ray has to say, such as that a worker died, is no output of ours
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        import ray

        if ray.is_initialized():
            raise UsageError("this process is connected to a Ray cluster already: ray.shutdown() first")
        try:
            stack.callback(ray.shutdown)
            with _no_stderr():
                ray.init(address, **settings)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            first = str(error).strip().splitlines() or [type(error).__name__]
            where = "start here" if address == LOCAL else f"be reached at {address!r}"
            raise BulkError(f"a Ray cluster could not {where} ({first[0][:200]})") from error
        for number, handler in handlers.items():  # Ray puts its own in their place, which end the process at once
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(number, handler)
        yield ray


def _knock(address: str) -> None:
    """Raise BulkError where nobody listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise BulkError(f"a Ray cluster could not be reached at {address!r} ({error})") from error


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Let Ray start without standard error: it writes lines of its own there, and its processes would keep it open."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _token() -> dict[str, str]:
    """A secret for this one cluster, so that no other user of the machine can give it work; Ray's own would stay."""
    if os.environ.get("RAY_AUTH_MODE"):
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
