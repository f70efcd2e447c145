"""A checkpoint, its graphs and its judge in one object; and ways to break the graphs one at a time."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from onnxmt.checkpoint import Checkpoint, read_checkpoint
from onnxmt.graph_export import export_graphs
from onnxmt.hub import resolve
from onnxmt.measure.recorder import Recorder, record
from onnxmt.measure.recording import Recording, checkpoint_identity
from onnxmt.measure.reference import TorchReference
from onnxmt.measure.sentences import SentenceSet, parse_sentences
from onnxmt.measure.verdict import VerificationReport
from onnxmt.measure.verify import Candidate, verify
from onnxmt.precision import PRESETS
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import load_tokenizer, tokenizer_spec
from tests.tiny import build_marian

# 60 words in the last line but one (case B1); the tiny model has 128 positions, so the last line does not fit.
LINES = f"""short	Yes.
short	The library opens at nine.
numbers	He paid 45 dollars for 3 books.
names	Dr. Okafor arrived in Beijing on 3 March 2025 at 09:12.
technical	Machine translation is useful, but it makes mistakes.
colloquial	Thank you? I will bring the umbrella!
long	{" ".join(["the cat"] * 30)}
long	{" ".join(["the machine makes parts"] * 60)}
"""
SENTENCES: SentenceSet = parse_sentences(LINES, name="lines.tsv")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A checkpoint and the graphs exported from it."""

    folder: Path
    graphs: Path
    checkpoint: Checkpoint
    candidate: Candidate

    @property
    def judge(self) -> TorchReference:
        return TorchReference(self.folder, name="tiny")

    def recording(self, sentences: SentenceSet = SENTENCES) -> Recording:
        """What torch says about this checkpoint, without a look at our graphs."""
        identity = checkpoint_identity(self.checkpoint.weights)
        return record(self.judge, sentences, identity=identity, generation=self.judge.generation())

    def recorder(self, sentences: SentenceSet = SENTENCES) -> Recorder:
        identity = checkpoint_identity(self.checkpoint.weights)
        return Recorder(self.judge, sentences=sentences, identity=identity, generation={})

    def verify(self, **changes: Any) -> VerificationReport:
        """Verify live, with parts of the candidate replaced."""
        return verify(dataclasses.replace(self.candidate, **changes), self.judge, SENTENCES)


def candidate_of(folder: Path, out: Path) -> tuple[Checkpoint, Candidate]:
    """Export the checkpoint in `folder` to `out`, as migrate does."""
    checkpoint = read_checkpoint(resolve(folder))
    out.mkdir(parents=True, exist_ok=True)
    export_graphs(checkpoint, out, precision=PRESETS["fp32"])
    return checkpoint, Candidate(
        graphs=load_model(out),
        tokenizer=load_tokenizer(folder, tokenizer_spec(folder, checkpoint.config)),
        settings=GenerationSettings.from_checkpoint(checkpoint.config, checkpoint.generation),
    )


def build_case(folder: Path, **options: Any) -> Case:
    """Build a tiny Marian with `options` of tests.tiny.build_marian and export it."""
    model = build_marian(folder / "model", **options)
    checkpoint, candidate = candidate_of(model, folder / "graphs")
    return Case(folder=model, graphs=folder / "graphs", checkpoint=checkpoint, candidate=candidate)


def edited_copy(case: Case, folder: Path, edit: Callable[[dict[str, np.ndarray]], None]) -> Candidate:
    """Export a copy of the case's checkpoint whose weights `edit` has changed."""
    shutil.copytree(case.folder, folder / "model")
    weights = load_file(folder / "model" / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model" / "model.safetensors", metadata={"format": "pt"})
    return candidate_of(folder / "model", folder / "graphs")[1]


def broken(case: Case, kind: type[Seq2SeqModel]) -> Seq2SeqModel:
    """The case's graphs behind a subclass that breaks something."""
    model = case.candidate.graphs
    assert isinstance(model, Seq2SeqModel)
    return kind(encoder=model.encoder, decoder=model.decoder, positions=model.positions)


class SourceMaskLost(Seq2SeqModel):
    """Padding is translated too (case B1)."""

    def encode(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> dict[str, np.ndarray]:
        return super().encode(input_ids, np.ones_like(attention_mask))


class CrossMaskLost(Seq2SeqModel):
    """The encoder's mask never reaches the decoder (case B1)."""

    def run_decoder(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return super().run_decoder({**feeds, "attention_mask": np.ones_like(feeds["attention_mask"])})


class PastOfTheWrongLayer(Seq2SeqModel):
    """The decoder reads layer 1's past as layer 0's, and the other way round."""

    def run_decoder(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        swapped = {f"past.{i}.{half}": feeds[f"past.{1 - i}.{half}"] for i in (0, 1) for half in ("key", "value")}
        return super().run_decoder({**feeds, **swapped})


class StepForgets(Seq2SeqModel):
    """The graphs are right and the runtime's step is not: it starts each step without a past."""

    def start(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> Any:
        def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
            chosen = slice(None) if parents is None else state["rows"][parents]
            state["rows"] = state["rows"][chosen]
            rows = state["rows"]
            return super(StepForgets, self).start(input_ids[rows], attention_mask[rows])(tokens, None)

        state = {"rows": np.arange(len(input_ids))}
        return step


class NanInPresent(Seq2SeqModel):
    """A value of layer 1 overflows at the third step."""

    def run_decoder(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = super().run_decoder(feeds)
        if feeds["past.0.key"].shape[2] == 2:
            outputs["present.1.value"] = outputs["present.1.value"].copy()
            outputs["present.1.value"][0, 0, 0, 0] = np.nan
        return outputs


class NanInLogits(Seq2SeqModel):
    """All scores are NaN from the second step on, so that the search has nothing to choose from."""

    def run_decoder(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = super().run_decoder(feeds)
        return outputs if not feeds["past.0.key"].shape[2] else {**outputs, "logits": outputs["logits"] * np.nan}


class InfinityInCross(Seq2SeqModel):
    """One value of the encoder's output passes the range."""

    def encode(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> dict[str, np.ndarray]:
        outputs = super().encode(input_ids, attention_mask)
        outputs["cross.1.key"] = outputs["cross.1.key"].copy()
        outputs["cross.1.key"][0, 0, 0, 0] = np.inf
        return outputs


class NeighboursMatter(Seq2SeqModel):
    """What int8-dynamic does: a row's result depends a little on the other rows of the batch."""

    def encode(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> dict[str, np.ndarray]:
        outputs = super().encode(input_ids, attention_mask)
        return {name: value + np.float32(2e-4 * len(input_ids)) for name, value in outputs.items()}
