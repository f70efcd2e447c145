"""Precision recipes: the number format in which each component of a model is stored and computed."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from onnxmt.errors import UsageError

COMPONENTS = ("encoder", "decoder", "cross_kv", "lm_head", "embedding")
PRECISIONS = ("fp32", "int8", "int8-dynamic", "int4")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The precision of each component of a model.

    `encoder` and `decoder` are the linear layers of the two stacks, `cross_kv` the projections of the encoder's output
    to the decoder's cross-attention keys and values, `lm_head` the output projection, `embedding` the token tables.
    `keep_fp32` are fnmatch patterns over weight paths (such as `model.decoder.layers.5.*`) that stay in fp32.
    """

    name: str
    encoder: str = "fp32"
    decoder: str = "fp32"
    cross_kv: str = "fp32"
    lm_head: str = "fp32"
    embedding: str = "fp32"
    keep_fp32: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for component in COMPONENTS:
            found = getattr(self, component)
            if found not in PRECISIONS:
                raise UsageError(f"precision {component}={found!r} is not known; allowed: {', '.join(PRECISIONS)}")

    @property
    def exact(self) -> bool:
        """True when every component is fp32: the graphs must then equal the reference."""
        return all(getattr(self, component) == "fp32" for component in COMPONENTS)

    def precision_of(self, component: str, path: str) -> str:
        """Return the precision of the weight at `path`, which belongs to `component`."""
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in self.keep_fp32):
            return "fp32"
        found: str = getattr(self, component)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain data for the manifest."""
        return {f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v for f in fields(self)}


def _uniform(precision: str) -> Recipe:
    return Recipe(
        name=precision,
        encoder=precision,
        decoder=precision,
        cross_kv=precision,
        lm_head=precision,
        embedding=precision,
    )


PRESETS: Mapping[str, Recipe] = {name: _uniform(name) for name in PRECISIONS}


def recipe(name: str) -> Recipe:
    """Return the preset called `name`; raise UsageError naming the presets."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UsageError(f"precision {name!r} is not known; allowed: {', '.join(PRESETS)}") from None
