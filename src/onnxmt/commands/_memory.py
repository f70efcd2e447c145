"""The options of a command that keeps its translations, or is told terms: --cache, --cache-file, --glossary."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxmt.runtime.translation_memory import TranslationMemory
    from onnxmt.text.glossary import Glossary

__all__ = ["Cache", "CacheFile", "CacheLimit", "GlossaryFile", "chosen_glossary", "opened_memory"]

GlossaryFile = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        metavar="FILE",
        help="Terms, a line each: SOURCE, tab, TARGET, and perhaps a tab and case, nocase or forms (docs/glossary.md).",
    ),
]
Cache = Annotated[
    bool,
    typer.Option(
        "--cache",
        help="Keep translations, and look up those that are kept, in onnxmt/translations.sqlite of the user's cache "
        "folder ($XDG_CACHE_HOME, else ~/.cache).",
    ),
]
CacheFile = Annotated[
    Path | None, typer.Option("--cache-file", metavar="FILE", help="As --cache, in this file.", show_default=False)
]
CacheLimit = Annotated[
    str | None,
    typer.Option("--cache-limit", metavar="SIZE", help="The most that is kept, such as 200MB.  [default: 1GB]"),
]


def chosen_glossary(path: Path | None) -> Glossary | None:
    """Read --glossary. Raises GlossaryError."""
    if path is None:
        return None
    from onnxmt.text.glossary_file import read_glossary

    return read_glossary(path)


@contextmanager
def opened_memory(*, cache: bool, file: Path | None, limit: str | None) -> Iterator[TranslationMemory | None]:
    """The translation memory that the options ask for, open in the block. Raises TranslationMemoryError, UsageError."""
    if not cache and file is None:
        if limit is not None:
            from onnxmt.errors import UsageError

            raise UsageError("--cache-limit has no effect without --cache or --cache-file")
        yield None
        return
    from onnxmt.commands._console import warn
    from onnxmt.runtime.memory import parse_bytes
    from onnxmt.runtime.translation_memory import DEFAULT_BYTES, TranslationMemory

    size = DEFAULT_BYTES if limit is None else parse_bytes(limit)
    with TranslationMemory.open(file, limit=size, trouble=warn) as memory:
        yield memory
