"""The two graphs as one model: encode once, then `step` over the key and value cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmt.errors import InputTooLongError, SessionError
from onnxmt.runtime.kept_tokens import KeptTokens
from onnxmt.runtime.search.types import SeeingStep, Step
from onnxmt.runtime.session import RuntimeOptions, Session
from onnxmt.runtime.shortlist import Shortlist

__all__ = ["Seq2SeqModel", "Step", "load_model"]

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]
HEAD_WEIGHT = "head.weight"


class Seq2SeqModel:
    """An encoder graph and a decoder graph of format 1 (docs/bundle-format.md). Holds no state between calls.

    A decoder that is fed its output projection comes with `head`, the graph that gathers it, and `shortlist`, the table
    of what is gathered for a batch. `kept` is then None: see `scored`.
    `positions` is the length of the position table; None where the model has none. `kept`: the tokens that a trimmed
    head scores, read off the decoder graph; None where it scores all. Raises SessionError where the two graphs do not
    fit each other.
    """

    def __init__(
        self,
        *,
        encoder: Session,
        decoder: Session,
        head: Session | None = None,
        shortlist: Shortlist | None = None,
        positions: int | None = None,
    ) -> None:
        self.encoder, self.decoder, self.positions = encoder, decoder, positions
        self.head, self.shortlist = head, shortlist
        self.kept = KeptTokens.from_metadata(decoder.metadata, where=decoder.path.name)
        self._cross = tuple(name for name in decoder.inputs if name.startswith("cross."))
        self._past = tuple(name for name in decoder.inputs if name.startswith("past."))
        needed = {
            encoder: {"inputs": {"input_ids", "attention_mask"}, "outputs": set(self._cross)},
            decoder: {
                "inputs": {"input_ids", "attention_mask", *self._cross, *self._past, *(head.outputs if head else ())},
                "outputs": {"logits", *(_present(name) for name in self._past)},
            },
        }
        problems = [
            f"{session.path.name} has the {side} {', '.join(sorted(found))}; needed: {', '.join(sorted(names))}"
            for session, sides in needed.items()
            for side, names in sides.items()
            if (found := set(getattr(session, side))) != names
        ]
        if not self._past:
            problems.append(f"{decoder.path.name} has no inputs past.N.key and past.N.value")
        problems += [
            f"{decoder.path.name} has {name} of shape {list(decoder.inputs[name].axes)}; needed: [batch, heads, past, "
            "head size] with heads and head size as numbers"
            for name in self._past
            if [isinstance(axis, int) for axis in decoder.inputs[name].axes] != [False, True, False, True]
        ]
        scored = decoder.outputs["logits"].axes[-1] if "logits" in decoder.outputs else None
        if self.kept is not None and scored not in (None, self.kept.count):
            problems.append(f"{decoder.path.name} scores {scored} tokens and names {self.kept.count}")
        if (head is None) != (shortlist is None):
            problems.append("a graph of candidates and a shortlist belong together")
        if head is not None and (set(head.inputs) != {"tokens"} or HEAD_WEIGHT not in head.outputs):
            problems.append(
                f"{head.path.name} gives {', '.join(sorted(head.outputs))} for {', '.join(sorted(head.inputs))}; "
                f"needed: {HEAD_WEIGHT} for tokens"
            )
        if problems:
            raise SessionError(f"these are not the two graphs of a bundle: {'; '.join(problems)}")

    def encode(self, input_ids: Ids, attention_mask: Ids) -> dict[str, npt.NDArray[Any]]:
        """Run the encoder on int64 [B, S] each; returns cross.{i}.key|value [B, heads, S, head size].

        Raises InputTooLongError when S is larger than the position table.
        """
        if self.positions is not None and input_ids.shape[1] > self.positions:
            raise InputTooLongError(tokens=input_ids.shape[1], limit=self.positions)
        return self.encoder.run({"input_ids": input_ids, "attention_mask": attention_mask})

    def run_decoder(self, feeds: Arrays) -> dict[str, npt.NDArray[Any]]:
        """Run the decoder once on exactly these feeds; returns logits [B, V] and present.{i}.key|value.

        With a trimmed head logits are [B, K]: column k is token `kept.ids[k]`. Tokens are fed as ids all the same.
        """
        return self.decoder.run(feeds)

    def scored(
        self, input_ids: Ids, attention_mask: Ids, *, more: Sequence[Iterable[int]] | None = None
    ) -> ScoredTokens:
        """Which tokens the decoder scores for this batch, and what it has to be fed for them.

        `more`: tokens that a sentence may say whatever its shortlist; of no effect without one. Raises UsageError for a
        batch in a language that the shortlist is not for.
        """
        if self.shortlist is None or self.head is None:
            return ScoredTokens(kept=self.kept, others=None, feeds={})
        sentences = [ids[seen > 0].tolist() for ids, seen in zip(input_ids, attention_mask, strict=True)]
        found = self.shortlist.batch(sentences, more=more)
        return ScoredTokens(kept=found.kept, others=found.others, feeds=self.head.run({"tokens": found.kept.ids}))

    def start(self, input_ids: Ids, attention_mask: Ids) -> Step:
        """Encode a batch (int64 [B, S] each, padding on the right), and return the step that decodes it.

        With a trimmed head or a shortlist the step's tokens are places in `kept`, which is an attribute of the step:
        see `search`.
        """
        return self._decoding(input_ids, attention_mask, None)

    def start_seeing(
        self, input_ids: Ids, attention_mask: Ids, more: Sequence[Iterable[int]] | None = None
    ) -> SeeingDecoding:
        """As `start`, for a step that says at each call which source tokens a row attends to; `more` as in `scored`."""
        decoding = self._decoding(input_ids, attention_mask, more)
        return SeeingDecoding(step=decoding.seeing, kept=decoding.kept)

    def _decoding(self, ids: Ids, mask: Ids, more: Sequence[Iterable[int]] | None) -> _Decoding:
        scored = self.scored(ids, mask, more=more)
        return _Decoding(self, cross=self.encode(ids, mask), mask=mask, scored=scored)

    def empty_past(self, rows: int) -> dict[str, npt.NDArray[Any]]:
        """Return the past of length 0 for the first step."""
        nodes = (self.decoder.inputs[name] for name in self._past)
        return {
            node.name: np.zeros((rows, int(node.axes[1]), 0, int(node.axes[3])), node.dtype)  # [B, heads, P, head size]
            for node in nodes
        }

    def close(self) -> None:
        """Give the memory of all graphs back."""
        self.encoder.close()
        self.decoder.close()
        if self.head is not None:
            self.head.close()


@dataclass(frozen=True, kw_only=True)
class ScoredTokens:
    """The tokens whose logits a step gives, in order of id (None: all), what is added to the logits of each sentence's
    rows, float32 [sentences, K] (None: nothing), and the decoder's further inputs."""

    kept: KeptTokens | None
    others: Floats | None
    feeds: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class SeeingDecoding:
    """A step that is told what each row sees, and the tokens that it scores, as in ScoredTokens."""

    step: SeeingStep
    kept: KeptTokens | None


class _Decoding:
    """The `step` of one batch: the rows' cache, and which sentence each row belongs to."""

    def __init__(
        self, model: Seq2SeqModel, *, cross: dict[str, npt.NDArray[Any]], mask: Ids, scored: ScoredTokens
    ) -> None:
        self._model, self.kept, self._scored = model, scored.kept, scored
        self._cross, self._mask = cross, mask
        self._sentences = np.arange(len(mask))
        self._past: dict[str, npt.NDArray[Any]] | None = None
        self._length = 0

    def __call__(self, tokens: Ids, parents: Ids | None) -> Floats:
        """One call of the `Step` contract."""
        return self._run(tokens, parents, None)

    def seeing(self, tokens: Ids, parents: Ids | None, view: Ids) -> Floats:
        """One call of the `SeeingStep` contract."""
        return self._run(tokens, parents, view)

    def _run(self, tokens: Ids, parents: Ids | None, view: Ids | None) -> Floats:
        rows, new = tokens.shape
        self._check_position(self._length + new)
        if parents is not None and not _is_identity(parents, len(self._sentences)):
            self._take(parents)
        if rows != len(self._sentences):
            raise SessionError(f"a step got {rows} rows of tokens for {len(self._sentences)} rows of the cache")
        past = self._model.empty_past(rows) if self._past is None else self._past
        ids = tokens if self.kept is None else self.kept.ids[tokens]
        mask = self._mask if view is None else view
        outputs = self._model.run_decoder(
            {"input_ids": ids, "attention_mask": mask, **self._cross, **past, **self._scored.feeds}
        )
        self._past = {name: outputs[_present(name)] for name in past}
        self._length += new
        logits = outputs["logits"].astype(np.float32, copy=False)
        if self._scored.others is not None:
            logits += self._scored.others[self._sentences]
        return logits

    def _take(self, parents: Ids) -> None:
        """Let row r continue row parents[r]; what belongs to the sentence moves only when the sentences do."""
        sentences = self._sentences[parents]
        if not np.array_equal(sentences, self._sentences):
            _take_all(self._cross, parents)
            self._mask = self._mask[parents]
            self._sentences = sentences
        if self._past is not None:
            _take_all(self._past, parents)

    def _check_position(self, length: int) -> None:
        limit = self._model.positions
        if limit is not None and length > limit:
            raise SessionError(
                f"a step would reach position {length} of a model with {limit} positions: lower the length limit"
            )


def load_model(
    folder: Path,
    *,
    encoder: str = "encoder.onnx",
    decoder: str = "decoder.onnx",
    head: str | None = None,
    shortlist: Shortlist | None = None,
    positions: int | None = None,
    options: RuntimeOptions | None = None,
) -> Seq2SeqModel:
    """Load the graphs in a folder, which need not be a whole bundle, the decoder first. Raises SessionError.

    ONNX Runtime packs weights anew, and while it packs the largest matrix, the output projection, holds that twice:
    before the encoder is there this costs 33 MB less of peak memory (opus-mt in int8).
    """
    second = Session(folder / decoder, options=options)
    return Seq2SeqModel(
        encoder=Session(folder / encoder, options=options),
        decoder=second,
        head=None if head is None else Session(folder / head, options=options),
        shortlist=shortlist,
        positions=positions,
    )


def _present(past: str) -> str:
    return f"present.{past.removeprefix('past.')}"


def _take_all(values: dict[str, npt.NDArray[Any]], parents: Ids) -> None:
    """Replace each array by its rows `parents`, one after another: two caches need not fit into memory at once."""
    for name in values:
        values[name] = _taken(values[name], parents)


def _taken(rows: npt.NDArray[Any], parents: Ids) -> npt.NDArray[Any]:
    """Row r of the result is row parents[r] of `rows`, which is used up: rows that stay in place are not copied.

    A batch loses one sentence or two at a time, and a cache row is 50 KB: copying the others too would cost as much as
    the step's attention.
    """
    count = len(parents)
    moved = np.flatnonzero(parents != np.arange(count))
    if count > len(rows) or 2 * len(moved) > count or not rows.flags.writeable:
        return rows[parents]
    rows[moved] = rows[parents[moved]]
    return rows[:count]


def _is_identity(parents: Ids, rows: int) -> bool:
    return len(parents) == rows and bool((parents == np.arange(rows)).all())
