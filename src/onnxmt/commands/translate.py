"""`onnxmt translate`: lines in, lines out."""

from __future__ import annotations

import json
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxmt.commands._document import Attributes, FormatOption, Fuzzy, JsonPaths, Meta, Redo
from onnxmt.commands._memory import Cache, CacheFile, CacheLimit, GlossaryFile, chosen_glossary, opened_memory
from onnxmt.commands._options import Provider
from onnxmt.commands._text_flags import (
    Casing,
    Checks,
    ChineseForm,
    EndMarks,
    LatinSpacing,
    NormalizePunctuation,
    Overlap,
    Protect,
    Retry,
    Strict,
    TextFlags,
    Traditional,
    Unwrap,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxmt.commands._console import Meter
    from onnxmt.commands._lines import Line, Source
    from onnxmt.runtime.translation import TranslateOptions, Translation
    from onnxmt.runtime.translator import Translator


def translate(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to translate.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="BUNDLE", help="The bundle to use.  [default: the packaged demo model]"),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("-f", "--file", metavar="FILE", help="Translate a file's lines; may be repeated; - is stdin."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write there instead of standard output.")
    ] = None,
    beams: Annotated[int | None, typer.Option(min=1, metavar="N", help="Beams to search with; 1 is greedy.")] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The longest output, in tokens.")
    ] = None,
    split: Annotated[
        bool, typer.Option("--split/--no-split", help="Cut lines into sentences, or feed each exactly as it is.")
    ] = True,
    source: Annotated[str | None, typer.Option(metavar="LANG", help="Source language, such as en.")] = None,
    target: Annotated[str | None, typer.Option(metavar="LANG", help="Target language, such as zh.")] = None,
    alternatives: Annotated[
        int, typer.Option(min=0, metavar="N", help="Also give the N next best, after tabs (with --json: listed).")
    ] = 0,
    sampling: Annotated[bool, typer.Option("--sampling", help="Draw tokens at random instead of searching.")] = False,
    temperature: Annotated[
        float | None, typer.Option(metavar="X", help="Sampling: below 1 keeps to likelier tokens, above 1 varies more.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Sampling: from the N likeliest; 0 all.")] = None,
    top_p: Annotated[float | None, typer.Option(metavar="P", help="Sampling: from the likeliest P of 1.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", help="Sampling: the same draws again.")] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Threads to compute with.  [default: what affinity and quota allow]"),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="latency|throughput",
            help="All threads on one batch: the first answer soonest. Or a batch for each thread: most lines a second.",
        ),
    ] = "latency",
    provider: Provider = "cpu",
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="Translate one large .txt, .jsonl or .parquet file on a Ray cluster: of this machine, or that at the "
            "address (HOST:PORT, auto) that may follow. Begun again, it goes on where it was.",
        ),
    ] = False,
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="--ray: the field or column to translate.  [default: text]")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="--ray: workers, each with --threads CPUs.  [default: as many as fit]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    format: FormatOption = None,  # noqa: A002 - the option's name
    json_path: JsonPaths = None,
    meta: Meta = False,
    attributes: Attributes = True,
    redo: Redo = False,
    fuzzy: Fuzzy = True,
    strict: Strict = False,
    overlap: Overlap = 0,
    unwrap: Unwrap = False,
    normalize_punctuation: NormalizePunctuation = False,
    casing: Casing = True,
    protect: Protect = None,
    chinese_form: ChineseForm = None,
    traditional: Traditional = None,
    latin_spacing: LatinSpacing = None,
    end_marks: EndMarks = True,
    checks: Checks = True,
    retry: Retry = True,
    glossary: GlossaryFile = None,
    cache: Cache = False,
    cache_file: CacheFile = None,
    cache_limit: CacheLimit = None,
) -> None:
    """Translate texts, files, or standard input, line by line.

    Each line is one text; its translation is one line of output, in the same order, as soon as it is done. Blank lines,
    CRLF and a missing last newline stay as they are. Input and output are UTF-8. Warnings go to standard error.

    \b
    With --json a line is {"source", "text", "score", "tokens", "finished", "warnings"},
    and "alternatives" and "segments" where there are any. A line that cannot be
    translated has "error"; the rest continue, and the exit code is 1.

    Protected text (URLs, code, tags, placeholders, and what --protect matches) comes out byte for byte; Chinese output
    is in Chinese form; what the checks doubt is warned about. --no-split turns all of that off. With --unwrap and
    --overlap a paragraph is one text.

    --glossary makes terms become what they must; one that is missed is warned about. With --cache a text that was
    translated before, by the same model in the same way, is looked up.

    A file whose name ends in .md, .html, .srt, .po or .json, and any with --format, is translated as a whole: its
    prose, and nothing else. With -o FILE, a run that was killed goes on where it was.

    \b
    Examples:
      onnxmt translate -f README.md -o README.zh.md
      onnxmt translate "Good morning." "Where is the nearest station?"
      onnxmt translate --model ./en-zh --beams 4 -f book.txt -o book.zh.txt
      tail -f news.txt | onnxmt translate --json
      onnxmt translate big.jsonl --field body -o big.zh.jsonl --ray
    """
    from onnxmt.commands._console import byte_progress
    from onnxmt.commands._document import (
        DocumentCall,
        check_documents,
        refuse_idle_flags,
        translate_documents,
        wants_documents,
    )
    from onnxmt.commands._lines import Arguments, Files, standard_input
    from onnxmt.commands._paragraphs import Paragraphs
    from onnxmt.commands._sink import Sink
    from onnxmt.errors import UsageError
    from onnxmt.runtime.session import options_for
    from onnxmt.runtime.translation import TranslateOptions
    from onnxmt.runtime.translator import Translator
    from onnxmt.text.formats.document import DocumentOptions

    if not ray and (field is not None or workers is not None):
        raise UsageError(f"--{'field' if field is not None else 'workers'} has no effect without --ray")
    if text and file and not ray:
        raise UsageError("give texts or files (-f), not both")
    flags = TextFlags(
        strict=strict,
        overlap=overlap,
        unwrap=unwrap,
        normalize_punctuation=normalize_punctuation,
        casing=casing,
        protect=tuple(protect or ()),
        chinese_form=chinese_form,
        traditional=traditional,
        latin_spacing=latin_spacing,
        end_marks=end_marks,
        checks=checks,
        retry=retry,
    )
    options = TranslateOptions(
        beams=beams,
        max_new_tokens=max_new_tokens,
        split=split,
        source=source,
        target=target,
        alternatives=alternatives,
        sample=True if sampling else None,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        glossary=chosen_glossary(glossary),
        **flags.settings(split=split),
        scores=as_json,
    )
    document = DocumentCall(
        files=file or [],
        output=output,
        format=format,
        options=options,
        document=DocumentOptions(
            attributes=attributes, meta=meta, json_paths=tuple(json_path or ()), redo=redo, fuzzy=fuzzy
        ),
    )
    _refuse_overwriting(file or [], output)
    if ray:
        refuse_idle_flags(document, why="with --ray")
        if cache or cache_file is not None:
            raise UsageError("--cache and --cache-file have no effect with --ray: finished shards are kept anyway")
        from onnxmt.commands._ray import RayCall, translate_with_ray

        call = RayCall(
            arguments=text or [],
            files=file or [],
            output=output,
            model=model,
            field=field,
            options=options,
            threads=threads,
            workers=workers,
            provider=provider,
            as_json=as_json,
        )
        translate_with_ray(call)
        return
    if not as_json and wants_documents(document):
        check_documents(document)
        with (
            opened_memory(cache=cache, file=cache_file, limit=cache_limit) as memory,
            Translator.load(
                model, options=options_for(mode, threads=threads, provider=provider), memory=memory
            ) as translator,
        ):
            _refuse_idle_options(options, translator)
            flags.refuse_idle(options, translator)
            translate_documents(document, translator)
        return
    refuse_idle_flags(document, why="with --json" if as_json else "on lines")
    lines: Source = Arguments(text) if text else Files(file) if file else standard_input()
    lines = Paragraphs(lines) if flags.joins_lines else lines
    watched = output is not None or not sys.stdout.isatty()  # else the lines themselves show how far it is
    with (
        Sink(output) as sink,
        opened_memory(cache=cache, file=cache_file, limit=cache_limit) as memory,
        Translator.load(
            model, options=options_for(mode, threads=threads, provider=provider), memory=memory
        ) as translator,
        byte_progress("translate", lines.size if watched else None) as progress,
    ):
        _refuse_idle_options(options, translator)
        flags.refuse_idle(options, translator)
        failed = 0
        for line, translation in _translated(lines, translator, options):
            failed += translation.error is not None
            sink.write(_json_line(translation) if as_json else _text_line(line, translation))
            progress.advance(line.bytes)
            if not as_json:
                _tell(line, translation, progress)
    if failed:
        raise typer.Exit(1)


def _refuse_overwriting(files: list[Path], output: Path | None) -> None:
    """The source text would be lost."""
    from onnxmt.errors import UsageError

    if output is None or not output.is_file():
        return
    for path in files:
        if path.is_file() and path.samefile(output):
            raise UsageError(f"the output {output} is the input {path}, which would be lost: name another file")


def _translated(lines: Source, translator: Translator, options: TranslateOptions) -> Iterator[tuple[Line, Translation]]:
    """Each line with its translation, in order, as soon as it is done."""
    waiting: deque[Line] = deque()

    def texts() -> Iterator[list[str]]:
        for window in lines.windows():
            waiting.extend(window)
            yield [line.text for line in window if line.error is None]

    for translation in translator.translate_windows(texts(), options=options, errors="return"):
        yield from _refused(waiting)
        yield waiting.popleft(), translation
    yield from _refused(waiting)


def _refused(waiting: deque[Line]) -> Iterator[tuple[Line, Translation]]:
    """The next lines, as far as they never went to the translator."""
    from onnxmt.runtime.translation import Translation

    while waiting and (error := waiting[0].error) is not None:
        line = waiting.popleft()
        yield line, Translation(source=line.text, text="", score=None, tokens=(), finished=False, error=error)


def _refuse_idle_options(options: TranslateOptions, translator: Translator) -> None:
    """An option without effect is a mistake that the user should hear of."""
    from onnxmt.errors import UsageError

    if options.apply_to(translator.settings).do_sample:
        return
    given = [
        f"--{name.replace('_', '-')}"
        for name in ("temperature", "top_k", "top_p", "seed")
        if getattr(options, name) is not None
    ]
    if given:
        raise UsageError(f"{', '.join(given)} {'have' if len(given) > 1 else 'has'} no effect without --sampling")


def _json_line(translation: Translation) -> bytes:
    return (json.dumps(translation.to_dict(), ensure_ascii=False, allow_nan=False) + "\n").encode()


def _text_line(line: Line, translation: Translation) -> bytes:
    texts = [translation.text, *(alternative.text for alternative in translation.alternatives)]
    return "\t".join(texts).encode() + line.ending


def _tell(line: Line, translation: Translation, progress: Meter) -> None:
    for warning in translation.warnings:
        progress.print(f"onnxmt: warning: {line.where}: {warning.message}")
    if translation.error is not None:
        progress.print(f"onnxmt: error: {line.where}: {translation.error}")
