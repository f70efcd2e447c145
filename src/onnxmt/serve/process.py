"""The process around the app: uvicorn, signals, and a log of one line an event on standard error."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxmt.errors import MissingExtraError, UsageError
from onnxmt.serve.options import ServeOptions

if TYPE_CHECKING:
    from onnxmt.runtime.translator import Translator
    from onnxmt.serve.rollout_options import RolloutPlan

_NEEDED = ("starlette", "uvicorn", "prometheus_client", "pydantic", "python_multipart")
# An idle connection is kept for longer than common proxies keep theirs, so that none sends into a closing one.
_KEEP_ALIVE_SECONDS = 75
_BACKLOG = 2048


def require_extra() -> None:
    """Raise MissingExtraError where a package of the extra `serve` is missing."""
    for module in _NEEDED:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(needed_for="the service", extra="serve", module=module)


def run(
    translator: Translator,
    options: ServeOptions,
    *,
    host: str,
    port: int,
    drain: int = 30,
    quiet: bool = False,
    rollout: RolloutPlan | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then let running requests finish. Raises UsageError for an address in use."""
    import uvicorn

    from onnxmt.serve.app import create_app

    class Server(uvicorn.Server):
        """Stops at a signal without raising it again: being stopped is this program's ordinary end."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Handle the signals while the block runs."""
            before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Say where it listens, once it does."""
            await super().startup(sockets=sockets)
            if self.started:
                _log.info("ready: %s (%s) on %s", translator.bundle.manifest.name, options_line, where)

    _log = _logger(quiet=quiet)
    listening = _listen(host, port)
    name, number = listening.getsockname()[:2]
    where = f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
    options_line = f"{translator.provider}, {translator.threads} threads, {translator.runtime.workers} workers"
    config = uvicorn.Config(
        create_app(translator, options=options, rollout=rollout),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain,
        backlog=_BACKLOG,
    )
    with listening:
        Server(config).run(sockets=[listening])


def _logger(*, quiet: bool) -> logging.Logger:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    for name, level in (("onnxmt", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    if quiet:
        logging.getLogger("onnxmt.access").setLevel(logging.WARNING)
    return logging.getLogger("onnxmt.serve")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))  # uvicorn listens, when the model is warm: until then connections are refused
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host}:{port} ({reason}): choose another --host or --port") from error
    return listening
