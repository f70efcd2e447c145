"""The report of a bundle: report.html, one page that opens offline, made from the bundle alone."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from onnxmt.bundle import Bundle, update_manifest
from onnxmt.errors import MissingExtraError, OutputError, UsageError
from onnxmt.folder_writer import PARTIAL_MARK
from onnxmt.inspection.bundle_view import verification_word
from onnxmt.inspection.page import size_text
from onnxmt.measure import report_sections as sections
from onnxmt.measure.gate_report import FP32
from onnxmt.measure.report_page import Alarm, Card, Page, figure, mapping, number
from onnxmt.measure.report_plots import require_matplotlib
from onnxmt.measure.report_sections import REPORT_NAME
from onnxmt.precision import COMPONENTS, Recipe
from onnxmt.runtime.languages import short_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jinja2

    from onnxmt.bundle import BundleWriter
    from onnxmt.manifest import Manifest

__all__ = [
    "REPORT_NAME",
    "Finished",
    "add_report",
    "commit_with_report",
    "render_report",
    "renew_report",
    "write_report",
]

_TEMPLATE = "report.html.j2"


def render_report(bundle: Bundle) -> bytes:
    """Return the page as UTF-8 HTML: no script, and nothing that it would have to fetch.

    The same bundle gives the same bytes. Raises MissingExtraError without jinja2 or matplotlib, BundleError where
    evaluation.json cannot be read.
    """
    environment = _environment()
    require_matplotlib()
    text = environment.from_string(_template()).render(page=_page(bundle))
    # JSON can hold half of a surrogate pair, which no file can.
    return text.encode("utf-8", "replace")


def write_report(bundle: Bundle) -> None:
    """Write report.html into the folder of a bundle that is being made. Raises what `render_report` does."""
    (bundle.folder / REPORT_NAME).write_bytes(render_report(bundle))


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A bundle that was committed; `note` says why it has no report, where it has none."""

    bundle: Bundle
    note: str | None


def commit_with_report(writer: BundleWriter, manifest: Manifest) -> Finished:
    """Write report.html as the last file of a bundle, and commit it.

    A bundle can be made and used without the extra that draws reports: it then has none, and `note` names the extra.
    """
    note = None
    try:
        write_report(writer.described(manifest))
    except MissingExtraError as error:
        note = f"the bundle has no {REPORT_NAME}: {error}, then make it with: onnxmt report BUNDLE"
    return Finished(bundle=writer.commit(manifest), note=note)


def add_report(bundle: Bundle) -> Bundle:
    """Write report.html into a finished bundle and list it in the manifest; nothing is touched where it is the same.

    Raises what `render_report` does, and OutputError.
    """
    data, path = render_report(bundle), bundle.folder / REPORT_NAME
    listed = any(entry.path == REPORT_NAME for entry in bundle.manifest.files)
    if listed and path.read_bytes() == data:
        return bundle
    temporary = path.with_name(f".{REPORT_NAME}{PARTIAL_MARK}{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}. Name another place with -o FILE"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return update_manifest(bundle, bundle.manifest, written=[REPORT_NAME])


def renew_report(bundle: Bundle) -> str | None:
    """Make report.html anew after the manifest of a bundle that has one was changed; say why where that cannot be."""
    if all(entry.path != REPORT_NAME for entry in bundle.manifest.files):
        return None
    try:
        add_report(bundle)
    except MissingExtraError as error:
        return f"{REPORT_NAME} still says what was known before: {error}, then make it anew with: onnxmt report BUNDLE"
    return None


def _environment() -> jinja2.Environment:
    """Everything that a template prints is escaped, but for the drawings: texts and names come from others."""
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise MissingExtraError(needed_for="the report", extra="eval", module="jinja2") from error
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _template() -> str:
    return resources.files("onnxmt.measure").joinpath("templates", _TEMPLATE).read_text(encoding="utf-8")


def _page(bundle: Bundle) -> Page:
    manifest = bundle.manifest
    parts = (
        sections.quality(manifest),
        sections.sentences(bundle),
        sections.verification(manifest),
        sections.sizes(bundle),
        sections.speed(manifest),
        sections.provenance(manifest),
    )
    version = f" {manifest.version}" if manifest.version else ""
    at = f" at {manifest.source.revision}" if manifest.source.revision else ""
    return Page(
        title=f"{manifest.name}{version}",
        recipe=manifest.recipe,
        line=f"{manifest.architecture} translation bundle, made of {manifest.source.model}{at} on {manifest.created}",
        alarms=_alarms(manifest),
        cards=_cards(manifest),
        sections=[part for part in parts if part is not None],
        source_lang=_lang(_only(manifest.languages.default_source, manifest.languages.source)),
        target_lang=_lang(
            mapping(mapping(manifest.quality).get("how")).get("target_language")
            or _only(manifest.languages.default_target, manifest.languages.target)
        ),
        footer=f"Made by onnxmt {manifest.tools.get('onnxmt', '')} from the bundle alone: onnxmt report makes it anew.",
    )


def _alarms(manifest: Manifest) -> list[Alarm]:
    """What must be seen before any figure."""
    word, found = verification_word(manifest), []
    if word == "unverified":
        text = "Nothing has compared these graphs with PyTorch. Do not rely on them: see Verification."
        found.append(Alarm(mood="bad", title="UNVERIFIED", text=text))
    elif word == "verification failed":
        text = "At least one layer differs from PyTorch by more than is allowed: see Verification."
        found.append(Alarm(mood="bad", title="VERIFICATION FAILED", text=text))
    if mapping(manifest.quality).get("gate") == "missed":
        text = f"{manifest.recipe} loses more against fp32 than was allowed: see Quality."
        found.append(Alarm(mood="bad", title="QUALITY GATE MISSED", text=text))
    if manifest.licence.warning:
        found.append(Alarm(mood="warn", title="Licence", text=manifest.licence.warning))
    found += [Alarm(mood="warn", title="Precision", text=warning) for warning in _recipe_warnings(manifest)]
    return found


def _recipe_warnings(manifest: Manifest) -> tuple[str, ...]:
    """What a user of this precision should know; nothing is known of one that a later version added."""
    try:
        return Recipe(name=manifest.recipe, **{part: getattr(manifest.precision, part) for part in COMPONENTS}).warnings
    except UsageError:
        return ()


def _cards(manifest: Manifest) -> list[Card]:
    """The headline: is it right, is it good, how large, how fast."""
    found = mapping(manifest.quality)
    verified, gate = manifest.verification, str(found.get("gate", "not measured"))
    word = verification_word(manifest)
    judge = {"live": "live by PyTorch", "recording": "by a recording of PyTorch", "unverified": "by nothing"}
    whole, fp32 = sections.total_size(manifest), sections.fp32_total(manifest)
    cards = [
        Card(
            label="Verification",
            value=word,
            note=judge[verified.status],
            mood="good" if word.startswith("verified") else "bad",
        ),
        Card(
            label="Quality gate",
            value=gate,
            note="made without evaluation"
            if not found
            else "this is fp32"
            if manifest.precision.exact
            else "against fp32",
            mood={"passed": "good", "missed": "bad"}.get(gate, "plain"),  # type: ignore[arg-type]
        ),
        _score_card(manifest, found),
        Card(
            label="Size",
            value=size_text(whole),
            note=f"{whole / fp32:.0%} of {size_text(fp32)} in {FP32}" if fp32 else "this report apart",
        ),
    ]
    p99 = number(mapping(manifest.speed).get("p99_ms"))
    return [
        *cards,
        Card(
            label="P99 latency",
            value="not measured" if p99 is None else f"{p99:.3g} ms",
            note="no benchmark was run" if p99 is None else "how: see Speed",
        ),
    ]


def _score_card(manifest: Manifest, found: dict[str, Any]) -> Card:
    beams = found.get("beams")
    searched = "greedy" if beams == 1 else f"beam {figure(beams, 0)}"
    if number(found.get("bleu")) is not None:
        modes = map(mapping, mapping(found.get("modes")).values())
        before = next((entry.get("fp32_bleu") for entry in modes if entry.get("beams") == beams), None)
        beside = "" if manifest.precision.exact else f", fp32 {figure(before)}"
        return Card(label="BLEU", value=figure(found["bleu"]), note=f"{searched}{beside}")
    if number(found.get("agreement_chrf")) is not None:
        return Card(label="chrF to fp32", value=figure(found["agreement_chrf"], 1), note=f"{searched}, no references")
    return Card(label="BLEU", value="not measured", note="made without evaluation")


def _only(chosen: str | None, codes: Sequence[str]) -> str | None:
    """The language of the sentences: the one chosen, else the only one there is."""
    return chosen or (codes[0] if len(codes) == 1 else None)


def _lang(code: Any) -> str | None:
    """A BCP 47 tag for a language code, None for what is no language of the table."""
    short = short_code(code) if isinstance(code, str) else None
    return None if short is None else short.replace("_", "-")
