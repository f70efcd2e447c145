"""Every answer that is no success: status, code for programs, one line for people; and the table from our errors."""

from __future__ import annotations

from collections.abc import Mapping

from onnxmt.errors import (
    DecodingError,
    GenerationSettingsError,
    GlossaryError,
    InputTooLongError,
    OnnxmtError,
    SessionError,
    TokenizerError,
    UnknownLanguageError,
    UsageError,
)
from onnxmt.text.formats.document import DocumentError


class Problem(OnnxmtError):  # noqa: N818  named as in RFC 9457: not all of them are errors of the server
    """An answer that is no success. `details` are further JSON values for programs, such as the limit and what came."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_after: int | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        self.status, self.code, self.message = status, code, message
        self.retry_after, self.details = retry_after, dict(details or {})
        super().__init__(message)

    def to_dict(self) -> dict[str, object]:
        """The JSON form of the service's own API."""
        return {"error": {"code": self.code, "message": self.message, **self.details}}

    def headers(self) -> dict[str, str]:
        """The headers that belong to it."""
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return headers | ({"www-authenticate": "Bearer"} if self.status == 401 else {})


# The first class that fits decides; a client can only be at fault where the text or the options are its own.
_TABLE: tuple[tuple[type[OnnxmtError], int, str], ...] = (
    (UnknownLanguageError, 422, "unknown_language"),
    (DocumentError, 422, "bad_document"),
    (GlossaryError, 422, "bad_glossary"),
    (InputTooLongError, 422, "text_too_long"),
    (TokenizerError, 422, "bad_text"),
    (GenerationSettingsError, 422, "bad_option"),
    (UsageError, 422, "bad_option"),
    (DecodingError, 500, "decoding_failed"),
    (SessionError, 500, "model_failed"),
)


def problem_of(error: OnnxmtError) -> Problem:
    """Translate an error of the library; what is not the client's fault tells no details."""
    if isinstance(error, Problem):
        return error
    for kind, status, code in _TABLE:
        if isinstance(error, kind):
            shown = str(error) if status < 500 else "the model could not translate this; the server's log says why"
            return Problem(status, code, shown)
    return Problem(500, "internal", "the server failed; its log says why")


def too_much(code: str, what: str, *, found: int, limit: int, status: int = 413) -> Problem:
    """A limit that a request is over; the message says both figures."""
    return Problem(
        status, code, f"{what}: {found:,} in this request; at most {limit:,}", details={"found": found, "limit": limit}
    )
