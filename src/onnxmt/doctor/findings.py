"""What an examination comes to: findings, each with its mend, and notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FaultKind = Literal[
    "unloadable",
    "altered_file",
    "missing_graph",
    "start_token",
    "missing_mask",
    "past_wiring",
    "static_axes",
    "encoder_in_decoder",
    "duplicated_weights",
    "unbanned_pad",
    "tokenizer",
    "language",
    "not_quantized",
    "vocabulary",
    "not_finite",
    "repetition",
    "settings",
    "installation",
]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One mistake: its `kind`, which does not change between versions, what was found, and how to mend it."""

    kind: FaultKind
    where: str
    found: str
    mend: str

    def to_dict(self) -> dict[str, str]:
        """JSON values."""
        return {"kind": self.kind, "where": self.where, "found": self.found, "mend": self.mend}


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was examined, what is wrong with it, and facts that are not mistakes."""

    what: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "what": self.what,
            "healthy": self.healthy,
            "findings": [finding.to_dict() for finding in self.findings],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """A page for a terminal."""
        lines = [f"{self.what}: {'nothing found' if self.healthy else f'{len(self.findings)} found'}"]
        for finding in self.findings:
            lines += ["", f"  {finding.kind}: {finding.where}", f"    {finding.found}", f"    Mend: {finding.mend}"]
        if self.notes:
            lines += ["", *(f"  {note}" for note in self.notes)]
        return "\n".join(lines)
