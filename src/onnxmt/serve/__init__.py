"""The HTTP service: one ASGI app around one Translator. `create_app` is its entrance; needs the extra `serve`."""

from __future__ import annotations

from onnxmt.serve.app import create_app
from onnxmt.serve.options import BatchOptions, Limits, ServeOptions

__all__ = ["BatchOptions", "Limits", "ServeOptions", "create_app"]
