"""The rows being generated: their tokens so far, and the one place where `step` is called and its answer checked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnxmt.errors import DecodingError
from onnxmt.runtime.processors import check_vocabulary
from onnxmt.runtime.scores import Floats, Ids
from onnxmt.runtime.search.types import Step
from onnxmt.runtime.settings import GenerationSettings

Bools = npt.NDArray[np.bool_]


class Rows:
    """Token histories of equal length, one a row, kept in step with the rows that the model holds."""

    def __init__(self, step: Step, *, rows: int, settings: GenerationSettings, parents: Ids | None = None) -> None:
        self._step, self._settings = step, settings
        self._tokens = np.empty((rows, 32), np.int64)
        self._tokens[:, 0] = settings.decoder_start_token_id
        self._parents = parents
        self.length = 1
        """Tokens so far, the start token included."""

    @property
    def history(self) -> Ids:
        """int64 [R, length], the start token first."""
        return self._tokens[:, : self.length]

    @property
    def final(self) -> bool:
        """True when the next token is the last that the length limit allows."""
        return self.length + 1 >= self._settings.length_limit

    def logits(self) -> Floats:
        """Run the model on the newest token of each row; float32 [R, V], free to be written into."""
        logits = self._step(self._tokens[:, self.length - 1 : self.length].copy(), self._parents)
        if logits.ndim != 2 or len(logits) != len(self._tokens):
            raise DecodingError(
                f"the model returned scores of shape {list(logits.shape)} for {len(self._tokens)} rows: "
                "[rows, vocabulary] is needed"
            )
        if self.length == 1:
            check_vocabulary(self._settings, logits.shape[1])
        if logits.dtype != np.float32 or not logits.flags.writeable:
            logits = logits.astype(np.float32)
        return logits

    def advance(self, tokens: Ids, parents: Ids | None) -> None:
        """Go on with len(tokens) rows: row r is old row parents[r] followed by tokens[r]. None: the same rows."""
        if parents is not None:
            self._tokens = self._tokens[parents]
        if self.length == self._tokens.shape[1]:
            self._tokens = np.concatenate((self._tokens, np.empty_like(self._tokens)), axis=1)
        self._tokens[:, self.length] = tokens
        self._parents = parents
        self.length += 1

    def sequence(self, row: int, token: int) -> tuple[int, ...]:
        """What row has generated, with `token` as its next."""
        return (*self._tokens[row, 1 : self.length].tolist(), token)


def closed_up(stay: Bools) -> Ids:
    """The rows that stay, int64, the last of them in the places of those that leave: few rows change their place."""
    order = np.arange(np.count_nonzero(stay))
    holes = np.flatnonzero(~stay[: order.size])
    if holes.size:
        order[holes] = order.size + np.flatnonzero(stay[order.size :])
    return order


def ended_by_model(tokens: tuple[int, ...], settings: GenerationSettings) -> bool:
    """Whether this output ends with an EOS that the length limit did not force."""
    forced = bool(settings.forced_eos_token_ids) and len(tokens) + 1 >= settings.length_limit
    return tokens[-1] in settings.eos_token_ids and not forced


def check_finite(totals: Floats, length: int) -> None:
    """Raise DecodingError where log_sum_exp shows that a row of logits holds NaN or +inf, or −inf alone."""
    if not np.isfinite(totals).all():
        row = int(np.flatnonzero(~np.isfinite(totals))[0])
        raise DecodingError(
            f"the model's scores for token {length} of row {row} are not finite (NaN or infinite): the weights or the "
            "precision are broken; verify the bundle, or set remove_invalid_values to go on regardless"
        )


def no_token_left(length: int, sentence: int) -> DecodingError:
    """The error for a sentence of which every next token is banned."""
    return DecodingError(
        f"every token is banned at token {length} of sentence {sentence}: loosen bad_words_ids, suppress_tokens, "
        "no_repeat_ngram_size or the minimum length"
    )
