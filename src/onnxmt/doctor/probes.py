"""Mistakes that only running shows: masks without effect, a past that goes astray, NaN, lengths that fail, loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from onnxmt.doctor.decoding import Decoding, FolderModel, Ids
from onnxmt.doctor.findings import Finding
from onnxmt.doctor.folder import ModelFolder
from onnxmt.doctor.graph_file import tail
from onnxmt.errors import DecodingError, OnnxmtError, SessionError
from onnxmt.runtime.flags import repeated_run
from onnxmt.runtime.search import search
from onnxmt.runtime.settings import GenerationSettings

Floats = npt.NDArray[np.float32]
_SHORT, _LONG, _STEPS = 5, 23, 4
_LONGEST_OUTPUT = 64
# Of the standard deviation of the logits. fp32 graphs of every family stay below 1e-4; quantised ones, of which some
# take one scale for a whole batch, differ by up to 0.3 where nothing is wrong, and by more than 1 where a mask is lost.
_SAME, _SAME_QUANTIZED = 0.01, 0.6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """What is needed to run a model: token ids of real sentences, or made up ones where `real` is False."""

    sentences: tuple[tuple[int, ...], ...]
    settings: GenerationSettings | None
    real: bool


def probe_findings(model: FolderModel, trial: Trial, *, quantized: bool) -> Iterator[Finding]:
    """Every mistake of this kind in one model. A graph that fails to run is itself a finding."""
    probe = _Probe(model, trial, tolerance=_SAME_QUANTIZED if quantized else _SAME)
    try:
        yield from probe.findings()
    except SessionError as error:
        yield Finding(
            kind="static_axes" if _is_about_shape(error) else "unloadable",
            where=model.first.path.name,
            found=f"it loads, and fails when it runs with other lengths than it was exported with: {error}",
            mend="export again with dynamic axes for batch and lengths, and without Python numbers in place of shapes",
        )


def _is_about_shape(error: SessionError) -> bool:
    words = ("shape", "dimension", "broadcast", "got: ", "index", "size")
    return any(word in str(error).lower() for word in words)


class _Probe:
    def __init__(self, model: FolderModel, trial: Trial, *, tolerance: float) -> None:
        self._model, self._trial, self._tolerance = model, trial, tolerance
        self._where = f"{model.encoder.path.name}, {model.first.path.name}"

    def findings(self) -> Iterator[Finding]:
        short, long = self._rows(_SHORT), self._rows(_LONG)
        logits = self._first_logits(*_batch([short]))
        if np.isnan(logits).any() or np.isposinf(logits).any():  # −inf is a ban
            yield self._not_finite()
            return
        yield from self._masks(short, long, logits)
        yield from self._past(short)
        yield from self._loops()

    def _rows(self, length: int) -> tuple[int, ...]:
        """A sentence of about this many tokens, out of the trial's."""
        tokens = [token for sentence in self._trial.sentences for token in sentence[:-1]]
        end = self._trial.sentences[0][-1:]
        return (*(tokens * length)[: length - 1], *end)

    def _first_logits(self, ids: Ids, mask: Ids) -> Floats:
        decoding = self._model.start(ids, mask)
        return decoding(np.full((len(ids), 1), self._start, np.int64), None)

    @property
    def _start(self) -> int:
        """The start token, or its place among those that a trimmed head keeps."""
        start = 0 if self._trial.settings is None else self._trial.settings.decoder_start_token_id
        kept = self._model.first.kept
        return start if kept is None else next(iter(kept.places([start])), 0)

    def _not_finite(self) -> Finding:
        return Finding(
            kind="not_finite",
            where=self._where,
            found="the scores of a plain sentence are NaN or infinite",
            mend="fp16: keep norms, softmax and the feed-forward's output in fp32; otherwise the weights are damaged",
        )

    def _differs(self, first: Floats, second: Floats) -> bool:
        return bool(np.abs(first - second).max() > self._tolerance * max(float(first.std()), 1e-6))

    def _masks(self, short: tuple[int, ...], long: tuple[int, ...], alone: Floats) -> Iterator[Finding]:
        """A sentence padded to a long one's length must score as it does alone (case B1)."""
        if not (self._model.encoder.masks and self._model.first.masks):
            return  # said already
        together = self._first_logits(*_batch([short, long]))[:1]
        if self._differs(alone, together):
            yield Finding(
                kind="missing_mask",
                where=self._where,
                found="a sentence beside a longer one scores otherwise than alone: a mask has no effect",
                mend="export again with the mask given to the encoder and to the decoder's cross-attention",
            )

    def _past(self, short: tuple[int, ...]) -> Iterator[Finding]:
        """Step by step over the past, and all tokens at once, are the same computation."""
        later = self._model.later
        if later is None:
            return
        ids, mask = _batch([short])
        stepwise, anew = self._model.start(ids, mask), self._model.start(ids, mask, cached=False)
        token = np.full((1, 1), self._start, np.int64)
        for step in range(_STEPS):
            found, wanted = stepwise(token, None), anew(token, None)
            if self._differs(wanted, found):
                yield Finding(
                    kind="past_wiring",
                    where=later.path.name,
                    found=f"token {step + 1} over the past scores otherwise than all tokens at once"
                    f"{self._mixed_up(ids, mask, token)}",
                    mend="wire each past… input to the present… output of the same layer and kind, and export again",
                )
                return
            token = wanted.argmax(axis=1)[:, None].astype(np.int64)

    def _mixed_up(self, ids: Ids, mask: Ids, token: Ids) -> str:
        """Which present holds what another one should, where that can be told."""
        tokens = np.concatenate((np.full((1, 1), self._start, np.int64), token), axis=1)
        at_once, stepwise = self._model.start(ids, mask), self._model.start(ids, mask)
        try:
            at_once(tokens, None)
            stepwise(tokens[:, :1], None)
            stepwise(tokens[:, 1:], None)
        except SessionError:  # some decoders take one token at a time only; then nothing more is known
            return ""
        return _swapped(at_once, stepwise)

    def _loops(self) -> Iterator[Finding]:
        """Most of a few plain sentences in a loop is no accident."""
        settings = self._trial.settings
        if settings is None or not self._trial.real:
            return
        limit = min(_LONGEST_OUTPUT, settings.length_limit - 1)
        greedy = dataclasses.replace(
            settings, num_beams=1, num_return_sequences=1, do_sample=False, max_new_tokens=limit, max_length=None
        )
        ids, mask = _batch(self._trial.sentences)
        try:
            found = search(self._model.start(ids, mask), rows=len(ids), settings=greedy)
        except DecodingError:
            yield self._not_finite()
            return
        looping = [outputs[0].tokens for outputs in found if repeated_run(outputs[0].tokens)]
        if 2 * len(looping) > len(found):
            yield Finding(
                kind="repetition",
                where=self._where,
                found=f"{len(looping)} of {len(found)} plain sentences end in a loop (such as token {looping[0][-2]})",
                mend="check the tokenizer's end of sentence, the start token and the quantised weights; "
                "compare with PyTorch (onnxmt verify)",
            )


def _swapped(at_once: Decoding, stepwise: Decoding) -> str:
    for name, wanted in at_once.past.items():
        found = stepwise.past.get(name)
        if found is None or (found.shape == wanted.shape and np.allclose(found, wanted, atol=1e-3, rtol=1e-2)):
            continue
        for other, candidate in at_once.past.items():
            if other != name and candidate.shape == found.shape and np.allclose(candidate, found, atol=1e-3, rtol=1e-2):
                return f": {tail(name)} holds what belongs into {tail(other)}"
        return f": {tail(name)} is the first that is wrong"
    return ""


def _batch(rows: Sequence[Sequence[int]]) -> tuple[Ids, Ids]:
    """Ids with padding on the right, and the mask; int64 [B, S] each. Under the mask stands a token of the row."""
    width = max(map(len, rows))
    ids = np.array([[*row, *[row[0]] * (width - len(row))] for row in rows], np.int64)
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows], np.int64)
    return ids, mask


def made_up_sentences(vocabulary: int) -> tuple[tuple[int, ...], ...]:
    """Token ids for a model without a tokenizer."""
    random = np.random.default_rng(0)
    return tuple(tuple(random.integers(min(5, vocabulary - 1), vocabulary, 9).tolist()) for _ in range(4))


def trial_of(read: ModelFolder) -> tuple[Trial, list[Finding]]:
    """The folder's settings in a trial that has no sentences yet; with what is wrong with them."""
    findings: list[Finding] = []
    settings = None
    try:
        settings = (
            GenerationSettings.from_dict(read.generation)
            if read.is_bundle
            else GenerationSettings.from_checkpoint(read.config, read.generation or read.config)
        )
    except OnnxmtError as error:
        if read.setting("decoder_start_token_id") is not None:
            findings.append(
                Finding(
                    kind="settings",
                    where="generation_config.json",
                    found=str(error),
                    mend="take generation_config.json from the checkpoint, and remove what it names",
                )
            )
    return Trial(sentences=(), settings=settings, real=False), findings
