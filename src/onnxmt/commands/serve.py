"""`onnxmt serve`: the HTTP service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmt.commands._options import Provider


def serve(
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="BUNDLE", help="The bundle to serve.  [default: the packaged demo model]"),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Address to listen on; 0.0.0.0 is all of them.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 is any free one.")
    ] = 8000,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Threads that compute one batch.  [default: what affinity and quota allow]"
        ),
    ] = None,
    provider: Provider = "cpu",
    workers: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Batches that are computed side by side.")
    ] = 1,
    api_keys: Annotated[
        Path | None,
        typer.Option(
            "--api-keys", metavar="FILE", help="Ask for one of the API keys in FILE, one a line; also ONNXMT_API_KEYS."
        ),
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most requests a minute for each key, or each address.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Let pages of ORIGIN call; may be repeated.  [default: none]"),
    ] = None,
    dialects: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="APIs beside /v1: all, none, or names with commas (libretranslate,deepl,google,…)."
        ),
    ] = "all",
    max_body: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Largest body of a request.")] = 1_048_576,
    max_items: Annotated[int, typer.Option(min=1, metavar="N", help="Most texts in a request.")] = 256,
    max_characters: Annotated[int, typer.Option(min=1, metavar="N", help="Most characters in a request.")] = 50_000,
    max_beams: Annotated[int, typer.Option(min=1, metavar="N", help="Most beams that a request may ask for.")] = 8,
    max_queue: Annotated[int, typer.Option(min=1, metavar="N", help="Most requests that wait; then 429.")] = 256,
    deadline: Annotated[float, typer.Option(min=0.1, metavar="S", help="Seconds for a request; then 504.")] = 30.0,
    batch_tokens: Annotated[int, typer.Option(min=16, metavar="N", help="Tokens in a batch.")] = 1024,
    max_wait: Annotated[
        float, typer.Option(min=0, metavar="MS", help="Milliseconds that a batch waits for more requests.")
    ] = 2.0,
    memory: Annotated[
        int | None,
        typer.Option(min=1, metavar="MIB", help="Above so much memory, 503.  [default: 90% of the container's limit]"),
    ] = None,
    arena: Annotated[
        bool, typer.Option("--arena/--no-arena", help="Keep freed memory for the next batch, or give it back.")
    ] = True,
    drain: Annotated[
        int, typer.Option(min=1, metavar="S", help="Seconds that requests get to finish when the server stops.")
    ] = 30,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Show the web page at / and the docs at /docs.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="No line a request in the log.")] = False,
) -> None:
    """Serve a bundle over HTTP: /v1/translate, other services' APIs, metrics, a web page.

    The log goes to standard error and holds no texts. SIGTERM lets running requests finish.

    \b
    Examples:
      onnxmt serve
      onnxmt serve --model ./en-zh --host 0.0.0.0 --port 8000 --api-keys keys.txt
      curl -s localhost:8000/v1/translate -H 'content-type: application/json' -d '{"text": "Good morning."}'
    """
    from onnxmt.runtime.session import RuntimeOptions
    from onnxmt.runtime.translator import Translator
    from onnxmt.serve.guard import cgroup_memory_limit
    from onnxmt.serve.options import BatchOptions, Limits, ServeOptions
    from onnxmt.serve.process import require_extra, run

    require_extra()
    options = ServeOptions(
        limits=Limits(
            body_bytes=max_body,
            items=max_items,
            characters=max_characters,
            beams=max_beams,
            alternatives=max(1, max_beams - 1),
            queue_requests=max_queue,
            deadline_seconds=deadline,
        ),
        batching=BatchOptions(max_wait_ms=max_wait, max_tokens=batch_tokens),
        keys=_keys(api_keys),
        requests_per_minute=rate,
        origins=tuple(origin or ()),
        dialects=_dialects(dialects),
        memory_bytes=None if memory is None else memory << 20,
        page=page,
    )
    room = memory << 20 if memory is not None else cgroup_memory_limit()  # batches are cut to fit
    runtime = RuntimeOptions(threads=threads, workers=workers, arena=arena, memory_limit=room, provider=provider)
    with Translator.load(model, options=runtime) as translator:
        run(translator, options, host=host, port=port, drain=drain, quiet=quiet)


def _keys(path: Path | None) -> frozenset[str]:
    """The keys in the file and in the environment (ONNXMT_API_KEYS, with commas between them)."""
    import os

    from onnxmt.serve.keys import read_keys

    named = {key.strip() for key in os.environ.get("ONNXMT_API_KEYS", "").split(",")} - {""}
    return frozenset(named) | (read_keys(path) if path is not None else frozenset())


def _dialects(names: str) -> frozenset[str]:
    from onnxmt.serve.options import DIALECTS

    if names in ("all", "none"):
        return frozenset(DIALECTS if names == "all" else ())
    return frozenset(name.strip() for name in names.split(",") if name.strip())
