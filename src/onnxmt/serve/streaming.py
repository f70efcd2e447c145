"""A text segment by segment, each sent as soon as it is done; together they are the whole's translation."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from onnxmt.errors import OnnxmtError
from onnxmt.serve.asking import while_connected
from onnxmt.serve.problems import Problem, problem_of
from onnxmt.serve.service import Result, Service, Wish
from onnxmt.text.segment import Segment, join_translations, segment_text
from onnxmt.text.spans import find_protected

_GROUP = 4
"""So many segments go into the queue together; the first goes alone, so that something is seen soon."""
_RETRY_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """One server-sent event."""

    name: str
    data: dict[str, Any]


async def stream(request: Request, service: Service, wish: Wish, *, strict: bool) -> AsyncIterator[Streamed]:
    """Yield an event `segment` for each segment of the wish's one text, then `done`; a failure on the way is `error`.

    A segment's `append` is what it adds to the translation so far. Raises as `Service.translate` does where nothing
    has been sent yet.
    """
    began = time.monotonic()
    text = wish.texts[0]
    # a long text takes its time, which is not the other clients'
    segments = await asyncio.to_thread(_segments, text, language=wish.source or service.own("source"))
    target = wish.target or service.own("target")
    deadline = began + min(
        wish.seconds or service.options.limits.deadline_seconds, service.options.limits.deadline_seconds
    )
    parts: list[str] = []
    results: list[Result] = []
    sent = ""
    try:
        for group in _groups(segments):
            found = await while_connected(request, _translated(service, wish, group, deadline, again=bool(results)))
            for segment, result in zip(group, found, strict=True):
                parts.append(result.text)
                results.append(result)
                here = segments[: len(parts)]
                whole = len(parts) == len(segments)
                separators = [one.separator for one in here[:-1]] + [here[-1].separator if whole else ""]
                now = join_translations(parts, separators, target_language=target, sources=[one.text for one in here])
                warnings = [_moved(warning, segment.start) for warning in result.warnings]
                if strict and warnings:
                    raise Problem(409, "warnings", "strict: this segment has warnings", details={"warnings": warnings})
                yield Streamed(
                    name="segment",
                    data={
                        "index": len(parts) - 1,
                        "of": len(segments),
                        "span": [segment.start, segment.end],
                        # a joint may depend on what follows: then the text so far is sent anew
                        **({"append": now[len(sent) :]} if now.startswith(sent) else {"replace": now}),
                        "score": result.score,
                        "warnings": warnings,
                    },
                )
                sent = now
    except OnnxmtError as error:
        if not results:
            raise
        yield Streamed(name="error", data=problem_of(error).to_dict())
        return
    yield Streamed(
        name="done",
        data={
            "text": sent,
            "segments": len(segments),
            "warnings": sum(len(result.warnings) for result in results),
            "finished": all(result.finished for result in results),
            "model": service.translator.bundle.manifest.name,
            "timing": {"total_ms": round(1000 * (time.monotonic() - began), 2)},
        },
    )


async def _translated(
    service: Service, wish: Wish, group: Sequence[Segment], deadline: float, *, again: bool
) -> Sequence[Result]:
    """Translate a group; a stream that has begun waits for room in the queue until its deadline."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Problem(504, "deadline", "not done in time: send less text at once, or try again later")
        try:
            piece = dataclasses.replace(wish, texts=[segment.text for segment in group], seconds=left)
            return (await service.translate(piece)).results
        except Problem as problem:
            if problem.code != "queue_full" or not again:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


def _segments(text: str, *, language: str) -> tuple[Segment, ...]:
    """The segments as the library cuts them; the text whole where a segment by itself would be cut otherwise."""
    whole = Segment(text=text, start=0, end=len(text), separator="")
    segments = segment_text(text, language=language, keep=find_protected(text))
    if not text.strip() or text.lstrip().startswith(">>"):  # a language code in front is meant for all segments
        return (whole,)
    for segment in segments:
        alone = segment_text(segment.text, language=language, keep=find_protected(segment.text))
        if segment.text and [one.text for one in alone] != [segment.text]:
            return (whole,)
    return segments


def _groups(segments: Sequence[Segment]) -> list[Sequence[Segment]]:
    return [segments[:1], *(segments[at : at + _GROUP] for at in range(1, len(segments), _GROUP))]


def _moved(warning: dict[str, Any], by: int) -> dict[str, Any]:
    span = warning["span"]
    return warning if span is None else {**warning, "span": [span[0] + by, span[1] + by]}
