"""A manifest turned into the sections of a report: provenance, verification, sizes, quality, sentences, speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxmt.bundle import Bundle
from onnxmt.inspection.bundle_view import verification_word
from onnxmt.inspection.page import counted, listed, size_text
from onnxmt.manifest import Manifest
from onnxmt.measure.gate_report import FP32
from onnxmt.measure.quality import EVALUATION_NAME, FP32_SIZES, read_evaluation
from onnxmt.measure.report_page import (
    UNKNOWN,
    Plot,
    Row,
    Section,
    Table,
    figure,
    mapping,
    mappings,
    number,
    percent,
)
from onnxmt.measure.report_plots import LayerError, Point, error_plot, score_plot
from onnxmt.measure.report_sentences import SHOWN, side_by_side
from onnxmt.precision import COMPONENTS

REPORT_NAME = "report.html"


def provenance(manifest: Manifest) -> Section:
    """Where the bundle comes from, its licence, what it is, and what made it."""
    section = Section(name="provenance", title="Provenance and licence")
    source, precision, head = manifest.source, manifest.precision, manifest.precision.trimmed_head
    origin = {"hub": "from the hub", "folder": "from a folder", "demo": "packaged with onnxmt"}[source.origin]
    licence = manifest.licence
    languages = manifest.languages
    defaults = (languages.default_source, languages.default_target)
    section.facts += [
        ("made of", f"{source.model}, {origin}"),
        ("commit", source.revision or "not known: the source has none"),
        ("licence", licence.id or "not stated"),
        *([("licence warning", licence.warning)] if licence.warning else []),
        ("version", manifest.version or "none given"),
        ("exported", manifest.created),
        ("languages", " → ".join(listed(codes) or "not stated" for codes in (languages.source, languages.target))),
        *([("by default", " → ".join(code or UNKNOWN for code in defaults))] if any(defaults) else []),
        ("architecture", _architecture(manifest)),
        ("precision", ", ".join(f"{name} {getattr(precision, name)}" for name in COMPONENTS)),
        *([("kept in fp32", ", ".join(precision.keep_fp32))] if precision.keep_fp32 else []),
        *([("head", f"trimmed to {head.rows:,} of {head.of:,} tokens: {head.why}")] if head else []),
        *([("head", precision.shortlist.words)] if precision.shortlist else []),
        *([("calibration", _flat_text(precision.calibration))] if precision.calibration else []),
        *(
            (graph.file, f"opset {graph.opset}, IR {graph.ir_version}, {sum(graph.operators.values())} nodes")
            for graph in manifest.graphs.all
        ),
        ("made with", ", ".join(f"{name} {version}" for name, version in manifest.tools.items())),
        *([("CPU", _flat_text(manifest.cpu))] if manifest.cpu else []),
    ]
    return section


def _architecture(manifest: Manifest) -> str:
    found = manifest.dimensions
    return (
        f"{manifest.architecture}: {counted(found.encoder_layers, 'encoder layer')}, "
        f"{counted(found.decoder_layers, 'decoder layer')}, width {found.d_model}, "
        f"vocabulary {found.source_vocabulary:,} → {found.target_vocabulary:,}"
    )


def verification(manifest: Manifest) -> Section:
    """How the graphs were proved equal to PyTorch, layer by layer."""
    section, found = Section(name="verification", title="Verification"), manifest.verification
    if found.status == "unverified":
        # Of another precision verify only counts tokens: its proof is that of the fp32 graphs it was made beside.
        fix = (
            "onnxmt verify BUNDLE --reference MODEL --write does so, where torch and transformers are installed."
            if manifest.precision.exact
            else "onnxmt migrate MODEL makes a bundle that is verified."
        )
        section.paragraphs.append(f"Unverified: nothing has compared these graphs with PyTorch. {fix}")
        return section
    how = "live against PyTorch" if found.status == "live" else "against a recording of what PyTorch said"
    judge = ", ".join(f"{name} {value}" for name, value in found.judge.items())
    missed = sum(not row.passed for row in found.rows)
    section.paragraphs.append(
        f"{verification_word(manifest).capitalize()}: compared {how} ({judge}); "
        f"{len(found.rows) - missed} of {counted(len(found.rows), 'layer')} passed."
    )
    if found.graphs == "fp32":
        section.paragraphs.append(
            "What was compared are the fp32 graphs of the same weights. This bundle's own graphs are in "
            f"{manifest.recipe} and were compared with those on translations: see Quality."
        )
    section.tables.append(
        Table(
            caption="Layers: tensors within the limit, tokens and texts equal",
            columns=("layer", "compared", "different", "largest error", "limit", "cosine", "verdict"),
            texts=("verdict",),
            rows=tuple(
                Row(
                    cells=(
                        row.layer,
                        f"{row.compared:,}",
                        f"{row.different:,}",
                        UNKNOWN if row.max_abs_error is None else f"{row.max_abs_error:.1e}",
                        UNKNOWN if row.limit is None else f"{row.limit:g}",
                        UNKNOWN if row.cosine is None else f"{row.cosine:.6f}",
                        "passed" if row.passed else "MISSED",
                    ),
                    fault=not row.passed,
                )
                for row in found.rows
            ),
        )
    )
    errors = [
        LayerError(layer=row.layer, error=row.max_abs_error, limit=row.limit)
        for row in found.rows
        if row.max_abs_error is not None
    ]
    if errors:
        worst = max(errors, key=lambda row: row.error)
        section.plots.append(
            Plot(
                svg=error_plot(errors, name="layers"),
                alt=f"Largest error of each of {counted(len(errors), 'layer')} on a logarithmic scale; the worst is "
                f"{worst.error:.1e} in {worst.layer}. The table holds the same figures.",
                caption=f"Error by layer{' of the fp32 graphs' if found.graphs == 'fp32' else ''} against PyTorch",
            )
        )
    return section


def sizes(bundle: Bundle) -> Section:
    """Every file with its size, against the fp32 graphs of the same weights where those were seen."""
    section, manifest = Section(name="size", title="Size"), bundle.manifest
    before = fp32_sizes(manifest)
    entries = sorted(
        (entry for entry in manifest.files if entry.path != REPORT_NAME), key=lambda entry: (-entry.bytes, entry.path)
    )
    rows = []
    for entry in entries:
        fp32_bytes = before.get(entry.path, entry.bytes)
        beside = (size_text(fp32_bytes), _share(entry.bytes, fp32_bytes)) if before else ()
        rows.append(Row(cells=(entry.path, size_text(entry.bytes), *beside, entry.sha256[:12])))
    whole, fp32 = total_size(manifest), fp32_total(manifest)
    rows.append(
        Row(cells=("all", size_text(whole), *((size_text(fp32), _share(whole, fp32)) if fp32 else ()), ""), total=True)
    )
    section.tables.append(
        Table(
            caption="Files (this report apart)",
            columns=("file", "size", *(("in fp32", "of fp32") if before else ()), "SHA-256 begins"),
            texts=("SHA-256 begins",),
            rows=tuple(rows),
        )
    )
    if not before and not manifest.precision.exact:
        section.paragraphs.append("The size in fp32 is not known: no fp32 graphs were built beside these.")
    return section


def total_size(manifest: Manifest) -> int:
    """Bytes of all files but the report, which cannot know its own size, and the manifest."""
    return sum(entry.bytes for entry in manifest.files if entry.path != REPORT_NAME)


def fp32_sizes(manifest: Manifest) -> dict[str, int]:
    """Bytes of the files that fp32 has in another size, empty where they were not recorded."""
    found = mapping(mapping(manifest.quality).get(FP32_SIZES))
    return {name: value for name, value in found.items() if isinstance(value, int) and value > 0}


def fp32_total(manifest: Manifest) -> int | None:
    """Bytes of the whole bundle if it were fp32, None where that is not known."""
    before = fp32_sizes(manifest)
    if not before:
        return None
    return sum(before.get(entry.path, entry.bytes) for entry in manifest.files if entry.path != REPORT_NAME)


def quality(manifest: Manifest) -> Section:
    """Scores by mode and part beside fp32, what was missed, how it was measured."""
    section, found = Section(name="quality", title="Quality"), mapping(manifest.quality)
    if not found:
        section.paragraphs.append("Not measured: this bundle was made without evaluation.")
        return section
    exact, how = manifest.precision.exact, mapping(found.get("how"))
    scored = number(found.get("bleu")) is not None
    section.paragraphs.append(_verdict(manifest, found))
    section.remarks += [f"Missed: {miss}" for miss in found.get("misses") or () if isinstance(miss, str)]
    section.remarks += [f"Note: {note}" for note in found.get("notes") or () if isinstance(note, str)]
    for mode, entry in mapping(found.get("modes")).items():
        section.tables.append(_mode_table(mode, mapping(entry), recipe=manifest.recipe, exact=exact, scored=scored))
    section.plots += _score_plots(manifest, found)
    section.facts += _how_facts(found, how)
    return section


def _verdict(manifest: Manifest, found: Mapping[str, Any]) -> str:
    how, limits = mapping(found.get("how")), mapping(found.get("limits"))
    texts = f"{figure(how.get('lines'), 0)} lines of the set {how.get('set', UNKNOWN)}"
    if manifest.precision.exact:
        return f"fp32 is the yardstick: it is measured on {texts}, and there is nothing to hold it to."
    held = (
        f"at most {figure(limits.get('max_bleu_drop'))} BLEU and {figure(limits.get('max_chrf_drop'))} chrF below fp32 "
        f"on the whole set, {figure(limits.get('part_factor'), 0)} times that in a domain or a third by source length"
    )
    word = "MISSED" if found.get("gate") == "missed" else str(found.get("gate"))
    return f"Quality gate {word}: {manifest.recipe} beside fp32 on {texts}, in greedy and beam 4; {held}."


def _mode_table(mode: str, entry: Mapping[str, Any], *, recipe: str, exact: bool, scored: bool) -> Table:
    columns = ["part", "lines"]
    if scored:
        columns += ["BLEU", "chrF"] if exact else [
            "BLEU fp32", f"BLEU {recipe}", "drop", "95 % interval", "chrF fp32", f"chrF {recipe}", "drop",
        ]  # fmt: skip
    if not exact:
        columns += ["identical", "chrF to fp32", "length"]
    rows = []
    for part in [{"name": "all", **entry}, *mappings(entry.get("parts"))]:
        drop, chrf = mapping(part.get("bleu_drop")), mapping(part.get("chrf_drop"))
        cells = [str(part.get("name", UNKNOWN)), figure(part.get("lines"), 0)]
        if scored and exact:
            cells += [figure(part.get("bleu")), figure(part.get("chrf"))]
        elif scored:
            cells += [
                figure(part.get("fp32_bleu")), figure(part.get("bleu")), figure(drop.get("value")),
                f"{figure(drop.get('lower'))} to {figure(drop.get('upper'))}" if drop else UNKNOWN,
                figure(part.get("fp32_chrf")), figure(part.get("chrf")), figure(chrf.get("value")),
            ]  # fmt: skip
        if not exact:
            agreement = (percent(part.get("identical")), figure(part.get("agreement_chrf"), 1))
            cells += [*agreement, figure(part.get("length_ratio"))]
        rows.append(Row(cells=tuple(cells), total=part.get("name") == "all"))
    faults = mapping(entry.get("faults"))
    sides = [
        f"{label}: {_counts_text(mapping(faults.get(side)))}"
        for side, label in (("fp32", FP32), ("candidate", recipe))
        if faults.get(side) and not (exact and side == "fp32")
    ]
    note = f"Outputs in {'; in '.join(sides)}." if sides else None
    return Table(caption=mode, columns=tuple(columns), rows=tuple(rows), texts=("95 % interval",), note=note)


def _counts_text(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{UNKNOWN if count is None else count} {name}" for name, count in counts.items())


def _how_facts(found: Mapping[str, Any], how: Mapping[str, Any]) -> list[tuple[str, str]]:
    beams = number(found.get("beams"))
    facts = [
        ("headline score", f"{figure(beams, 0)} beam{'' if beams == 1 else 's'}, the bundle's own decoding"),
        *((f"{name} signature", str(text)) for name, text in mapping(how.get("signatures")).items()),
    ]
    for name, value in how.items():
        if name != "signatures" and value is not None:
            facts.append((name.replace("_", " "), _flat_text(value) if isinstance(value, dict) else str(value)))
    return facts


def _score_plots(manifest: Manifest, found: Mapping[str, Any]) -> list[Plot]:
    """Quality against size, and against speed where that was measured; none where there is no score."""
    score, exact = number(found.get("bleu")), manifest.precision.exact
    if score is None:
        return []
    beams = found.get("beams")
    entry = next((m for m in map(mapping, mapping(found.get("modes")).values()) if m.get("beams") == beams), {})
    before, limits, drop = number(entry.get("fp32_bleu")), mapping(found.get("limits")), mapping(entry.get("bleu_drop"))
    most, low, high = number(limits.get("max_bleu_drop")), number(drop.get("upper")), number(drop.get("lower"))
    allowed = None if exact or before is None or most is None else before - most
    interval = None if before is None or low is None or high is None else (before - low, before - high)
    plots = []
    fp32 = fp32_total(manifest)
    if not exact and before is not None and fp32 is not None:
        points = [
            Point(label=FP32, cost=fp32 / 1e6, score=before),
            Point(label=manifest.recipe, cost=total_size(manifest) / 1e6, score=score, interval=interval, own=True),
        ]
        plots.append(_score_plot(points, name="size", cost="size of the bundle (MB)", allowed=allowed))
    points = [
        Point(label=label, cost=cost, score=value, interval=interval if own else None, own=own)
        for label, cost, value, own in _timed(manifest, beams, own_score=score, fp32_score=score if exact else before)
    ]
    if points:
        plots.append(_score_plot(points, name="speed", cost="median time of one sentence (ms)", allowed=allowed))
    return plots


def _score_plot(points: list[Point], *, name: str, cost: str, allowed: float | None) -> Plot:
    said = "; ".join(f"{point.label}: BLEU {point.score:.2f} at {point.cost:.3g}" for point in points)
    limit = "" if allowed is None else f"; the lowest BLEU allowed is {allowed:.2f}"
    bars = " The bar is the 95 % interval of the difference to fp32." if any(p.interval for p in points) else ""
    return Plot(
        svg=score_plot(points, name=name, cost=cost, score="BLEU", allowed=allowed),
        alt=f"BLEU against {cost}. {said}{limit}.",
        caption=f"Quality against {name}.{bars}",
    )


def _timed(
    manifest: Manifest, beams: Any, *, own_score: float, fp32_score: float | None
) -> list[tuple[str, float, float, bool]]:
    """Label, milliseconds, BLEU and whether it is the bundle, of single sentences with the headline's beams.

    PyTorch in float32 has fp32's score: the graphs were proved equal to it.
    """
    found = []
    for row in mappings(mapping(manifest.speed).get("results")):
        engine, cost = str(row.get("engine")), number(row.get("median_ms"))
        precision = row.get("precision")
        if cost is None or row.get("beams") != beams or row.get("batch", 1) != 1:
            continue
        if engine == "onnxmt" and precision == manifest.recipe:
            found.append((manifest.recipe, cost, own_score, True))
        elif precision == FP32 and engine in ("onnxmt", "torch") and fp32_score is not None:
            found.append((f"{engine} {FP32}", cost, fp32_score, False))
    return found


def sentences(bundle: Bundle) -> Section | None:
    """Translations side by side, worst first; None for fp32, which has nothing beside it."""
    manifest, found = bundle.manifest, mapping(bundle.manifest.quality)
    if manifest.precision.exact or not found:
        return None
    section = Section(name="sentences", title="Translations side by side")
    evaluation = read_evaluation(bundle)
    modes = mapping(found.get("modes"))
    mode = next((name for name, entry in modes.items() if mapping(entry).get("beams") == found.get("beams")), "")
    worst = mappings(found.get("worst"))
    beside = evaluation and side_by_side(evaluation, precision=manifest.recipe, mode=mode, worst=worst)
    if not beside:
        section.paragraphs.append(
            "The translations are not in this bundle: texts of your own are not handed on with it. "
            "onnxmt evaluate BUNDLE --against FP32-BUNDLE compares two bundles on them."
        )
        section.paragraphs += [
            "Lines that lost most: "
            + ", ".join(f"{figure(entry.get('line'), 0)} ({entry.get('mode', UNKNOWN)})" for entry in worst)
        ] * bool(worst)
        return section
    section.paragraphs.append(
        f"In {beside.mode}, {beside.different} of {counted(beside.lines, 'line')} differ from fp32. "
        + ("No line lost anything that can be shown here. " if not beside.pairs else "")
        + (
            "First the lines that the gate found worst, with their loss in chrF, then those least like fp32; "
            "characters that only one side has are marked. A line that differs is not wrong for that. "
            if beside.pairs
            else ""
        )
        + (f"The first {SHOWN} are shown; {EVALUATION_NAME} holds all." if beside.different > SHOWN else "")
    )
    section.sentences = beside
    return section


def speed(manifest: Manifest) -> Section:
    """Latency, throughput and memory as measured, or that nobody measured."""
    section, found = Section(name="speed", title="Speed"), mapping(manifest.speed)
    if not found:
        section.paragraphs.append("Not measured: no benchmark was run on this bundle.")
        return section
    rows = mappings(found.get("results"))
    columns = tuple(
        dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, dict | list))
    )
    if columns:
        section.tables.append(
            Table(
                caption="Measured one beside the other",
                columns=tuple(name.replace("_", " ") for name in columns),
                rows=tuple(Row(cells=tuple(_cell(row.get(name)) for name in columns)) for row in rows),
                texts=("engine", "precision"),
            )
        )
    section.facts += [
        (name.replace("_", " "), _flat_text(value) if isinstance(value, dict) else _cell(value))
        for name, value in found.items()
        if name != "results" and value is not None
    ]
    return section


def _cell(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, list):
        return ", ".join(_cell(part) for part in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _flat_text(values: Mapping[str, Any]) -> str:
    """Nested objects as `name value, name value`."""
    parts = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            parts.append(_flat_text(value))
        elif value is not None:
            parts.append(f"{name.replace('_', ' ')} {_cell(value)}")
    return ", ".join(parts)


def _share(size: int, of: int) -> str:
    return "same" if size == of else f"{size / of:.0%}" if of else UNKNOWN
