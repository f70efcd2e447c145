"""The store in words: lists, histories, and what differs, as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxmt.store.comparing import Difference, Fact
    from onnxmt.store.regression import Comparison
    from onnxmt.store.state import Event

_MOST_SHOWN = 20


def listing(name: str | None) -> list[dict[str, Any]]:
    """Models with their versions, as JSON values; `name`: only that one, which must be there."""
    from onnxmt.store.shelf import shelf_of, shelves

    found = []
    for shelf in shelves() if name is None else (shelf_of(name),):
        state = shelf.require()
        versions = [
            {
                "name": f"{shelf.name}:{version}",
                "version": version,
                "stage": state.stage_of(version),
                "aliases": list(state.aliases_of(version)),
                "precision": one.recipe,
                "bytes": one.bytes,
                "added": one.added,
                "digest": one.digest,
            }
            for version, one in state.versions.items()
        ]
        found.append({"model": shelf.name, "versions": versions})
    return found


def listing_text(models: Sequence[Mapping[str, Any]]) -> str:
    """One line a version."""
    rows = [
        (one["name"], one["precision"], f"{one['bytes'] / 1e6:,.1f} MB", one["added"], ", ".join(one["aliases"]) or "-")
        for model in models
        for one in model["versions"]
    ]
    return _columns([("version", "precision", "size", "added", "aliases"), *rows]) if rows else ""


def version_text(found: Mapping[str, Any]) -> str:
    """A version, one fact a line."""
    figures = found["figures"]
    lines = {
        "name": found["name"],
        "stage": found["stage"],
        "aliases": ", ".join(found["aliases"]) or "none",
        "precision": found["recipe"],
        "size": f"{found['bytes']:,} bytes",
        "added": found["added"],
        "digest": found["digest"],
        "same content": ", ".join(found["same_as"]) or "no other",
        "verification": figures["verification"],
        "quality gate": figures["gate"] or "not measured",
        "BLEU": figures["bleu"] if figures["bleu"] is not None else "not measured",
        "chrF": figures["chrf"] if figures["chrf"] is not None else "not measured",
        "P99": "; ".join(f"{value:.4g} ms ({setting})" for setting, value in figures["p99_ms"].items())
        or "not measured",
        "regression set": f"{found['regression_outputs'] or 0} translations",
        "as a canary": _rollout_text(found["rollout"]),
        "folder": found["folder"],
    }
    return _columns([(f"{name}:", str(value)) for name, value in lines.items()])


def _rollout_text(stats: Mapping[str, Any] | None) -> str:
    if stats is None:
        return "never"
    ours = stats["canary"]
    agreement = f"{stats['likeness'] / stats['compared']:.2f}" if stats["compared"] else "unknown"
    ended = f"; returned: {stats['returned']}" if stats["returned"] else ""
    return (
        f"{ours['requests']} requests, {ours['errors']} failed, {ours['warned']} with warnings, agreement {agreement}"
        f"{ended}"
    )


def history_text(events: Iterable[Event]) -> str:
    """One line an event."""
    rows = []
    for event in events:
        moved = event.version or "-"
        if event.alias:
            moved = f"{event.alias}: {event.before or 'none'} → {event.version or 'none'}"
        what = f"{event.action}{', forced' if event.forced else ''}"
        rows.append((event.when, what, moved, event.who, event.reason or ""))
    return _columns([("when", "what", "version", "who", "why"), *rows]) if rows else ""


def changes_text(changes: Comparison) -> str:
    """What changed on the regression set, the first of them in full."""
    lines = [
        f"{len(changes.changed)} of {changes.compared} translations differ between {changes.before} and {changes.after}"
        + (f"; {changes.tokens_only} more in tokens alone" if changes.tokens_only else "")
    ]
    for one in changes.changed[:_MOST_SHOWN]:
        where = "" if one.first_token is None else f", from token {one.first_token}"
        longest = max(one.tokens_before, one.tokens_after)
        lines += [f"  {one.sentence}", f"    {one.marked}  ({one.tokens_changed} of {longest} tokens{where})"]
    if len(changes.changed) > _MOST_SHOWN:
        lines.append(f"  and {len(changes.changed) - _MOST_SHOWN} more: --json shows all")
    return "\n".join(lines)


def difference_text(found: Difference) -> str:
    """Two versions side by side."""
    lines = [f"{found.first} and {found.second}: {'the same content' if found.same_content else 'different content'}"]
    for title, facts in (("Settings", found.facts), ("Files", found.files)):
        if facts:
            lines += ["", title, _columns([(f"  {fact.name}", *_sides(fact)) for fact in facts])]
    lines += ["", "Figures (new, then old)", *(f"  {check.line()}" for check in found.checks)]
    if found.changes is not None:
        lines += ["", "Regression set", changes_text(found.changes)]
    return "\n".join(lines)


def _sides(fact: Fact) -> tuple[str, str]:
    return _shown(fact.first), _shown(fact.second)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and "bytes" in value:
        return f"{value['bytes']:,} bytes{f' ({digest})' if (digest := value.get('sha256')) else ''}"
    return "-" if value is None else str(value)


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
