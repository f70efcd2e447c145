"""The graphs of the standard layout, run by ONNX Runtime and compared with our own before they are handed out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmt.errors import VerificationError
from onnxmt.runtime.decoder import Seq2SeqModel
from onnxmt.runtime.search import Step, search
from onnxmt.runtime.session import RuntimeOptions, Session
from onnxmt.runtime.settings import GenerationSettings

Ids = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]
_PAST, _PRESENT, _CACHED = "past_key_values.", "present.", "use_cache_branch"
# What is compared: long enough for the cache to matter, short enough for a model that never ends a sentence.
_LONGEST, _BEAMS = 48, 4


class StandardModel:
    """An encoder and its decoders, as `Seq2SeqModel` is for a bundle: one merged file, or one for each kind of step.

    Holds no state between calls. Raises SessionError.
    """

    def __init__(self, *, encoder: Session, first: Session, later: Session) -> None:
        self.encoder, self.first, self.later = encoder, first, later

    @classmethod
    def load(
        cls, folder: Path, *, suffix: str = "", merged: bool = True, options: RuntimeOptions | None = None
    ) -> StandardModel:
        """Load the graphs in `folder`; `suffix` stands before the ending of their names."""
        names = ("decoder_model_merged",) if merged else ("decoder_model", "decoder_with_past_model")
        decoders = [Session(folder / f"{name}{suffix}.onnx", options=options) for name in names]
        encoder = Session(folder / f"encoder_model{suffix}.onnx", options=options)
        return cls(encoder=encoder, first=decoders[0], later=decoders[-1])

    def start(self, input_ids: Ids, attention_mask: Ids) -> Step:
        """Encode a batch (int64 [B, S] each, padding on the right), and return the step that decodes it."""
        states = self.encoder.run({"input_ids": input_ids, "attention_mask": attention_mask})["last_hidden_state"]
        return _Decoding(self, states=states, mask=attention_mask)

    def close(self) -> None:
        """Give the memory of all graphs back."""
        for session in (self.encoder, self.first, self.later):
            session.close()


class _Decoding:
    """The `step` of one batch."""

    def __init__(self, model: StandardModel, *, states: npt.NDArray[Any], mask: Ids) -> None:
        self._model = model
        self._rows: Arrays = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
        self._past: Arrays = {}

    def __call__(self, tokens: Ids, parents: Ids | None) -> npt.NDArray[np.float32]:
        """One call of the `Step` contract."""
        if parents is not None:
            self._rows = {name: rows[parents] for name, rows in self._rows.items()}
            self._past = {name: rows[parents] for name, rows in self._past.items()}
        session = self._model.later if self._past else self._model.first
        given = {"input_ids": tokens, **self._rows, **(self._past or self._nothing(session, len(tokens)))}
        given[_CACHED] = np.array([bool(self._past)])
        outputs = session.run({name: given[name] for name in session.inputs})
        # What a step does not give again (the encoder's keys and values) stays as it is.
        self._past |= {
            name.replace(_PRESENT, _PAST): value for name, value in outputs.items() if name.startswith(_PRESENT)
        }
        logits: npt.NDArray[np.float32] = np.ascontiguousarray(outputs["logits"][:, -1])
        return logits

    def _nothing(self, session: Session, rows: int) -> Arrays:
        """A past of length 0, for a merged decoder, which does not look at it in the first step."""
        axes = {name: node.axes for name, node in session.inputs.items() if name.startswith(_PAST)}
        return {
            name: np.zeros((rows, int(heads), 0, _width(size)), np.float32)
            for name, (_, heads, _, size) in axes.items()
        }


def _width(size: int | str) -> int:
    """A head size; where the graph names none, any will do."""
    return size if isinstance(size, int) else 1


@dataclass(frozen=True, kw_only=True)
class Sameness:
    """How many sentences gave the same tokens as our own graphs, greedy and with beams, merged and in two files.

    `difference` is the largest of a first step's logits, in standard deviations of those logits.
    """

    sentences: int
    same: int
    difference: float

    def to_dict(self) -> dict[str, float]:
        """What onnxmt.json says of it."""
        return {"sentences": self.sentences, "same": self.same, "largest_logit_difference": self.difference}


def compare_with(
    own: Seq2SeqModel, folder: Path, *, suffix: str, texts: Sequence[list[int]], settings: GenerationSettings
) -> Sameness:
    """Decode the ids of all texts as one batch, so that padding counts, with our own graphs and with those in
    `folder`."""
    batch = _Batch.of(texts, padding=settings.pad_token_id or 0)
    shorter = dataclasses.replace(settings, max_new_tokens=min(_LONGEST, settings.length_limit - 1), do_sample=False)
    modes = [dataclasses.replace(shorter, num_beams=beams, num_return_sequences=1) for beams in (1, _BEAMS)]
    wanted, logits = [batch.decode(own, mode) for mode in modes], batch.first_logits(own, settings)
    same, difference = [True] * len(texts), 0.0
    for merged in (True, False):
        model = StandardModel.load(folder, suffix=suffix, merged=merged)
        difference = max(difference, float(np.abs(batch.first_logits(model, settings) - logits).max() / logits.std()))
        for mode, expected in zip(modes, wanted, strict=True):
            found = batch.decode(model, mode)
            same = [before and one == other for before, one, other in zip(same, expected, found, strict=True)]
        model.close()
    return Sameness(sentences=len(texts), same=sum(same), difference=round(difference, 7))


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """Texts as ids and mask, int64 [B, S]."""

    ids: Ids
    mask: Ids

    @classmethod
    def of(cls, texts: Sequence[list[int]], *, padding: int) -> _Batch:
        mask = np.zeros((len(texts), max(map(len, texts))), np.int64)
        ids = np.full_like(mask, padding)
        for row, text in enumerate(texts):
            ids[row, : len(text)], mask[row, : len(text)] = text, 1
        return cls(ids=ids, mask=mask)

    def decode(self, model: Seq2SeqModel | StandardModel, settings: GenerationSettings) -> list[tuple[int, ...]]:
        found = search(model.start(self.ids, self.mask), rows=len(self.ids), settings=settings)
        return [outputs[0].tokens for outputs in found]

    def first_logits(
        self, model: Seq2SeqModel | StandardModel, settings: GenerationSettings
    ) -> npt.NDArray[np.float32]:
        start = np.full((len(self.ids), 1), settings.decoder_start_token_id, np.int64)
        return model.start(self.ids, self.mask)(start, None)


@dataclass(frozen=True, kw_only=True)
class SamenessLimits:
    """The smallest share of sentences with the same tokens, and the largest difference of logits."""

    same: float
    difference: float

    def require(self, found: Sameness) -> None:
        """Raise VerificationError when a limit is missed."""
        misses = []
        if found.same < self.same * found.sentences:
            misses.append(
                f"other tokens for {found.sentences - found.same} of {found.sentences} sentences "
                f"(allowed: {1 - self.same:.0%})"
            )
        if not found.difference <= self.difference:  # NaN is a miss
            misses.append(
                f"logits that differ by {found.difference:.2g} of their standard deviation (allowed: {self.difference})"
            )
        if misses:
            raise VerificationError(
                f"the standard graphs do not do what our own do: they give {' and '.join(misses)}. Nothing was written"
            )
