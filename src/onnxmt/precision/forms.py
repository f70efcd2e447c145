"""What a number format must offer: the arrays it stores for a weight, and the operators it emits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class StoredArray:
    """One array of the weights file: made only when it is written.

    Two arrays with the same `key` have the same bytes, and are stored once however many graphs use them; their shapes
    may differ, since one operator wants [rows, blocks, bytes] where another wants [rows, bytes].
    """

    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[], Array]


class MatrixForm(Protocol):
    """How one matrix W [rows = outputs, columns = inputs] is stored and multiplied."""

    def arrays(self, key: str, read: Callable[[], Array]) -> dict[str, StoredArray]:
        """Return the arrays to store, by local name; `read` gives W in float32."""
        ...

    def multiply(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit x W^T + bias for x [..., columns]; `stored` maps the local names to graph values."""
        ...


class TableForm(Protocol):
    """How one token table E [rows = vocabulary, columns = width] is stored, gathered from, and projected onto."""

    def arrays(self, key: str, read: Callable[[], Array], *, use: str) -> dict[str, StoredArray]:
        """Return the arrays to store, by local name, for `use` "gather" or "project"; `read` gives E in float32."""
        ...

    def gather(self, op: Any, ids: Any, stored: Mapping[str, Any]) -> Any:
        """Emit E[ids], float32 [..., columns]."""
        ...

    def project(self, op: Any, x: Any, stored: Mapping[str, Any], bias: Any | None) -> Any:
        """Emit x E^T + bias for x [B, columns] → [B, rows]."""
        ...
