"""Sentences that were translated before: in this call, or by any process, where there is a translation memory."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from onnxmt.runtime.asking import Sentence
from onnxmt.runtime.outcome import Outcome
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translation_memory import TranslationMemory

__all__ = ["Recall", "scope_of"]

# Of one call so many sentences are remembered, with their translations about 10 MB.
_REMEMBERED = 8192
# Raised whenever the same settings may give another text than before.
_REVISION = 1


class Recall:
    """What one call has translated so far, and the memory behind it, if there is one.

    `scope` says everything beside the sentence that decides its translation; see `scope_of`.
    """

    def __init__(self, memory: TranslationMemory | None, scope: str) -> None:
        self._memory, self._scope = memory, scope
        self._recent: OrderedDict[Sentence, Outcome] = OrderedDict()

    @property
    def lasting(self) -> bool:
        """Whether there is a memory."""
        return self._memory is not None

    def known(self, sentences: Sequence[Sentence]) -> dict[Sentence, Outcome]:
        """Those sentences that were translated before."""
        found = {}
        for sentence in sentences:
            if sentence in self._recent:
                self._recent.move_to_end(sentence)
                found[sentence] = self._recent[sentence]
        if self._memory is not None:
            keys = {self._key(sentence): sentence for sentence in sentences if sentence not in found}
            for key, value in self._memory.look_up(list(keys)).items():
                outcome = _outcome(value)
                if outcome is not None:
                    found[keys[key]] = outcome
                    self._remember(keys[key], outcome)
        return found

    def keep(self, outcomes: Mapping[Sentence, Outcome]) -> None:
        """Remember these."""
        for sentence, outcome in outcomes.items():
            self._remember(sentence, outcome)
        if self._memory is not None:
            self._memory.keep({self._key(sentence): outcome.to_json() for sentence, outcome in outcomes.items()})

    def _remember(self, sentence: Sentence, outcome: Outcome) -> None:
        self._recent[sentence] = outcome
        self._recent.move_to_end(sentence)
        if len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)

    def _key(self, sentence: Sentence) -> bytes:
        said = [self._scope, sentence.text, sentence.code, sentence.leads, sentence.context]
        return hashlib.sha256(json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass")).digest()


def scope_of(
    model: str, settings: GenerationSettings, told: Direction, options: TranslateOptions, languages: Sequence[str]
) -> str:
    """Everything that decides a translation but its sentence, as a digest."""
    from onnxmt import __version__  # looked up in the installed package's metadata, at its first use

    layer = options.text if options.split else None
    data = {
        "onnxmt": __version__,
        "revision": _REVISION,
        "model": model,
        "settings": settings.to_dict(),
        "told": dataclasses.asdict(told),
        "languages": list(languages),
        "text": None if layer is None else _plain(layer),
        "glossary": None if options.glossary is None else options.glossary.digest,
        "alternatives": options.alternatives,
    }
    return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Options as JSON values; what is worked out from others (compiled patterns) is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field for field in dataclasses.fields(value) if field.init]
        return {field.name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _outcome(value: str) -> Outcome | None:
    """What a memory holds for a sentence; None for what is no outcome: the sentence is translated anew."""
    try:
        return Outcome.from_json(value)
    except (ValueError, KeyError, TypeError):
        return None
