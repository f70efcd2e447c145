"""What became of one sentence, and the same as JSON for a translation memory."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from onnxmt.runtime.translation import Alternative, SegmentMethod
from onnxmt.text.glossary import TermUse
from onnxmt.text.pair import TextWarning

__all__ = ["Outcome"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One sentence, translated; a warning's span is a place in the sentence, `score` None where no model was asked."""

    text: str
    score: float | None
    tokens: tuple[int, ...]
    finished: bool
    alternatives: tuple[Alternative, ...] = ()
    warnings: tuple[TextWarning, ...] = ()
    method: SegmentMethod = "plain"
    case: Literal["all_caps", "title_case"] | None = None
    terms: tuple[TermUse, ...] = ()

    def to_json(self) -> str:
        """One line of JSON, from which `from_json` makes an equal outcome."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Read what `to_json` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        data: dict[str, Any] = json.loads(text)
        alternatives = (Alternative(**{**one, "tokens": tuple(one["tokens"])}) for one in data["alternatives"])
        warnings = (TextWarning(**{**one, "span": tuple(one["span"])}) for one in data["warnings"])
        return cls(
            **{
                **data,
                "tokens": tuple(data["tokens"]),
                "alternatives": tuple(alternatives),
                "warnings": tuple(warnings),
                "terms": tuple(TermUse(**one) for one in data["terms"]),
            }
        )
