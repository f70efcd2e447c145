"""onnxmt moves Hugging Face translation models to ONNX Runtime: verified, small, fast, without torch at run time.

Public names are imported when they are first used, so that `import onnxmt` and `onnxmt --help` stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxmt.bundle import Bundle, read_bundle
    from onnxmt.errors import OnnxmtError
    from onnxmt.inspection.look import inspect
    from onnxmt.migration import MigrateOptions, MigrateResult, export, migrate
    from onnxmt.quantization import QuantizeOptions, QuantizeResult, quantize
    from onnxmt.runtime.documents import DocumentTranslation, DocumentWarning, translate_document
    from onnxmt.runtime.session import RuntimeOptions
    from onnxmt.runtime.translation import TranslateOptions, Translation, TranslationWarning
    from onnxmt.runtime.translator import Translator
    from onnxmt.text.casing import CasingOptions
    from onnxmt.text.chinese import ChineseOptions
    from onnxmt.text.fidelity import CheckOptions
    from onnxmt.text.formats.document import DocumentOptions
    from onnxmt.text.layer import TextOptions
    from onnxmt.text.spans import ProtectOptions
    from onnxmt.verification import VerifiedBundle, VerifyBundleOptions, verify

    __version__: str

__all__ = [
    "Bundle",
    "CasingOptions",
    "CheckOptions",
    "ChineseOptions",
    "DocumentOptions",
    "DocumentTranslation",
    "DocumentWarning",
    "MigrateOptions",
    "MigrateResult",
    "OnnxmtError",
    "ProtectOptions",
    "QuantizeOptions",
    "QuantizeResult",
    "RuntimeOptions",
    "TextOptions",
    "TranslateOptions",
    "Translation",
    "TranslationWarning",
    "Translator",
    "VerifiedBundle",
    "VerifyBundleOptions",
    "__version__",
    "export",
    "inspect",
    "migrate",
    "quantize",
    "read_bundle",
    "translate_document",
    "verify",
]

_HOME = {
    "Bundle": "onnxmt.bundle",
    "CasingOptions": "onnxmt.text.casing",
    "CheckOptions": "onnxmt.text.fidelity",
    "ChineseOptions": "onnxmt.text.chinese",
    "DocumentOptions": "onnxmt.text.formats.document",
    "DocumentTranslation": "onnxmt.runtime.documents",
    "DocumentWarning": "onnxmt.runtime.documents",
    "MigrateOptions": "onnxmt.migration",
    "MigrateResult": "onnxmt.migration",
    "OnnxmtError": "onnxmt.errors",
    "ProtectOptions": "onnxmt.text.spans",
    "QuantizeOptions": "onnxmt.quantization",
    "QuantizeResult": "onnxmt.quantization",
    "RuntimeOptions": "onnxmt.runtime.session",
    "TextOptions": "onnxmt.text.layer",
    "TranslateOptions": "onnxmt.runtime.translation",
    "Translation": "onnxmt.runtime.translation",
    "TranslationWarning": "onnxmt.runtime.translation",
    "Translator": "onnxmt.runtime.translator",
    "VerifiedBundle": "onnxmt.verification",
    "VerifyBundleOptions": "onnxmt.verification",
    "export": "onnxmt.migration",
    "inspect": "onnxmt.inspection.look",
    "migrate": "onnxmt.migration",
    "quantize": "onnxmt.quantization",
    "read_bundle": "onnxmt.bundle",
    "translate_document": "onnxmt.runtime.documents",
    "verify": "onnxmt.verification",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("onnxmt")
    if name not in _HOME:
        raise AttributeError(f"module 'onnxmt' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
