"""Which terms a glossary holds, where a text has them, and whether a translation has their targets."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmt.errors import GlossaryError
from onnxmt.text.pair import TextWarning
from onnxmt.text.patterns import is_cjk
from onnxmt.text.spans import Span

__all__ = [
    "Glossary",
    "GlossaryEntry",
    "Term",
    "TermUse",
    "any_case",
    "is_wordlike",
    "masked",
    "missed",
    "target_pattern",
    "uses_of",
]

LONGEST_TERM = 200
MOST_ENTRIES = 100_000
_KEYS = frozenset({"target", "case", "forms"})


@dataclass(frozen=True, kw_only=True, slots=True)
class GlossaryEntry:
    """A source term and what it must become.

    case: True finds the term as it is written only, False in any case; None (the default) means True for a term with a
        capital letter, False for one without: `IT` is not found in "it", `apple` is found in "Apple".
    forms: the plural of the term's last word is found too (box: boxes, city: cities).
    """

    source: str
    target: str
    case: bool | None = None
    forms: bool = False

    def __post_init__(self) -> None:
        problems = [
            f"the {name} term {problem}"
            for name, text in (("source", self.source), ("target", self.target))
            if (problem := _fault(text))
        ]
        if not problems and not any(map(str.isalpha, self.source)):
            problems.append(f"the source term {self.source!r} holds no letter: what has none is never translated")
        if problems:
            raise GlossaryError(f"glossary: {'; '.join(problems)}")

    @property
    def by_case(self) -> bool:
        """Whether capitals matter where the term is looked for."""
        return self.case if self.case is not None else self.source != self.source.lower()

    def to_value(self) -> str | dict[str, Any]:
        """The entry's value in `Glossary.to_dict`: the target alone, or an object with the options that are set."""
        options: dict[str, Any] = {} if self.case is None else {"case": self.case}
        if self.forms:
            options["forms"] = True
        return {"target": self.target, **options} if options else self.target


def _fault(text: object) -> str | None:
    """What is wrong with one term, to be read after its name."""
    if not isinstance(text, str):
        return f"is {type(text).__name__}; a text is needed"
    if not text.strip():
        return "is empty"
    if text != text.strip():
        return f"{text!r} has spaces around it: remove them"
    if len(text) > LONGEST_TERM:
        return f"{text[:30]!r}… has {len(text)} characters; {LONGEST_TERM} are allowed"
    if any(not (character.isprintable() or character in "\u3000\u200c\u200d") for character in text):
        return f"{text!r} holds a control character or a line break: a term is one line of text"
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """An entry found in a text, at start:end; `source` is how the text writes it."""

    start: int
    end: int
    source: str
    entry: GlossaryEntry

    @property
    def target(self) -> str:
        """What it must become."""
        return self.entry.target


@dataclass(frozen=True, kw_only=True, slots=True)
class TermUse:
    """What became of one term of a source text: `start`:`end` there; `applied`: the translation has its target."""

    source: str
    target: str
    applied: bool
    start: int
    end: int

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"source": self.source, "target": self.target, "applied": self.applied}


@dataclass(frozen=True)
class Glossary:
    """Terms with their translations; immutable data, so that it can be an option, a key and a message to a worker.

    Raises GlossaryError for two entries that would find the same words and ask for different targets.
    """

    entries: tuple[GlossaryEntry, ...]

    def __post_init__(self) -> None:
        if len(self.entries) > MOST_ENTRIES:
            raise GlossaryError(f"glossary: it has {len(self.entries)} entries; {MOST_ENTRIES} are allowed")
        seen: dict[tuple[bool, tuple[str, ...]], GlossaryEntry] = {}
        problems = []
        for entry in self.entries:
            first = seen.setdefault(key_of(entry), entry)
            if first.target != entry.target:
                problems.append(f"{entry.source!r} has two targets, {first.target!r} and {entry.target!r}")
        if problems:
            more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise GlossaryError(f"glossary: {'; '.join(problems[:5])}{more}. Keep one of each")

    @classmethod
    def from_dict(cls, terms: Mapping[str, str | Mapping[str, Any]]) -> Glossary:
        """Read `{source: target}`, or `{source: {"target": …, "case": true, "forms": true}}` where options are wanted.

        Raises GlossaryError that names every wrong entry.
        """
        if not isinstance(terms, Mapping):
            raise GlossaryError(f"glossary: found {type(terms).__name__}; an object of source and target is needed")
        entries, problems = [], []
        for source, value in terms.items():
            try:
                entries.append(_entry(source, value))
            except GlossaryError as error:
                problems.append(str(error).removeprefix("glossary: "))
        if problems:
            more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise GlossaryError(f"glossary: {'; '.join(problems[:5])}{more}")
        return cls(tuple(entries))

    def to_dict(self) -> dict[str, str | dict[str, Any]]:
        """The JSON form, which `from_dict` reads."""
        return {entry.source: entry.to_value() for entry in self.entries}

    @functools.cached_property
    def digest(self) -> str:
        """A SHA-256 of what the glossary asks for; the order of the entries does not count."""
        plain = sorted([e.source, e.target, e.by_case, e.forms] for e in self.entries)
        return hashlib.sha256(json.dumps(plain, ensure_ascii=False).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        return bool(self.entries)

    @functools.cached_property
    def _index(self) -> dict[str, list[tuple[tuple[str, ...], str, GlossaryEntry]]]:
        """First word in small letters → the words, the gaps between them, the entry; the most words first."""
        index: dict[str, list[tuple[tuple[str, ...], str, GlossaryEntry]]] = {}
        for entry in self.entries:
            units = _units(entry.source, fold=False)
            gaps = _gaps(entry.source, units)
            for words in _forms([unit.text for unit in units], entry):
                index.setdefault(words[0].casefold(), []).append((words, gaps, entry))
        for found in index.values():
            found.sort(key=lambda item: (-len(item[0]), not item[2].by_case))
        return index

    def find(self, text: str, *, protected: Sequence[Span] = (), folded: bool = False) -> tuple[Term, ...]:
        """The terms of a text in order, apart from each other and from the protected spans.

        Of terms that overlap the longest is taken, then the first. A term is made of whole words: not a part of a
        word, nor of one joined by a hyphen; the possessive 's may follow it. `folded`: the text's own capitals say
        nothing, so that only terms all in capitals are found by case.
        """
        if not self.entries:
            return ()
        taken = [False] * len(text)
        for span in protected:
            taken[span.start : span.end] = [True] * (span.end - span.start)
        found = []
        for term in sorted(self._candidates(text, folded), key=lambda term: (term.start - term.end, term.start)):
            if not any(taken[term.start : term.end]):
                taken[term.start : term.end] = [True] * (term.end - term.start)
                found.append(term)
        return tuple(sorted(found, key=lambda term: term.start))

    def _candidates(self, text: str, folded: bool) -> Iterator[Term]:
        index, units = self._index, _units(text, fold=True)
        for place, unit in enumerate(units):
            for words, gaps, entry in index.get(unit.folded, ()):
                here = units[place : place + len(words)]
                if len(here) == len(words) and _same(words, here, entry, folded) and _gaps(text, here) == gaps:
                    start, end = here[0].start, here[-1].end
                    if _stands_alone(text, start, end):
                        yield Term(start=start, end=end, source=text[start:end], entry=entry)


def key_of(entry: GlossaryEntry) -> tuple[bool, tuple[str, ...]]:
    """What an entry finds; two with one key find the same."""
    units = _units(entry.source, fold=False)
    return entry.by_case, tuple(unit.text if entry.by_case else unit.text.casefold() for unit in units)


def _entry(source: object, value: object) -> GlossaryEntry:
    if isinstance(value, Mapping):
        unknown = sorted(set(value) - _KEYS)
        if unknown or "target" not in value:
            wrong = f"has the unknown option {unknown[0]!r}" if unknown else "has no target"
            raise GlossaryError(f"glossary: {source!r} {wrong}; options are {', '.join(sorted(_KEYS))}")
        case, forms = value.get("case"), value.get("forms", False)
        for name, flag in (("case", case), ("forms", forms)):
            if not (isinstance(flag, bool) or (flag is None and name == "case")):
                raise GlossaryError(f"glossary: {source!r}: {name} is {flag!r}; true or false is needed")
        return GlossaryEntry(source=source, target=value["target"], case=case, forms=forms)  # type: ignore[arg-type]
    if not isinstance(value, str):
        raise GlossaryError(f"glossary: {source!r} has {type(value).__name__} for a target; a text is needed")
    return GlossaryEntry(source=source, target=value)  # type: ignore[arg-type]  # GlossaryEntry checks it


@dataclass(frozen=True, slots=True)
class _Unit:
    """A word, a Han character, or a mark, at start:end of its text."""

    text: str
    folded: str
    start: int
    end: int


_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")
_APOSTROPHES = str.maketrans("’‘ʼ", "'''")


def _units(text: str, *, fold: bool) -> list[_Unit]:
    """The words and marks of a text; Chinese and Japanese have no words here: each character is a unit."""
    units = []
    for match in _WORD_OR_MARK.finditer(text):
        for start, end in _pieces(match.group(), match.start()):
            word = text[start:end].translate(_APOSTROPHES)
            units.append(_Unit(word, word.casefold() if fold else word, start, end))
    return units


def _pieces(word: str, start: int) -> Iterator[tuple[int, int]]:
    if word.isascii() or not any(map(is_cjk, word)):
        yield start, start + len(word)
        return
    open_at: int | None = None
    for place, character in enumerate(word, start):
        if is_cjk(character):
            if open_at is not None:
                yield open_at, place
            yield place, place + 1
            open_at = None
        elif open_at is None:
            open_at = place
    if open_at is not None:
        yield open_at, start + len(word)


def _gaps(text: str, units: Sequence[_Unit]) -> str:
    """For each pair of neighbours 1 where space is between them, else 0; beside a Han character it does not count."""
    gaps = ""
    for left, right in itertools.pairwise(units):
        cjk = is_cjk(text[left.end - 1]) or is_cjk(text[right.start])
        gaps += "0" if cjk or left.end == right.start else "1"
    return gaps


def _forms(words: Sequence[str], entry: GlossaryEntry) -> list[tuple[str, ...]]:
    """The words of a term; with `forms` also with the last one in the plural."""
    found = [tuple(words)]
    last = words[-1]
    if entry.forms and last.isascii() and last.isalpha() and len(last) > 1:
        found.append((*words[:-1], _plural(last)))
    return found


def _plural(word: str) -> str:
    lower = word.lower()
    if lower.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if lower.endswith("y") and lower[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _same(words: Sequence[str], units: Sequence[_Unit], entry: GlossaryEntry, folded: bool) -> bool:
    if entry.by_case and not (folded and not entry.source.isupper()):
        return all(word == unit.text for word, unit in zip(words, units, strict=True))
    return all(word.casefold() == unit.folded for word, unit in zip(words, units, strict=True))


# A hyphen or an apostrophe between two letters joins them into one word; the possessive does not.
_JOINED_BEFORE = re.compile(r"[^\W_][-‐‑'’]\Z")
_JOINED_BEHIND = re.compile(r"[-‐‑'’][^\W_]")
_POSSESSIVE = re.compile(r"['’][sS](?!\w)")


def _stands_alone(text: str, start: int, end: int) -> bool:
    if is_wordlike(text[start]) and _JOINED_BEFORE.search(text[max(0, start - 2) : start]):
        return False
    if not is_wordlike(text[end - 1]):
        return True
    return _JOINED_BEHIND.match(text, end) is None or _POSSESSIVE.match(text, end) is not None


def is_wordlike(character: str) -> bool:
    """Whether the character joins with its neighbours into words that spaces keep apart; one character in."""
    return character.isalnum() and not is_cjk(character)


@functools.lru_cache(maxsize=4096)
def target_pattern(target: str) -> re.Pattern[str]:
    """Finds a target term in a translation: exactly as it is written, and no part of a longer Latin word."""
    before = behind = ""
    if is_wordlike(target[0]):  # a Han character may stand beside it
        before = r"(?<![A-Za-z0-9\u00c0-\u024f\u0370-\u052f])"
    if is_wordlike(target[-1]):
        behind = r"(?![A-Za-z0-9\u00c0-\u024f\u0370-\u052f])"
    return re.compile(before + re.escape(target) + behind)


def uses_of(terms: Sequence[Term], translation: str) -> tuple[TermUse, ...]:
    """What became of each term: applied where the translation holds its target once for each time that it is wanted.

    A target inside a longer one that is also wanted counts for that one only.
    """
    places = _places(terms, translation)
    left = {target: len(found) for target, found in places.items()}
    uses = []
    for term in terms:
        left[term.target] -= 1
        uses.append(
            TermUse(
                source=term.source,
                target=term.target,
                applied=left[term.target] >= 0,
                start=term.start,
                end=term.end,
            )
        )
    return tuple(uses)


def _places(terms: Sequence[Term], translation: str) -> dict[str, list[tuple[int, int]]]:
    """Where the translation holds each target, the longest looked for first, apart from each other."""
    rest, places = translation, {}
    for target in sorted({term.target for term in terms}, key=lambda target: (-len(target), target)):
        found = [match.span() for match in target_pattern(target).finditer(rest)]
        places[target] = found
        for start, end in found:
            rest = rest[:start] + "\0" * (end - start) + rest[end:]
    return places


def masked(source: str, translation: str, terms: Iterable[Term]) -> tuple[str, str]:
    """Both texts with spaces in the places of terms that were applied, for checks that ask what was lost."""
    terms = tuple(terms)
    for use in uses_of(terms, translation):
        if use.applied:
            source = source[: use.start] + " " * (use.end - use.start) + source[use.end :]
    for found in _places(terms, translation).values():
        for start, end in found:
            translation = translation[:start] + " " * (end - start) + translation[end:]
    return source, translation


def any_case(glossary: Glossary, text: str, *, protected: Sequence[Span] = ()) -> str:
    """A text whose capitals were changed, with each term written as its entry writes it, so that it is found."""
    for term in reversed(glossary.find(text, protected=protected, folded=True)):
        if term.entry.by_case and len(term.entry.source) == len(term.source):
            text = text[: term.start] + term.entry.source + text[term.end :]
    return text


def missed(uses: Iterable[TermUse]) -> Iterator[TextWarning]:
    """A warning for each term that was not applied."""
    for use in uses:
        if not use.applied:
            message = f"the glossary's {use.target!r} for {use.source!r} is not in the translation"
            yield TextWarning(kind="glossary", span=(use.start, use.end), message=message)
