"""The architectures that can be migrated: config.json → an `Architecture` that builds the graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxmt.errors import UnsupportedModelError

if TYPE_CHECKING:
    from .graphs import Architecture

MODEL_TYPES = ("marian", "mbart", "m2m_100", "bart", "t5", "mt5", "umt5")


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a config.json mapping; raise UnsupportedModelError naming what is not implemented."""
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise UnsupportedModelError(
            f"config.json: model_type is {model_type!r}, which cannot be migrated; supported: {', '.join(MODEL_TYPES)}"
        )
    from . import bart, t5  # they build on onnxscript, which `inspect` of a bundle does not need

    return t5.T5Config.parse(config) if model_type in t5.TRAITS else bart.BartConfig.parse(config)
