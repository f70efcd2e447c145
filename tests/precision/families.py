"""Tiny checkpoints of every family, exported in any recipe and decoded step by step on random tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxmt.checkpoint import Checkpoint
from onnxmt.graph_export import export_graphs
from onnxmt.measure.calibrate import observe
from onnxmt.measure.calibration_options import RangeOptions
from onnxmt.precision import Calibration, Recipe
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.search import search
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.settings import GenerationSettings
from tests.models.parity import Batch, open_checkpoint, random_batch
from tests.tiny import build_bart, build_m2m, build_marian, build_mbart, build_mt5, build_t5, build_umt5

ONE = RuntimeOptions(threads=1)
# Sizes that no block and no vector register divides; T5 heads need not make up the model's width.
_ODD_BART = {
    "d_model": 36, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 50, "decoder_ffn_dim": 70,
}  # fmt: skip
_ODD_T5 = {"d_model": 50, "d_kv": 7, "num_heads": 3, "d_ff": 37}
BUILDERS: dict[str, Callable[..., Path]] = {
    "marian": build_marian, "bart": build_bart, "mbart": build_mbart, "m2m_100": build_m2m,
    "t5": build_t5, "mt5": build_mt5, "umt5": build_umt5,
}  # fmt: skip
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in BUILDERS},
    "marian, odd": ("marian", _ODD_BART),
    "m2m_100, odd": ("m2m_100", _ODD_BART),
    "t5, odd": ("t5", _ODD_T5),
    "umt5, odd": ("umt5", _ODD_T5),
}


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """A checkpoint, its fp32 graphs, and a batch for it."""

    folder: Path
    checkpoint: Checkpoint
    fp32: Path
    batch: Batch
    settings: GenerationSettings
    calibration: Calibration

    def export(self, recipe: Recipe, output: Path) -> Path:
        output.mkdir(parents=True)
        export_graphs(self.checkpoint, output, precision=recipe, calibration=self.calibration)
        return output


def build(name: str, root: Path, **builder: Any) -> Tiny:
    family, config = VARIANTS[name]
    folder = BUILDERS[family](root / "checkpoint", config={**config, **builder.pop("config", {})}, **builder)
    return opened(folder, root)


def opened(folder: Path, root: Path) -> Tiny:
    checkpoint = open_checkpoint(folder)
    config = checkpoint.config
    settings = GenerationSettings.from_checkpoint(config, checkpoint.generation)
    batch = random_batch(
        lengths=[11, 3, 7], steps=5, vocab=config["vocab_size"],
        target_vocab=config.get("decoder_vocab_size") or config["vocab_size"], pad=config["pad_token_id"],
        eos=settings.eos_token_ids[0], start=settings.decoder_start_token_id,
    )  # fmt: skip
    fp32 = root / "fp32"
    fp32.mkdir()
    from onnxmt.precision import PRESETS

    export_graphs(checkpoint, fp32, precision=PRESETS["fp32"])
    return Tiny(
        folder=folder, checkpoint=checkpoint, fp32=fp32, batch=batch, settings=settings,
        calibration=calibrated(fp32, batch, settings),
    )  # fmt: skip


def calibrated(fp32: Path, batch: Batch, settings: GenerationSettings) -> Calibration:
    """Ranges from a greedy search over the batch and from its own decoder tokens."""
    model = load_model(fp32, options=ONE)
    with tempfile.TemporaryDirectory() as scratch:
        watched = observe(model, Path(scratch))
        search(watched.start(batch.ids, batch.mask), rows=len(batch.ids), settings=replace(settings, num_beams=1))
        decode(watched, batch)
        watched.close()
    return Calibration(ranges=watched.ranges(RangeOptions(method="minmax")), texts="random", lines=3, method="minmax")


def decode(model: Seq2SeqModel, batch: Batch) -> np.ndarray:
    """Logits [B, T, V] with one given token a step, over the cache."""
    step = model.start(batch.ids, batch.mask)
    columns = range(batch.decoder.shape[1])
    return np.stack([step(batch.decoder[:, t : t + 1], None).copy() for t in columns], axis=1)


def logits(folder: Path, batch: Batch) -> np.ndarray:
    return decode(load_model(folder, options=ONE), batch)


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """Root mean square error over the reference's own spread."""
    return float(np.sqrt(np.mean((found - wanted) ** 2)) / wanted.std())
