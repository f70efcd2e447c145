"""What the dialects have in common: languages as clients write them, and fields that are dropped but told."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse

from onnxmt.serve.asking import Fields, while_connected
from onnxmt.serve.service import Result, Results, Wish
from onnxmt.serve.state import service_of

IGNORED_HEADER = "x-onnxmt-ignored"


def language(fields: Fields, *names: str) -> str | None:
    """Take the first of these fields that names a language; None where it says `auto` or nothing."""
    found = [value for name in names if (value := fields.string(name)) is not None]
    return None if not found or found[0].lower() in ("auto", "auto-detect") else found[0]


def dropped(fields: Fields, names: Sequence[str]) -> tuple[str, ...]:
    """Take the fields of which this service has no use and that do no harm; the answer names those that were there."""
    return tuple(name for name in names if fields.raw(name) not in (None, "", [], {}))


async def translated(request: Request, wish: Wish) -> Results:
    """Translate as long as the client is there."""
    return await while_connected(request, service_of(request).translate(wish))


def told(value: object, *, ignored: Sequence[str] = ()) -> JSONResponse:
    """A JSON answer, and a header with the fields that had no effect."""
    return JSONResponse(value, headers={IGNORED_HEADER: ", ".join(ignored)} if ignored else None)


def texts(results: Results) -> list[str]:
    """The translations alone."""
    return [result.text for result in results.results]


def others(result: Result) -> list[str]:
    """The alternatives of one translation."""
    return [candidate.text for candidate in result.alternatives]
