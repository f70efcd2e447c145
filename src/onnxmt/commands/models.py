"""`onnxmt models`: the store of versions, one sub-command a function."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmt.commands._models_regress import regress
from onnxmt.commands._options import AsJson, bundle_place

_HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
models = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    context_settings=_HELP_OPTIONS,
    short_help="Keep versions of bundles; promote them and roll back.",
    help="""Keep immutable versions of bundles under names, and switch aliases between them.

    A version is called NAME:VERSION (en-zh:3), or NAME:ALIAS (en-zh:production); every command that takes a bundle
    takes such a name. The store is the folder ONNXMT_STORE, or onnxmt/store in your data directory.

    \b
    Examples:
      onnxmt models add ./en-zh-int8 --as en-zh
      onnxmt models promote en-zh:1
      onnxmt models diff en-zh:1 en-zh:2
      onnxmt models rollback en-zh --reason "numbers were wrong"
      onnxmt translate --model en-zh:production "Good morning."
    """,
)
models.add_typer(regress, name="regress")

_Name = Annotated[str, typer.Argument(metavar="NAME:VERSION|ALIAS", show_default=False)]
_Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; the history keeps it.")]


@models.command(context_settings=_HELP_OPTIONS)
def add(
    bundle: Annotated[
        Path,
        typer.Argument(
            metavar="BUNDLE", help="The bundle to copy, or demo.", show_default=False, callback=bundle_place
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME[:VERSION]", help="What it is called.  [default: its model's name, next number]"
        ),
    ] = None,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Translate the regression set with it first.")] = True,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Copy BUNDLE into the store as a new version.

    \b
    Example:
      onnxmt models add ./en-zh-int8 --as en-zh
    """
    from onnxmt.commands._console import print_json, step_progress
    from onnxmt.commands._models_view import changes_text
    from onnxmt.records import to_json
    from onnxmt.store.adding import AddOptions
    from onnxmt.store.adding import add as run_add

    model, _, version = (name or "").partition(":")
    options = AddOptions(name=model or None, version=version or None, reason=reason, run=run)
    with step_progress() as progress:
        done = run_add(bundle, options=options, progress=progress)
    if as_json:
        print_json({**to_json(done), "name": str(done.name), "folder": str(done.folder)})
        return
    print(done.name)
    if done.same_as:
        print(f"the same content as {', '.join(f'{done.name.name}:{other}' for other in done.same_as)}")
    if done.changes is not None:
        print(changes_text(done.changes))


@models.command("list", context_settings=_HELP_OPTIONS)
def list_(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this model.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List models, their versions and aliases.

    \b
    Example:
      onnxmt models list
    """
    from onnxmt.commands._console import print_json
    from onnxmt.commands._models_view import listing, listing_text
    from onnxmt.store.names import store_root

    found = listing(name)
    if as_json:
        print_json({"store": str(store_root()), "models": found})
    else:
        print(listing_text(found) or f"the store {store_root()} is empty; add a bundle with: onnxmt models add BUNDLE")


@models.command(context_settings=_HELP_OPTIONS)
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME[:VERSION|ALIAS]", help="A version, or a model.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Show a version, or a model with its history.

    \b
    Example:
      onnxmt models show en-zh:production
    """
    from onnxmt.commands._console import print_json
    from onnxmt.commands._models_view import history_text, listing, listing_text, version_text
    from onnxmt.store.comparing import described_version
    from onnxmt.store.names import required_name
    from onnxmt.store.shelf import shelf_of

    if ":" not in name:
        shelf = shelf_of(name)
        state, history = shelf.require(), shelf.history()
        if as_json:
            aliases = {alias: one.version for alias, one in state.aliases.items()}
            print_json({**listing(name)[0], "aliases": aliases, "history": [event.to_dict() for event in history]})
        else:
            print(listing_text(listing(name)))
            print(history_text(history))
        return
    wanted = required_name(name)
    shelf = shelf_of(wanted.name)
    version = shelf.version(wanted.ref)
    found = described_version(shelf, version)
    events = [event for event in shelf.history() if version in (event.version, event.before)]
    if as_json:
        print_json({**found, "history": [event.to_dict() for event in events]})
    else:
        print(version_text(found))
        print(history_text(events))


@models.command(context_settings=_HELP_OPTIONS)
def diff(
    first: _Name,
    second: _Name,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Compare what both make of the regression set.")] = True,
    as_json: AsJson = False,
) -> None:
    """Compare two versions: settings, sizes, quality, speed, changed translations.

    \b
    Example:
      onnxmt models diff en-zh:production en-zh:4
    """
    from onnxmt.commands._console import print_json, step_progress
    from onnxmt.commands._models_view import difference_text
    from onnxmt.store.comparing import diff as run_diff
    from onnxmt.store.names import required_name
    from onnxmt.store.shelf import shelf_of

    sides = [(shelf_of(one.name), one.ref) for one in map(required_name, (first, second))]
    with step_progress() as progress:
        found = run_diff(sides[0], sides[1], translations=run, progress=progress)
    if as_json:
        print_json(found.to_dict())
    else:
        print(difference_text(found))


@models.command(context_settings=_HELP_OPTIONS)
def promote(
    name: _Name,
    to: Annotated[
        str, typer.Option("--to", metavar="ALIAS", help="production, staging, canary, or one of your own.")
    ] = "production",
    max_bleu_drop: Annotated[float, typer.Option(metavar="X", help="BLEU points that it may be worse by.")] = 0.5,
    max_chrf_drop: Annotated[float, typer.Option(metavar="X", help="chrF points that it may be worse by.")] = 0.5,
    max_p99_growth: Annotated[float, typer.Option(metavar="X", help="P99 latency may grow by this share.")] = 0.2,
    max_size_growth: Annotated[float, typer.Option(metavar="X", help="Its size may grow by this share.")] = 0.5,
    force: Annotated[bool, typer.Option("--force", help="Go over a refusal; needs --reason.")] = False,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Let an alias mean this version, if it is good enough.

    Refused (exit code 1) where its quality gate or verification failed, or where it is worse than the version that
    holds the alias by more than the limits. A canary is compared with production.

    \b
    Examples:
      onnxmt models promote en-zh:4 --to canary
      onnxmt models promote en-zh:4 --force --reason "smaller is what counts here"
    """
    import dataclasses

    from onnxmt.commands._console import print_json, warn
    from onnxmt.store.figures import PromoteLimits
    from onnxmt.store.names import required_name
    from onnxmt.store.promoting import PromoteOptions
    from onnxmt.store.promoting import promote as run

    limits = PromoteLimits(
        max_bleu_drop=max_bleu_drop,
        max_chrf_drop=max_chrf_drop,
        max_p99_growth=max_p99_growth,
        max_size_growth=max_size_growth,
    )
    wanted = required_name(name)
    from onnxmt.store.shelf import shelf_of

    options = PromoteOptions(alias=to, limits=limits, force=force, reason=reason)
    done = run(shelf_of(wanted.name), wanted.ref, options=options)
    if as_json:
        event = None if done.event is None else done.event.to_dict()
        print_json({**dataclasses.asdict(done), "event": event, "alias": to})
        return
    for fault in done.faults:
        warn(f"forced: {fault}")
    for note in done.notes:
        warn(note)
    for check in done.checks:
        if check.passed:
            print(check.line())
    if done.event is None:
        print(f"{wanted.name}:{to} is {done.version} already")
    else:
        print(f"{wanted.name}:{to} is {done.version}{f', and was {done.before}' if done.before else ''}")


@models.command(context_settings=_HELP_OPTIONS)
def rollback(
    name: Annotated[str, typer.Argument(metavar="NAME[:ALIAS]", help="[default: production]", show_default=False)],
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="An earlier version.  [default: the one before]")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take the alias away instead (not production).")] = False,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Return an alias to the version that it meant before.

    \b
    Examples:
      onnxmt models rollback en-zh --reason "numbers were wrong"
      onnxmt models rollback en-zh:canary --clear
    """
    from onnxmt.commands._console import print_json
    from onnxmt.errors import UsageError
    from onnxmt.store.promoting import clear as run_clear
    from onnxmt.store.promoting import rollback as run
    from onnxmt.store.shelf import shelf_of

    model, _, alias = name.partition(":")
    shelf = shelf_of(model)
    alias = alias or "production"
    shelf.require()
    if clear and to is not None:
        raise UsageError("--clear takes the alias away and --to moves it: give one of them")
    event = run_clear(shelf, alias, reason=reason) if clear else run(shelf, alias, to=to, reason=reason)
    if as_json:
        print_json({} if event is None else event.to_dict())
    elif event is not None and event.version is None:
        print(f"{model}:{alias} means nothing any more, and was {event.before}")
    elif event is not None:
        print(f"{model}:{alias} is {event.version} again, and was {event.before}")


@models.command(context_settings=_HELP_OPTIONS)
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME:VERSION", show_default=False)],
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Take a version's name away; `gc` deletes its files later.

    \b
    Example:
      onnxmt models remove en-zh:2
    """
    from onnxmt.commands._console import print_json
    from onnxmt.store.cleaning import remove as run
    from onnxmt.store.names import required_name
    from onnxmt.store.shelf import shelf_of

    wanted = required_name(name)
    shelf = shelf_of(wanted.name)
    shelf.require()
    event = run(shelf, wanted.ref, reason=reason)
    if as_json:
        print_json(event.to_dict())
    else:
        print(f"{wanted} is removed; its files are deleted by: onnxmt models gc {wanted.name}")


@models.command(context_settings=_HELP_OPTIONS)
def gc(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this model.", show_default=False)] = None,
    grace: Annotated[
        float, typer.Option(min=0, metavar="S", help="Leave what was removed in the last S seconds to its readers.")
    ] = 3600.0,
    keep: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Also remove all but the N latest versions that nothing needs."),
    ] = None,
    reason: _Reason = None,
    as_json: AsJson = False,
) -> None:
    """Delete the files of removed versions, and what killed processes left.

    \b
    Example:
      onnxmt models gc --keep 5
    """
    from onnxmt.commands._console import print_json
    from onnxmt.store.cleaning import collect
    from onnxmt.store.shelf import shelf_of, shelves

    chosen = shelves() if name is None else (shelf_of(name),)
    found = {}
    for shelf in chosen:
        shelf.require()
        found[shelf.name] = collect(shelf, grace=grace, keep=keep, reason=reason)
    if as_json:
        print_json({model: vars(one) for model, one in found.items()})
        return
    for model, one in found.items():
        what = [*(f"{model}:{version}" for version in one.versions), *one.leftovers]
        print(f"{model}: {', '.join(what) or 'nothing to delete'}{f', {one.bytes / 1e6:.1f} MB' if what else ''}")


@models.command(context_settings=_HELP_OPTIONS)
def verify(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME[:VERSION]", help="Only this model or version.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Hash every file of every version; exit code 1 where one is damaged.

    \b
    Example:
      onnxmt models verify
    """
    from onnxmt.commands._console import print_json
    from onnxmt.store.cleaning import check
    from onnxmt.store.shelf import shelf_of, shelves

    model, _, ref = (name or "").partition(":")
    chosen = shelves() if not model else (shelf_of(model),)
    found = {shelf.name: check(shelf, [shelf.version(ref)] if ref else None) for shelf in chosen}
    rows = [(model, one) for model, checked in found.items() for one in checked]
    if as_json:
        print_json([{"model": model, **vars(one)} for model, one in rows])
    for model, one in () if as_json else rows:
        print(f"{model}:{one.version}: {one.fault or 'whole'}")
    if any(one.fault is not None for _, one in rows):
        raise typer.Exit(1)


@models.command(context_settings=_HELP_OPTIONS)
def report(
    name: _Name,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where the page goes; - is standard output.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write a version's report, with its history and changed translations.

    \b
    Example:
      onnxmt models report en-zh:production -o en-zh.html
    """
    from onnxmt.commands._console import print_json
    from onnxmt.commands._sink import Sink
    from onnxmt.errors import UsageError
    from onnxmt.store.history_page import version_page
    from onnxmt.store.names import required_name
    from onnxmt.store.shelf import shelf_of

    if as_json and str(output) == "-":
        raise UsageError("--json and -o - both write to standard output: name a file with -o, or leave --json out")
    wanted = required_name(name)
    shelf = shelf_of(wanted.name)
    version = shelf.version(wanted.ref)
    page = version_page(shelf, version)
    with Sink(output) as sink:
        sink.write(page)
    if as_json:
        print_json({"name": f"{wanted.name}:{version}", "report": str(output), "bytes": len(page)})
    elif str(output) != "-":
        print(output)
