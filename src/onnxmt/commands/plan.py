"""`onnxmt plan`: what fits into a container."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxmt.commands._options import AsJson, BundleFolder


def plan(
    bundle: BundleFolder,
    memory: Annotated[str, typer.Option(metavar="AMOUNT", help="What the process may take, such as 512Mi.")] = "512Mi",
    cpus: Annotated[
        float | None, typer.Option(metavar="N", help="CPUs.  [default: what affinity and quota allow]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which precision, beams, batch size and threads fit into so much memory.

    BUNDLE is loaded and run for a moment in a process of its own; other precisions are estimated from its size. Exit
    code 1 when the bundle does not fit at all. Translator.load(memory_limit=...) keeps to a limit.

    \b
    Example:
      onnxmt plan ./en-zh-int8 --memory 512Mi --cpus 2
    """
    from onnxmt.commands._console import print_json, stdout_console
    from onnxmt.measure.plan import make_plan
    from onnxmt.runtime.cpu import cpu_limit
    from onnxmt.runtime.memory import parse_bytes

    found = make_plan(bundle, memory=parse_bytes(memory), cpus=cpu_limit().threads if cpus is None else cpus)
    if as_json:
        print_json(found.to_dict())
    else:
        found.print_to(stdout_console())
    if not found.fits:
        raise typer.Exit(1)
