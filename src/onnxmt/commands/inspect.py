"""`onnxmt inspect`: what a bundle is; what a checkpoint is and needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxmt.commands._options import AsJson, Prefix, Source, Target

if TYPE_CHECKING:
    from onnxmt.bundle import Bundle


def inspect(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="The folder of a bundle or a checkpoint, NAME:VERSION|ALIAS, a hub id, demo.  [default: demo bundle]",
            show_default=False,
        ),
    ] = None,
    graph: Annotated[
        Path | None, typer.Option("--graph", metavar="FILE.svg", help="Draw a bundle's graphs into this file.")
    ] = None,
    source: Source = None,
    target: Target = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Show what a bundle holds, or what a checkpoint needs.

    Of a bundle: graphs with inputs, outputs, dynamic axes and operators, sizes, languages, decoding settings, where it
    comes from, how it was verified, and the threads it would run with.

    Of a checkpoint, before any migration: whether it can be migrated and every reason why not, family, languages,
    licence, files and what is missing, parameters, memory that it will take, and whether --target must be given. With
    --source, --target and --prefix it says whether a migration with them will be accepted. Of a model on the hub only
    small files are fetched.

    \b
    Examples:
      onnxmt inspect --graph demo.svg
      onnxmt inspect ./en-zh
      onnxmt inspect Helsinki-NLP/opus-mt-en-zh
      onnxmt inspect facebook/m2m100_418M --target zh
    """
    from onnxmt.bundle import read_bundle
    from onnxmt.commands._console import print_json
    from onnxmt.commands._options import DEMO_BUNDLE
    from onnxmt.errors import UsageError
    from onnxmt.manifest import MANIFEST_NAME

    what = str(DEMO_BUNDLE) if what is None else _stored(what)
    if (Path(what) / MANIFEST_NAME).is_file():
        from onnxmt.inspection.bundle_view import bundle_facts, bundle_page

        if source is not None or target is not None or prefix is not None:
            raise UsageError(f"{what} is a bundle: --source, --target and --prefix are for checkpoints")
        bundle = read_bundle(what, check="size")
        if graph is not None:
            _draw(bundle, graph)
        if as_json:
            print_json(bundle_facts(bundle))
        else:
            print(bundle_page(bundle))
        return
    if graph is not None:
        raise UsageError(f"--graph draws a bundle, and {what} is none: migrate it first, then draw the result")
    from onnxmt.hub import resolve
    from onnxmt.inspection.checkpoint_facts import Asked, checkpoint_facts
    from onnxmt.inspection.checkpoint_view import checkpoint_json, checkpoint_page

    asked = Asked(source=source, target=target, prefix=prefix)
    facts = checkpoint_facts(resolve(what, files="small"), asked)
    if as_json:
        print_json(checkpoint_json(facts))
    else:
        print(checkpoint_page(facts))


def _stored(what: str) -> str:
    """The folder of NAME:VERSION or NAME:ALIAS; anything else as it is."""
    from onnxmt.store.resolving import find

    found = find(what)
    return what if found is None else str(found.folder)


def _draw(bundle: Bundle, path: Path) -> None:
    """Write the drawing of both graphs."""
    from onnxmt.commands._sink import Sink
    from onnxmt.inspection.bundle_view import verification_word
    from onnxmt.inspection.draw import draw_graphs
    from onnxmt.inspection.graph_blocks import read_graph_blocks
    from onnxmt.inspection.page import size_text

    manifest = bundle.manifest
    graphs = [read_graph_blocks(bundle.path(g.file)) for g in (manifest.graphs.encoder, manifest.graphs.decoder)]
    weights = sum(entry.bytes for entry in manifest.files if entry.path in manifest.graphs.weights)
    facts = (
        f"{manifest.architecture}, {manifest.recipe}, {verification_word(manifest)} · "
        f"{size_text(weights)} of weights in one file, which both graphs share"
    )
    with Sink(path) as sink:
        sink.write(draw_graphs(graphs, title=manifest.name, facts=facts).encode())
