"""Mixed real text (READMEs, documentation, licences of the packages at hand, with subtitles and logs) goes through.

100 KB here; ONNXMT_TEXT_BYTES=1000000 takes a megabyte, and -s prints time and memory.
"""

from __future__ import annotations

import os
import random
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxmt import Translator
from onnxmt.runtime.memory import resident_bytes
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.text.spans import find_protected

BYTES = int(os.environ.get("ONNXMT_TEXT_BYTES", "100000"))
PATTERNS = ("*.dist-info/METADATA", "*.dist-info/licenses/*", "*/**/*.md", "*/**/*.rst", "*/**/README*", "*/**/*.txt")
EXCERPT = 3_000
LINES = [
    "Where are you going?",
    "I'm on my way home.",
    "<i>It rained all night.</i>",
    "- No!\n- Yes, at 9:30.",
    "Wait…",
]
EVENTS = ["connection from {} closed", "GET /static/{}.css 200 in 12 ms", "WARNING: disk is 93% full on {}", "user {}@example.org signed in"]  # fmt: skip


def real_texts(size: int) -> Iterator[str]:
    """Excerpts of whole paragraphs, from many packages, until there are `size` bytes; each 20th is subtitles or a log."""
    packages = Path(sysconfig.get_paths()["purelib"])
    files = sorted({path for pattern in PATTERNS for path in packages.glob(pattern) if path.is_file()})
    generator = random.Random(6)
    generator.shuffle(files)
    made, number = 0, 0
    for start in range(0, 1_000_000, EXCERPT):
        for path in files:
            if made >= size:
                return
            if path.stat().st_size <= start or path.stat().st_size > 1_000_000:
                continue
            try:
                text = path.read_bytes().decode("utf-8")[start : start + EXCERPT]
            except UnicodeDecodeError:
                continue
            number += 1
            if number % 20 == 0:
                text = subtitles(generator) if number % 40 else log(generator)
            made += len(text.encode())
            yield text


def subtitles(generator: random.Random) -> str:
    return "\n".join(
        f"{i}\n00:00:{i:02},500 --> 00:00:{i + 1:02},000\n{generator.choice(LINES)}\n" for i in range(1, 40)
    )


def log(generator: random.Random) -> str:
    lines = [f"2026-03-0{i % 9 + 1} 09:12:{i:02} {generator.choice(EVENTS).format(f'host{i}')}" for i in range(40)]
    return "\r\n".join(lines) + "\r\n"


@pytest.mark.slow
def test_mixed_real_text_goes_through():
    began, spans, lines, warned, resident = time.monotonic(), 0, 0, 0, [0]
    texts = list(real_texts(BYTES))
    assert sum(len(text.encode()) for text in texts) >= BYTES
    options = TranslateOptions(beams=1)
    with Translator.load(options=RuntimeOptions(threads=2)) as translator:
        for number, found in enumerate(translator.translate_stream(texts, options=options)):
            source = texts[number]
            assert found.source == source
            assert [line[len(line.rstrip()) :] for line in found.text.splitlines(keepends=True)] == [
                line[len(line.rstrip()) :] for line in source.splitlines(keepends=True)
            ]
            lines += source.count("\n")
            warned += len(found.warnings)
            place = 0
            for segment in found.segments:
                place = found.text.index(" ".join(segment.text.split("\n")), place)
            for span in find_protected(source):
                spans += 1
                inside = [one for one in found.segments if one.start <= span.start and span.end <= one.end]
                if not inside:
                    assert span.text in found.text, span
                for one in inside:
                    assert one.text.count(span.text) == one.source.count(span.text), (one.source, one.text)
            if number % max(1, len(texts) // 10) == 0:
                resident.append(resident_bytes())
    assert spans > BYTES / 500
    assert max(resident[-3:]) - max(resident[2:5]) < 60_000_000
    print(
        f"{sum(len(text.encode()) for text in texts)} bytes in {len(texts)} texts, {lines} lines, {spans} spans, "
        f"{warned} warnings, {time.monotonic() - began:.0f} s, MB resident: {[round(one / 1e6) for one in resident[1:]]}"
    )
