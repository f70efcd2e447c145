"""A source and its translation as the fidelity checks see them, and what a check says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from onnxmt.text.spans import Span

__all__ = ["Pair", "TextWarning", "WarningKind"]

WarningKind = Literal[
    "number", "number_added", "date", "currency", "url", "placeholder", "name", "length_ratio", "repetition",
    "untranslated", "unknown_token", "wrong_script", "length_cap", "glossary",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class TextWarning:
    """Something that a reader of the translation should look at.

    span: where in the source text, as (start, end); where the fault is in the translation alone, the whole source.
    """

    kind: WarningKind
    span: tuple[int, int]
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A source and its translation, and the same with the protected spans blanked (places unchanged)."""

    source: str
    translation: str
    source_prose: str
    translation_prose: str
    spans: Sequence[Span]
    source_language: str
    target_language: str

    @property
    def whole(self) -> tuple[int, int]:
        """The span of the whole source."""
        return 0, len(self.source)
