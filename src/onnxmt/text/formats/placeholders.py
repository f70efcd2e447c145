"""Placeholders in texts that programs fill in: a lost one is an error at run time."""

from __future__ import annotations

from onnxmt.text.formats.document import UnfitTranslationError
from onnxmt.text.spans import ProtectOptions, find_protected

__all__ = ["check_placeholders"]

_ONLY = ProtectOptions(kinds=frozenset({"placeholder"}))


def check_placeholders(source: str, translation: str) -> None:
    """Raises UnfitTranslationError unless both hold the same placeholders, each as often."""
    given, made = (sorted(span.text for span in find_protected(text, _ONLY)) for text in (source, translation))
    if given != made:
        changed = sorted(set(given) ^ set(made)) or given
        raise UnfitTranslationError(f"the placeholders differ in the translation: {', '.join(changed)}")
