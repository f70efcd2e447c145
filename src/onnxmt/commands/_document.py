"""`onnxmt translate --format`: a whole file in, the same file with its prose translated out."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxmt.errors import LimitMissedError, OutputError, UsageError

if TYPE_CHECKING:
    from onnxmt.commands._console import Meter
    from onnxmt.commands._journal import JournalKey
    from onnxmt.runtime.documents import DocumentTranslation
    from onnxmt.runtime.translation import TranslateOptions
    from onnxmt.runtime.translator import Translator
    from onnxmt.text.formats.document import DocumentOptions

FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Translate the prose of a whole file and leave the rest: text, markdown, html, srt, po or json.  "
        "[default: by the ending of FILE; others line by line]",
    ),
]
JsonPaths = Annotated[
    list[str] | None,
    typer.Option("--json-path", metavar="PATH", help="JSON: only values at this path, as messages.*.text; repeatable."),
]
Meta = Annotated[bool, typer.Option("--meta", help="HTML: also the description and title for search engines.")]
Attributes = Annotated[
    bool, typer.Option("--attributes/--no-attributes", help="HTML: alt, title, placeholder and aria-label as well.")
]
Redo = Annotated[bool, typer.Option("--redo", help="PO: also entries that have a translation.")]
Fuzzy = Annotated[bool, typer.Option("--fuzzy/--no-fuzzy", help="PO: mark what was translated as fuzzy.")]


@dataclass(frozen=True, kw_only=True)
class DocumentCall:
    """What the command line says of documents."""

    files: Sequence[Path]
    output: Path | None
    format: str | None
    options: TranslateOptions
    document: DocumentOptions


def wants_documents(call: DocumentCall) -> bool:
    """Whether the files are documents: a format is named, or every name's ending tells one."""
    from onnxmt.text.formats.registry import format_of_name

    if call.format is not None:
        return True
    return bool(call.files) and all(format_of_name(path) is not None for path in call.files)


def refuse_idle_flags(call: DocumentCall, *, why: str = "") -> None:
    """An option without effect is a mistake that the user should hear of; `why` the files are no documents at all."""
    from onnxmt.text.formats.registry import format_of_name

    formats = set() if why else {call.format or format_of_name(path) for path in call.files}
    document = call.document
    given = {
        "--json-path": ("json", bool(document.json_paths)),
        "--meta": ("html", document.meta),
        "--no-attributes": ("html", not document.attributes),
        "--redo": ("po", document.redo),
        "--no-fuzzy": ("po", not document.fuzzy),
    }
    idle = [(flag, name) for flag, (name, is_given) in given.items() if is_given and name not in formats]
    if why and call.format is not None:
        raise UsageError(f"--format has no effect {why}")
    if idle:
        flag, name = idle[0]
        raise UsageError(f"{flag} is for {name} documents: it has no effect {why or 'on these'}")


def check_documents(call: DocumentCall) -> None:
    """Refuse what cannot be done, before the model is loaded. Raises UsageError, OutputError."""
    from onnxmt.text.formats.document import FORMATS

    if call.format is not None and call.format not in FORMATS:
        raise UsageError(f"--format {call.format} is not known; formats are {', '.join(FORMATS)}")
    if not call.files:
        raise UsageError("--format needs a file: -f FILE (-f - is standard input)")
    refuse_idle_flags(call)
    if call.options.alternatives:
        raise UsageError("--alternatives is for lines: a document has one translation")
    if len(call.files) > 1:
        if call.output is None or not call.output.is_dir():
            found = "no -o" if call.output is None else f"-o {call.output}"
            raise UsageError(f"{len(call.files)} documents need a folder that exists to be written to; found {found}")
        names = [path.name for path in call.files]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise OutputError(f"several documents would be written to {call.output / twice[0]}: give them one by one")
    elif call.output is not None and call.output.is_dir() and str(call.files[0]) == "-":
        raise UsageError(f"the output {call.output} is a folder; name a file")


def translate_documents(call: DocumentCall, translator: Translator) -> None:
    """Translate each file. Raises LimitMissedError when `strict` refuses one, after the others are done."""
    refused = [path for path in call.files if not _translate_file(path, call, translator)]
    if refused:
        raise LimitMissedError(f"--strict: {', '.join(map(str, refused))} had warnings and was not written")


def _translate_file(path: Path, call: DocumentCall, translator: Translator) -> bool:
    """Translate one file; False when `strict` refuses it."""
    from onnxmt.commands._console import byte_progress
    from onnxmt.commands._journal import DocumentJournal
    from onnxmt.commands._sink import Sink
    from onnxmt.runtime.documents import translate_document
    from onnxmt.text.formats.document import DocumentError
    from onnxmt.text.formats.registry import format_of_name, read_document

    name = "standard input" if str(path) == "-" else str(path)
    text = _read(path, name)
    kind = call.format or format_of_name(path) or "text"
    try:
        count = len({unit.text for unit in read_document(text, kind, call.document).units})
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error
    output = call.output / path.name if call.output is not None and call.output.is_dir() else call.output
    options = dataclasses.replace(call.options, strict=False)
    kept = output is not None and str(output) != "-" and (not output.exists() or output.is_file())
    if kept and output is not None and output.exists() and not os.access(output, os.W_OK):
        raise OutputError(f"the output {output} is not writable")
    with (
        DocumentJournal(output, _key(text, kind, call, translator)) if kept and output else nullcontext() as journal,
        byte_progress(f"translate {path.name}", count) as progress,
    ):
        if call.format is None:
            progress.print(f"onnxmt: {name} is translated as {kind} (--format text: as plain text)")
        if journal is not None and journal.note is not None:
            progress.print(f"onnxmt: {output}: {journal.note}")
        result = translate_document(
            translator,
            text,
            format=kind,
            options=options,
            document=call.document,
            journal=journal,
            progress=_meter(progress),
        )
        _tell(result, name, progress)
        if call.options.strict and result.warnings:
            return False
        with Sink(output) as sink:
            sink.write(result.text.encode("utf-8"))
        if journal is not None:
            journal.finish()
    return True


def _meter(progress: Meter) -> Callable[[int, int], None]:
    done = 0

    def tell(now: int, _total: int) -> None:
        nonlocal done
        progress.advance(now - done)
        done = now

    return tell


def _tell(result: DocumentTranslation, name: str, progress: Meter) -> None:
    for warning in result.warnings:
        where = f", {warning.where}" if warning.where else ""
        progress.print(f"onnxmt: warning: {name}, line {warning.line}{where}: {warning.message}")


def _key(text: str, kind: str, call: DocumentCall, translator: Translator) -> JournalKey:
    from importlib.metadata import version

    from onnxmt.commands._journal import journal_key

    settings = {
        "onnxmt": version("onnxmt"),
        "format": kind,
        "translate": dataclasses.replace(call.options, strict=False),
        "document": call.document,
    }
    files = {entry.path: entry.sha256 for entry in translator.bundle.manifest.files}
    return journal_key(files=files, settings=settings, document=text)


def _read(path: Path, name: str) -> str:
    """A file's text, every byte of it. Raises UsageError."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: byte {error.start + 1}, 0x{data[error.start]:02x}, is not UTF-8 ({error.reason}): convert the "
            "file first, as in: iconv -f GB18030 -t UTF-8"
        ) from error
