"""Source text → sentences and back: segments, splitting to a limit, joining, and what needs no model at all."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnxmt.errors import UsageError
from onnxmt.runtime.languages import is_chinese
from onnxmt.text.boundaries import sentence_ends
from onnxmt.text.patterns import CJK_MARK, EMAIL, EMOJI, URL, has_letter, is_cjk
from onnxmt.text.spans import Span

__all__ = ["Segment", "join_translations", "passes_through", "segment_text", "split_to_limit"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A piece of a source text: `text` stands at `start:end` of it, `separator` follows up to the next segment.

    `text` holds no line break and neither begins nor ends with a space; all such characters are in separators. So
    `"".join(s.text + s.separator for s in segments)` is the source.
    """

    text: str
    start: int
    end: int
    separator: str


# Zero-width characters at an edge (byte order mark, word joiner, direction marks) are layout, as spaces are.
_INVISIBLE = "\ufeff\u200b\u200e\u200f\u2060"
_BREAK = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
# A tab, or three spaces and more, separates columns: a menu or a table, not a sentence.
_GAP = re.compile(r"[^\S\t]*\t\s*|\s{3,}")


class _Kept:
    """The protected spans of a text: no cut falls inside one."""

    def __init__(self, spans: Sequence[Span], *, origin: int = 0) -> None:
        self._spans = [(span.start - origin, span.end - origin) for span in spans]
        self._starts = [start for start, _ in self._spans]

    def around(self, place: int) -> tuple[int, int] | None:
        """The span that `place` is strictly inside of."""
        index = bisect_left(self._starts, place) - 1
        return self._spans[index] if index >= 0 and place < self._spans[index][1] else None

    def covers(self, start: int, end: int) -> bool:
        """Whether the stretch lies within one span."""
        span = self.around(start + 1)
        return span is not None and span[0] <= start and end <= span[1]


def segment_text(text: str, *, language: str = "en", keep: Sequence[Span] = ()) -> tuple[Segment, ...]:
    """Split a source text into sentences that a model can translate one by one; an empty text has none.

    `language` is the source language, in any of its codes. No sentence crosses a line or a column. Emoji at the edges
    of a sentence are segments of their own: models without them in their vocabulary take them for the end of the text.
    `keep` holds protected spans of the text (`find_protected`): none is cut, and one that runs over several lines (a
    fenced block) becomes part of a separator.
    """
    spans: list[tuple[int, int]] = []
    kept = _Kept(keep)
    start = 0
    for block in [*(span for span in keep if _BREAK.search(span.text)), None]:
        for line in text[start : block.start if block else len(text)].splitlines(keepends=True):
            for a, b in _columns(line, kept, start):
                cuts = sentence_ends(line[a:b], language=language)
                cuts = [cut for cut in cuts if kept.around(start + a + cut) is None]
                for c, d in zip([0, *cuts], [*cuts, b - a], strict=True):
                    spans.extend((start + e, start + f) for e, f in _without_edge_emoji(line, a + c, a + d))
            start += len(line)
        start = block.end if block else start
    if text and (not spans or spans[0][0] > 0):
        spans.insert(0, (0, 0))
    return tuple(_segments(text, spans, origin=0, separator=""))


def _segments(text: str, spans: Sequence[tuple[int, int]], *, origin: int, separator: str) -> Iterator[Segment]:
    """Segments at `spans` of `text`, which begins at `origin` of the source and is followed there by `separator`."""
    for index, (start, end) in enumerate(spans):
        last = index == len(spans) - 1
        after = text[end:] + separator if last else text[end : spans[index + 1][0]]
        yield Segment(text=text[start:end], start=origin + start, end=origin + end, separator=after)


def _columns(line: str, kept: _Kept, origin: int) -> Iterator[tuple[int, int]]:
    """The filled columns of the line at `origin`, without the layout around them; a gap inside a kept span is none."""
    start = 0
    for gap in _GAP.finditer(line):
        if kept.around(origin + gap.start()) is None:
            yield from _trimmed(line, start, gap.start())
            start = gap.end()
    yield from _trimmed(line, start, len(line))


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """`start:end` without layout characters at its edges; nothing when it holds nothing else."""
    while start < end and (text[start].isspace() or text[start] in _INVISIBLE):
        start += 1
    while end > start and (text[end - 1].isspace() or text[end - 1] in _INVISIBLE):
        end -= 1
    if start < end:
        yield start, end


def _without_edge_emoji(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut the emoji at the edges of `start:end` off as pieces of their own, where words stand beside them."""
    head, tail = start, end
    if not text.isascii() and has_letter(text[start:end]):
        runs = [found.span() for found in EMOJI.finditer(text, start, end)]
        for a, b in runs:
            if text[head:a].strip():
                break
            head = b
        for a, b in reversed(runs):
            if a < head or text[b:tail].strip():
                break
            tail = a
    yield from _trimmed(text, start, head)
    yield from _trimmed(text, head, tail)
    yield from _trimmed(text, tail, end)


# Where a sentence that is too long may be split, best first. ASCII marks count before a space only: 1,000 and 12:30.
_MARKS = (
    re.compile(r"(?:(?:(?<=\w\w)\.|[!?…]+)[\"'”’)\]]*(?=\s)|[。！？…]+[”’」』）]*)"),
    re.compile(r"(?:[;:][\"'”’)\]]*(?=\s)|[；：][”’」』）]*|—+|\s[–-](?=\s))"),
    re.compile(r"(?:,[\"'”’)\]]*(?=\s)|[，、][”’」』）]*|[)）\]](?=[\s，,]))"),
)
_SPACE = re.compile(r"\s+")
# A character with what belongs to it: combining marks, variation selectors, emoji modifiers, joined emoji.
_CLUSTER = re.compile(
    r"(?s:.)(?:[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f"
    "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U000e0100-\U000e01ef]|\u200d(?s:.))*"
)
# Marks in this share of the text at either end are passed over while a mark of a lower class stands nearer the middle.
_EDGE_SHARE = 0.1


def split_to_limit(segment: Segment, *, fits: Callable[[str], bool], keep: Sequence[Span] = ()) -> tuple[Segment, ...]:
    """Split a segment until `fits` accepts each piece; nothing is dropped, so joining the pieces restores it.

    Split near the middle, so that pieces are of like length: at the end of a sentence, at ; : —, at a comma, at a
    space, and inside an unbroken string between characters. `fits` says whether a text is within the model's limit; it
    is called about twice a piece. `keep` holds protected spans of the source: none is cut, and one that is a piece by
    itself is not asked about, since no model sees it. Raises UsageError when not even one character fits.
    """
    kept = _Kept(keep, origin=segment.start)
    pieces: list[tuple[int, int]] = []
    waiting = [(0, len(segment.text))]
    while waiting:
        start, end = waiting.pop()
        piece = segment.text[start:end]
        if fits(piece) or kept.covers(start, end):
            pieces.append((start, end))
            continue
        left = _split_place(piece, kept, start)
        if left == 0:
            raise UsageError(
                f"the text {piece[:20]!r} does not fit the model's limit and cannot be split further: raise the limit"
            )
        right = len(piece) - len(piece[left:].lstrip())
        waiting += [(start + right, end), (start, start + left)]
    return tuple(_segments(segment.text, pieces, origin=segment.start, separator=segment.separator))


def _split_place(text: str, kept: _Kept, origin: int) -> int:
    """Where the left half of the best split of the piece at `origin` ends; 0 when there is no place."""
    middle, margin = len(text) / 2, len(text) * _EDGE_SHARE

    def nearest(places: Iterable[int], edge: float) -> int:
        usable = (
            place
            for place in places
            if max(edge, 1) <= place <= min(len(text) - edge, len(text) - 1) and kept.around(origin + place) is None
        )
        return min(usable, key=lambda place: abs(place - middle), default=0)

    for marks in _MARKS:
        if place := nearest((found.end() for found in marks.finditer(text)), margin):
            return place
    spaces = [found.start() for found in _SPACE.finditer(text)]
    return (
        nearest(spaces, margin) or nearest(spaces, 0) or nearest((found.end() for found in _CLUSTER.finditer(text)), 0)
    )


def passes_through(text: str) -> bool:
    """Whether a text has nothing to translate: no letter outside URLs and e-mail addresses.

    True for empty text, spaces, punctuation, emoji, numbers, a URL or an address; such a text is its own translation.
    """
    return not has_letter(EMAIL.sub(" ", URL.sub(" ", text)))


# Between two translated sentences of a Chinese text a space is kept only where Latin words or numbers would meet.
_FULL_WIDTH_END = re.compile(f"[{CJK_MARK}…—][”’\"']*$")
_FULL_WIDTH_START = re.compile(f"[“‘]?[{CJK_MARK}]")


def join_translations(
    parts: Sequence[str],
    separators: Sequence[str],
    *,
    target_language: str,
    sources: Sequence[str] | None = None,
) -> str:
    """Join translated segments with the source's separators; the line structure is the source's.

    `separators[i]` follows `parts[i]`. Inside a line, Chinese targets take no ASCII space between sentences; other
    targets keep the source's spaces, and get one where a Chinese source had none. `sources`, the source text of each
    part, tells a joint between Chinese sentences from one inside an unbroken string; without it the joint counts as
    the former after a punctuation mark only. Raises UsageError when the lengths differ.
    """
    if len(parts) != len(separators) or (sources is not None and len(sources) != len(parts)):
        raise UsageError(
            f"joining needs one separator (and one source) a part: found {len(parts)} parts, {len(separators)} "
            f"separators{'' if sources is None else f', {len(sources)} sources'}"
        )
    chinese = is_chinese(target_language)
    clean = [" ".join(part.split()) if _BREAK.search(part) else part.strip() for part in parts]
    joined: list[str] = []
    for index, (part, separator) in enumerate(zip(clean, separators, strict=True)):
        joined.append(part)
        following = clean[index + 1] if index + 1 < len(clean) else ""
        if not part or not following or _BREAK.search(separator) or "\t" in separator or len(separator) > 2:
            joined.append(separator)
        elif chinese:
            joined.append(_chinese_joint(part, following, separator))
        elif separator:
            joined.append(separator)
        else:
            around = None if sources is None else (sources[index], sources[index + 1])
            joined.append(_spaced_joint(part, following, around))
    return "".join(joined)


def _chinese_joint(left: str, right: str, separator: str) -> str:
    if not separator.isspace():
        return separator
    if _FULL_WIDTH_END.search(left) or _FULL_WIDTH_START.match(right):
        return ""
    return "" if _is_tight(left[-1]) and _is_tight(right[0]) else separator


def _is_tight(character: str) -> bool:
    """Whether Chinese sets no space beside the character: Han, full-width marks, curly quotes, emoji."""
    return is_cjk(character) or not (character.isascii() or character.isalnum())


def _spaced_joint(left: str, right: str, sources: tuple[str, str] | None) -> str:
    """What stands between two parts of a spaced language where the source had nothing."""
    if sources is not None:
        before, after = sources
        between_sentences = (
            bool(before) and bool(after) and (is_cjk(before[-1]) or is_cjk(after[0]) or before[-1] in "”’…—")
        )
    else:
        between_sentences = re.search(r"[.!?…,;:][\"'”’)\]]*$", left) is not None
    return " " if between_sentences and not is_cjk(left[-1]) and not re.match(r"[.,;:!?…)\]”’]", right) else ""
