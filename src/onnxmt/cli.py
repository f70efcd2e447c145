"""The process around a command: signals, broken pipes, and each error as one line and an exit code."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from onnxmt.errors import MissingExtraError, OnnxmtError

DONE, WRONG = 0, 2
_DEBUG = "--debug"
_STOPS = ("SIGINT", "SIGTERM", "SIGHUP")


class _Stopped(BaseException):
    """A signal that ends the process; no Exception, so that nothing takes it for an error that it could handle."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` default to the process's own."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = given[: given.index("--")] if "--" in given else given
    debug = _DEBUG in options or os.environ.get("ONNXMT_DEBUG", "") not in ("", "0")
    as_json = "--json" in options
    given = [argument for argument in options if argument != _DEBUG] + given[len(options) :]
    _speak_utf8()
    try:
        with _stoppable():
            from onnxmt.commands import _application

            code = _application.run(given)
            sys.stdout.flush()  # a full disk shows here at the latest, while the exit code can still say so
            return code
    except BrokenPipeError:  # the reader (`head`, `less`) has all it wants
        _discard(sys.stdout)
        return DONE
    except BaseException as error:  # noqa: BLE001  every kind gets its one line and its exit code
        return _report(error, debug=debug, as_json=as_json)


def _speak_utf8() -> None:
    """Chinese and JSON are written as UTF-8 whatever the locale is; what UTF-8 cannot hold is shown escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Turn the signals that end a process into an exception, so that nothing half-written is left."""
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, _frame: FrameType | None) -> None:
        for other in before:  # a second Ctrl-C must not break off the cleaning up that the first one set off
            signal.signal(other, signal.SIG_IGN)
        raise _Stopped(signal.Signals(number).name)

    for name in _STOPS:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        try:
            # A signal that the parent has switched off stays off: `nohup` is there to be obeyed.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stop)
        except ValueError:  # not the main thread: the process's owner handles its signals
            break
    try:
        yield
    except _Stopped:
        raise  # the process ends: it stays deaf, so that its last line and its exit code are its own
    except BaseException:
        _restore(before)
        raise
    _restore(before)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _report(error: BaseException, *, debug: bool, as_json: bool) -> int:
    """Say what went wrong in one line on standard error, and as an object on standard output if JSON is wanted."""
    if isinstance(error, GeneratorExit):
        raise error
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else WRONG
    if debug:
        traceback.print_exception(error)
    message, kind, code = _described(error)
    line = printable(message)
    print(f"onnxmt: error: {line}", file=sys.stderr)
    try:
        if as_json:
            print(json.dumps({"error": line, "kind": kind}, ensure_ascii=False))
        sys.stdout.flush()
    except (OSError, ValueError):  # standard output is what failed, or is closed: the line on standard error stands
        _discard(sys.stdout)
    return code


def _described(error: BaseException) -> tuple[str, str, int]:
    """The line, the kind and the exit code of an exception."""
    kind = type(error).__name__
    if isinstance(error, OnnxmtError):
        return str(error), kind, error.exit_code
    if isinstance(error, (KeyboardInterrupt, _Stopped)):
        return f"interrupted by {str(error) or 'SIGINT'}; nothing half-written is left", "Interrupted", WRONG
    if isinstance(error, MemoryError):
        return "there is not enough memory for this", kind, WRONG
    if isinstance(error, ModuleNotFoundError) and (extra := _extra_with(error.name or "")) is not None:
        missing = MissingExtraError(needed_for="this", extra=extra, module=error.name or "")
        return str(missing), type(missing).__name__, missing.exit_code
    from onnxmt.commands import _application

    if (usage := _application.wrong_use(error)) is not None:
        return usage, "UsageError", WRONG
    return f"this is a bug in onnxmt: {kind}: {error} (--debug shows where; please report it)", kind, WRONG


def _extra_with(module: str) -> str | None:
    """The extra of onnxmt that brings `module`; None where none does."""
    from importlib.metadata import PackageNotFoundError, requires

    wanted = module.partition(".")[0].replace("_", "-").lower()
    try:
        found = requires("onnxmt") or []
    except PackageNotFoundError:  # run from its source without having been installed
        return None
    for requirement in found:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", requirement)
        if name is not None and extra is not None and name[0].replace("_", "-").lower() == wanted:
            return extra[1]
    return None


def printable(text: str) -> str:
    """`text` on one line, with what a terminal would act on (or could not encode) made visible."""
    line = " ".join(part for part in (part.strip() for part in text.splitlines()) if part)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def _discard(stream: object) -> None:
    """Let what is still buffered go nowhere, so that the interpreter's last flush does not fail once more."""
    fileno = getattr(stream, "fileno", None)
    try:
        descriptor = fileno() if fileno is not None else -1
    except (OSError, ValueError):  # no file behind it, as in a test
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
