"""Join hard-wrapped lines into paragraphs, so that sentences are whole; only when asked for, since lines change."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

from onnxmt.text.patterns import is_cjk
from onnxmt.text.spans import Span

__all__ = ["unwrap_lines"]

# A line that begins one of these is not the rest of the line before: lists, headings, quotations, tables, rules.
_BEGINS = re.compile(
    r"\s*(?:[-*+•‣▪–—]\s|#{1,6}\s|>|\||={3,}|-{3,}|~{3,}|\.\.\s|:\w+:|\(?(?:\d{1,3}|[A-Za-z])[.)]\s|\[[^\]]*\]:)"
)
# What stands alone whatever follows: a heading, a table row, a rule, a line with a hard break (Markdown).
_STANDS_ALONE = re.compile(r"\s*(?:#{1,6}\s|\||={3,}|-{3,}|~{3,}).*|.*(?:\s{2}|\\|::?)")
_NARROWEST, _FILLED = 40, 0.6


def unwrap_lines(text: str, *, keep: Sequence[Span] = ()) -> str:
    """The text with the lines of each wrapped paragraph joined; blank lines, lists, headings and short lines stay.

    A line counts as wrapped when it fills 60 % of its paragraph's longest line, and that has 40 characters or more.
    Lines with a part of a span of `keep` that runs over several lines (a fenced block) stay as they are.
    """
    lines = text.splitlines(keepends=True)
    fixed: set[int] = set()
    blocks = [span for span in keep if len(span.text.splitlines()) > 1]
    starts = [0, *accumulate(map(len, lines))]
    for block in blocks:
        fixed.update(range(bisect_right(starts, block.start) - 1, bisect_left(starts, block.end)))
    joined: list[str] = []
    for is_text, group in groupby(range(len(lines)), key=lambda i: bool(lines[i].strip()) and i not in fixed):
        paragraph = [lines[i] for i in group]
        joined += _unwrapped(paragraph) if is_text else paragraph
    return "".join(joined)


def _unwrapped(lines: Sequence[str]) -> list[str]:
    widest = max(len(line.rstrip()) for line in lines)
    result = [lines[0]]
    for before, line in pairwise(lines):
        body = before.rstrip("\r\n")
        filled = widest >= _NARROWEST and len(body) >= _FILLED * widest
        if filled and not _STANDS_ALONE.fullmatch(body) and not _BEGINS.match(line):
            result[-1] = _joined(result[-1].rstrip(), line.lstrip())
        else:
            result.append(line)
    return result


def _joined(left: str, right: str) -> str:
    tight = (is_cjk(left[-1]) and is_cjk(right[0])) or re.search(r"\w-$", left) is not None
    return left + ("" if tight else " ") + right
