"""The typer application: which verbs there are, how they are loaded, and the help that lists them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onnxmt import commands

WRONG_USE = 2
_HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
# \b keeps click from joining the lines.
_EPILOG = """\
MODEL is a folder in Hugging Face format, the ORG/NAME[@REVISION] of a model on the hub, or `demo`. BUNDLE is a folder
that `migrate` or `export` wrote, NAME:VERSION or NAME:ALIAS of one in the store (`onnxmt models`), or `demo`.

\b
Examples:
  onnxmt translate "Good morning."
  onnxmt inspect Helsinki-NLP/opus-mt-en-zh
  onnxmt migrate Helsinki-NLP/opus-mt-en-zh -o en-zh
  onnxmt translate --model en-zh -f book.txt -o book.zh.txt

\b
Exit codes:
  0  done
  1  a limit was missed: verification failed, or a line could not be translated
  2  wrong use, unreadable input, or the work was interrupted
Every error is one line on standard error; with --json also an object on standard
output. --debug (anywhere) or ONNXMT_DEBUG=1 adds the traceback.
"""


def verbs() -> tuple[str, ...]:
    """The verbs there are, in the order of the help."""
    found = {module.name for module in pkgutil.iter_modules(commands.__path__) if not module.name.startswith("_")}
    listed = [name for names in commands.SECTIONS.values() for name in names]
    return (*(name for name in listed if name in found), *sorted(found.difference(listed)))


def run(arguments: Sequence[str]) -> int:
    """Run what `arguments` ask for and return the exit code; a wrong use raises click's exceptions."""
    group = typer.main.get_command(_application(arguments))
    try:
        with group.make_context("onnxmt", list(arguments)) as context:
            group.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return 0


def wrong_use(error: BaseException) -> str | None:
    """The one line for an exception of click's about the arguments; None for any other exception."""
    # typer up to 0.15 takes its exceptions from the package click, later ones from a copy inside typer: their common
    # base is found by way of a class that typer exports.
    base = typer.BadParameter.__mro__[2]
    if not isinstance(error, base):
        return None
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "onnxmt"
    message = str(error.format_message())  # type: ignore[attr-defined]
    message = message.replace("Value error, ", "")  # newer typers pass on pydantic's wording
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See: {path} --help"


class _Group(TyperGroup):
    """Lists the verbs by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one list a section."""
        names = self.list_commands(ctx)
        sections = {title: [name for name in listed if name in names] for title, listed in commands.SECTIONS.items()}
        rest = [name for name in names if not any(name in listed for listed in sections.values())]
        width = formatter.width - 6 - max(map(len, names))
        for title, members in {**sections, "More": rest}.items():
            if members:
                with formatter.section(title):
                    formatter.write_dl([(name, self._summary(ctx, name, width)) for name in members], col_max=20)

    def _summary(self, ctx: Any, name: str, width: int) -> str:
        command = self.get_command(ctx, name)
        return "" if command is None else str(command.get_short_help_str(width))


def _application(arguments: Sequence[str]) -> typer.Typer:
    """The application with all verbs, or with the one that is asked for: each costs its import."""
    application = typer.Typer(
        cls=_Group,
        add_completion=False,
        rich_markup_mode=None,
        invoke_without_command=True,
        epilog=_EPILOG,
        context_settings=_HELP_OPTIONS,
    )
    application.callback()(_onnxmt)
    known = verbs()
    for name in arguments[:1] if arguments and arguments[0] in known else known:
        verb = getattr(importlib.import_module(f"onnxmt.commands.{name}"), name)
        if isinstance(verb, typer.Typer):  # a verb with sub-commands
            application.add_typer(verb, name=name)
        else:
            application.command(name, context_settings=_HELP_OPTIONS)(verb)
    return application


def _onnxmt(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Move Hugging Face translation models to ONNX Runtime: verified, small, fast, without torch at run time."""
    if version:
        from importlib.metadata import version as installed  # slow to import, and rarely asked for

        print(f"onnxmt {installed('onnxmt')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(WRONG_USE)
