"""`onnxmt report`: the page that says what a bundle is, how it was proved, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmt.commands._options import AsJson, BundleFolder


def report(
    bundle: BundleFolder,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where the page goes; - is standard output.  [default: into BUNDLE]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write BUNDLE's report.html: provenance, proof, quality, translations side by side, sizes, speed.

    `migrate` wrote one already; this makes it anew from the bundle alone, as after `verify --write` or a benchmark.
    One file that opens offline, in a browser or on paper.

    \b
    Examples:
      onnxmt report ./en-zh
      onnxmt report demo -o demo.html
    """
    from onnxmt.bundle import read_bundle, require_changeable
    from onnxmt.commands._console import print_json
    from onnxmt.commands._options import DEMO_BUNDLE
    from onnxmt.commands._sink import Sink
    from onnxmt.errors import UsageError
    from onnxmt.measure.report import REPORT_NAME, add_report, render_report

    if output is None and bundle == DEMO_BUNDLE:
        raise UsageError("the packaged demo bundle is not changed: name a file, as in -o demo.html")
    if as_json and str(output) == "-":
        raise UsageError("--json and -o - both write to standard output: name a file with -o, or leave --json out")
    found = read_bundle(bundle)
    if output is None:
        require_changeable(found.folder)
        add_report(found)
        path = bundle / REPORT_NAME
    else:
        path = output
        with Sink(output) as sink:
            sink.write(render_report(found))
    if as_json:
        print_json({"bundle": str(found.folder), "report": str(path), "bytes": path.stat().st_size})
    elif str(output) != "-":
        print(path)
