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
    canary: Annotated[
        str | None,
        typer.Option(metavar="NAME:ALIAS", help="Try another version of the model in the store on some requests."),
    ] = None,
    canary_percent: Annotated[
        float, typer.Option(min=0, max=100, metavar="P", help="So many percent of the requests.")
    ] = 5.0,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="The canary gets copies after the answer; its own are only compared.")
    ] = False,
    canary_requests: Annotated[int, typer.Option(min=2, metavar="N", help="Judge a canary after N requests.")] = 20,
    canary_errors: Annotated[
        float, typer.Option(min=0, max=1, metavar="X", help="Return it when a larger share of them failed.")
    ] = 0.02,
    canary_warnings: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="X", help="… when the share with warnings is so much over production's."),
    ] = 0.1,
    canary_latency: Annotated[
        float, typer.Option(min=1, metavar="X", help="… when its median latency is over X times production's.")
    ] = 2.0,
    canary_agreement: Annotated[
        float, typer.Option(min=0, max=1, metavar="X", help="… when its outputs are less like production's than X.")
    ] = 0.6,
    poll: Annotated[
        float,
        typer.Option(min=0.05, max=3600, metavar="S", help="Look every S seconds for what the store's names mean."),
    ] = 1.0,
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
    batch_tokens: Annotated[int, typer.Option(min=16, metavar="N", help="Tokens in a batch.")] = 1536,
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

    A model of the store, NAME:ALIAS, is exchanged without a restart when the alias is given to another version. With
    --canary some requests go to another version, which is returned by itself when it fails, warns, is late or differs.

    \b
    Examples:
      onnxmt serve
      onnxmt serve --model en-zh:production --canary en-zh:canary --canary-percent 5
      onnxmt serve --model ./en-zh --host 0.0.0.0 --port 8000 --api-keys keys.txt
      curl -s localhost:8000/v1/translate -H 'content-type: application/json' -d '{"text": "Good morning."}'
    """
    from onnxmt.runtime.session import RuntimeOptions
    from onnxmt.runtime.translator import Translator
    from onnxmt.serve.guard import cgroup_memory_limit
    from onnxmt.serve.options import BatchOptions, Limits, ServeOptions
    from onnxmt.serve.process import require_extra, run
    from onnxmt.serve.rollout_options import CanaryLimits, rollout_plan

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
    plan = rollout_plan(
        model,
        canary,
        percent=canary_percent,
        shadow=shadow,
        limits=CanaryLimits(
            min_requests=canary_requests,
            max_errors=canary_errors,
            max_warnings=canary_warnings,
            max_latency=canary_latency,
            min_agreement=canary_agreement,
        ),
        poll_seconds=poll,
    )
    with Translator.load(model, options=runtime) as translator:
        if plan is not None:
            plan = plan.loaded(translator.bundle.folder)
        run(translator, options, host=host, port=port, drain=drain, quiet=quiet, rollout=plan)


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
