"""Whether graphs run at all: a few sentences through encoder and decoder, every value a number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onnxmt.errors import QualityGateError, TokenizerError
from onnxmt.measure.sentences import verification_sentences
from onnxmt.runtime.translator import Translator

STEPS = 3
_SENTENCES = 6


def require_finite(translator: Translator, *, label: str) -> None:
    """Run sentences from short to long for a few steps each; raise QualityGateError for the first value that is no
    number, and SessionError where ONNX Runtime refuses a graph or a run."""
    model, limit = translator.model, translator.limit
    texts = sorted((sentence.text for sentence in verification_sentences().sentences), key=len)
    for text in (texts[i * (len(texts) - 1) // (_SENTENCES - 1)] for i in range(_SENTENCES)):
        try:
            told = translator.direction
            tokens = translator.tokenizer.encode(text, source=told.source, target=told.target)
        except TokenizerError:  # a model that knows no default language cannot encode without one
            continue
        ids = np.array([tokens[:limit]], dtype=np.int64)
        mask = np.ones_like(ids)
        cross = model.encode(ids, mask)
        _require_numbers(cross, text, label, "the encoder")
        scored = model.scored(ids, mask)
        _require_numbers(dict(scored.feeds), text, label, "the head")
        past = model.empty_past(1)
        token = translator.settings.decoder_start_token_id
        for step in range(1, STEPS + 1):
            fed = np.array([[token]], dtype=np.int64)
            outputs = model.run_decoder({"input_ids": fed, "attention_mask": mask, **cross, **past, **scored.feeds})
            _require_numbers(outputs, text, label, f"decoder step {step}")
            past = {name: outputs[f"present.{name.removeprefix('past.')}"] for name in past}
            best = int(outputs["logits"][0].argmax())
            token = best if scored.kept is None else int(scored.kept.ids[best])


def _require_numbers(outputs: dict[str, NDArray[np.generic]], text: str, label: str, place: str) -> None:
    for name, values in outputs.items():
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            kind = "nan" if np.isnan(values).any() else "infinite values"
            raise QualityGateError(
                f"the graphs in {label} give {kind} in {name} ({place}, {text[:60]!r}): "
                "keep these layers in fp32, or choose another precision"
            )
