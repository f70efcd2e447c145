"""`onnxmt models regress`: the sentences that every new version is compared on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmt.commands._options import AsJson

_HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
regress = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings=_HELP_OPTIONS,
    short_help="The sentences that new versions are compared on.",
    help="""The regression set of a model: the sentences of verification, and your own.

    \b
    Examples:
      onnxmt models regress add en-zh "The invoice is due on 3 May."
      onnxmt models regress approve en-zh:production
      onnxmt models regress run en-zh:4
    """,
)

_Version = Annotated[str, typer.Argument(metavar="NAME:VERSION|ALIAS", show_default=False)]


@regress.command(context_settings=_HELP_OPTIONS)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", show_default=False)] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="Sentences, one a line, in UTF-8.")
    ] = None,
    category: Annotated[str, typer.Option(metavar="WORD", help="What they are, for the reader of a list.")] = "own",
    as_json: AsJson = False,
) -> None:
    """Add sentences of your own to a model's set.

    \b
    Example:
      onnxmt models regress add en-zh "The invoice is due on 3 May."
    """
    from onnxmt.commands._console import print_json
    from onnxmt.errors import UsageError
    from onnxmt.store.regression import add_sentences, read_set
    from onnxmt.store.shelf import shelf_of

    texts = list(text or ())
    if file is not None:
        try:
            texts += file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {file} as UTF-8 text: {error}") from error
    shelf = shelf_of(name)
    new = add_sentences(shelf, texts, category=category)
    if as_json:
        print_json({"model": name, "added": new, "own": len(read_set(shelf).own)})
    else:
        print(f"{name}: {new} new sentence{'' if new == 1 else 's'}, {len(read_set(shelf).own)} of your own in all")


@regress.command("list", context_settings=_HELP_OPTIONS)
def list_(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """List the sentences of a model's set with their approved translations.

    \b
    Example:
      onnxmt models regress list en-zh
    """
    from onnxmt.bundle import read_bundle
    from onnxmt.commands._console import print_json
    from onnxmt.store.regression import read_set, sentences_of
    from onnxmt.store.shelf import shelf_of

    shelf = shelf_of(name)
    state = shelf.require()
    newest = next(reversed(tuple(state.versions)), None)
    codes = None if newest is None else read_bundle(shelf.version_folder(newest), check="size").manifest.languages
    language = None if codes is None else codes.default_source or (codes.source[0] if len(codes.source) == 1 else None)
    found, kept = sentences_of(shelf, language), read_set(shelf)
    rows = [
        {
            "text": one.text,
            "category": one.category,
            "origin": one.origin,
            "approved": None if one.text not in kept.approved else kept.approved[one.text].output.text,
        }
        for one in found
    ]
    if as_json:
        print_json({"model": name, "sentences": rows})
    for row in () if as_json else rows:
        print(f"{row['category']}\t{row['text']}\t{row['approved'] or '(nothing approved)'}")


@regress.command(context_settings=_HELP_OPTIONS)
def run(
    version: _Version,
    as_json: AsJson = False,
) -> None:
    """Translate the set with a version, and show what differs from what is approved.

    Where nothing is approved, it is compared with production.

    \b
    Example:
      onnxmt models regress run en-zh:4
    """
    from onnxmt.commands._console import print_json, step_progress
    from onnxmt.commands._models_view import changes_text
    from onnxmt.store.adding import changes_against
    from onnxmt.store.names import required_name
    from onnxmt.store.regression import outputs_of
    from onnxmt.store.shelf import shelf_of

    wanted = required_name(version)
    shelf = shelf_of(wanted.name)
    named = shelf.version(wanted.ref)
    with step_progress() as progress:
        progress.step("translate the regression set")
        outputs = outputs_of(shelf, named, progress=progress.advance)
    changes = changes_against(shelf, shelf.require(), named, outputs)
    if as_json:
        result = None if changes is None else changes.to_dict()
        print_json({"name": f"{wanted.name}:{named}", "outputs": len(outputs), "changes": result})
    elif changes is None:
        print(f"{wanted.name}:{named}: {len(outputs)} translations, and none to compare them with")
    else:
        print(changes_text(changes))


@regress.command(context_settings=_HELP_OPTIONS)
def approve(
    version: _Version,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="SENTENCE", help="Only these sentences.  [default: all]", show_default=False),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; the history keeps it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Keep a version's translations as the approved ones.

    \b
    Example:
      onnxmt models regress approve en-zh:production
    """
    from onnxmt.commands._console import print_json, step_progress
    from onnxmt.store.names import required_name
    from onnxmt.store.regression import approve as run_approve
    from onnxmt.store.regression import outputs_of
    from onnxmt.store.shelf import shelf_of

    wanted = required_name(version)
    shelf = shelf_of(wanted.name)
    named = shelf.version(wanted.ref)
    with step_progress() as progress:
        progress.step("translate the regression set")
        outputs = outputs_of(shelf, named, progress=progress.advance)
    count = run_approve(shelf, named, outputs, only=text or (), reason=reason)
    if as_json:
        print_json({"name": f"{wanted.name}:{named}", "approved": count})
    else:
        print(f"{count} translations of {wanted.name}:{named} are approved")
