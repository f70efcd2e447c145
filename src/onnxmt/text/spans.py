"""Where a text holds what must not be translated: URLs, code, tags, placeholders, …; finding only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from onnxmt.errors import UsageError
from onnxmt.text.patterns import EMAIL, EMOJI, URL

__all__ = ["MARKUP", "ProtectOptions", "Span", "SpanKind", "find_protected"]

SpanKind = Literal["url", "email", "path", "code", "tag", "entity", "placeholder", "link", "emoji", "pattern"]
ALL_KINDS: frozenset[SpanKind] = frozenset(get_args(SpanKind))
# These stand around or between words; the other kinds stand for a word.
MARKUP: frozenset[SpanKind] = frozenset({"tag", "link", "emoji"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A stretch `start:end` of a text that must come out byte for byte."""

    start: int
    end: int
    kind: SpanKind
    text: str


@dataclass(frozen=True, kw_only=True)
class ProtectOptions:
    """What is protected, and how the model is asked to carry it.

    kinds: the kinds of spans that are found.
    patterns: regular expressions of the user's own; a match is a span of the kind `pattern`.
    placeholders: what stands for a span in the model's input, tried in this order; `{n}` is its number. When the model
        loses one, or there is none here, the text is split around the spans.
    most_placeholders: a sentence with more spans than this is split at once; models lose count.
    """

    kinds: frozenset[SpanKind] = ALL_KINDS
    patterns: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ("({n})",)
    most_placeholders: int = 4
    compiled: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        problems = [f"unknown kind {kind!r}" for kind in sorted(self.kinds - ALL_KINDS)]
        compiled = []
        for pattern in self.patterns:
            try:
                expression = re.compile(pattern)
            except re.error as error:
                problems.append(f"the pattern {pattern!r} is no regular expression: {error}")
                continue
            if expression.match(""):
                problems.append(f"the pattern {pattern!r} matches the empty text")
            compiled.append(expression)
        problems += [
            f"the placeholder {style!r} does not hold {{n}} once, beside ASCII letters or marks"
            for style in self.placeholders
            if style.count("{n}") != 1 or not style.isascii() or len(style) < 4 or style != style.strip()
        ]
        if self.most_placeholders < 0:
            problems.append(f"most_placeholders is {self.most_placeholders}, and 0 is the least")
        if problems:
            raise UsageError(f"protection: {'; '.join(problems)}. Kinds are {', '.join(sorted(ALL_KINDS))}")
        object.__setattr__(self, "compiled", tuple(compiled))


def find_protected(text: str, options: ProtectOptions | None = None) -> tuple[Span, ...]:
    """The spans of a text, in order and apart from each other.

    Of two that overlap the one that begins first is kept, then the longer. A fenced block, a comment and a tag may run
    over several lines; nothing else does.
    """
    options = options or ProtectOptions()
    found: list[tuple[int, int, SpanKind]] = []
    for kind, signs, finder in _FINDERS:
        if kind in options.kinds and any(sign in text for sign in signs):
            found.extend((start, end, kind) for start, end in finder(text))
    if "emoji" in options.kinds and _MAYBE_EMOJI.search(text):
        found.extend((match.start(), match.end(), "emoji") for match in EMOJI.finditer(text))
    if "pattern" in options.kinds:
        for pattern in options.compiled:
            found.extend((m.start(), m.end(), "pattern") for m in pattern.finditer(text) if m.end() > m.start())
    return tuple(_apart(text, found))


# Below U+2000 an emoji is a digit or a sign with a character from above it.
_MAYBE_EMOJI = re.compile("[\u2000-\U0010ffff]")


def _apart(text: str, found: Iterable[tuple[int, int, SpanKind]]) -> Iterator[Span]:
    position = 0
    for start, end, kind in sorted(found, key=lambda span: (span[0], -span[1])):
        if start >= position:
            yield Span(start=start, end=end, kind=kind, text=text[start:end])
            position = end


def _by(*patterns: re.Pattern[str]) -> Callable[[str], Iterator[tuple[int, int]]]:
    def find(text: str) -> Iterator[tuple[int, int]]:
        for pattern in patterns:
            for match in pattern.finditer(text):
                yield match.span()

    return find


# A directory part needs its slash; a name alone needs an extension that is no English word.
_EXTENSIONS = (
    "py|pyi|md|rst|txt|json|jsonl|ya?ml|toml|ini|cfg|conf|xml|html?|css|js|mjs|ts|tsx|jsx|cpp|hpp|java|rs|rb|sh|bat|ps1|exe|dll"
    "|zip|tar|gz|bz2|xz|7z|png|jpe?g|gif|svg|webp|pdf|docx?|xlsx?|pptx?|csv|tsv|log|sql|db|onnx|bin|whl|mp3|mp4|wav|lock|env"
)
_PATH = re.compile(
    r"(?<![\w/\\:.@<~})-])(?:"
    r"(?:~|\.{1,2})?/(?:[\w.@+-]+/)*[\w.@+-]*[\w@+-]/?"  # /etc/hosts  ~/.bashrc  ../a/b/
    r"|(?:[\w.@+-]+/)+[\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w.]*\w)"  # src/main.c
    rf"|[\w-]+(?:\.[\w-]+)*\.(?:{_EXTENSIONS})(?![\w-]|\.\w)"  # README.md
    r"|[A-Za-z]:\\(?:[^\\/:*?\"<>|\s]+\\)*(?:[^\\/:*?\"<>|\s]*[^\\/:*?\"<>|\s.,;!)])?"  # C:\a\b
    r"|\\\\[\w.-]+(?:\\[\w.$-]*[\w$-])+"  # \\server\share
    r")",
    re.ASCII,
)
_ATTRIBUTE = (
    r"\s+(?:[A-Za-z_:@][\w:@.-]*\s*=\s*(?:\"[^\"<]*\"|'[^'<]*'|[^\s\"'<>=`]+)"
    r"|(?:disabled|checked|selected|hidden|async|defer|required|readonly|controls|autoplay|loop|muted|multiple|open|download)\b)"
)
_TAG = re.compile(
    rf"<(?:[A-Za-z][\w:.-]*(?:{_ATTRIBUTE})*\s*/?|/[A-Za-z][\w:.-]*\s*|!DOCTYPE[^<>]*|!\[CDATA\[|\?[a-z][^<>]*\?)>"
)
_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_PRINTF = re.compile(
    r"(?<![0-9%])%(?:%"
    r"|\([^()\s]{1,60}\)[-+ 0#]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]"
    r"|(?:\d+\$)?[-+0#]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|L|q|j|z|t)?(?:[dsuif@](?![a-z]{3})|[oxXeEgGaAcpr](?![A-Za-z]))"
    r"|\{[^{}\s]{1,60}\}|[A-Za-z_]\w{0,60}%"
    r"|[-#]?[aAbBcdHIjmMpSUwWxXyYzZ](?![A-Za-z]))"  # strftime
)
_SHELL = re.compile(r"(?<![\w$])\$(?:(?!US|AU|CA|NZ|HK|SG|NT)[A-Z_][A-Z0-9_]+\b|\([^()\n]{1,80}\))")
_LINK_OPEN = re.compile(r"!?\[(?=[^\[\]\n]{0,400}\](?:\([^()\s]|\[))")
_LINK_TARGET = re.compile(
    r"\](?:\(\s*(?:<[^<>\n]*>|(?:[^\s()]|\([^\s()]*\))+)(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'))?\s*\)|\[[^\[\]\n]{0,120}\])"
)
_LINK_DEFINITION = re.compile(
    r"(?m)^ {0,3}\[[^\[\]\n^][^\[\]\n]{0,120}\]:[ \t]+(?=\S*[/.#])\S+(?:[ \t]+[\"'(][^\n]*[\"')])?[ \t]*$"
    r"|\[\^[\w-]{1,40}\]"
)
_FENCE_LINE = re.compile(r"(?m)^[ \t>]{0,12}(?P<fence>`{3,}|~{3,})(?P<info>[^`\r\n]*)\r?$")
_ROLE = re.compile(r":[A-Za-z][\w+.:-]{0,60}:$")
_BACKTICKS = re.compile(r"`+")


def _code(text: str) -> Iterator[tuple[int, int]]:
    """Fenced blocks, and code between runs of equally many backticks on one line, with the role before it (RST)."""
    position = 0
    for start, end in [*_fenced(text), (len(text), len(text))]:
        offset = position
        for line in text[position:start].splitlines(keepends=True):
            if "`" in line:
                yield from ((offset + a, offset + b) for a, b in _inline_code(line))
            offset += len(line)
        if start < end:
            yield start, end
        position = end


def _fenced(text: str) -> Iterator[tuple[int, int]]:
    """Blocks between fence lines. One that never closes is none: better a line of code translated than a page lost."""
    lines = list(_FENCE_LINE.finditer(text))
    # Which fences can still be closed, and by which line last: spares a search to the end for each that cannot.
    last = {(m["fence"][0], len(m["fence"])): i for i, m in enumerate(lines) if not m["info"].strip()}
    index = 0
    while index < len(lines):
        fence = lines[index]["fence"]
        closable = max((i for (mark, size), i in last.items() if mark == fence[0] and size >= len(fence)), default=-1)
        start = lines[index].start()
        title = re.search(r"\S[^\n]*\n\Z", text[max(0, start - 200) : start]) if fence[0] == "~" else None
        if closable <= index or title:  # a row of ~ below a title underlines it (RST)
            index += 1
            continue
        closing = index + 1
        while not _closes(lines[closing], fence):
            closing += 1
        yield lines[index].start(), lines[closing].end()
        index = closing + 1


def _closes(line: re.Match[str], fence: str) -> bool:
    return line["fence"][0] == fence[0] and len(line["fence"]) >= len(fence) and not line["info"].strip()


def _comments(text: str) -> Iterator[tuple[int, int]]:
    start = text.find("<!--")
    while start >= 0 and (end := text.find("-->", start + 4)) >= 0:
        yield start, end + 3
        start = text.find("<!--", end + 3)


def _inline_code(line: str) -> Iterator[tuple[int, int]]:
    runs = [match.span() for match in _BACKTICKS.finditer(line)]
    by_length: dict[int, list[int]] = {}
    for index, (start, end) in enumerate(runs):
        by_length.setdefault(end - start, []).append(index)
    for places in by_length.values():
        places.reverse()  # the next one is popped from the end
    index = 0
    while index < len(runs):
        start, end = runs[index]
        places = by_length[end - start]
        while places and places[-1] <= index:
            places.pop()
        inside = line[end : runs[places[-1]][0]] if places else ""
        # it`s is an apostrophe, and ``so'' a quotation in TeX
        apostrophe = end - start == 1 and re.match("[A-Za-z]", line[start - 1 : start]) and re.search(r"\s", inside)
        if not places or apostrophe or (end - start == 2 and "''" in inside):
            index += 1
            continue
        closing = places.pop()
        role = _ROLE.search(line[max(0, start - 64) : start])
        yield start - (len(role.group()) if role else 0), runs[closing][1]
        index = closing + 1


def _braces(text: str) -> Iterator[tuple[int, int]]:
    """{name}, {{ name }}, {% tag %}, ${name}, #{name}, { $name } and ICU's nested {n, plural, one {…} other {…}}."""
    stack: list[int] = []
    for match in re.finditer(r"[{}\n]", text):
        place, character = match.start(), match.group()
        if character == "\n":
            stack.clear()
        elif character == "{":
            stack.append(place)
        elif stack:
            start = stack.pop()
            if _is_placeholder(text[start : place + 1]) if place - start < _LONGEST_BRACES else False:
                before = text[start - 1 : start]
                yield start - (before in {"$", "#", "%", "@"}), place + 1


_LONGEST_BRACES = 2000
_PLACEHOLDER = re.compile(
    r"\{(?:\{(?s:.*)\}|[%#](?s:.*)[%#]|\s*[$@#&/^>!]?[\w.$@:\-\[\]()'\"]*\s*(?:[,:!|?=+](?s:.*))?)\}"
)


def _is_placeholder(text: str) -> bool:
    """Whether a pair of braces is a placeholder: "{see below}", two words and no more, is prose."""
    return _PLACEHOLDER.fullmatch(text) is not None


# The kinds, the characters without which a text has none of them, and the finders.
_FINDERS: Sequence[tuple[SpanKind, str, Callable[[str], Iterator[tuple[int, int]]]]] = (
    ("code", "`~", _code),
    ("tag", "<", _comments),
    ("tag", "<", _by(_TAG)),
    ("entity", "&", _by(_ENTITY)),
    ("placeholder", "{", _braces),
    ("placeholder", "%", _by(_PRINTF)),
    ("placeholder", "$", _by(_SHELL)),
    ("link", "[]", _by(_LINK_OPEN, _LINK_TARGET, _LINK_DEFINITION)),
    ("url", ".:", _by(URL)),
    ("email", "@", _by(EMAIL)),
    ("path", "/\\.", _by(_PATH)),
)
