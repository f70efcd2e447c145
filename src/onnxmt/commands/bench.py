"""`onnxmt bench`: engines side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onnxmt.commands._options import AsJson, bundle_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxmt.bundle import Bundle
    from onnxmt.measure.bench import BenchReport, EngineSpec, Workload


def bench(
    bundles: Annotated[
        list[Path], typer.Argument(metavar="BUNDLE...", help="Bundles of one model, or demo.", show_default=False)
    ],
    peers: Annotated[str, typer.Option(metavar="LIST", help="Also measure: torch, ctranslate2[:TYPE], optimum.")] = "",
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The checkpoint for peers.  [default: what the bundle was made of]"),
    ] = None,
    peer_python: Annotated[
        list[str] | None, typer.Option(metavar="PEER=PATH", help="A peer's Python, where it is not in this one.")
    ] = None,
    sentences: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Translate a file's lines instead of sentences of one length.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N lines of the file.")] = None,
    source_tokens: Annotated[int, typer.Option(min=2, metavar="N", help="Length of the sentences.")] = 20,
    target_tokens: Annotated[
        str,
        typer.Option(
            metavar="N|source|model",
            help="Tokens to generate: N, as many as the source has, or as the model likes (then engines may differ).",
        ),
    ] = "30",
    batch: Annotated[str, typer.Option(metavar="N,…", help="Sentences a call.")] = "1",
    beams: Annotated[str, typer.Option(metavar="N,…", help="Beams; 1 is greedy.")] = "1,4",
    threads: Annotated[
        str | None, typer.Option(metavar="N,…", help="Threads.  [default: what affinity and quota allow]")
    ] = None,
    concurrency: Annotated[str, typer.Option(metavar="N,…", help="Calls side by side, with the threads each.")] = "1",
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Passes over the work; engines take turns.")] = 10,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a README.")] = False,
    chart: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a chart, .png or .svg.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the figures into the bundles' manifests.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure bundles, and the same model in other engines, on the same work in one run.

    Every engine runs in a process of its own, and they take turns. All get the same token ids in the same batches and
    generate the same number of tokens. PyTorch computes in float32. A peer that is not installed is named.

    \b
    Examples:
      onnxmt bench ./en-zh-int8 ./en-zh-int4 --peers torch,ctranslate2
      onnxmt bench ./en-zh-int8 --sentences news.txt --target-tokens source --batch 32 --threads 1 --concurrency 2
    """
    from onnxmt.bundle import read_bundle, require_changeable
    from onnxmt.commands._console import print_json, stdout_console, step_progress, warn
    from onnxmt.errors import UsageError
    from onnxmt.measure.bench import BenchOptions, parse_peers, run_bench
    from onnxmt.measure.bench.chart import check_chart, write_chart

    if as_json and markdown:
        raise UsageError("give --json or --markdown, not both")
    if chart is not None:
        check_chart(chart)
    options = BenchOptions(
        batches=_numbers("--batch", batch),
        beams=_numbers("--beams", beams),
        threads=_numbers("--threads", threads) if threads else (),
        workers=_numbers("--concurrency", concurrency),
        rounds=rounds,
    )
    with step_progress() as progress:
        progress.step("read the bundles")
        found = [read_bundle(bundle_place(folder) or folder) for folder in bundles]
        for one in found if write else ():
            require_changeable(one.folder)
        _refuse_unequal(found)
        specs = _specs(found) + parse_peers(
            peers, checkpoint=_checkpoint(found, checkpoint, peers), pythons=peer_python or ()
        )
        most = max(options.batches) * max(options.workers)
        work = _workload(found[0], sentences, limit, source_tokens, target_tokens, most)
        progress.step("measure")
        report = run_bench(specs, work, options, progress=progress.advance)
    for line in report.missing:
        warn(f"not measured: {line}")
    if write:
        _write(found, report)
    if chart is not None:
        write_chart(report, chart)
    if as_json:
        print_json(report.to_dict())
    elif markdown:
        print(report.markdown(), end="")
    else:
        report.print_to(stdout_console())


def _numbers(option: str, text: str) -> tuple[int, ...]:
    from onnxmt.errors import UsageError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{option} is {text!r}; whole numbers from 1 on, with commas between, are allowed")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _refuse_unequal(bundles: Sequence[Bundle]) -> None:
    """Bundles of different models do different work: no figure of one says anything about the other."""
    from onnxmt.errors import UsageError

    first = bundles[0].manifest
    for bundle in bundles[1:]:
        other = bundle.manifest
        if (other.source, other.dimensions) != (first.source, first.dimensions):
            raise UsageError(
                f"{bundles[0].folder} is of {first.source.model} and {bundle.folder} of {other.source.model}, or of "
                "another size or revision: only bundles of one model can be compared"
            )
    recipes = [bundle.manifest.recipe for bundle in bundles]
    if len(set(recipes)) < len(recipes):
        raise UsageError(f"two bundles are of one precision ({', '.join(recipes)}): name one of each")


def _specs(bundles: Sequence[Bundle]) -> list[EngineSpec]:
    from onnxmt.measure.bench import EngineSpec

    return [EngineSpec(engine="onnxmt", precision=bundle.manifest.recipe, model=bundle.folder) for bundle in bundles]


def _checkpoint(bundles: Sequence[Bundle], given: str | None, peers: str) -> Path | None:
    """The folder of the checkpoint, if peers need one: as given, or the source that the manifest names."""
    if not peers:
        return None
    from onnxmt.hub import resolve

    source = bundles[0].manifest.source
    if given is None and source.origin == "folder":
        return None  # the manifest keeps a folder's name, not where it was
    named = given or (source.model if source.origin == "demo" else f"{source.model}@{source.revision}")
    return resolve(named).folder


def _workload(
    bundle: Bundle, sentences: Path | None, limit: int | None, source_tokens: int, target: str, most: int
) -> Workload:
    """Sentences of one length, at least two calls of the largest setting; or the lines of a file."""
    from onnxmt.errors import UsageError
    from onnxmt.measure.bench import Workload, shape_workload
    from onnxmt.runtime.translator import Translator

    if target not in ("source", "model") and not (target.isdecimal() and int(target) > 0):
        raise UsageError(f"--target-tokens is {target!r}; a number from 1 on, source or model is allowed")
    if sentences is None:
        if target in ("source", "model"):
            raise UsageError(f"--target-tokens {target} needs --sentences: random tokens have no translation")
        manifest = bundle.manifest
        settings = Translator.load(bundle.folder, check="size").settings
        return shape_workload(
            source_tokens=source_tokens,
            target_tokens=int(target),
            sentences=max(4, most),
            vocabulary=manifest.dimensions.source_vocabulary,
            end=settings.eos_token_ids[0],
        )
    with Translator.load(bundle.folder, check="size") as translator:
        try:
            lines = sentences.read_text(encoding="utf-8").splitlines()[:limit]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {sentences} as UTF-8 text: {error}") from error
        told = translator.direction
        encoded = (translator.tokenizer.encode(x, source=told.source, target=told.target) for x in lines if x.strip())
        ids = tuple(tuple(row) for row in encoded if translator.limit is None or len(row) <= translator.limit)
    if not ids:
        raise UsageError(f"{sentences} holds no line that the model takes")
    if target in ("source", "model"):
        wanted: Literal["source", "model"] = "source" if target == "source" else "model"
        out = "as many tokens out as in" if target == "source" else "the model's own lengths"
        return Workload(name=f"{len(ids)} lines of {sentences.name}, {out}", sentences=ids, target=wanted)
    name = f"{len(ids)} lines of {sentences.name}, {target} tokens out"
    return Workload(name=name, sentences=ids, target=int(target))


def _write(bundles: Sequence[Bundle], report: BenchReport) -> None:
    from onnxmt.bundle import update_manifest

    for bundle in bundles:
        manifest = dataclasses.replace(bundle.manifest, speed=report.speed(bundle.manifest.recipe))
        update_manifest(bundle, manifest)
