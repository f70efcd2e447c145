"""Run exported graphs step by step, and the same steps in PyTorch, for the tests of the model families."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxmt.checkpoint import Checkpoint, read_checkpoint
from onnxmt.graph_export import ExportedGraphs, export_graphs
from onnxmt.hub import ResolvedModel
from onnxmt.precision import PRESETS


def open_checkpoint(folder: Path) -> Checkpoint:
    return read_checkpoint(ResolvedModel(folder=folder, name=folder.name, revision=None, origin="folder"))


def export(folder: Path, output: Path | None = None) -> ExportedGraphs:
    """Export the checkpoint in `folder` to `output` (its subfolder `graphs` when not given), in fp32."""
    output = folder / "graphs" if output is None else output
    output.mkdir(exist_ok=True)
    return export_graphs(open_checkpoint(folder), output, precision=PRESETS["fp32"])


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Source ids and mask, padded on the right, and decoder ids that begin with the start token."""

    ids: np.ndarray
    mask: np.ndarray
    decoder: np.ndarray


def random_batch(
    *, lengths: list[int], steps: int, vocab: int, target_vocab: int, pad: int, eos: int, start: int, seed: int = 0
) -> Batch:
    """Random tokens for rows of the given lengths; no padding token among the real ones."""
    rng = np.random.default_rng(seed)
    ids = np.full((len(lengths), max(lengths)), pad, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = _tokens(rng, length, vocab, pad)
        ids[row, length - 1] = eos
        mask[row, :length] = 1
    decoder = np.stack([_tokens(rng, steps, target_vocab, pad) for _ in lengths])
    decoder[:, 0] = start
    return Batch(ids=ids, mask=mask, decoder=decoder)


def _tokens(rng: np.random.Generator, count: int, vocab: int, pad: int) -> np.ndarray:
    tokens = rng.integers(0, vocab - 1, count)
    return np.where(tokens >= pad, tokens + 1, tokens)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """cross {name: [B, h, S, d]}; logits [B, T, V] with one token a call; prefix [B, V] with all tokens in one call."""

    cross: dict[str, np.ndarray]
    logits: np.ndarray
    prefix: np.ndarray


class Graphs:
    """Sessions over the two graphs of a folder."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / name, options) for name in ("encoder.onnx", "decoder.onnx")
        )

    def encode(self, ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
        return self._run(self.encoder, {"input_ids": ids, "attention_mask": mask})

    def no_past(self, rows: int) -> dict[str, np.ndarray]:
        shapes = {i.name: i.shape for i in self.decoder.get_inputs() if i.name.startswith("past.")}
        return {name: np.zeros((rows, shape[1], 0, shape[3]), np.float32) for name, shape in shapes.items()}

    def step(
        self, tokens: np.ndarray, mask: np.ndarray, cross: dict[str, np.ndarray], past: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return logits and the next past."""
        out = self._run(self.decoder, {"input_ids": tokens, "attention_mask": mask, **cross, **past})
        return out["logits"], {name.replace("present", "past"): v for name, v in out.items() if name != "logits"}

    def run(self, batch: Batch) -> Outputs:
        cross = self.encode(batch.ids, batch.mask)
        past = self.no_past(len(batch.ids))
        logits = []
        for step in range(batch.decoder.shape[1]):
            now, past = self.step(batch.decoder[:, step : step + 1], batch.mask, cross, past)
            logits.append(now)
        prefix, all_at_once = self.step(batch.decoder, batch.mask, cross, self.no_past(len(batch.ids)))
        for name, value in past.items():
            assert_close(f"{name}, prefix against steps", all_at_once[name], value)
        return Outputs(cross=cross, logits=np.stack(logits, axis=1), prefix=prefix)

    @staticmethod
    def _run(session, feeds):
        return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def load_torch(folder: Path):
    import torch
    from transformers import AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()


def cache_of(output):
    """The cache in a model's output, whose name was another in transformers 5.0."""
    return output.cache if hasattr(output, "cache") else output.past_key_values


def run_torch(model, batch: Batch) -> Outputs:
    """The same in transformers, in one pass without a cache of its own."""
    import torch

    with torch.no_grad():
        out = model(
            input_ids=torch.tensor(batch.ids), attention_mask=torch.tensor(batch.mask),
            decoder_input_ids=torch.tensor(batch.decoder), use_cache=True,
        )  # fmt: skip
    layers = cache_of(out).cross_attention_cache.layers
    cross = {
        f"cross.{i}.{part}": getattr(layer, f"{part}s").numpy()
        for i, layer in enumerate(layers)
        for part in ("key", "value")
    }
    logits = out.logits.numpy()
    return Outputs(cross=cross, logits=logits, prefix=logits[:, -1])


TOLERANCE = 1e-4


def assert_close(what: str, found: np.ndarray, wanted: np.ndarray) -> None:
    """Within 1e-4 of the reference's largest magnitude, and absolutely where that is below 1."""
    assert found.shape == wanted.shape, f"{what}: shape {found.shape} against {wanted.shape}"
    assert np.isfinite(found).all(), f"{what}: not finite"
    limit = TOLERANCE * max(1.0, float(np.abs(wanted).max(initial=0.0)))
    error = float(np.abs(found - wanted).max(initial=0.0))
    assert error <= limit, f"{what}: largest error {error:.3g}, limit {limit:.3g}"


def assert_equal_to_torch(graphs: Graphs, model, batch: Batch) -> Outputs:
    """Compare cross keys and values of real positions, logits of every step, and a whole prefix at once."""
    found, wanted = graphs.run(batch), run_torch(model, batch)
    assert found.cross.keys() == wanted.cross.keys()
    real = batch.mask[:, None, :, None].astype(bool)
    for name, value in found.cross.items():
        assert_close(name, np.where(real, value, 0), np.where(real, wanted.cross[name], 0))
    assert_close("logits", found.logits, wanted.logits)
    assert_close("prefix", found.prefix, wanted.prefix)
    return wanted
