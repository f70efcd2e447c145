"""The only place that makes an ONNX Runtime session: options, provider, threads, forks, and its errors as ours."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from onnxmt.errors import SessionError, UsageError
from onnxmt.runtime.cpu import cpu_limit

# Since 1.29 the official Linux builds of ONNX Runtime send session facts (model and graph names, hashes of the weights)
# to their maker unless this is set before the import. A text translated offline is nobody's business; and the thread
# that sends makes a forked child hang when it exits. A user who wants it sets ORT_DISABLE_TELEMETRY=0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort

PROVIDERS: Mapping[str, str] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
}
Mode = Literal["latency", "throughput"]
MODES: tuple[Mode, ...] = ("latency", "throughput")
Spin = Literal["off", "brief", "on"]
# Microseconds that an idle thread stays awake; None: as long as ONNX Runtime likes (milliseconds). One step of an int8
# opus-mt model, 2 threads, one row, on a machine with little else to do: off 2.55 ms, brief 1.86, on 1.74. But where
# other programs want the same CPUs, a thread that spins keeps the one that it waits for from running: a translation
# there takes 114 ms off, 129 brief and 284 on.
SPINS: Mapping[Spin, int | None] = {"off": 0, "brief": 50, "on": None}
_DTYPES: Mapping[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
# Fused, LayerNormalization after an Add takes 4.1 ns a number on CPU (SkipLayerNormalization, 1.32), apart 0.6.
_UNWANTED = ["SkipLayerNormFusion"]
_SILENT = 4  # ONNX Runtime logs each error besides raising it; the exception alone is enough
T = TypeVar("T")
Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """How sessions run.

    `threads` computes one step (None: what affinity and cgroup quota allow); `inter_threads` is ONNX Runtime's
    second pool, of no use to our sequential graphs. `workers` decode batches side by side, each with `threads` threads.
    `spin` keeps a thread that has nothing to do awake for a while, since a step hands out work a hundred times: SPINS
    says for how long; "brief" bridges the gaps within a step and costs nothing between requests. `arena` keeps freed
    memory for the next step; `memory_pattern` also remembers a plan for every shape seen, which grows with each new
    length, so it is off. `memory_limit` is how many bytes the process may come to: batches are cut to fit what the
    loaded model leaves of it. `provider` is one of PROVIDERS, without a fallback.
    """

    threads: int | None = None
    inter_threads: int = 1
    workers: int = 1
    spin: Spin = "brief"
    arena: bool = True
    memory_pattern: bool = False
    memory_limit: int | None = None
    provider: str = "cpu"

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}; a whole number from 1 to 1024 is allowed"
            for name, value in (
                ("threads", self.threads),
                ("inter_threads", self.inter_threads),
                ("workers", self.workers),
            )
            if not (value is None and name == "threads") and not (type(value) is int and 1 <= value <= 1024)
        ]
        if self.memory_limit is not None and not (type(self.memory_limit) is int and self.memory_limit > 0):
            problems.append(f"memory_limit is {self.memory_limit!r}; a number of bytes is allowed")
        if self.spin not in SPINS:
            problems.append(f"spin is {self.spin!r}; allowed: {', '.join(SPINS)}")
        if self.provider not in PROVIDERS:
            problems.append(f"provider is {self.provider!r}; allowed: {', '.join(PROVIDERS)}")
        if problems:
            raise UsageError(f"runtime options: {'; '.join(problems)}")

    def resolved_threads(self) -> int:
        """Threads that will be used: as asked, or what the system allows this process, shared among the workers."""
        return self.threads if self.threads is not None else max(1, cpu_limit().threads // self.workers)


def options_for(
    mode: str, *, threads: int | None = None, spin: Spin = "brief", arena: bool = True, provider: str = "cpu"
) -> RuntimeOptions:
    """Options for the shortest time of one text ("latency") or of many ("throughput"), with `threads` in all.

    Throughput: as many workers as threads, with one thread each, since two threads on one batch wait for each other at
    every operator and two batches never do. One text alone then takes longer.
    """
    if mode not in MODES:
        raise UsageError(f"mode is {mode!r}; allowed: {', '.join(MODES)}")
    whole = RuntimeOptions(threads=threads, spin=spin, arena=arena, provider=provider)
    if mode == "latency":
        return whole
    return dataclasses.replace(whole, threads=1, workers=whole.resolved_threads())


@dataclass(frozen=True, kw_only=True)
class NodeInfo:
    """An input or output of a graph: dtype of numpy, and axes as lengths or names of dynamic ones."""

    name: str
    dtype: type[np.generic]
    axes: tuple[int | str, ...]


class Session:
    """One loaded graph. `run` may be called from many threads at once, and in a forked child.

    The weights file that the graph names is looked for beside the graph, or in the folder `weights`. Raises
    SessionError.
    """

    def __init__(self, path: Path, *, options: RuntimeOptions | None = None, weights: Path | None = None) -> None:
        self.path, self._weights = path, weights
        self.options = options or RuntimeOptions()
        self.threads = self.options.resolved_threads()
        self._lock = threading.Lock()
        self._closed = False
        self._session: Any = self._open()
        self.provider: str = self._session.get_providers()[0]
        self.inputs = self._nodes(self._session.get_inputs())
        self.outputs = self._nodes(self._session.get_outputs())
        self._output_names = list(self.outputs)
        self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        _live_sessions().add(self)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the graph once; returns its outputs by name. They belong to the caller."""
        session = self._session or self._reopen()
        values = self._guarded("run", lambda: session.run(self._output_names, dict(feeds)))
        return dict(zip(self._output_names, values, strict=True))

    def close(self) -> None:
        """Give the graph's memory back; a later `run` raises SessionError."""
        with self._lock:
            self._closed, self._session = True, None

    def __reduce__(self) -> str:
        raise SessionError(f"a session of {self.path.name} cannot be pickled: pickle the Translator, or pass its path")

    def _reopen(self) -> Any:
        """Make the session anew, in a child that was forked after it was made."""
        with self._lock:
            if self._closed:
                raise SessionError(f"the session of {self.path.name} was closed: load the bundle again")
            if self._session is None:
                self._session = self._open()
            return self._session

    def _open(self) -> Any:
        options, wanted = self.options, PROVIDERS[self.options.provider]
        available = ort.get_available_providers()
        if wanted not in available:
            names = [name for name, provider in PROVIDERS.items() if provider in available]
            raise SessionError(
                f"the provider {options.provider!r} is not in this onnxruntime {ort.__version__}, which has: "
                f"{', '.join(names)}. Install the onnxruntime build that holds it, or name another provider"
            )
        chosen = [wanted] if options.provider == "cpu" else [wanted, PROVIDERS["cpu"]]  # for operators it lacks
        session = self._guarded(
            "load",
            lambda: ort.InferenceSession(
                # a file's graph must have its weights beside it, and no link may lead to them
                os.fspath(self.path) if self._weights is None else self.path.read_bytes(),
                sess_options=self._session_options(),
                providers=chosen,
                enable_fallback=0,
                disabled_optimizers=_UNWANTED,
            ),
        )
        if session.get_providers()[0] != wanted:  # its libraries did not load: onnxruntime goes on with the CPU
            raise SessionError(
                f"the provider {options.provider!r} could not start, onnxruntime would use "
                f"{session.get_providers()[0]}: install the driver and libraries it needs, or name another provider"
            )
        return session

    def _session_options(self) -> Any:
        options = ort.SessionOptions()
        # An explicit number also keeps ONNX Runtime from pinning threads to CPUs outside our affinity mask (case R1).
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = self.options.inter_threads
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.enable_cpu_mem_arena = self.options.arena
        options.enable_mem_pattern = self.options.memory_pattern
        options.log_severity_level = _SILENT
        microseconds = SPINS[self.options.spin]
        for pool in ("intra_op", "inter_op"):
            options.add_session_config_entry(f"session.{pool}.allow_spinning", "0" if microseconds == 0 else "1")
            if microseconds:
                options.add_session_config_entry(f"session.{pool}.spin_duration_us", str(microseconds))
        if self._weights is not None:
            folder = os.fspath(self._weights)
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        return options

    def _guarded(self, what: str, action: Callable[[], T]) -> T:
        try:
            return action()
        # Each of ONNX Runtime's exceptions derives from Exception alone, so there is nothing narrower to name.
        except Exception as error:
            raise SessionError(f"onnxruntime could not {what} {self.path.name}: {_first_line(error)}") from error

    def _nodes(self, nodes: Sequence[Any]) -> dict[str, NodeInfo]:
        unknown = sorted({node.type for node in nodes} - set(_DTYPES))
        if unknown:
            raise SessionError(
                f"{self.path.name} has tensors of type {', '.join(unknown)}; known: {', '.join(_DTYPES)}"
            )
        return {node.name: NodeInfo(name=node.name, dtype=_DTYPES[node.type], axes=tuple(node.shape)) for node in nodes}

    def _forget_parent(self) -> None:
        """In a forked child: drop the parent's session without destroying it, and open another when it is needed.

        Its threads exist in the parent only; joining them in the destructor crashes the child (onnxruntime 1.32).
        """
        if self._session is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))
        self._session, self._lock = None, threading.Lock()


@functools.cache
def _live_sessions() -> weakref.WeakSet[Session]:
    """The sessions of this process; a fork must reach them, and os.register_at_fork cannot be undone: hence one set."""
    sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    def forget() -> None:
        for session in list(sessions):
            session._forget_parent()

    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=forget)
    return sessions


def _first_line(error: Exception) -> str:
    """The message without ONNX Runtime's prefix, `[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : `."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[0]
    return line.split(" : ", 3)[3] if line.startswith("[ONNXRuntimeError]") and line.count(" : ") >= 3 else line
