"""`onnxmt doctor`: what is wrong with a folder of graphs, or with this installation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmt.commands._options import AsJson


def doctor(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR",
            help="A folder of ONNX graphs, or NAME:VERSION|ALIAS.  [default: this installation]",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Name what is wrong with an exported translation model, and how to mend it.

    DIR may be a bundle, a folder of Optimum or transformers.js, or any export of encoder and decoders: parts are told
    by their inputs and outputs. The graphs are read, and run on a few sentences. Exit code 1 when something is found.

    Found are: a wrong or missing start token, a mask that is missing or has no effect, keys and values that reach the
    wrong layer, fixed axes, an encoder inside the decoder, weights stored twice, padding that may be generated, missing
    tokenizer files, an unset target language, quantised files that are not, vocabularies that do not belong together,
    NaN, and loops.

    Without DIR: versions, providers, CPU features, threads, and what does not fit together.

    \b
    Examples:
      onnxmt doctor
      onnxmt doctor ./opus-mt-en-zh-onnx
    """
    from onnxmt.commands._console import print_json

    if folder is None:
        from onnxmt.doctor.environment import examine_installation, installation

        found = examine_installation(installation())
    else:
        from onnxmt.doctor.examination import examine_folder
        from onnxmt.store.resolving import find

        stored = None if Path(folder).exists() else find(folder)
        found = examine_folder(folder if stored is None else stored.folder)
    if as_json:
        print_json(found.to_dict())
    else:
        print(found.text())
    if not found.healthy:
        raise typer.Exit(1)
