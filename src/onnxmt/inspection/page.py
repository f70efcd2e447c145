"""A page of facts: what `inspect` prints, the same for a bundle and for a checkpoint; pieces of text for its values."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from onnxmt.runtime.settings import GenerationSettings

_PIPE_WIDTH = 120


@dataclass
class Section:
    """Facts under a heading; a fact's value may be several lines, and an empty name continues the one above."""

    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, *values: str) -> None:
        """Add a fact with one value a line; a fact without values is left out."""
        self.facts += [(name if index == 0 else "", value) for index, value in enumerate(values)]


def page_text(heading: str, sections: Sequence[Section]) -> str:
    """Return the page: names in one column, values wrapped beside them to the width of the terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
    lines = [heading]
    for section in sections:
        if not section.facts:
            continue
        lines += ["", section.title]
        column = max(len(name) for name, _ in section.facts) + 4
        for name, value in section.facts:
            wrapped = textwrap.wrap(value, max(width - column, 30), break_long_words=False, break_on_hyphens=False) or [
                ""
            ]
            lines.append(f"  {name:<{column - 2}}{wrapped[0]}")
            lines += [" " * column + rest for rest in wrapped[1:]]
    return "\n".join(lines)


def add_settings(section: Section, settings: GenerationSettings) -> None:
    """Add what a person asks for first, and every setting that is not as transformers would have it anyway."""
    usual = GenerationSettings(decoder_start_token_id=settings.decoder_start_token_id).to_dict()
    always = ("num_beams", "max_length", "max_new_tokens", "decoder_start_token_id")
    for name, value in settings.to_dict().items():
        if name in always or usual.get(name) != value:
            text = json.dumps(value)
            section.add(name, text if len(text) <= 100 else f"{text[:97]}...")


def size_text(size: int) -> str:
    """Bytes in units of 1000, with three digits."""
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def type_name(dtype: str) -> str:
    """ONNX's `float` and `double` by the names that numpy uses."""
    return {"float": "float32", "double": "float64"}.get(dtype, dtype)


def shape_text(axes: Sequence[int | str | None]) -> str:
    """A shape as `[batch, 8, source, 64]`; an axis that is not known is a question mark."""
    return f"[{', '.join('?' if axis is None else str(axis) for axis in axes)}]"


def counted(count: int, noun: str) -> str:
    """`1 layer`, `6 layers`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(values: Sequence[str], *, most: int = 12) -> str:
    """Values with commas; of a long list the first ones and how many there are."""
    shown = ", ".join(values[:most])
    return f"{shown}, … ({len(values)} in all)" if len(values) > most else shown
