"""The tokens that a trimmed head scores: their ids, how a graph names them, and generation settings in their terms.

A trimmed decoder gives one logit for each kept token, in ascending order of id. Search then works in places (column
numbers) instead of ids, since a step over half of the vocabulary is also half of the search's own work; ids go in and
come out at its edge. What it chooses is what it would choose of all tokens with the logits of the others at −∞.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from onnxmt.errors import GenerationSettingsError, SessionError
from onnxmt.runtime.settings import GenerationSettings

Ids = npt.NDArray[np.int64]

# Keys of a decoder graph's metadata: the kept ids as `0-1,32001-65000`, and how many ids there are in all.
KEPT_KEY, VOCABULARY_KEY = "onnxmt.kept_tokens", "onnxmt.vocabulary"
_RANGES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptTokens:
    """`ids` int64 [K], ascending: token ids[k] is column k of the logits. `vocabulary`: the number of all ids."""

    ids: Ids
    vocabulary: int

    def __post_init__(self) -> None:
        ids = self.ids
        if not ids.size or ids[0] < 0 or ids[-1] >= self.vocabulary or (np.diff(ids) <= 0).any():
            raise ValueError(f"kept tokens must be ascending ids from 0 to {self.vocabulary - 1}")

    @property
    def count(self) -> int:
        """K, how many tokens are kept."""
        return int(self.ids.size)

    def metadata(self) -> dict[str, str]:
        """Return what a decoder graph says of them."""
        breaks = np.flatnonzero(np.diff(self.ids) != 1)
        firsts, lasts = self.ids[np.append(0, breaks + 1)], self.ids[np.append(breaks, self.count - 1)]
        ranges = (str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True))
        return {KEPT_KEY: ",".join(ranges), VOCABULARY_KEY: str(self.vocabulary)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str], *, where: str) -> KeptTokens | None:
        """Read what `metadata` wrote; None for a graph that scores every token. Raises SessionError."""
        text = metadata.get(KEPT_KEY)
        if text is None:
            return None
        vocabulary = metadata.get(VOCABULARY_KEY, "")
        if not _RANGES.fullmatch(text) or not vocabulary.isdecimal():
            raise SessionError(f"{where}: its metadata {KEPT_KEY} and {VOCABULARY_KEY} are not lists of token ids")
        pairs = [part.partition("-") for part in text.split(",")]
        parts = [np.arange(int(first), int(last or first) + 1) for first, _, last in pairs]
        try:
            return cls(ids=np.concatenate(parts), vocabulary=int(vocabulary))
        except ValueError as error:
            raise SessionError(f"{where}: its metadata {KEPT_KEY} is wrong: {error}") from None

    def places(self, tokens: Iterable[int]) -> list[int]:
        """Return the places of those tokens that are kept."""
        wanted = np.fromiter(tokens, np.int64)
        found = np.searchsorted(self.ids, wanted)
        inside = found < self.count
        inside[inside] = self.ids[found[inside]] == wanted[inside]
        places: list[int] = found[inside].tolist()
        return places

    def settings(self, settings: GenerationSettings) -> GenerationSettings:
        """Return the settings with places for token ids.

        A ban of what is not kept, or can only follow what is not kept, is left out: it holds anyway. Raises
        GenerationSettingsError where a token that has to be fed, chosen or forced is not kept.
        """
        forced = () if settings.forced_bos_token_id is None else (settings.forced_bos_token_id,)
        needed = {
            "decoder_start_token_id": (settings.decoder_start_token_id,),
            "eos_token_id": settings.eos_token_ids,
            "forced_bos_token_id": forced,
            "forced_eos_token_id": settings.forced_eos_token_ids,
        }
        found = {key: self.places(tokens) for key, tokens in needed.items()}
        if missing := [f"{key} {list(tokens)}" for key, tokens in needed.items() if len(found[key]) < len(tokens)]:
            raise GenerationSettingsError(
                f"the model's head scores {self.count:,} of {self.vocabulary:,} tokens, without {', '.join(missing)}: "
                "make the bundle without --trim-head and without a shortlist"
            )
        words = [self.places(word) for word in settings.bad_words_ids]
        return replace(
            settings,
            decoder_start_token_id=found["decoder_start_token_id"][0],
            eos_token_ids=tuple(found["eos_token_id"]),
            pad_token_id=None,
            forced_bos_token_id=found["forced_bos_token_id"][0] if forced else None,
            forced_eos_token_ids=tuple(found["forced_eos_token_id"]),
            bad_words_ids=tuple(
                tuple(places)
                for places, word in zip(words, settings.bad_words_ids, strict=True)
                if len(places) == len(word)
            ),
            suppress_tokens=tuple(self.places(settings.suppress_tokens)),
            begin_suppress_tokens=tuple(self.places(settings.begin_suppress_tokens)),
        )

    def tokens(self, places: Iterable[int]) -> tuple[int, ...]:
        """Return the ids at these places."""
        ids: list[int] = self.ids[list(places)].tolist()
        return tuple(ids)
