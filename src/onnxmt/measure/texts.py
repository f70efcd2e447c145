"""The texts that quality is measured on: sources, references and domains, from files or as they ship with onnxmt."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from onnxmt.errors import UsageError

SHIPPED = "shipped"
"""The name of the set that ships with onnxmt: English sentences with Chinese references over eight domains."""
THIRDS = ("short sources", "middle sources", "long sources")


@dataclass(frozen=True, kw_only=True)
class EvaluationSet:
    """Lines to translate and, where there are any, what they should become.

    `references` holds one tuple of lines for each reference, none where there is no reference. `domains` names the
    domain of each line, "" where it is not known. `origins` names the set that each line came from. Without `sources`
    the set can score a translation that exists, and nothing can be translated. `shipped` texts may be repeated in
    files that are handed on; a user's own may not. Raises UsageError where the counts differ.
    """

    name: str
    sources: tuple[str, ...] | None
    references: tuple[tuple[str, ...], ...] = ()
    domains: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    source_language: str | None = None
    target_language: str | None = None
    shipped: bool = False

    def __post_init__(self) -> None:
        columns = [*([] if self.sources is None else [self.sources]), *self.references]
        if not columns or not columns[0]:
            raise UsageError(f"the evaluation set {self.name} holds no line")
        lines = len(columns[0])
        object.__setattr__(self, "domains", self.domains or ("",) * lines)
        object.__setattr__(self, "origins", self.origins or (self.name,) * lines)
        counts = [len(column) for column in (*columns, self.domains, self.origins)]
        if set(counts) != {lines}:
            raise UsageError(f"the columns of {self.name} have {', '.join(map(str, counts))} lines: they must be equal")

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return len(self.domains)

    @property
    def sha256(self) -> str:
        """Lower-case hexadecimal SHA-256 of sources and references, which says whether two results are comparable."""
        digest = hashlib.sha256()
        for column in (self.sources or (), *self.references):
            digest.update("".join(f"{line}\n" for line in column).encode("utf-8", "surrogatepass") + b"\0")
        return digest.hexdigest()

    def swapped(self) -> EvaluationSet:
        """Return the set in the other direction: its one reference becomes the source."""
        if self.sources is None or len(self.references) != 1:
            raise UsageError(
                f"the evaluation set {self.name} cannot be turned round: it needs sources and one reference"
            )
        return EvaluationSet(
            name=self.name,
            sources=self.references[0],
            references=(self.sources,),
            domains=self.domains,
            origins=self.origins,
            source_language=self.target_language,
            target_language=self.source_language,
            shipped=self.shipped,
        )

    def without_references(self) -> EvaluationSet:
        """Return the sources alone, into a language that is not known."""
        return EvaluationSet(
            name=self.name,
            sources=self.sources,
            domains=self.domains,
            origins=self.origins,
            source_language=self.source_language,
            shipped=self.shipped,
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """Lines of a set that are scored together, by index: all of them, one set's, one domain's, or a third by length."""

    kind: Literal["all", "set", "domain", "third"]
    name: str
    lines: tuple[int, ...]


def parts_of(texts: EvaluationSet) -> tuple[Part, ...]:
    """Return the whole first, then sets and domains where there are several, then thirds of source length.

    Thirds are cut by characters of the source, equal lengths in file order; fewer than three lines have none.
    """
    parts = [Part(kind="all", name="all", lines=tuple(range(texts.lines)))]
    parts += _named("set", texts.origins)
    parts += _named("domain", texts.domains)
    if texts.sources is not None and texts.lines >= len(THIRDS):
        sources = texts.sources
        order = sorted(range(texts.lines), key=lambda line: len(sources[line]))
        cuts = [number * texts.lines // len(THIRDS) for number in range(len(THIRDS) + 1)]
        parts += [
            Part(kind="third", name=name, lines=tuple(sorted(order[first:last])))
            for name, first, last in zip(THIRDS, cuts, cuts[1:], strict=False)
        ]
    return tuple(parts)


def _named(kind: Literal["set", "domain"], labels: Sequence[str]) -> list[Part]:
    names = list(dict.fromkeys(label for label in labels if label))
    if len(names) < 2 and (kind == "set" or "" in labels or not names):
        return []
    return [
        Part(kind=kind, name=name, lines=tuple(i for i, label in enumerate(labels) if label == name)) for name in names
    ]


def shipped_texts() -> EvaluationSet:
    """Return the set that ships with onnxmt: domain, English sentence, Chinese reference."""
    text = resources.files("onnxmt.measure").joinpath("data", "evaluation.tsv").read_text(encoding="utf-8")
    return parse_table(text, name=SHIPPED, source_language="en", target_language="zh", shipped=True)


def named_texts(name: str) -> EvaluationSet:
    """Return the set `name`: "shipped", a .tsv file, or a folder that holds src.* and ref* files, one line a segment.

    Raises UsageError where there is none, or where it cannot be read as one.
    """
    path = Path(name)
    if path.is_dir():
        sources = sorted(path.glob("src.*"))
        if len(sources) != 1:
            raise UsageError(f"the folder {name} holds {len(sources)} files src.*; an evaluation set has one")
        return read_parallel(sources[0], sorted(path.glob("ref*")), name=path.resolve().name)
    if path.is_file():
        return read_table(path)
    if name == SHIPPED:
        return shipped_texts()
    raise UsageError(
        f"there is no evaluation set {name!r}: name {SHIPPED}, a file of DOMAIN, tab, SOURCE, tab, REFERENCE lines, "
        "or a folder with src.* and ref* files"
    )


def read_table(path: Path, *, source_language: str | None = None, target_language: str | None = None) -> EvaluationSet:
    """Read a file of DOMAIN, tab, SOURCE, tab, REFERENCE lines (or all without REFERENCE); raises UsageError."""
    return parse_table(
        "\n".join(read_lines(path)), name=path.name, source_language=source_language, target_language=target_language
    )


def parse_table(
    text: str,
    *,
    name: str,
    source_language: str | None = None,
    target_language: str | None = None,
    shipped: bool = False,
) -> EvaluationSet:
    """Read lines of DOMAIN, SOURCE and any number of references between tabs; blank lines are skipped.

    Raises UsageError that lists every bad line.
    """
    rows, bad = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        rows.append(cells)
        if len(cells) < 2 or len(cells) != len(rows[0]) or not all(cells):
            bad.append(str(number))
    if bad:
        raise UsageError(
            f"{name}: line(s) {', '.join(bad[:20])} are not DOMAIN, tab, SOURCE and (on every line or on none) tab, "
            "REFERENCE"
        )
    if not rows:
        raise UsageError(f"the evaluation set {name} holds no line")
    domains, sources, *references = (tuple(column) for column in zip(*rows, strict=True))
    return EvaluationSet(
        name=name,
        sources=sources,
        references=tuple(references),
        domains=domains,
        source_language=source_language,
        target_language=target_language,
        shipped=shipped,
    )


def read_parallel(source: Path | None, references: Sequence[Path], *, name: str | None = None) -> EvaluationSet:
    """Read a source file and reference files, line n of each belonging together; raises UsageError, also where the
    numbers of lines differ (both are named)."""
    columns = {path: read_lines(path) for path in ([] if source is None else [source]) + list(references)}
    require_equal_lines({str(path): len(lines) for path, lines in columns.items()})
    first = next(iter(columns), None)
    if first is None:
        raise UsageError("an evaluation set needs a source file, a reference file, or both")
    return EvaluationSet(
        name=name or first.name,
        sources=None if source is None else columns[source],
        references=tuple(columns[path] for path in references),
    )


def joined(sets: Sequence[EvaluationSet]) -> EvaluationSet:
    """Return several sets as one, each line knowing where it came from; raises UsageError where they do not fit."""
    if len(sets) == 1:
        return sets[0]
    counts = {texts.name: len(texts.references) for texts in sets}
    if len(counts) < len(sets):
        raise UsageError(f"the evaluation sets {', '.join(texts.name for texts in sets)} need different names")
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UsageError(f"evaluation sets with different numbers of references cannot be scored together: {shown}")
    languages = [{getattr(texts, side) for texts in sets} for side in ("source_language", "target_language")]
    source, target = (next(iter(found)) if len(found) == 1 else None for found in languages)
    return EvaluationSet(
        name=" + ".join(counts),
        sources=tuple(line for texts in sets for line in texts.sources or ()),
        references=tuple(
            tuple(line for texts in sets for line in texts.references[number])
            for number in range(len(sets[0].references))
        ),
        domains=tuple(domain for texts in sets for domain in texts.domains),
        origins=tuple(origin for texts in sets for origin in texts.origins),
        source_language=source,
        target_language=target,
        shipped=all(texts.shipped for texts in sets),
    )


def read_lines(path: Path) -> tuple[str, ...]:
    """Return a file's lines without their ends; raises UsageError where it is not readable UTF-8 text.

    Only \\n and \\r\\n end a line: str.splitlines would also cut at U+2028 and the like, and shift all lines after it.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return tuple(lines[:-1] if lines[-1] == "" else lines)


def require_equal_lines(counts: dict[str, int]) -> None:
    """Raise UsageError that names every file and its number of lines unless all have the same."""
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} has {count:,}" for name, count in counts.items())
        raise UsageError(f"line n of one file belongs to line n of the others, and their numbers differ: {shown} lines")
