"""Translate texts whose protected spans come out byte for byte: placeholders that the model copies, else a split."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from onnxmt.text.patterns import is_han
from onnxmt.text.segment import passes_through
from onnxmt.text.spans import MARKUP, ProtectOptions, Span, find_protected

__all__ = ["Candidate", "Inputs", "Method", "ProtectedTranslation", "Translate", "has_prose", "translate_protected"]

Method = Literal["untouched", "plain", "placeholder", "split", "source"]


class Inputs(list[str]):
    """Texts for the model; `owners[i]` is the number of the text, of those given to the layer, that input i is for.

    again: a second try of texts whose first translation is doubted.
    """

    def __init__(self, texts: Sequence[str], *, owners: Sequence[int], again: bool = False) -> None:
        super().__init__(texts)
        self.owners, self.again = tuple(owners), again


# For each text its translation, or several candidates, best first.
Translate = Callable[[Inputs], Sequence[str | Sequence[str]]]
# Whether a translation (second) of a source text (first) will do; then the input's number and the candidate's rank.
Passes = Callable[[str, str, int, int], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A further translation that holds every span: candidate `rank` of input `number`."""

    text: str
    number: int
    rank: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtectedTranslation:
    """A translation that holds every span of its source as often as the source does.

    method: `untouched`: nothing to translate. `plain`: no span inside the sentence. `placeholder`: the model carried
        them. `split`: the prose between them was translated piece by piece. `source`: the text came back as it was,
        because a translated piece would have held a span a second time; the caller warns.
    inputs: which texts, counted over all that this call gave to the model, make up this translation.
    ranks: which candidate was taken for each of them; 0 is the best.
    others: the other candidates that hold the spans, best first, where the model was asked once.
    """

    text: str
    spans: tuple[Span, ...]
    method: Method
    inputs: tuple[int, ...]
    ranks: tuple[int, ...]
    others: tuple[Candidate, ...] = ()


def translate_protected(
    texts: Sequence[str],
    translate: Translate,
    *,
    options: ProtectOptions | None = None,
    passes: Passes | None = None,
    others: bool = False,
) -> list[ProtectedTranslation]:
    """Translate single-line texts, in order, keeping their spans.

    `translate` gets a list of texts and returns as many answers; it is called once for all texts, once more for each
    further placeholder style that is needed, and once for the pieces of all texts that had to be split. Of several
    candidates the first is taken that holds the spans and that `passes` accepts, else the first that holds the spans;
    `others` keeps the rest.
    """
    options = options or ProtectOptions()
    jobs = [_Job.of(text, find_protected(text, options), owner=owner) for owner, text in enumerate(texts)]
    model = _Model(translate)
    waiting = [job for job in jobs if job.method is None]
    for style in options.placeholders or ("",):
        attempts = [(job, _Attempt.of(job, style, options)) for job in waiting]
        sendable = [(job, attempt) for job, attempt in attempts if attempt is not None]
        outputs = model([(attempt.text, job.owner) for job, attempt in sendable])
        for (job, attempt), output in zip(sendable, outputs, strict=True):
            job.accept(attempt, output, passes, others=others)
        waiting = [job for job in waiting if job.method is None]
    pieces = [(job, list(_pieces(job))) for job in waiting]
    answers = iter(model([(piece.core, job.owner) for job, cut in pieces for piece in cut if piece.core]))
    for job, cut in pieces:
        job.assemble(cut, answers)
    return [job.result() for job in jobs]


def has_prose(text: str, *, options: ProtectOptions | None = None) -> bool:
    """Whether a text holds a letter outside its protected spans: if not, it is its own translation."""
    return not passes_through(_without(text, find_protected(text, options)))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Output:
    """What the model made of one input, best first, and the input's number."""

    texts: tuple[str, ...]
    number: int


class _Model:
    """The caller's function, with the inputs counted."""

    def __init__(self, translate: Translate) -> None:
        self._translate = translate
        self._count = 0

    def __call__(self, texts: Sequence[tuple[str, int]]) -> list[_Output]:
        """Ask about texts, each with its owner."""
        if not texts:
            return []
        first, self._count = self._count, self._count + len(texts)
        outputs = self._translate(Inputs([text for text, _ in texts], owners=[owner for _, owner in texts]))
        return [
            _Output(texts=_candidates(output), number=number)
            for number, output in zip(range(first, self._count), outputs, strict=True)
        ]


def _candidates(output: str | Sequence[str]) -> tuple[str, ...]:
    return (output.strip(),) if isinstance(output, str) else tuple(text.strip() for text in output)


def _without(text: str, spans: Sequence[Span], *, filler: str = " ") -> str:
    """The text with each span replaced by `filler`."""
    edges = [0, *(edge for span in spans for edge in (span.start, span.end)), len(text)]
    return filler.join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))


# What a line of a list begins with; models take it for a dash, or lose it.
_LIST_MARKER = re.compile(r"(?:[-*+•‣▪·>–—]|#{1,6}|\(?[0-9]{1,3}[.)]|\(?[a-z]\))\s+(?=\S)")


@dataclass(kw_only=True, slots=True)
class _Job:
    """One text on its way: `core` is what stands between the markup at its edges, `inner` the spans in there."""

    text: str
    spans: tuple[Span, ...]
    owner: int
    core: str = ""
    core_start: int = 0
    inner: tuple[Span, ...] = ()
    method: Method | None = None
    output: str = ""
    used: list[tuple[int, int]] = field(default_factory=list)
    others: list[Candidate] = field(default_factory=list)

    @classmethod
    def of(cls, text: str, spans: tuple[Span, ...], *, owner: int) -> _Job:
        if passes_through(_without(text, spans)):
            return cls(text=text, spans=spans, owner=owner, method="untouched", output=text)
        marker = _LIST_MARKER.match(text)
        start, end = marker.end() if marker and not (spans and spans[0].start < marker.end()) else 0, len(text)
        for span in spans:
            if span.kind not in MARKUP or text[start : span.start].strip():
                break
            start = span.end
        for span in reversed(spans):
            if span.start < start or span.kind not in MARKUP or text[span.end : end].strip():
                break
            end = span.start
        core = text[start:end]
        start += len(core) - len(core.lstrip())
        core = core.strip()
        inner = tuple(span for span in spans if start <= span.start and span.end <= start + len(core))
        return cls(text=text, spans=spans, owner=owner, core=core, core_start=start, inner=inner)

    def _keeps_spans(self, output: str) -> bool:
        return all(output.count(span.text) == self.text.count(span.text) for span in self.spans)

    def _framed(self, core: str) -> str:
        return self.text[: self.core_start] + core + self.text[self.core_start + len(self.core) :]

    def accept(self, attempt: _Attempt, output: _Output, passes: Passes | None, *, others: bool) -> None:
        """Take the first candidate that holds every span and passes; if none does, the first that holds the spans."""
        found: list[Candidate] = []
        chosen: Candidate | None = None
        for rank, text in enumerate(output.texts):
            restored = attempt.restore(text, self)
            if restored is None or not self._keeps_spans(framed := self._framed(restored)):
                continue
            found.append(Candidate(text=framed, number=output.number, rank=rank))
            if chosen is None and (passes is None or passes(self.text, framed, output.number, rank)):
                chosen = found[-1]
                if not others:
                    break
        if not found:
            return
        chosen = chosen or found[0]
        self.output, self.used = chosen.text, [(chosen.number, chosen.rank)]
        self.method = "placeholder" if self.inner else "plain"
        self.others = [one for one in found if one is not chosen] if others else []

    def assemble(self, pieces: Sequence[_Piece], answers: Iterator[_Output]) -> None:
        """Put the translated pieces between the spans."""
        parts: list[str] = []
        for piece in pieces:
            core = ""
            if piece.core:
                answer = next(answers)
                core = _fragment(piece.core, answer.texts[0])
                if any(span.text in core and span.text not in piece.core for span in self.spans):
                    core = piece.core
                else:
                    self.used.append((answer.number, 0))
            parts += [piece.lead, core, piece.tail, piece.span]
        framed = self._framed("".join(parts))
        self.method, self.output = ("split", framed) if self._keeps_spans(framed) else ("source", self.text)
        if self.method == "source":
            self.used.clear()

    def result(self) -> ProtectedTranslation:
        return ProtectedTranslation(
            text=self.output,
            spans=self.spans,
            method=self.method or "source",
            inputs=tuple(number for number, _ in self.used),
            ranks=tuple(rank for _, rank in self.used),
            others=tuple(self.others),
        )


# The model may write a placeholder in full-width characters or with a space inside.
_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: " "}
# Text of these kinds takes the Han character that follows it for a part of itself.
_NEEDS_SPACE_BEFORE_HAN = frozenset({"url", "email", "path"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attempt:
    """A job's core with placeholders in the spans' places; `numbers[i]` stands for `job.inner[i]`."""

    text: str
    style: str = ""
    numbers: tuple[int, ...] = ()
    options: ProtectOptions

    @classmethod
    def of(cls, job: _Job, style: str, options: ProtectOptions) -> _Attempt | None:
        """None when this text is to be split; no style means that."""
        if not job.inner:
            return cls(text=job.core, options=options)
        if not style or len(job.inner) > options.most_placeholders:
            return None
        numbers: list[int] = []
        number = 0
        while len(numbers) < len(job.inner):
            number += 1
            if style.format(n=number).lower() not in job.text.lower():
                numbers.append(number)
        parts, position = [], job.core_start
        for span, number in zip(job.inner, numbers, strict=True):
            parts += [job.text[position : span.start], style.format(n=number)]
            position = span.end
        parts.append(job.text[position : job.core_start + len(job.core)])
        return cls(text="".join(parts), style=style, numbers=tuple(numbers), options=options)

    def restore(self, output: str, job: _Job) -> str | None:
        """The output with the spans put back; None unless each placeholder is there once, no other, markup in order."""
        if not self.numbers:
            return _fragment(job.core, output) if job.spans else output
        loose = _loose(self.style)
        known = {int(number) for number in loose.findall(job.core.translate(_HALF_WIDTH))}
        found = list(loose.finditer(output.translate(_HALF_WIDTH)))
        if not all(int(match.group(1)) in known.union(self.numbers) for match in found):
            return None
        found = [match for match in found if int(match.group(1)) in self.numbers]
        if sorted(int(match.group(1)) for match in found) != sorted(self.numbers):
            return None
        order = [self.numbers.index(int(match.group(1))) for match in found]
        markup = [index for index in order if job.inner[index].kind in MARKUP]
        if markup != sorted(markup):
            return None
        parts, position = [], 0
        for match, index in zip(found, order, strict=True):
            parts += [output[position : match.start()], _spaced(job, job.inner[index], output, match.span())]
            position = match.end()
        parts.append(output[position:])
        prose = " ".join(parts[::2])
        return None if find_protected(prose, self.options) or not any(map(str.isalpha, prose)) else "".join(parts)


@functools.cache
def _loose(style: str) -> re.Pattern[str]:
    """The expression that finds a placeholder of this style and its number, with a space inside perhaps."""
    before, after = (re.escape(part) for part in style.split("{n}"))
    edges = (r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])") if style[:1].isalnum() else (r"(?<!\d)", r"(?!\d)")
    return re.compile(rf"{edges[0]}{before}\s?(\d{{1,3}})\s?{after}{edges[1]}", re.IGNORECASE | re.ASCII)


def _spaced(job: _Job, span: Span, output: str, place: tuple[int, int]) -> str:
    """The span's text, set apart from a word that it would run into, where the source had set it apart."""
    start, end = place
    left = (
        " " if job.text[span.start - 1 : span.start].isspace() and _runs_into(span, output[start - 1 : start]) else ""
    )
    right = " " if job.text[span.end : span.end + 1].isspace() and _runs_into(span, output[end : end + 1]) else ""
    return left + span.text + right


def _runs_into(span: Span, neighbour: str) -> bool:
    if not neighbour or not neighbour.isalnum():
        return False
    return span.kind in _NEEDS_SPACE_BEFORE_HAN if is_han(neighbour) else span.kind not in MARKUP


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """A stretch of prose and the span that ends it: `lead` and `tail` are marks and spaces; the model gets `core`."""

    lead: str
    core: str
    tail: str
    span: str


_FRAGMENT = re.compile(
    r"(?P<lead>[\s,;:()\[\]\"“”‘«»*_#|/\\–—…!?.，、；：（）。！？]*)(?P<core>.*?)"
    r"(?P<tail>[\s,;:()\[\]\"“”’«»*_#|/\\–—…!?.，、；：（）。！？]*)",
    re.DOTALL,
)
_END_MARKS = "。．.！!？?…"


def _pieces(job: _Job) -> Iterator[_Piece]:
    position = job.core_start
    end = job.core_start + len(job.core)
    for span in job.inner:
        yield _piece(job.text[position : span.start], span.text, last=False)
        position = span.end
    yield _piece(job.text[position:end], "", last=True)


def _piece(prose: str, span: str, *, last: bool) -> _Piece:
    match = _FRAGMENT.fullmatch(prose)
    if match is None or passes_through(match["core"]):
        return _Piece(lead=prose, core="", tail="", span=span)
    lead, core, tail = match["lead"], match["core"], match["tail"]
    if last and tail[:1] in {".", "!", "?", "。", "！", "？"}:
        core, tail = core + tail[0], tail[1:]  # the sentence's own end: the model writes it in the target's way
    return _Piece(lead=lead, core=core, tail=tail, span=span)


def _fragment(source: str, output: str) -> str:
    """A fragment's translation without the full stop that models put behind any input; the source where it is empty."""
    if source[-1] not in _END_MARKS:
        output = output.rstrip(_END_MARKS)
    return output.strip() or source
