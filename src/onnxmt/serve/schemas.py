"""The service's own API as pydantic models: what is checked, and what the OpenAPI document shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from onnxmt.serve.options import Limits
from onnxmt.serve.problems import Problem, too_much
from onnxmt.text.formats.document import Format

_Language = Field(
    default=None, max_length=100, description="A code or an English name; the model's own where left out."
)


def _whole(value: object) -> object:
    """In JSON, 3.0 is a whole number too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Whole = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
_Positive = Annotated[int, Field(ge=1), BeforeValidator(_whole)]


class TermRequest(BaseModel):
    """What a term must become; `case`: only as it is written, `forms`: its plural too."""

    model_config = ConfigDict(extra="forbid", strict=True)

    target: str
    case: bool | None = None
    forms: bool = False


class TranslateRequest(BaseModel):
    """A text or a list of texts, and how to translate."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str | list[str] = Field(description="One text or a list of texts.")
    source: str | None = _Language
    target: str | None = _Language
    beams: _Positive | None = Field(default=None, description="Beams to search with; 1 is greedy.")
    alternatives: _Whole = Field(default=0, description="Further candidates; beams are raised as needed.")
    max_new_tokens: _Positive | None = Field(default=None, description="The longest output of a sentence, in tokens.")
    format: Format = Field(
        default="text", description="What each text is; of a document, all but its prose stays byte for byte."
    )
    strict: bool = Field(default=False, description="Answer 409 where a translation has warnings.")
    glossary: dict[str, str | TermRequest] | None = Field(
        default=None, description="Terms and what they must become; sentences with terms take four beams or more."
    )
    timeout_ms: _Positive | None = Field(default=None, description="A deadline below the server's own.")

    def terms(self) -> dict[str, str | dict[str, Any]]:
        """The glossary as the library reads it."""
        given = self.glossary or {}
        return {term: value if isinstance(value, str) else value.model_dump() for term, value in given.items()}


class StreamRequest(TranslateRequest):
    """As TranslateRequest, with one text."""

    text: str = Field(description="One text.")
    format: Literal["text"] = Field(default="text", description="Only plain text can be streamed.")
    alternatives: _Whole = Field(default=0, le=0, description="Only the best can be streamed.")


class CandidateAnswer(BaseModel):
    """A further translation."""

    text: str
    score: float | None


class WarningAnswer(BaseModel):
    """What a reader should know; `span` is where in the source text, `line` and `where` in a document."""

    kind: str
    message: str
    span: tuple[int, int] | None
    line: int | None = None
    where: str | None = None


class TermAnswer(BaseModel):
    """A term of the glossary in the text; `applied`: the translation has its target."""

    source: str
    target: str
    applied: bool


class TranslationAnswer(BaseModel):
    """The translation of one text."""

    text: str
    score: float | None
    finished: bool = Field(description="False where a length limit cut the output.")
    alternatives: list[CandidateAnswer]
    warnings: list[WarningAnswer]
    glossary: list[TermAnswer] | None = Field(default=None, description="Where the request has a glossary.")


class Timing(BaseModel):
    """Where the time went, in milliseconds."""

    queue_ms: float
    compute_ms: float
    total_ms: float


class TranslateAnswer(BaseModel):
    """The translations, in the order of the texts."""

    translations: list[TranslationAnswer]
    model: str
    timing: Timing


class ModelAnswer(BaseModel):
    """The model that is served."""

    name: str
    version: str | None
    role: Literal["production", "canary", "shadow"] | None = Field(
        default=None, description="Where versions of the store are served: what this one is there for."
    )
    precision: str
    architecture: str
    source_languages: dict[str, str]
    target_languages: dict[str, str]
    default_source: str
    default_target: str
    beams: int
    limits: dict[str, float]


class ModelsAnswer(BaseModel):
    """The models of this server."""

    models: list[ModelAnswer]


class ErrorBody(BaseModel):
    """What went wrong: `code` for programs, `message` for people; further values such as `limit` and `found`."""

    model_config = ConfigDict(extra="allow")

    code: str
    message: str


class ErrorAnswer(BaseModel):
    """Every answer that is no success."""

    error: ErrorBody


def checked(model: type[TranslateRequest], values: dict[str, Any], limits: Limits) -> TranslateRequest:
    """Check a request's fields; raises Problem 422 that lists what is wrong and what is allowed."""
    try:
        request = model.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        lines = [f"{'.'.join(str(part)[:40] for part in one['loc'])}: {one['msg']}" for one in found[:5]]
        raise Problem(422, "bad_field", "; ".join(dict.fromkeys(lines))) from None
    most = {"beams": limits.beams, "alternatives": limits.alternatives, "max_new_tokens": limits.new_tokens}
    over = {name: value for name in most if (value := getattr(request, name)) is not None and value > most[name]}
    if over:
        lines = [f"{name} is {_figure(value)}; at most {most[name]} is allowed" for name, value in over.items()]
        raise Problem(422, "over_limit", "; ".join(lines), details={"limits": {name: most[name] for name in over}})
    if (count := len(request.glossary or ())) > limits.glossary_terms:
        raise too_much("too_many_terms", "terms in glossary", found=count, limit=limits.glossary_terms)
    return request


def _figure(value: int) -> str:
    return f"{value:,}" if abs(value) < 10**12 else "a very large number"
