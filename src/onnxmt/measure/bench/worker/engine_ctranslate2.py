"""CTranslate2, converted from the checkpoint by its own converter."""

from __future__ import annotations

import json
import os
from pathlib import Path

import ctranslate2


class CTranslate2:
    """A converted model, fed with the same tokens."""

    def __init__(self, folder: Path, *, precision: str, threads: int, workers: int) -> None:
        self._translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=precision, inter_threads=workers, intra_threads=threads
        )
        shared = folder / "shared_vocabulary.json"
        self._tokens = json.loads((shared if shared.exists() else folder / "source_vocabulary.json").read_text("utf-8"))

    def versions(self) -> dict[str, str]:
        """Return the packages that compute."""
        return {"ctranslate2": ctranslate2.__version__}

    def translate(self, ids: list[list[int]], *, beams: int, tokens: int | None) -> list[int]:
        """Translate one batch; see run.Engine. The end of sentence is not among CTranslate2's own output."""
        texts = [[self._tokens[token] for token in row] for row in ids]
        forced = {} if tokens is None else {"min_decoding_length": tokens, "max_decoding_length": tokens}
        found = self._translator.translate_batch(texts, beam_size=beams, max_batch_size=0, **forced)
        return [len(result.hypotheses[0]) + (tokens is None) for result in found]


def convert(*, model: str, precision: str, converted: str, threads: int, workers: int) -> None:  # noqa: ARG001 (as load)
    """Convert the checkpoint into folder `converted`."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(model).convert(converted, quantization=precision)


def load(*, model: str, precision: str, converted: str, threads: int, workers: int) -> CTranslate2:  # noqa: ARG001
    """Load what `convert` wrote."""
    return CTranslate2(Path(converted), precision=precision, threads=threads, workers=workers)
