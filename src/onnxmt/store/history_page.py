"""The page of a version: its report with its history in the store in front."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path

from onnxmt.bundle import read_bundle
from onnxmt.store import regression
from onnxmt.store.adding import changes_against
from onnxmt.store.shelf import Shelf
from onnxmt.store.state import Event

_REPORT_NAME = "report.html"
_MOST_CHANGES = 200


def version_page(shelf: Shelf, version: str) -> bytes:
    """Return the report of a version as it lies in its bundle, with history and changed translations put before it.

    The bundle's own report is made by the extra `eval`; a version without one gets a page of the history alone.
    """
    bundle = read_bundle(shelf.version_folder(version), check="size")
    report: Path = bundle.folder / _REPORT_NAME
    listed = any(entry.path == _REPORT_NAME for entry in bundle.manifest.files)
    title = f"{shelf.name}:{version}"
    part = _section(shelf, version, title)
    if not listed:
        head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title></head>'
        return f"{head}<body>{part}</body></html>\n".encode("utf-8", "replace")
    page = report.read_text(encoding="utf-8")
    start = page.find("<body")
    place = page.find(">", start) + 1
    return f"{page[:place]}{part}{page[place:]}".encode("utf-8", "replace")


def _section(shelf: Shelf, version: str, title: str) -> str:
    state = shelf.require()
    events = [
        event for event in shelf.history() if version in (event.version, event.before) or event.action == "approve"
    ]
    held = ", ".join(state.aliases_of(version)) or "none"
    kept = regression.read_outputs(shelf, version)
    changes = None if kept is None else changes_against(shelf, state, version, kept.outputs)
    return (
        f'<section style="max-width:60rem;margin:1rem auto;font-family:sans-serif"><h1>{html.escape(title)}</h1>'
        f"<p>Stage {state.stage_of(version)}; aliases: {html.escape(held)}; added "
        f"{html.escape(state.versions[version].added)}.</p>{_history(events)}{_changes(changes)}</section>"
    )


def _history(events: Sequence[Event]) -> str:
    rows = []
    for event in events:
        what = f"{event.action}{f' ({event.alias})' if event.alias else ''}{', forced' if event.forced else ''}"
        moved = f"{event.before or 'none'} → {event.version or 'none'}" if event.alias else event.version or ""
        evidence = html.escape(json.dumps(dict(event.evidence), ensure_ascii=False, indent=1))
        details = f"<details><summary>evidence</summary><pre>{evidence}</pre></details>" if event.evidence else ""
        cells = (event.when, what, moved, event.who, event.reason or "")
        rows.append(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}<td>{details}</td></tr>")
    head = "".join(f"<th>{name}</th>" for name in ("when", "what", "version", "who", "why", ""))
    return f"<h2>History</h2><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _changes(changes: regression.Comparison | None) -> str:
    if changes is None:
        return ""
    rows = "".join(
        f"<tr><td>{html.escape(one.sentence)}</td><td>{html.escape(one.before)}</td><td>{html.escape(one.after)}</td>"
        f"<td>{one.tokens_changed} of {max(one.tokens_before, one.tokens_after)}</td></tr>"
        for one in changes.changed[:_MOST_CHANGES]
    )
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("sentence", changes.before, changes.after, "tokens"))
    return (
        f"<h2>Regression set</h2><p>{len(changes.changed)} of {changes.compared} translations differ from "
        f"{html.escape(changes.before)}.</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )
