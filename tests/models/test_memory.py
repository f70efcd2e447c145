"""Export needs memory in proportion to the checkpoint: at most twice its size and 300 MB."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.models.random_checkpoint import write_random_checkpoint

MB = 2**20
# VmHWM and not getrusage: its ru_maxrss of a child begins with the memory of the parent, a pytest with torch in it.
ROOT = Path(__file__).parents[2]
EXPORT = """
import re, sys
from pathlib import Path
from onnxmt.graph_export import export_graphs
from onnxmt.precision import PRESETS
from tests.models.parity import open_checkpoint
folder = Path(sys.argv[1])
(folder / "graphs").mkdir()
export_graphs(open_checkpoint(folder), folder / "graphs", precision=PRESETS["fp32"])
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024)
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A shape cut to a few hundred MB, and the part of its size that it may cost beside 200 MB.

    The parts hold at any size. A table in half precision is the worst case, as it becomes float32 in one piece.
    """

    config: dict[str, Any]
    share: float
    dtype: str = "float32"
    untied: tuple[str, ...] = ()


NLLB = {
    "model_type": "m2m_100", "vocab_size": 64051, "d_model": 1024, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 16, "decoder_attention_heads": 16, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048,
}  # fmt: skip
CASES = {
    "nllb": Case(config=NLLB, share=1.3),
    "nllb in float16": Case(config=NLLB, share=2, dtype="float16"),
    "mt5, gated gelu": Case(
        config={
            "model_type": "mt5",
            "vocab_size": 62528,
            "d_model": 512,
            "feed_forward_proj": "gated-gelu",
            "num_layers": 2,
        },
        share=1.3,
        untied=("lm_head.weight",),
    ),
    "t5, 64 buckets": Case(
        config={
            "model_type": "t5",
            "d_model": 768,
            "d_ff": 3072,
            "num_layers": 3,
            "num_heads": 12,
            "relative_attention_num_buckets": 64,
        },
        share=1.3,
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("name", CASES)
def test_peak_memory_of_export(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    size = write_random_checkpoint(tmp_path, case.config, dtype=case.dtype, untied=case.untied)
    assert size > 150 * MB
    done = subprocess.run(
        [sys.executable, "-c", EXPORT, str(tmp_path)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    peak, limit = int(done.stdout), case.share * size + 200 * MB
    assert peak <= limit, f"{peak // MB} MB for a checkpoint of {size // MB} MB; allowed {limit // MB:.0f} MB"
