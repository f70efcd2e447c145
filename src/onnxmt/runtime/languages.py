"""Which language a code or a name means, and which of a model's own codes stands for it.

Models name languages in many ways (`zh`, `zh_CN`, `zho_Hans`, `cmn_Hans`); people use all of them with any model. A
code is read as language + script + region; two codes mean the same when language and script agree.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from onnxmt.errors import UnknownLanguageError
from onnxmt.runtime.language_table import (
    CHINESE,
    HAN_SCRIPTS,
    REGION_SCRIPTS,
    ROWS,
    SCRIPT_NAMES,
    SCRIPTED_NAMES,
)

__all__ = [
    "Language",
    "LanguageChoice",
    "describe_nearest",
    "is_chinese",
    "language_name",
    "nearest_languages",
    "parse_language",
    "resolve_language",
    "usual_script",
]


# Longer than any code or name: what is longer is neither parsed, nor remembered, nor repeated whole in a message.
_LONGEST = 48


@dataclass(frozen=True, kw_only=True)
class Language:
    """What a code means: `base` is ISO 639-3, `script` ISO 15924, `region` upper case; None: the code does not say."""

    base: str
    script: str | None = None
    region: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One language of the table; `codes` holds the base first, then the others in the table's order."""

    script: str
    codes: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Table:
    """The parsed table: rows by base, bases by any code, languages by folded name."""

    rows: dict[str, _Row]
    bases: dict[str, str]
    names: dict[str, Language]


def _fold(text: str) -> str:
    """The comparable form of a code or name: case, hyphens, underscores, brackets and repeated spaces do not count."""
    for mark in "-_()":
        text = text.replace(mark, " ")
    return " ".join(text.casefold().split())


@functools.cache
def _table() -> _Table:
    """Parse the rows once, at the first use: importing this module stays free."""
    rows: dict[str, _Row] = {}
    bases: dict[str, str] = {}
    names = {_fold(name): Language(base=base, script=script) for name, (base, script) in SCRIPTED_NAMES.items()}
    for line in ROWS.strip().splitlines():
        base, script, codes, shown = (cell.strip() for cell in line.split("|"))
        row = _Row(script=script, codes=(base, *codes.split()), names=tuple(n.strip() for n in shown.split(";")))
        rows[base] = row
        for code in row.codes:
            bases[code] = base
        for name in row.names:
            names[_fold(name)] = Language(base=base)
            for script_code, script_name in SCRIPT_NAMES.items():
                language = Language(base=base, script=script_code)
                names[_fold(f"{name} {script_name}")] = names[_fold(f"{script_name} {name}")] = language
    return _Table(rows=rows, bases=bases, names=names)


def parse_language(text: str) -> Language | None:
    """Read a code (`en`, `eng_Latn`, `zh-TW`, `pt_br`) or an English name (`Traditional Chinese`); None for neither.

    A three-letter code that the table does not know is a language of its own; a script that a Chinese region implies is
    filled in.
    """
    return _parsed(text) if len(text) <= _LONGEST else None


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Language | None:
    table = _table()
    folded = _fold(text)
    if folded in table.names:
        return table.names[folded]
    parts = folded.split()
    if not parts or not all(part.isascii() and part.isalnum() for part in parts):
        return None
    first, rest = parts[0], parts[1:]
    base = table.bases.get(first, first if len(first) == 3 and first.isalpha() else None)
    if base is None:
        return None
    script = region = None
    for part in rest:
        if len(part) == 3 and part in table.bases and base == table.bases[first] and script is None and region is None:
            base = table.bases[part]  # an extended language, as in zh-yue
        elif len(part) == 4 and part.isalpha() and script is None and region is None:
            script = part.title()
        elif ((len(part) == 2 and part.isalpha()) or (len(part) == 3 and part.isdigit())) and region is None:
            region = None if part == "xx" else part.upper()  # mBART's en_XX: XX is no region
        else:
            return None
    if script is None and region is not None:
        script = REGION_SCRIPTS.get((base, region))
    return Language(base=base, script=script, region=region)


def language_name(code: str) -> str | None:
    """The English name of a code, `Chinese (Traditional)` for `zh_TW`; None where the table does not know it."""
    language = parse_language(code)
    row = _table().rows.get(language.base) if language else None
    if language is None or row is None:
        return None
    script = language.script or (row.script if language.base == "zho" else None)
    if script is None or (script == row.script and language.base != "zho"):
        return row.names[0]
    return f"{row.names[0]} ({SCRIPT_NAMES.get(script, script)})"


def short_code(text: str) -> str | None:
    """The usual short code of a language name or code: `zh` for Chinese, `zh_Hant` for Traditional Chinese; None for
    what is no language of the table."""
    language = parse_language(text)
    row = _table().rows.get(language.base) if language else None
    if language is None or row is None:
        return None
    code = next((code for code in row.codes if len(code) == 2), language.base)
    return code if language.script in (None, row.script) else f"{code}_{language.script}"


def is_chinese(code: str) -> bool:
    """Whether text in this language is Chinese in Han characters: sentences are then joined without a space."""
    language = parse_language(code)
    return language is not None and language.base in CHINESE and (language.script or "Hani") in HAN_SCRIPTS


def usual_script(code: str) -> str | None:
    """The script (ISO 15924) that text in this language is written in; None for what the table does not know."""
    language = parse_language(code)
    return None if language is None else language.script or _default_script(language.base)


def _default_script(base: str) -> str | None:
    row = _table().rows.get(base)
    return row.script if row else None


def _same_language(requested: Language, candidate: Language) -> bool:
    """Language and script agree, where a missing script means the language's usual one."""
    if requested.base != candidate.base:
        return False
    default = _default_script(requested.base)
    return (requested.script or default) == (candidate.script or default)


class LanguageChoice:
    """The codes that a model knows, and which of them a request means; it never changes."""

    def __init__(self, codes: Collection[str]) -> None:
        self.codes = tuple(sorted(codes))
        self._known = frozenset(codes)
        self._folded = {_fold(code): code for code in reversed(self.codes)}
        self._by_base: dict[str, list[tuple[str, Language]]] = {}
        for code in self.codes:
            meaning = parse_language(code)
            if meaning is not None:
                self._by_base.setdefault(meaning.base, []).append((code, meaning))

    def resolve(self, requested: str, *, role: Literal["source", "target"]) -> str:
        """The code that `requested` means.

        The model's own spelling wins, then the code with the same language and script (one that names its script before
        one that does not, then the table's order). A request without a script also accepts the model's only code of
        that language, except for Chinese, where zh means Simplified. Raises UnknownLanguageError, which names the
        nearest.
        """
        if requested in self._known:
            return requested
        if len(requested) <= _LONGEST and (own := self._folded.get(_fold(requested))) is not None:
            return own
        language = parse_language(requested)
        if language is not None:
            related = self._by_base.get(language.base, [])
            same = [(code, meaning) for code, meaning in related if _same_language(language, meaning)]
            if same:
                return min(same, key=lambda pair: _preference(language, *pair))[0]
            if len(related) == 1 and language.script is None and language.base not in CHINESE:
                return related[0][0]
        raise UnknownLanguageError(_unknown_message(requested, self.codes, role))

    def means(self, requested: str, *, role: Literal["source", "target"] = "target") -> bool:
        """Whether `requested` is one of the codes."""
        try:
            self.resolve(requested, role=role)
        except UnknownLanguageError:
            return False
        return True


def resolve_language(requested: str, supported: Collection[str], *, role: Literal["source", "target"]) -> str:
    """`LanguageChoice.resolve` for a list that is asked once."""
    return LanguageChoice(supported).resolve(requested, role=role)


def _preference(requested: Language, code: str, meaning: Language) -> tuple[bool, bool, int, str]:
    """Sort key among codes of the same language and script: the smallest is taken."""
    row = _table().rows.get(meaning.base)
    spelling = _fold(code).split()[0]
    order = row.codes.index(spelling) if row and spelling in row.codes else len(code)
    return (meaning.region != requested.region, meaning.script is None, order, code)


def nearest_languages(requested: str, supported: Collection[str], *, count: int = 5) -> Sequence[str]:
    """The `count` members of `supported` nearest to `requested`: the same language first, then by spelling and name."""
    requested = requested[:_LONGEST]
    language = parse_language(requested)
    wanted = _spellings(requested)

    def distance(code: str) -> tuple[bool, float, str]:
        meaning = parse_language(code)
        alike = max(_likeness(a, b) for a in wanted for b in _spellings(code))
        return (not (language and meaning and language.base == meaning.base), -alike, code)

    return sorted(supported, key=distance)[:count]


@functools.lru_cache(maxsize=4096)
def _spellings(code: str) -> tuple[frozenset[str], ...]:
    """The letter pairs of the code and of each name of its language."""
    language = parse_language(code)
    row = _table().rows.get(language.base) if language else None
    return tuple(_letter_pairs(_fold(spelling)) for spelling in (code, *(row.names if row else ())))


def _letter_pairs(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset(padded[i : i + 2] for i in range(len(padded) - 1))


def _likeness(a: frozenset[str], b: frozenset[str]) -> float:
    """The share of common letter pairs, 0 to 1 (Dice): it finds misspellings, and 200 languages take a millisecond."""
    return 2 * len(a & b) / (len(a) + len(b))


def describe_nearest(requested: str, supported: Collection[str]) -> str:
    """The part of a message that tells what there is instead of `requested`; `supported` is not empty."""
    nearest = nearest_languages(requested, supported)
    shown = ", ".join(f"{code!r} ({name})" if (name := language_name(code)) else repr(code) for code in nearest)
    if len(nearest) == len(supported):
        return f"it has {shown}"
    return f"the nearest of its {len(supported)} are {shown}"


def _unknown_message(requested: str, supported: Collection[str], role: str) -> str:
    requested = requested if len(requested) <= _LONGEST else f"{requested[:_LONGEST]}…"
    if not supported:
        return f"{role} language {requested!r}: this model has no choice of {role} language; leave it out"
    return f"{role} language {requested!r} is not one of this model's: {describe_nearest(requested, supported)}"
