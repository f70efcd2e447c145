"""Other services' APIs, so that their clients work: one file a dialect, and one for the address they share."""

from __future__ import annotations

from collections.abc import Collection

from starlette.routing import Route

from onnxmt.serve.dialects import deepl, google, immersive, kiss, libretranslate, shared_address

__all__ = ["routes"]


def routes(names: Collection[str]) -> list[Route]:
    """The routes of the dialects that are switched on."""
    found = [*shared_address.routes(names)]
    for name, dialect in (
        ("libretranslate", libretranslate),
        ("deepl", deepl),
        ("google", google),
        ("immersive", immersive),
        ("kiss", kiss),
    ):
        if name in names:
            found += dialect.routes()
    return found
