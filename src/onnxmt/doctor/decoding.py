"""Running whatever encoder and decoders a folder has, as the `step` that search takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmt.doctor.folder import Model
from onnxmt.doctor.graph_file import GraphFile, tail
from onnxmt.errors import SessionError

Ids = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class FolderModel:
    """An encoder, a decoder for the first step and one for later steps (None: every step decodes all tokens anew)."""

    encoder: GraphFile
    first: GraphFile
    later: GraphFile | None

    @classmethod
    def of(cls, model: Model) -> FolderModel | None:
        """The model that a folder's graphs make up; None where a part is missing."""
        encoder, either = model.part("encoder"), model.part("cached", "merged")
        first, later = model.part("first") or either, model.part("later") or either
        if encoder is None or first is None:
            return None
        return cls(encoder=encoder, first=first, later=later)

    def encode(self, ids: Ids, mask: Ids) -> Arrays:
        """Run the encoder on int64 [B, S] each; returns its outputs by name. Raises SessionError."""
        given: Arrays = {}
        for name, node in self.encoder.inputs.items():
            given[name] = (mask if "mask" in name.lower() else ids).astype(node.dtype)
        return self.encoder.session.run(given)

    def start(self, ids: Ids, mask: Ids, *, cached: bool = True) -> Decoding:
        """Encode a batch; without `cached` each step decodes all tokens from the start token on."""
        return Decoding(self, self.encode(ids, mask), mask, cached=cached and self.later is not None)


class Decoding:
    """The `step` of one batch."""

    def __init__(self, model: FolderModel, encoded: Arrays, mask: Ids, *, cached: bool) -> None:
        self._model, self._encoded, self._mask, self._cached = model, encoded, mask, cached
        self._tokens: Ids | None = None
        self.kept = model.first.kept
        self.past: Arrays = {}

    def __call__(self, tokens: Ids, parents: Ids | None) -> npt.NDArray[np.float32]:
        """One call of the `Step` contract; float32 [R, V]. Raises SessionError."""
        tokens = tokens if self.kept is None else self.kept.ids[tokens]
        if parents is not None:
            self._mask = self._mask[parents]
            self._encoded = {name: rows[parents] for name, rows in self._encoded.items()}
            self.past = {name: rows[parents] for name, rows in self.past.items()}
            self._tokens = None if self._tokens is None else self._tokens[parents]
        self._tokens = tokens if self._tokens is None else np.concatenate((self._tokens, tokens), axis=1)
        later = self._model.later if self._cached and self.past else None
        graph = later or self._model.first
        outputs = graph.session.run(self._feeds(graph, tokens if later else self._tokens, with_past=later is not None))
        if self._cached:
            self._keep(graph, outputs)
        logits = outputs[str(graph.logits)]
        last = logits if logits.ndim == 2 else logits[:, -1]
        return np.array(last, np.float32)

    def _feeds(self, graph: GraphFile, tokens: Ids, *, with_past: bool) -> Arrays:
        rows, feeds = len(tokens), Arrays()
        for name, node in graph.inputs.items():
            if name == graph.ids:
                feeds[name] = tokens.astype(node.dtype)
            elif name in graph.masks:
                feeds[name] = self._mask.astype(node.dtype)
            elif name in graph.past:
                axes = [rows, *(axis if isinstance(axis, int) else 1 for axis in node.axes[1:])]
                axes[2] = 0
                feeds[name] = self.past[name] if with_past and name in self.past else np.zeros(axes, node.dtype)
            elif name in self._encoded:
                feeds[name] = self._encoded[name]
            elif name == graph.states:
                feeds[name] = next(iter(self._encoded.values()))
            elif "use_cache" in name:
                feeds[name] = np.array([with_past])
            elif name.lower().startswith("decoder_attention"):
                feeds[name] = np.ones((rows, self._length), node.dtype)
            elif "position" in name.lower() and len(node.axes) <= 2:
                start = self._length - tokens.shape[1]
                feeds[name] = np.arange(start, self._length, dtype=node.dtype).reshape(
                    (1,) * (len(node.axes) - 1) + (-1,)
                )
            else:
                raise SessionError(f"{graph.path.name} has the input {name!r}, of which it is not known what it is for")
        return feeds

    @property
    def _length(self) -> int:
        return 0 if self._tokens is None else self._tokens.shape[1]

    def _keep(self, graph: GraphFile, outputs: Arrays) -> None:
        """Keep what the next step gets as its past; what a later step does not give again stays as it is."""
        later = self._model.later
        if later is None:
            return
        by_tail = {name: output for name, output in _matched(later, graph).items() if output in outputs}
        self.past |= {name: outputs[output] for name, output in by_tail.items()}


def _matched(later: GraphFile, graph: GraphFile) -> dict[str, str]:
    """Past input of `later` → present output of `graph`: by name, or by order where the names are unlike."""
    present = {tail(name): name for name in graph.present}
    found = {name: present[tail(name)] for name in later.past if tail(name) in present}
    if found or len(later.past) != len(graph.present):
        return found
    return dict(zip(later.past, graph.present, strict=True))
