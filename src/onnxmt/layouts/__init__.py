"""Other forms of a model's files, for runtimes that are not ours: which there are, and who writes each."""

from __future__ import annotations

from onnxmt.layouts.written import LAYOUT, LayoutOptions, WrittenLayout

__all__ = ["LAYOUT", "LayoutOptions", "WrittenLayout"]
