"""How much memory a migration and a translation will take, estimated from measurements that come with the result."""

from __future__ import annotations

from dataclasses import dataclass

# Peak resident memory on Linux x86-64 (onnxruntime 1.32, onnxscript 0.7.2) of a model of opus-mt-en-zh's shape with
# 311 MB of float32 weights, and of the demo model with 29 MB: 472 and 147 MB to build the graphs, 553 and 130 MB to
# translate one sentence in fp32. The lines through these points, rounded up:
_BUILD_TIMES, _BUILD_BASE = 1.2, 120_000_000
_RUN_TIMES, _RUN_BASE = 1.5, 100_000_000
# Live verification runs PyTorch beside the graphs: its libraries, and the weights once more (the demo model: 660 MB).
_TORCH_BASE = 500_000_000
BASIS = (
    "peak resident memory for fp32: the float32 weights × 1.2 + 120 MB to build, × 1.5 + 100 MB to translate one "
    "sentence, × 2.5 + 600 MB to verify against PyTorch; from measurements with 29 and 311 MB of weights"
)


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes of resident memory, and of disk for the weights file; all for fp32."""

    weights: int
    build: int
    run: int
    verify_live: int
    basis: str


def estimate_memory(parameters: int) -> MemoryEstimate:
    """Estimate for a model with so many parameters."""
    weights = 4 * parameters
    return MemoryEstimate(
        weights=weights,
        build=int(weights * _BUILD_TIMES) + _BUILD_BASE,
        run=int(weights * _RUN_TIMES) + _RUN_BASE,
        verify_live=int(weights * (_RUN_TIMES + 1)) + _RUN_BASE + _TORCH_BASE,
        basis=BASIS,
    )
