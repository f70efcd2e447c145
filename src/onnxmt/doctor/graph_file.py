"""One ONNX file of a folder: which part of a model it is, by its inputs and outputs, and what it stores."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onnxmt.runtime.kept_tokens import KeptTokens
from onnxmt.runtime.session import NodeInfo, Session

Part = Literal["encoder", "first", "later", "merged", "cached", "whole", "single", "unknown"]
_PAST = re.compile(r"past(?!_decoder)", re.IGNORECASE)
_PRESENT = re.compile(r"present|past|new_key|cache", re.IGNORECASE)
_STATES = re.compile(r"(encoder_)?(hidden_state|output)", re.IGNORECASE)
_TENSOR = re.compile(r"(?:present|past|updated|new|out)_?(?:key_values|kv)?[._]?", re.IGNORECASE)
_LEAST_BYTES = 1 << 14  # smaller tensors (biases, norms) are not worth a word, and often equal by chance
_QUANTIZED_TYPES = frozenset({"INT8", "UINT8", "INT4", "UINT4", "FLOAT8E4M3FN", "FLOAT8E5M2"})


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A stored tensor: what it is called, its content by hash (either way round for a matrix), type and bytes.

    `place` is where it lies: a range of a file of weights, or in the graph's own file.
    """

    name: str
    content: str
    place: tuple[str, int]
    dtype: str
    bytes: int


@dataclass(frozen=True)
class GraphFile:
    """A loaded graph.

    `part`: "first" decodes without a past, "later" with one, "merged" either by a switch, "cached" either by a past of
    length 0 (a bundle's), "whole" holds the encoder too, "single" gives ids.
    """

    path: Path
    session: Session

    @property
    def inputs(self) -> Mapping[str, NodeInfo]:
        """The graph's inputs by name."""
        return self.session.inputs

    @property
    def outputs(self) -> Mapping[str, NodeInfo]:
        """The graph's outputs by name."""
        return self.session.outputs

    @property
    def past(self) -> tuple[str, ...]:
        """The inputs that hold keys and values of earlier steps."""
        return tuple(name for name in self.inputs if _PAST.search(name))

    @property
    def present(self) -> tuple[str, ...]:
        """The outputs that hold keys and values for the next step."""
        return tuple(name for name, node in self.outputs.items() if _PRESENT.search(name) and len(node.axes) == 4)

    @property
    def cross(self) -> tuple[str, ...]:
        """The inputs that hold the encoder's keys and values, which no step changes (a bundle's `cross.…`)."""
        return tuple(name for name in self.inputs if name.startswith("cross."))

    @property
    def states(self) -> str | None:
        """The input for the encoder's output."""
        found = (n for n, node in self.inputs.items() if _STATES.search(n) and len(node.axes) == 3)
        return next(found, None)

    @property
    def logits(self) -> str | None:
        """The output with a score for each token."""
        return next((name for name in self.outputs if "logits" in name.lower()), None)

    @property
    def ids(self) -> str | None:
        """The input for the decoder's tokens, or the encoder's."""
        names = [n for n in self.inputs if "input_ids" in n.lower() or n.lower() in ("ids", "tokens", "decoder_ids")]
        return next((n for n in names if "decoder" in n.lower()), names[0] if names else None)

    @property
    def masks(self) -> tuple[str, ...]:
        """The inputs that say which source tokens are padding."""
        return tuple(n for n in self.inputs if "mask" in n.lower() and not n.lower().startswith("decoder_attention"))

    @functools.cached_property
    def part(self) -> Part:
        """Which part of a model this is."""
        if self.logits is None:
            integers = [node for node in self.outputs.values() if np.issubdtype(node.dtype, np.integer)]
            if integers and not self.past:
                return "single"
            return "encoder" if self.ids is not None and not self.past and self.states is None else "unknown"
        if self.ids is None:
            return "unknown"
        sources = [n for n in self.inputs if "input_ids" in n.lower() and "decoder" not in n.lower()]
        if "decoder" in self.ids.lower() and sources:
            return "whole"
        if self.past:
            if any("use_cache" in name for name in self.inputs):
                return "merged"
            return "cached" if self.cross else "later"
        return "first" if self.states is not None or self.cross else "unknown"

    @property
    def kept(self) -> KeptTokens | None:
        """The tokens that a trimmed head scores; None: all."""
        return KeptTokens.from_metadata(self.session.metadata, where=self.path.name)

    @property
    def vocabulary(self) -> int | None:
        """How many tokens there are by the logits' last axis; None where the graph leaves it open."""
        if self.kept is not None:
            return self.kept.vocabulary
        last = None if self.logits is None else self.outputs[self.logits].axes[-1]
        return last if isinstance(last, int) else None

    def carried(self) -> dict[str, str]:
        """Past input → present output with the same name behind `past…` and `present…`; what has none is left out."""
        present = {_tail(name): name for name in self.present}
        return {name: present[_tail(name)] for name in self.past if _tail(name) in present}

    def stored(self) -> Iterator[Stored]:
        """Each stored tensor of some size, one after another."""
        import onnx_ir as ir

        for graph in _graphs(ir.load(self.path).graph):
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is None or tensor.nbytes < _LEAST_BYTES:
                    continue
                external = isinstance(tensor, ir.ExternalTensor)
                yield Stored(
                    name=str(value.name),
                    content=_content(tensor.numpy()),
                    place=(str(tensor.location), tensor.offset or 0) if external else (self.path.name, id(value)),
                    dtype=tensor.dtype.name,
                    bytes=tensor.nbytes,
                )

    def stored_in_nodes(self) -> frozenset[str]:
        """The names of all stored tensors, small ones too."""
        import onnx_ir as ir

        return frozenset(str(name) for graph in _graphs(ir.load(self.path).graph) for name in graph.initializers)


def is_quantized(dtype: str) -> bool:
    """Whether a stored type is one of quantised weights."""
    return dtype in _QUANTIZED_TYPES


def tail(name: str) -> str:
    """What is left of a name behind `past_key_values.`, `present.` and the like."""
    return _tail(name)


def _tail(name: str) -> str:
    return _TENSOR.sub("", name, count=1).replace("decoder.", "")


def _graphs(graph: Any) -> Iterator[Any]:
    """The graph, and those inside its nodes."""
    yield graph
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type.name == "GRAPH":
                yield from _graphs(attribute.as_graph())
            elif attribute.type.name == "GRAPHS":
                for inner in attribute.as_graphs():
                    yield from _graphs(inner)


def _content(array: Any) -> str:
    """A name for the numbers in an array, the same for a matrix and its transpose."""
    ways = [array, array.T] if array.ndim == 2 else [array]
    return min(hashlib.sha256(np.ascontiguousarray(way).tobytes()).hexdigest() for way in ways)
