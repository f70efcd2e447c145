"""`onnxmt shortlist`: an fp32 bundle in another precision, whose head scores the likely tokens of a sentence alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmt.commands._options import AsJson, BundleFolder, KeepFp32, OutputFolder, Overwrite, Precision
from onnxmt.commands.migrate import Gate


def shortlist(
    bundle: BundleFolder,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Lines in the source language, UTF-8.", show_default=False)
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Their translations, line for line.", show_default=False)
    ],
    output: OutputFolder = None,
    precision: Precision = "int8",
    keep_fp32: KeepFp32 = None,
    per_token: Annotated[
        int, typer.Option(metavar="N", help="The most target tokens that are learnt for a source token.")
    ] = 50,
    always: Annotated[
        int, typer.Option(metavar="N", help="So many of the most frequent target tokens are candidates everywhere.")
    ] = 500,
    gate: Annotated[
        Gate,
        typer.Option(
            help="A shortlist that loses more than the limits against fp32 is not written (enforce), is only reported "
            "(report), or nothing is evaluated (off)."
        ),
    ] = Gate.ENFORCE,
    max_bleu_drop: Annotated[
        float, typer.Option(metavar="X", help="BLEU points that may be lost; a domain or length may lose twice that.")
    ] = 0.5,
    max_chrf_drop: Annotated[
        float | None, typer.Option(metavar="X", help="The same for chrF.  [default: 0.7 of the BLEU points]")
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Evaluate on these lines (DOMAIN, SOURCE, REFERENCE between tabs) instead of the shipped ones.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write BUNDLE, which must be in fp32, with a shortlist learnt from a parallel text.

    The head then scores, for each sentence, the target tokens that the text has beside its source tokens, and those
    that any sentence may need: faster, and what is no candidate cannot be said. So give it a large text of the domain
    (100,000 lines and more), and evaluate on others. The languages are BUNDLE's default ones. Compares the result with
    BUNDLE's own translations and prints the new folder as the last line.

    \b
    Examples:
      onnxmt shortlist ./en-zh-fp32 news.en news.zh -o en-zh-fast
      onnxmt shortlist ./en-zh-fp32 news.en news.zh --precision int4 --per-token 100 --always 1000
    """
    from onnxmt.commands._options import chosen_recipe
    from onnxmt.commands.quantize import write
    from onnxmt.measure.gate_report import GateLimits
    from onnxmt.measure.texts import read_table
    from onnxmt.quantization import QuantizeOptions
    from onnxmt.shortlisting import ShortlistOptions

    options = QuantizeOptions(
        precision=chosen_recipe(precision, keep_fp32, None),
        gate=gate.value,
        limits=GateLimits(max_bleu_drop=max_bleu_drop, max_chrf_drop=max_chrf_drop),
        evaluation=None if evaluation is None else read_table(evaluation),
        overwrite=overwrite,
        shortlist=ShortlistOptions(source=source, target=target, per_token=per_token, always=always),
    )
    write(bundle, output, options, search=False, as_json=as_json)
