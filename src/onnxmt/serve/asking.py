"""From an HTTP request to values: bodies within limits, JSON and forms, and fields that are checked when taken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from onnxmt.serve.options import Limits
from onnxmt.serve.problems import Problem, too_much
from onnxmt.serve.state import state_of

T = TypeVar("T")
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_MOST_FORM_FIELDS = 2_000


class ClientGone(BaseException):
    """The client has closed its connection; no Exception, so that no handler answers it."""


async def read_body(request: Request, limits: Limits, *, limit: int | None = None) -> bytes:
    """Read the body; raises Problem 413 as soon as it is too large, 408 when it does not arrive in time, 503.

    503 is for so many bodies at once that they would not fit into memory.
    """
    most = limit or limits.body_bytes
    said = request.headers.get("content-length", "")
    if said.isascii() and said.isdigit() and int(said[:20]) > most:
        raise too_much("body_too_large", "bytes in the body", found=int(said[:20]), limit=most)
    state, chunks, size = state_of(request), [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                state.receiving += len(chunk)
                if size > most:
                    raise too_much("body_too_large", "bytes in the body", found=size, limit=most)
                if state.receiving > max(limits.bodies_bytes, most):
                    state.metrics.rejected.labels("bodies").inc()
                    raise Problem(503, "memory", "too many bodies are being received; try again in 2 s", retry_after=2)
                chunks.append(chunk)
    except TimeoutError:
        seconds = limits.body_seconds
        raise Problem(408, "body_timeout", f"the body did not arrive within {seconds:g} s") from None
    except ClientDisconnect:
        raise ClientGone from None
    finally:
        state.receiving -= size
    return b"".join(chunks)


async def read_json(request: Request, limits: Limits) -> dict[str, Any]:
    """Read a body that is one JSON object; raises Problem 415, 413, 408 or 400."""
    kind = _kind(request)
    if kind != _JSON:
        raise Problem(415, "not_json", f"content type {kind or 'none'!r}; {_JSON!r} is read here")
    return parse_object(await read_body(request, limits))


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse one JSON object; raises Problem 400."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:100]
        raise Problem(400, "bad_json", f"the body is not valid JSON: {reason}") from None
    if not isinstance(value, dict):
        raise Problem(422, "bad_request", f"the body is {shown(value)}; a JSON object is read here")
    return value


async def read_fields(request: Request, limits: Limits, *, query: bool = False, needed: bool = True) -> Fields:
    """Read a body that is a JSON object or a form, as the older APIs allow; with `query` also the address's fields.

    Without `needed` there may be none at all. Raises Problem 415, 413, 408 or 400.
    """
    kind = _kind(request)
    values: dict[str, Any] = {}
    if query:
        values |= _joined(request.url.query)
    if kind == _JSON:
        return Fields(values | await read_json(request, limits))
    if kind == _FORM:
        body = await read_body(request, limits)
        try:
            return Fields(values | _joined(body.decode("utf-8")), text=True)
        except UnicodeDecodeError:
            raise Problem(400, "bad_form", "the form is not UTF-8") from None
    if query and (values or not needed) and not await read_body(request, limits):
        return Fields(values, text=True)
    raise Problem(415, "bad_content_type", f"content type {kind or 'none'!r}; {_JSON!r} and {_FORM!r} are read here")


class Fields:
    """The fields of a request; taking one checks it, and what was never taken can be told.

    `text`: all values are strings, as a form's are, so that "1" is a number and "true" a yes.
    """

    def __init__(self, values: Mapping[str, Any], *, text: bool = False) -> None:
        self._values, self._text = dict(values), text

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """Take a field as it came; None where it is not there."""
        return self._values.pop(name, None)

    def string(self, name: str, *, longest: int = 100) -> str | None:
        """Take a short string; None where it is not there or empty."""
        value = self._values.pop(name, None)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise wrong(name, value, "a string")
        if len(value) > longest:
            raise Problem(422, "bad_field", f"{name} is {len(value):,} characters long; at most {longest} are allowed")
        return value

    def choice(self, name: str, allowed: Mapping[str, T], default: T) -> T:
        """Take one of the allowed words."""
        value = self.string(name)
        if value is None:
            return default
        if value not in allowed:
            raise wrong(name, value, f"one of {', '.join(allowed)}")
        return allowed[value]

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """Take a whole number within bounds."""
        value = self._values.pop(name, None)
        if self._text and isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if isinstance(value, float) and value.is_integer():  # in JSON, 3.0 is a whole number too
            value = int(value)
        if value is None or value == "":
            return None
        if type(value) is not int or not least <= value <= most:
            raise wrong(name, value, f"a whole number from {least} to {most}")
        return value

    def yes(self, name: str, *, default: bool = False) -> bool:
        """Take a yes or no: true and false, and 1 and 0 as DeepL's clients write them."""
        value = self._values.pop(name, None)
        known = {"true": True, "1": True, "false": False, "0": False}
        if value is None or value == "":
            return default
        if isinstance(value, (bool, int)) and value in (0, 1):
            return bool(value)
        if isinstance(value, str) and value.lower() in known:
            return known[value.lower()]
        raise wrong(name, value, "true or false")

    def rest(self) -> tuple[str, ...]:
        """The names that nobody took and that hold something, shortened: they come from the client."""
        return tuple(str(name)[:40] for name, value in self._values.items() if value not in (None, "", [], {}))

    def refuse_rest(self, *, allowed: str) -> None:
        """Refuse what nobody took."""
        if rest := self.rest():
            raise Problem(422, "unsupported_field", f"not supported: {', '.join(rest[:8])}; read here: {allowed}")


def texts_of(value: Any, name: str, limits: Limits) -> tuple[list[str], bool]:
    """Return the texts of a request and whether they came as a list; raises Problem 413 or 422 (cases V1 and V3)."""
    if isinstance(value, str):
        _check_texts([value], name, limits)
        return [value], False
    if not isinstance(value, list):
        raise wrong(name, value, "a string or a list of strings")
    if len(value) > limits.items:
        raise too_much("too_many_items", f"items in {name}", found=len(value), limit=limits.items)
    problems = [f"item {index} is {shown(item)}" for index, item in enumerate(value) if not isinstance(item, str)]
    if problems:
        shortened = ", ".join(problems[:5]) + (", …" if len(problems) > 5 else "")
        raise Problem(422, "bad_field", f"{name} must be a string or a list of strings; {shortened}")
    _check_texts(value, name, limits)
    return value, True


def wrong(name: str, value: Any, allowed: str) -> Problem:
    """A field whose value is not allowed."""
    return Problem(422, "bad_field", f"{name} is {shown(value)}; allowed: {allowed}")


def shown(value: Any) -> str:
    """A value in a message: short, in JSON's words, and never a text of the client's."""
    if value is None or isinstance(value, (bool, int, float)):
        written = json.dumps(value) if not isinstance(value, int) or abs(value) < 10**12 else "a very large number"
        return written.replace("Infinity", "infinite")
    if isinstance(value, str):
        return repr(value) if len(value) <= 20 and value.isascii() and value.isprintable() else "a string"
    return "a list" if isinstance(value, list) else "an object"


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Wait for `work` as long as the client does; raises ClientGone, and cancels the work, when it has left."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    gone: asyncio.Future[None] = asyncio.ensure_future(_gone(request))
    try:
        waiting_for: set[asyncio.Future[Any]] = {task, gone}
        await asyncio.wait(waiting_for, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        for waiting in (task, gone):
            waiting.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_texts(texts: Sequence[str], name: str, limits: Limits) -> None:
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise too_much("too_many_characters", f"characters in {name}", found=characters, limit=limits.characters)
    for index, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError:  # JSON can write half of a surrogate pair, which is no character
            raise Problem(
                422, "bad_text", f"item {index} of {name} is not Unicode: it holds half a surrogate pair"
            ) from None


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()[:100]


def _joined(form: str) -> dict[str, Any]:
    """A form's fields; one that is repeated is a list."""
    try:
        pairs = parse_qsl(form, keep_blank_values=True, max_num_fields=_MOST_FORM_FIELDS, errors="strict")
    except UnicodeDecodeError:
        raise Problem(400, "bad_form", "the form is not UTF-8") from None
    except ValueError:
        raise Problem(413, "too_many_fields", f"at most {_MOST_FORM_FIELDS:,} form fields are allowed") from None
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name not in values:
            values[name] = value
        elif isinstance(values[name], list):
            values[name].append(value)
        else:
            values[name] = [values[name], value]
    return values
