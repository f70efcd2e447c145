"""Task prefixes: how T5 and its kin are told what to do, `translate English to German: `, or `<2de> ` for MADLAD."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmt.errors import UnknownLanguageError
from onnxmt.runtime.languages import resolve_language, short_code
from onnxmt.runtime.tokenizer import Direction
from onnxmt.runtime.tokenizers.settings import SettingsReader

__all__ = ["Prefix", "PrefixChoice", "prefixes_of_config", "prefixes_of_vocabulary", "read_prefix"]

_TASK = re.compile(r"translation_(?P<source>.+)_to_(?P<target>.+)")
_SENTENCE = re.compile(r"translate (?:from )?(?P<source>.+?) (?:in)?to (?P<target>.+?)\s*:?\s*", re.IGNORECASE)
_LANGUAGE_TOKEN = re.compile(r"<2(?P<target>[A-Za-z]{2,}(?:_[A-Za-z]+)?)>")


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """Text that goes in front of the source; the languages it stands for, as far as they are known."""

    text: str
    source: str | None
    target: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"text": self.text, "source": self.source, "target": self.target}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str) -> Prefix:
        """Read the JSON form; raises TokenizerError that names `where`."""
        reader = SettingsReader(data, where=where)
        prefix = cls(
            text=reader.text("text"), source=reader.optional_text("source"), target=reader.optional_text("target")
        )
        reader.finish()
        return prefix


def read_prefix(text: str) -> Prefix:
    """A prefix that a person gives; its languages where it is written as T5's are."""
    match = _SENTENCE.fullmatch(text)
    source, target = (short_code(match["source"]), short_code(match["target"])) if match else (None, None)
    return Prefix(text=text, source=source, target=target)


def prefixes_of_config(config: Mapping[str, Any]) -> tuple[Prefix, ...]:
    """The prefixes that config.json lists: its translation tasks, and a `prefix` of its own in front of them."""
    found = []
    own = config.get("prefix")
    if isinstance(own, str) and own:
        found.append(read_prefix(own))
    tasks = config.get("task_specific_params")
    for name, task in tasks.items() if isinstance(tasks, Mapping) else ():
        match = _TASK.fullmatch(name)
        text = task.get("prefix") if isinstance(task, Mapping) else None
        if match and isinstance(text, str) and text:
            found.append(Prefix(text=text, source=match["source"], target=match["target"]))
    return tuple(found)


def prefixes_of_vocabulary(tokens: Iterable[str]) -> tuple[Prefix, ...]:
    """MADLAD's target tokens, `<2zh>`, each followed by the text after one space."""
    matches = filter(None, map(_LANGUAGE_TOKEN.fullmatch, sorted(tokens)))
    return tuple(Prefix(text=f"{match[0]} ", source=None, target=match["target"]) for match in matches)


class PrefixChoice:
    """Chooses among a model's prefixes by the languages that are asked for; it never changes."""

    def __init__(self, prefixes: Sequence[Prefix], *, always: bool) -> None:
        """`always`: the first prefix also stands where no language is asked for."""
        self._prefixes = tuple(prefixes)
        self._default = self._prefixes[0].text if always and self._prefixes else ""

    def languages(self, role: str) -> tuple[str, ...]:
        """The languages that the prefixes know, as `source` or `target`."""
        found = {prefix.source if role == "source" else prefix.target for prefix in self._prefixes}
        return tuple(sorted(code for code in found if code is not None))

    def defaults(self) -> Direction:
        """The languages of the prefix that always stands."""
        first = self._prefixes[0] if self._default else None
        return Direction() if first is None else Direction(source=first.source, target=first.target)

    def resolve(self, source: str | None, target: str | None) -> Direction:
        """The prefixes' own codes for these languages. Raises as `choose` does."""
        self.choose(source, target)
        codes = {role: self.languages(role) for role in ("source", "target")}
        if source is not None:  # a model whose prefixes name no source (MADLAD) is not told it: any may be said
            known = codes["source"]
            source = resolve_language(source, known, role="source") if known else short_code(source) or source
        return Direction(
            source=source,
            target=None if target is None else resolve_language(target, codes["target"], role="target"),
        )

    def choose(self, source: str | None, target: str | None) -> str:
        """The prefix for these languages; None leaves a language open.

        Nothing asked for: the one that always stands, else none (as in transformers, where the caller writes the
        prefix). Raises UnknownLanguageError for a language, or a pair of languages, that no prefix stands for.
        """
        if source is None and target is None:
            return self._default
        fitting = list(self._prefixes)
        if target is not None:
            code = resolve_language(target, self.languages("target"), role="target")
            fitting = [prefix for prefix in fitting if prefix.target == code]
        sources = {prefix.source for prefix in fitting if prefix.source is not None}
        if source is not None and sources:
            code = resolve_language(source, sources, role="source")
            fitting = [prefix for prefix in fitting if prefix.source == code]
        texts = list(dict.fromkeys(prefix.text for prefix in fitting))
        if target is None and self._default in texts:
            return self._default
        if len(texts) > 1:
            other = "source" if target is not None else "target"
            raise UnknownLanguageError(
                f"the model has {len(texts)} prefixes for this: say which {other} language, one of "
                f"{', '.join(sorted(str(getattr(prefix, other)) for prefix in fitting))}"
            )
        return texts[0] if texts else self._default
