"""Real documents that come with the packages of the test environment, and subtitles written from texts among them."""

from __future__ import annotations

import functools
import random
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

from onnxmt.text.formats.document import Document, DocumentOptions
from onnxmt.text.formats.registry import read_document

SITE = Path(sysconfig.get_paths()["purelib"])
FORMATS = ("markdown", "html", "srt", "po", "json")
EACH = 20
_SIZES = range(600, 80_000)


@dataclass(frozen=True)
class Real:
    """A real document: a name for test ids, its format, its text, and how it is read."""

    name: str
    format: str
    text: str
    options: DocumentOptions = field(default_factory=DocumentOptions)

    @functools.cached_property
    def document(self) -> Document:
        return read_document(self.text, self.format, self.options)


@functools.cache
def real_documents(name: str) -> tuple[Real, ...]:
    """Documents of a format that have something to translate: those with the most units, 26 of them at most."""
    found = {real.name: real for real in _FOUND[name]() if len(real.text) in _SIZES}
    usable = [real for real in found.values() if real.document.units]
    usable.sort(key=lambda real: (-min(len(real.document.units), 120), real.name))
    return tuple(usable[:26])


def _files(pattern: str, folder: str = "") -> Iterator[tuple[str, str]]:
    for path in sorted((SITE / folder).rglob(pattern)):
        name = str(path.relative_to(SITE))
        if not name.startswith("onnxmt"):
            yield name, path.read_bytes().decode("utf-8", errors="surrogateescape")


def _markdown() -> Iterator[Real]:
    for distribution in distributions():
        metadata = distribution.metadata
        readme = metadata.get_payload() or metadata["Description"] or ""
        if "markdown" in (metadata["Description-Content-Type"] or "") and metadata["Name"] != "onnxmt":
            yield Real(f"{metadata['Name']}.md", "markdown", readme)
    for name, text in _files("*.md"):
        yield Real(name, "markdown", text)


def _html() -> Iterator[Real]:
    for name, text in _files("*.html"):
        yield Real(name, "html", text, DocumentOptions(meta=True))


def _pages() -> Iterator[Real]:
    """READMEs as web pages: templates have few whole sentences."""
    import marko

    for real in real_documents("markdown")[8:16]:
        body = marko.Markdown(extensions=["gfm"]).convert(real.text)
        yield Real(f"{real.name}.html", "html", f"<!DOCTYPE html>\n<title>Some page</title>\n<body>\n{body}</body>\n")


def _po() -> Iterator[Real]:
    """Catalogues without translations (en), and some with translations, fuzzy and obsolete ones, done again."""
    for language in ("en", "zh_Hans", "uk"):
        for name, text in _files("*.po", "django"):
            if f"/{language}/" in name:
                yield Real(name, "po", text, DocumentOptions(redo=language != "en"))


def _json() -> Iterator[Real]:
    for name, text in _files("*.json"):
        yield Real(name, "json", text)


def _srt() -> Iterator[Real]:
    """Nobody ships subtitles: these are the sentences of licences and READMEs, in the forms in which subtitles come."""
    sentences = re.findall(r"[A-Z][a-z]+(?: [\w',-]+){3,24}[.?!]", " ".join(real.text for real in _markdown()))
    for number in range(24):
        yield Real(f"{number}.srt", "srt", _subtitles(sentences, number))


def _subtitles(sentences: list[str], number: int) -> str:
    draw = random.Random(number)
    lines: list[str] = []
    for cue in range(draw.randint(15, 60)):
        if number % 6 != 5 or cue % 3:  # some lack numbers
            lines.append(f"{cue + 1}")
        start = f"00:{cue:02d}:01{',.'[number % 2]}5{cue:02d}"
        place = " X1:100 X2:200 Y1:050 Y2:075" if number % 7 == 3 else ""
        lines.append(f"{start} --> 00:{cue:02d}:04{',.'[number % 2]}000{place}")
        text = draw.choice(sentences)
        words = text.split()
        match draw.randint(0, 8):
            case 0:
                lines += [f"- {text}", f"- {draw.choice(sentences)}"]
            case 1:
                lines.append(f"<i>{text}</i>")
            case 2:
                lines += [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]
            case 3:
                lines.append("{\\an8}" + text)
            case 4:
                lines.append(f'{words[0]} <font color="#ffff00">{words[1]}</font> {" ".join(words[2:])}')
            case 5:
                lines.append("♪ " + text + " ♪")
            case 6:
                lines.append("[1990]")
            case 7:
                lines += ["<i>" + " ".join(words[:3]), " ".join(words[3:]) + "</i>"]
            case _:
                lines.append(text)
        lines += [""] * draw.choice((1, 1, 1, 2))
    text = ("\r\n" if number % 3 == 1 else "\n").join(lines)
    return ("\ufeff" if number % 4 == 2 else "") + text


_FOUND = {"markdown": _markdown, "html": _html, "pages": _pages, "po": _po, "json": _json, "srt": _srt}
