"""Tiny checkpoints that differ in one thing, built and exported once a test module, and judged against transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.search import search
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.settings import GenerationSettings
from tests.models.parity import Batch, Graphs, export, load_torch, open_checkpoint, random_batch

Weights = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a tiny model differs from the usual one of its family; `edit` changes the saved weights."""

    config: Mapping[str, Any] = field(default_factory=dict)
    builder: Mapping[str, Any] = field(default_factory=dict)
    edit: Callable[[Weights], object] | None = None
    untied: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Built:
    """A variant as checkpoint, as transformers loads it, and as graphs."""

    folder: Path
    torch: Any
    graphs: Graphs
    runtime: Seq2SeqModel
    settings: GenerationSettings
    untied: tuple[str, ...]

    def batch(self, lengths: Sequence[int], steps: int, *, seed: int = 0) -> Batch:
        """Random source rows of these lengths, and random decoder tokens."""
        config = self.torch.config
        return random_batch(
            lengths=list(lengths),
            steps=steps,
            vocab=config.vocab_size,
            target_vocab=self.torch.get_output_embeddings().weight.shape[0],
            pad=config.pad_token_id,
            eos=config.eos_token_id,
            start=config.decoder_start_token_id,
            seed=seed,
        )


class Family:
    """The variants of one family, each built when it is first asked for."""

    def __init__(self, builder: Callable[..., Path], variants: Mapping[str, Variant], root: Path) -> None:
        self._builder, self._variants, self._root = builder, dict(variants), root
        self._built: dict[str, Built] = {}

    def __call__(self, name: str) -> Built:
        if name not in self._built:
            self._built[name] = self._build(name)
        return self._built[name]

    def _build(self, name: str) -> Built:
        variant = self._variants[name]
        folder = self._builder(
            self._root / name.replace(" ", "-"),
            seed=list(self._variants).index(name),
            config=variant.config,
            **variant.builder,
        )
        if variant.edit is not None:
            edit_weights(folder, variant.edit)
        exported = export(folder)
        checkpoint = open_checkpoint(folder)
        return Built(
            folder=folder,
            torch=load_torch(folder),
            graphs=Graphs(folder / "graphs"),
            runtime=load_model(folder / "graphs", options=RuntimeOptions(threads=1)),
            settings=GenerationSettings.from_checkpoint(checkpoint.config, checkpoint.generation),
            untied=exported.untied,
        )


def edit_weights(folder: Path, edit: Callable[[Weights], object]) -> None:
    """Change the weights in model.safetensors."""
    from safetensors.numpy import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def noisy(array: np.ndarray, seed: int = 7) -> np.ndarray:
    """The array, changed enough to show in the logits."""
    return (array + np.random.default_rng(seed).normal(size=array.shape) * 0.1).astype(array.dtype)


def assert_generates_as_torch(built: Built, batch: Batch, **settings: Any) -> None:
    """Compare the tokens of every row with generate(); `settings` are set for both."""
    import torch

    with torch.no_grad():
        rows = built.torch.generate(
            input_ids=torch.tensor(batch.ids), attention_mask=torch.tensor(batch.mask), **settings
        ).numpy()
    ours = replace(built.settings, **settings)
    found = search(built.runtime.start(batch.ids, batch.mask), rows=len(batch.ids), settings=ours)
    wanted = [_until_end(row[1:].tolist(), ours.eos_token_ids) for row in rows]
    assert [best.tokens for best, *_ in found] == wanted


def _until_end(tokens: list[int], ends: tuple[int, ...]) -> tuple[int, ...]:
    """What stands before the padding that generate() adds after an end."""
    for place, token in enumerate(tokens):
        if token in ends:
            return tuple(tokens[: place + 1])
    return tuple(tokens)


def inputs_of(module_class: str, model: Any, batch: Batch) -> list[float]:
    """The largest magnitude that enters each module of this class name, in the order of calling."""
    import torch

    seen: list[float] = []
    hooks = [
        module.register_forward_pre_hook(lambda _module, inputs: seen.append(float(inputs[0].abs().max())))
        for module in model.modules()
        if type(module).__name__ == module_class
    ]
    with torch.no_grad():
        model(
            input_ids=torch.tensor(batch.ids),
            attention_mask=torch.tensor(batch.mask),
            decoder_input_ids=torch.tensor(batch.decoder),
        )
    for hook in hooks:
        hook.remove()
    return seen
