"""Aliases: giving one to a version that is good enough, returning it to an earlier one, taking it away."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from onnxmt.bundle import read_bundle
from onnxmt.errors import PromotionRefusedError, StoreError, UsageError
from onnxmt.store import regression
from onnxmt.store.adding import summary
from onnxmt.store.figures import Check, Figures, PromoteLimits, compare_figures, figures_of, own_faults
from onnxmt.store.names import CANARY, PRODUCTION, check_part
from onnxmt.store.shelf import Shelf
from onnxmt.store.state import Event, State


@dataclass(frozen=True, kw_only=True)
class PromoteOptions:
    """How a version is promoted to `alias`; `force` goes over a refusal, and needs a reason, which is recorded."""

    alias: str = PRODUCTION
    limits: PromoteLimits = field(default_factory=PromoteLimits)
    force: bool = False
    reason: str | None = None

    def __post_init__(self) -> None:
        check_part("alias", self.alias)
        if self.force and not (self.reason and self.reason.strip()):
            raise UsageError("--force goes over a refusal: say why with --reason, which the history keeps")


@dataclass(frozen=True, kw_only=True)
class Promoted:
    """The alias's new version and the one before; what was compared; why it was refused, where it was forced.

    `event` is None where the version held the alias already.
    """

    version: str
    before: str | None
    checks: tuple[Check, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    event: Event | None


def promote(shelf: Shelf, ref: str, *, options: PromoteOptions | None = None) -> Promoted:
    """Let an alias mean another version, in one step, with the evidence in the history.

    The version's files are hashed first. Raises PromotionRefusedError where its gate or verification failed, or where
    it is worse than the one that it replaces; ModelNotFoundError, BundleError, StoreError.
    """
    options = options or PromoteOptions()
    while True:
        state = shelf.require()
        version = shelf.version(ref, state)
        _require_no_version(shelf, state, options.alias)
        against = _rival(state, options.alias, version)
        found = _judged(shelf, version, against, options)
        with shelf.changing() as change:
            now = change.state
            if now.version_of(ref) != version or _rival(now, options.alias, version) != against:
                continue  # somebody else was quicker: judge against what is there now
            _require_no_version(shelf, now, options.alias)
            held = now.aliases.get(options.alias)
            before = None if held is None else held.version
            if before == version:
                return Promoted(
                    version=version, before=before, checks=found.checks, faults=(), notes=found.notes, event=None
                )
            after = now.with_alias(options.alias, version)
            event = change.commit(
                after,
                "promote",
                version=version,
                alias=options.alias,
                before=before,
                reason=options.reason,
                forced=bool(found.faults),
                evidence={**found.evidence, "stage": after.stage_of(version)},
            )
        return Promoted(
            version=version,
            before=before,
            checks=found.checks,
            faults=found.faults,
            notes=found.notes,
            event=event,
        )


def rollback(shelf: Shelf, alias: str = PRODUCTION, *, to: str | None = None, reason: str | None = None) -> Event:
    """Return an alias to the version that held it before (once more: the one before that), or to an earlier one, `to`.

    Raises StoreError where there is none to return to.
    """
    shelf.require()
    with shelf.changing() as change:
        state = change.state
        held = state.aliases.get(alias)
        if held is None:
            shelf.version(alias, state)
            raise StoreError(f"{shelf.name}:{alias} is a version, not an alias: name an alias to roll back")
        earlier = [name for name in held.previous if name in state.versions and name != held.version]
        if to is not None and to not in earlier:
            shown = ", ".join(dict.fromkeys(reversed(earlier))) or "none"
            raise StoreError(f"{shelf.name}:{alias} never meant {to!r}, or it was removed; earlier versions: {shown}")
        if not earlier:
            raise StoreError(
                f"{shelf.name}:{alias} means {held.version} and has no earlier version to return to: promote another"
            )
        version = to or earlier[-1]
        return change.commit(
            state.rolled_back(alias, version),
            "rollback",
            version=version,
            alias=alias,
            before=held.version,
            reason=reason,
        )


def clear(
    shelf: Shelf,
    alias: str,
    *,
    expected: str | None = None,
    reason: str | None = None,
    evidence: Mapping[str, Any] | None = None,
    action: Literal["clear", "return"] = "clear",
) -> Event | None:
    """Take an alias away; with `expected` only if it still means that version (None: it does not, nothing is done).

    The history calls it `action`: `return` is what a service does with a canary that has left its limits.

    Raises ModelNotFoundError where there is no such alias, StoreError for `production`, which is only ever moved.
    """
    if alias == PRODUCTION:
        raise StoreError("the alias production is moved, never taken away: promote another version, or roll back")
    shelf.require()
    with shelf.changing() as change:
        held = change.state.aliases.get(alias)
        if held is None and expected is None:
            shelf.version(alias, change.state)
        if held is None or (expected is not None and held.version != expected):
            return None
        return change.commit(
            change.state.without_alias(alias),
            action,
            alias=alias,
            before=held.version,
            reason=reason,
            evidence=evidence,
        )


def record_return(shelf: Shelf, version: str, *, reason: str, evidence: Mapping[str, Any]) -> Event:
    """Keep in the history that a service has returned a canary that was named by its version, which no alias holds."""
    with shelf.changing() as change:
        return change.commit(change.state, "return", version=version, reason=reason, evidence=evidence)


@dataclass(frozen=True, kw_only=True)
class _Judged:
    checks: tuple[Check, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    evidence: Mapping[str, Any]


def _require_no_version(shelf: Shelf, state: State, alias: str) -> None:
    """A name means one thing: a version, now or once, or an alias."""
    if alias in state.versions or alias in state.removed:
        raise StoreError(f"{alias!r} is a version of {shelf.name}, so it cannot be an alias: name another")


def _rival(state: State, alias: str, version: str) -> str | None:
    """The version to compare with: who holds the alias, or production where nobody or a canary does."""
    production = state.version_of(PRODUCTION)
    held = state.version_of(alias)
    rival = production if alias == CANARY or held is None else held
    return None if rival == version else rival


def _judged(shelf: Shelf, version: str, against: str | None, options: PromoteOptions) -> _Judged:
    bundle = read_bundle(shelf.version_folder(version))  # by hash: no damaged file gets an alias
    ours = figures_of(bundle)
    theirs: Figures | None = None
    checks: tuple[Check, ...] = ()
    if against is not None:
        theirs = figures_of(read_bundle(shelf.version_folder(against), check="size"))
        checks = compare_figures(ours, theirs, options.limits)
    faults = own_faults(ours) + [check.line() for check in checks if check.passed is False]
    if faults and not options.force:
        beside = "" if against is None else f" beside {shelf.name}:{against}"
        raise PromotionRefusedError(
            f"{shelf.name}:{version} is not promoted to {options.alias}{beside}: {'; '.join(faults)}. Allow more with "
            'the limits, or go over it with --force --reason "…"'
        )
    notes = [check.line() for check in checks if check.passed is None]
    if ours.verification == "unverified":
        notes.insert(0, "it is unverified: nothing has compared it with PyTorch (onnxmt verify)")
    if ours.gate is None:
        notes.insert(0, "its quality was not measured when it was made: no gate stands behind it")
    changes = _regression(shelf, version, against)
    evidence = {
        "digest": shelf.state().versions[version].digest,
        "figures": ours.to_dict(),
        "against": against,
        "limits": dataclasses.asdict(options.limits),
        "checks": [dataclasses.asdict(check) for check in checks],
        "faults": faults,
        **({} if changes is None else {"regression": summary(changes)}),
    }
    return _Judged(checks=checks, faults=tuple(faults), notes=tuple(notes), evidence=evidence)


def _regression(shelf: Shelf, version: str, against: str | None) -> regression.Comparison | None:
    """What changed on the regression set, from what is kept."""
    kept = regression.read_outputs(shelf, version)
    if kept is None:
        return None
    label = f"{shelf.name}:{version}"
    if approved := regression.approved_outputs(shelf):
        return regression.compare(approved, kept.outputs, labels=("approved", label))
    other = None if against is None else regression.read_outputs(shelf, against)
    if other is None:
        return None
    return regression.compare(other.outputs, kept.outputs, labels=(f"{shelf.name}:{against}", label))
