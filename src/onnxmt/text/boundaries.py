"""Where sentences end inside one line of text: sentencex's places with its known faults corrected, and a Chinese rule.

The faults named here were seen with sentencex 1.0.32, and each is a row of tests/text/test_segment.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sentencex

from onnxmt.runtime.languages import is_chinese, short_code
from onnxmt.text.patterns import HAN, is_cjk

__all__ = ["sentence_ends"]

# sentencex and the Chinese rule keep a quotation whole; one longer than this many characters (about 60 words) is split
# inside all the same, because the models know sentences.
_LONG_LATIN, _LONG_CJK = 360, 120
# How far to look at the text around a place: keeps the cost of a line linear in its length.
_NEAR = 48

_OPENING = "“‘\"'«([{（「『【《〈"
_PAIRS = {"“": "”", "‘": "’", "「": "」", "『": "』", "（": "）", "《": "》", "【": "】", "(": ")", "[": "]"}
_CJK_END = re.compile(f"[。！？｡]+[。！？｡!?…]*|…{{2,}}|(?<=[{HAN}])[!?]+")
_CJK_CLOSING = "”’」』】）》)]\"'"
# What follows a closing quote and still belongs to its sentence: a particle, or a few words that say who spoke.
_CJK_GOES_ON = re.compile(
    "[的地得这那之とっ、，,；：:]"
    '|[^，。！？；：“”「」『』"]{0,8}(?:说|說|问|問|道|喊|叫|答|笑|想|写|寫|吼|嚷|哭|表示|言)'
)

_ENDED = re.compile(r"[.!?。！？｡…][\"'”’」』】）》)]*\s*$")
_LIST_MARKER = re.compile(
    r"[-*•‣▪–—·>#+]+"
    r"|[(\[（]?(?:\d{1,3}(?:\.\d{1,3})*|[ivxlcIVXLC]{1,6}|[A-Za-z]|[一二三四五六七八九十]{1,3})[.)\]）]+"
)
# One way only to read a run of marks: with `**` beside `*`, "Name.________" (a form) would take years.
_CLOSING_MARKUP = r"(?:</\w{1,20}>|\[\d{1,4}\]|[¹²³⁰⁴-⁹]|[)\]*_`])"
_MISSED_END = re.compile(
    rf"(?:(?P<marks>[.!?…](?P<markup>{_CLOSING_MARKUP}+))|(?<=\w)…)(?=\s+[{re.escape(_OPENING)}]{{0,2}}[A-Z\d])"
)
_HIDDEN_END = re.compile(rf"(?<![.!?…])[.!?…]+[\"'”’)\]]*(?=\s+[{re.escape(_OPENING)}]{{0,2}}[A-Z])")
_HIDDEN_CJK_END = re.compile(f"[。！？]+[{re.escape(_CJK_CLOSING)}]*")
_NO_SPACE_END = re.compile(r"[.!?][\"'”’)\]]*$")
_QUOTED_END = re.compile(r"[.!?…][\"'”’»]+$")
_WORD_BEFORE_DOT = re.compile(r"([^\W\d_]+(?:\.[^\W\d_]+)*)\.$")
# Abbreviations that sentencex takes for ends: before a capital, before a number, before a small letter.
_TITLES = re.compile("ms|mx|profs|mmes|govs|atty|cdr|messrs|amb|chmn")
_BEFORE_NUMBER = re.compile(
    "approx|est|vol|vols|ch|chap|chaps|tel|ext|nos|arts|secs|figs|eq|eqs|para|paras|max|avg|incl|excl|refs|rm|apt"
)
_BEFORE_SMALL = re.compile(
    "approx|est|ed|eds|lb|lbs|oz|hr|hrs|mins|yr|yrs|mo|wk|incl|excl|max|avg|cu|km|kg|cm|mg|ml|bn|mn|tsp|tbsp|gal"
)
_AFTER_TIME = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|June?\b|July?\b|Aug|Sep|Oct|Nov|Dec|[A-Z]{1,4}T\b|UTC\b)"
)
# sentencex reads UTF-8, so a lone surrogate (an undecodable byte, say) would stop it. Its time grows with
# the square of the Chinese sentences in a line (50,000 take 4 s, 500,000 take 350 s); the Chinese rule sees to those.
_FOR_SENTENCEX = dict.fromkeys(range(0xD800, 0xE000), "x") | dict.fromkeys(map(ord, "。！？｡"), "，")


def sentence_ends(line: str, *, language: str) -> list[int]:
    """The places, strictly inside `line`, where one sentence ends and the next begins; spaces belong to the left.

    `line` is one line, without spaces at its edges. `language` is the source language in any of its codes.
    """
    cuts = _cjk_ends(line)
    # Chinese text goes through sentencex's English rules: its own marks are dealt with here, and sentencex's rules for
    # Chinese break the Latin words in it ("U.S.A.", "Mr. Smith").
    code = "en" if is_chinese(language) else re.split("[-_]", short_code(language) or language.strip())[0].lower()
    found = set(cuts)
    for start, end in zip([0, *cuts], [*cuts, len(line)], strict=True):
        found.update(start + cut for cut in _latin_ends(line[start:end], code))
    return _open_long(line, _keep_markers(line, sorted(found)))


def _latin_ends(piece: str, code: str) -> Iterator[int]:
    proposed: set[int] = set()
    position = 0
    for sentence in sentencex.segment(code, piece.translate(_FOR_SENTENCEX)):
        position += len(sentence)
        proposed.add(position)
    proposed.discard(len(piece))
    yield from (cut for cut in proposed if _is_end(piece, cut))
    for missed in _MISSED_END.finditer(piece):
        if missed.end() not in proposed and _is_missed_end(piece, missed):
            yield missed.end()


def _is_end(text: str, cut: int) -> bool:
    """Whether a place that sentencex proposes really ends a sentence."""
    left, right = text[max(0, cut - _NEAR) : cut].rstrip(), text[cut : cut + _NEAR].lstrip()
    if not left or not right:
        return False
    if _NO_SPACE_END.search(left) and not text[cut - 1].isspace() and not text[cut].isspace():
        return False  # urllib.request.Request, One.¹, <b>One.</b>
    if _QUOTED_END.search(left) and right[0].islower():
        return False  # "… and so on..." the senator said
    word = _WORD_BEFORE_DOT.search(left)
    if word is None:
        return True
    last = word.group(1).lower()
    if _TITLES.fullmatch(last) and right[0].isupper():
        return False
    if _BEFORE_NUMBER.fullmatch(last) and right[0].isdigit():
        return False
    if _BEFORE_SMALL.fullmatch(last) and right[0].islower():
        return False
    return not (last in {"a.m", "p.m"} and _AFTER_TIME.match(right))


def _is_missed_end(text: str, found: re.Match[str]) -> bool:
    """Whether an end that sentencex passes over is one: after …, after markup, after a bracketed whole sentence."""
    markup = found.group("markup")
    if markup is None:
        return True
    before = text[max(0, found.start() - _NEAR) : found.start() + 1]
    word = _WORD_BEFORE_DOT.search(before)
    if word and (len(word.group(1)) == 1 or "." in word.group(1) or _TITLES.fullmatch(word.group(1).lower())):
        return False
    if markup[-1] in ")]" and not re.search(r"\[\d{1,4}\]$", markup):
        place = text.rfind("(" if markup[-1] == ")" else "[", max(0, found.start() - 20 * _NEAR), found.start())
        return place == 0 or (place > 0 and re.search(r"[.!?]\s+$", text[max(0, place - 4) : place]) is not None)
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pairs:
    """The outermost pairs of quotation marks and brackets of a line, and every place where some pair closes."""

    around: Sequence[tuple[int, int]]
    closings: frozenset[int]


def _pairs(line: str) -> _Pairs:
    """Match the pairs; one that never closes does not count, and neither does what it seems to hold."""
    around: list[tuple[int, int]] = []
    closings: set[int] = set()
    stack: list[tuple[str, int]] = []
    waiting: dict[str, int] = {}
    for place, character in enumerate(line):
        if waiting.get(character):
            while True:
                closing, opened = stack.pop()
                waiting[closing] -= 1
                if closing == character:
                    break
            closings.add(place)
            while around and around[-1][0] > opened:
                around.pop()
            around.append((opened, place))
        elif character in _PAIRS or character == '"':
            closing = _PAIRS.get(character, character)
            stack.append((closing, place))
            waiting[closing] = waiting.get(closing, 0) + 1
    return _Pairs(around=around, closings=frozenset(closings))


def _cjk_ends(line: str) -> list[int]:
    """Places after 。！？…… and the closing marks behind them, outside quotations and brackets."""
    if line.isascii():
        return []
    pairs = _pairs(line)
    remaining = iter(pairs.around)
    pair = next(remaining, None)
    cuts: list[int] = []
    for found in _CJK_END.finditer(line):
        end = found.end()
        while end < len(line) and (end in pairs.closings or line[end] in "”’」』】）》"):
            end += 1
        while pair is not None and pair[1] < found.start():
            pair = next(remaining, None)
        inside = pair is not None and pair[0] < found.start()
        if end == len(line) or (found.group()[0] in "…!?" and not _starts_cjk(line, end)):
            continue
        if pair is not None and inside:
            opened, closed = pair
            whole = (
                not line[max(0, opened - _NEAR) : opened].strip()
                or _ENDED.search(line[max(0, opened - _NEAR) : opened]) is not None
            )
            if closed >= end or (line[closed] in "）】)]》" and not whole):
                continue
        if end > found.end() and _CJK_GOES_ON.match(line, end):
            continue
        cuts.append(end)
    return cuts


def _starts_cjk(line: str, place: int) -> bool:
    """Whether Chinese text, or an opening mark before it, goes on at `place` (spaces aside)."""
    rest = line[place : place + 4].lstrip().lstrip(_OPENING)
    return bool(rest) and is_cjk(rest[0]) and rest[0] not in "，、；：。！？"


def _keep_markers(line: str, cuts: Sequence[int]) -> list[int]:
    """Drop the cut after a list marker: "1." belongs to the sentence that it numbers."""
    kept: list[int] = []
    start = 0
    for cut in cuts:
        if cut - start > _NEAR or not _LIST_MARKER.fullmatch(line[start:cut].strip()):
            kept.append(cut)
            start = cut
    return kept


def _open_long(line: str, cuts: Sequence[int]) -> list[int]:
    """Add the ends inside quotations where a sentence would otherwise be longer than models know."""
    result: list[int] = []
    for start, end in zip([0, *cuts], [*cuts, len(line)], strict=True):
        sample = line[start : start + 2 * _NEAR]
        cjk = 2 * sum(map(is_cjk, sample)) > len(sample)
        if end - start > (_LONG_CJK if cjk else _LONG_LATIN):
            for hidden in (_HIDDEN_CJK_END if cjk else _HIDDEN_END).finditer(line, start, end):
                word = _WORD_BEFORE_DOT.search(line[max(start, hidden.start() - _NEAR) : hidden.start() + 1])
                short = word is not None and (len(word.group(1)) < 4 or "." in word.group(1))
                if hidden.end() < end and not short:
                    result.append(hidden.end())
        if end < len(line):
            result.append(end)
    return result
