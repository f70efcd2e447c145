from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from onnxmt.errors import SessionError, UsageError
from onnxmt.runtime import session as room
from onnxmt.runtime.cpu import CpuLimit
from onnxmt.runtime.session import RuntimeOptions, Session, Spin, options_for
from tests.runtime.graphs import write_fake_graphs

FEEDS = {"input_ids": np.array([[3, 4]]), "attention_mask": np.array([[1, 1]])}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fake_graphs(tmp_path_factory.mktemp("fake")) / "encoder.onnx"


def test_a_session_describes_its_graph_and_runs(encoder: Path) -> None:
    session = Session(encoder, options=RuntimeOptions(threads=1))

    assert session.provider == "CPUExecutionProvider"
    assert list(session.inputs) == ["input_ids", "attention_mask"]
    assert session.inputs["input_ids"].dtype is np.int64
    assert session.outputs["cross.0.key"].axes == ("batch", 1, "source", 1)
    assert session.run(FEEDS)["cross.0.value"].ravel().tolist() == [30.0, 40.0]


def test_threads_come_from_the_limits_and_can_be_set(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case R1: the number that ONNX Runtime gets is explicit, and ours."""
    monkeypatch.setattr(room, "cpu_limit", lambda: CpuLimit(affinity=64, quota=3.5))

    assert Session(encoder).threads == 3
    assert Session(encoder)._session.get_session_options().intra_op_num_threads == 3
    assert Session(encoder, options=RuntimeOptions(threads=2))._session.get_session_options().intra_op_num_threads == 2


@pytest.mark.parametrize(
    ("spin", "allowed", "microseconds"), [("off", "0", None), ("brief", "1", "50"), ("on", "1", None)]
)
@pytest.mark.parametrize("pool", ["intra_op", "inter_op"])
def test_idle_threads_sleep_soon(encoder: Path, pool: str, spin: Spin, allowed: str, microseconds: str | None) -> None:
    """Case R2."""
    options = Session(encoder, options=RuntimeOptions(threads=2, spin=spin))._session.get_session_options()

    assert options.get_session_config_entry(f"session.{pool}.allow_spinning") == allowed
    if microseconds is None:
        with pytest.raises(RuntimeError):
            options.get_session_config_entry(f"session.{pool}.spin_duration_us")
    else:
        assert options.get_session_config_entry(f"session.{pool}.spin_duration_us") == microseconds


def test_throughput_shares_the_threads_among_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "cpu_limit", lambda: CpuLimit(affinity=6, quota=None))

    assert options_for("latency") == RuntimeOptions()
    assert options_for("latency", threads=3, spin="off") == RuntimeOptions(threads=3, spin="off")
    assert options_for("throughput") == RuntimeOptions(threads=1, workers=6)
    assert options_for("throughput", threads=2) == RuntimeOptions(threads=1, workers=2)
    assert RuntimeOptions(workers=2).resolved_threads() == 3
    assert RuntimeOptions(workers=9).resolved_threads() == 1
    with pytest.raises(UsageError, match="mode is 'fast'; allowed: latency, throughput"):
        options_for("fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("on", [True, False])
def test_memory_options_reach_the_session(encoder: Path, on: bool) -> None:
    options = Session(
        encoder, options=RuntimeOptions(threads=1, arena=on, memory_pattern=on)
    )._session.get_session_options()

    assert options.enable_cpu_mem_arena is on
    assert options.enable_mem_pattern is on


IDLE = """
import os, sys, time
import numpy as np
from pathlib import Path
from onnxmt.runtime.session import RuntimeOptions, Session
session = Session(Path(sys.argv[1]), options=RuntimeOptions(threads=4))
session.run({"input_ids": np.ones((64, 64), np.int64), "attention_mask": np.ones((64, 64), np.int64)})
before = time.process_time()
time.sleep(1.0)
print(time.process_time() - before)
"""


def test_an_idle_session_costs_nothing(encoder: Path) -> None:
    """Case R2: CPU time, which other programs do not disturb, of a second in which nothing is asked."""
    done = subprocess.run([sys.executable, "-c", IDLE, str(encoder)], capture_output=True, text=True, check=True)

    assert float(done.stdout) < 0.2


def test_options_are_checked_together() -> None:
    with pytest.raises(UsageError) as caught:
        RuntimeOptions(threads=0, inter_threads=True, workers=0, spin=True, provider="gpu")  # type: ignore[arg-type]

    message = str(caught.value)
    assert "threads is 0; a whole number from 1 to 1024 is allowed" in message
    assert "inter_threads is True" in message
    assert "workers is 0" in message
    assert "spin is True; allowed: off, brief, on" in message
    assert "provider is 'gpu'; allowed: cpu, cuda, tensorrt, openvino, coreml, directml" in message


def test_an_absent_provider_is_an_error_not_a_fallback(encoder: Path) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")  # then it is not absent
    with pytest.raises(
        SessionError, match=r"the provider 'cuda' is not in this onnxruntime .* which has: cpu\. Install"
    ):
        Session(encoder, options=RuntimeOptions(provider="cuda"))


def test_a_provider_that_does_not_start_is_an_error(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime goes on with the CPU when a provider's libraries are not there; we do not."""
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    made = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda path, **_: made(path, providers=["CPUExecutionProvider"])
    )

    with pytest.raises(SessionError, match="'cuda' could not start, onnxruntime would use CPUExecutionProvider"):
        Session(encoder, options=RuntimeOptions(provider="cuda"))


@pytest.mark.parametrize("content", [None, b"", b"not a graph", b"\x08\x0a" * 100])
def test_a_broken_graph_is_one_line(tmp_path: Path, content: bytes | None, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "decoder.onnx"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(SessionError, match=r"^onnxruntime could not load decoder\.onnx: ") as caught:
        Session(path, options=RuntimeOptions(threads=1))

    assert "\n" not in str(caught.value)
    assert "[ONNXRuntimeError]" not in str(caught.value)
    assert capfd.readouterr() == ("", "")  # onnxruntime itself would log here


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"input_ids": FEEDS["input_ids"]}, "attention_mask"),
        ({**FEEDS, "extra": np.zeros(1)}, "extra"),
        ({**FEEDS, "input_ids": np.zeros((1, 2), np.float32)}, r"Actual: \(tensor\(float\)\)"),
        ({**FEEDS, "input_ids": np.zeros(3, np.int64)}, "rank"),
    ],
)
def test_wrong_feeds_are_one_line(
    encoder: Path, feeds: dict[str, np.ndarray], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    session = Session(encoder, options=RuntimeOptions(threads=1))

    with pytest.raises(SessionError, match=f"could not run encoder.onnx: .*{message}") as caught:
        session.run(feeds)

    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_sessions_are_not_pickled(encoder: Path) -> None:
    with pytest.raises(SessionError, match="pickle the Translator"):
        pickle.dumps(Session(encoder, options=RuntimeOptions(threads=1)))


@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("0", "0")])
def test_nothing_is_sent_home_unless_the_user_says_so(given: str | None, found: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    if given is not None:
        environment["ORT_DISABLE_TELEMETRY"] = given
    code = "import onnxmt.runtime.session, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == found
