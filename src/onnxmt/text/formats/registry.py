"""Which formats there are, and how a file's name tells its format."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import PurePath

from onnxmt.errors import UsageError
from onnxmt.text.formats.document import FORMATS, Document, DocumentOptions, Format

__all__ = ["format_of_name", "read_document"]

_SUFFIXES: dict[str, Format] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".srt": "srt",
    ".po": "po",
    ".pot": "po",
    ".json": "json",
}
_BOM = "\ufeff"


def format_of_name(name: str | PurePath) -> Format | None:
    """The format that a file's name tells by its ending; None for any other file."""
    return _SUFFIXES.get(PurePath(name).suffix.lower())


def read_document(text: str, format: str, options: DocumentOptions | None = None) -> Document:  # noqa: A002 - the option's name
    """Read a document. Raises UsageError for an unknown format, DocumentError for a text that is not of it.

    A byte order mark in front belongs to the file and stays.
    """
    read = _reader(format)
    if not text.startswith(_BOM):
        return read(text, options)
    document = read(text.removeprefix(_BOM), options)
    structure = document.structure
    return dataclasses.replace(
        document, pieces=(_BOM, *document.pieces), structure=lambda text: structure(text.removeprefix(_BOM))
    )


def _reader(name: str) -> Callable[[str, DocumentOptions | None], Document]:
    """One reader is imported, not all: Markdown's takes a while."""
    match name:
        case "markdown":
            from onnxmt.text.formats.markdown import read_markdown

            return read_markdown
        case "html":
            from onnxmt.text.formats.html import read_html

            return read_html
        case "srt":
            from onnxmt.text.formats.srt import read_srt

            return read_srt
        case "po":
            from onnxmt.text.formats.po import read_po

            return read_po
        case "json":
            from onnxmt.text.formats.json import read_json

            return read_json
        case "text":
            from onnxmt.text.formats.plain import read_text

            return read_text
        case _:
            raise UsageError(f"the format {name!r} is not known; formats are {', '.join(FORMATS)}")
