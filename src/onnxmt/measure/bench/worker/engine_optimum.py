"""Optimum's ONNX Runtime model, exported from the checkpoint by Optimum."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import onnxruntime
import torch  # noqa: TID251 (Optimum's tensors are torch's)
from optimum.onnxruntime import ORTModelForSeq2SeqLM


class Optimum:
    """An exported checkpoint's `generate()`."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def versions(self) -> dict[str, str]:
        """Return the packages that compute."""
        names = ("optimum", "optimum-onnx", "onnxruntime", "transformers")
        found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
        return {name: found[name] for name in names if name in found}

    def translate(self, ids: list[list[int]], *, beams: int, tokens: int | None) -> list[int]:
        """Translate one batch; see run.Engine."""
        width = max(len(row) for row in ids)
        padded = torch.tensor([row + [row[-1]] * (width - len(row)) for row in ids])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
        forced = {} if tokens is None else {"min_new_tokens": tokens, "max_new_tokens": tokens}
        output = self._model.generate(input_ids=padded, attention_mask=mask, num_beams=beams, do_sample=False, **forced)
        end = self._model.generation_config.eos_token_id
        return [row.index(end) + 1 if end in row else len(row) for row in (full[1:] for full in output.tolist())]


def convert(*, model: str, converted: str, threads: int, workers: int) -> None:  # noqa: ARG001 (as load)
    """Export the checkpoint into folder `converted`."""
    ORTModelForSeq2SeqLM.from_pretrained(model, export=True).save_pretrained(converted)


def load(*, model: str, converted: str, threads: int, workers: int) -> Optimum:  # noqa: ARG001
    """Load what `convert` wrote."""
    if workers != 1:
        raise ValueError("Optimum is measured with one worker")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return Optimum(ORTModelForSeq2SeqLM.from_pretrained(converted, session_options=options))
