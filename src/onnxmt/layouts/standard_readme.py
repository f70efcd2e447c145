"""The README.md beside the graphs of the standard layout: what each file is for, and which can be deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxmt.layouts.standard import TokenizerJson
    from onnxmt.plan import Plan

_USES = {
    "encoder_model": "the encoder: everybody needs it",
    "decoder_model_merged": "every decoding step (`use_cache_branch`): Optimum (default) and transformers.js",
    "decoder_model": "the first step: Optimum with `use_merged=False`, OpenVINO, TensorRT",
    "decoder_with_past_model": "the later steps: the same",
    "model": "the weights of all graphs: keep it beside whichever of them you keep",
}


def readme(
    plan: Plan, sizes: Mapping[str, int], *, opset: int, precision: str, suffix: str, tokenizer: TokenizerJson
) -> str:
    """Return the text; `sizes` are bytes of the files in onnx/ by their path."""
    rows = "\n".join(
        f"| `{path.rpartition('/')[2]}` | {size / 1e6:,.1f} MB | {_use(path, suffix)} |"
        for path, size in sorted(sizes.items())
    )
    start = plan.settings.decoder_start_token_id
    return f"""# ONNX graphs of {plan.checkpoint.name}

Written by onnxmt: plain ONNX operators, opset {opset}, {precision}. `../onnxmt.json` says from what.

| file | size | for |
|---|---|---|
{rows}

- transformers.js needs the encoder and the merged decoder; the other two can be deleted. It searches greedily whatever
  `num_beams` says.
- Optimum needs the encoder and either the merged decoder, or the other two.
- Decoding starts with token {start}. Bans, forced tokens and lengths are in `../generation_config.json`.
- Text: `../tokenizer.json` is {tokenizer.origin}.
"""


def _use(path: str, suffix: str) -> str:
    name = path.rpartition("/")[2].rpartition(".")[0]
    return _USES[name.removesuffix(suffix)] if suffix else _USES[name]
