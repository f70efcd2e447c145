"""What a bundle is, from its manifest and its settings alone: no ONNX package, no model loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxmt import records
from onnxmt.bundle import Bundle
from onnxmt.inspection.graph_blocks import Port, merge_ports
from onnxmt.inspection.page import Section, add_settings, counted, listed, page_text, shape_text, size_text, type_name
from onnxmt.json_file import read_json_object
from onnxmt.manifest import GENERATION_CONFIG_NAME, GraphInfo, Manifest, TensorInfo
from onnxmt.runtime.cpu import CpuLimit, cpu_limit
from onnxmt.runtime.settings import GenerationSettings

_MICROSOFT = "com.microsoft."


def bundle_facts(bundle: Bundle) -> dict[str, Any]:
    """Return all facts as JSON values; what the manifest holds keeps its names."""
    manifest: dict[str, Any] = records.to_json(bundle.manifest)
    limit = cpu_limit()
    return {
        "kind": "bundle",
        "path": str(bundle.folder),
        "bytes": bundle.size,
        "status": verification_word(bundle.manifest),
        **manifest,
        "generation": _settings(bundle),
        "dynamic_axes": _dynamic_axes(bundle.manifest),
        "threads": {
            "threads": limit.threads,
            "affinity": limit.affinity,
            "quota": limit.quota,
            "reason": threads_reason(limit),
        },
    }


def bundle_page(bundle: Bundle) -> str:
    """Return the facts as text."""
    manifest = bundle.manifest
    heading = (
        f"{manifest.name}{f', version {manifest.version}' if manifest.version else ''}: "
        f"{manifest.architecture}, {manifest.recipe}, {verification_word(manifest)}"
    )
    return page_text(
        heading,
        [
            _provenance(bundle),
            _verification(manifest),
            _model(manifest),
            *(_graph(graph) for graph in manifest.graphs.all),
            _decoding(bundle),
            _running(),
            *_measured(manifest),
            _files(bundle),
        ],
    )


def verification_word(manifest: Manifest) -> str:
    """One of "verified", "verified in fp32", "unverified" and "verification failed": shown wherever a bundle is."""
    found = manifest.verification
    if found.status == "unverified":
        return "unverified"
    if not found.passed:
        return "verification failed"
    return "verified" if found.graphs == "own" else "verified in fp32"


def threads_reason(limit: CpuLimit) -> str:
    """Say how many threads a session takes, and what decides it."""
    cpus = f"this process may run on {counted(limit.affinity, 'CPU')}"
    if limit.quota is None:
        return f"{limit.threads}: {cpus}, and no cgroup quota is below that"
    return f"{limit.threads}: {cpus}, and its cgroup has a quota of {limit.quota:g} CPUs (rounded down, at least 1)"


def _provenance(bundle: Bundle) -> Section:
    manifest, source = bundle.manifest, bundle.manifest.source
    section = Section("Provenance")
    origin = {"hub": "from the hub", "folder": "from a folder", "demo": "packaged with onnxmt"}[source.origin]
    at = f" at commit {source.revision}" if source.revision else ""
    section.add("made of", f"{source.model}{at}, {origin}")
    section.add("licence", manifest.licence.id or "not stated")
    if manifest.licence.warning:
        section.add("", f"warning: {manifest.licence.warning}")
    section.add("made", manifest.created)
    section.add("with", ", ".join(f"{name} {version}" for name, version in manifest.tools.items()))
    section.add("format", f"{manifest.format_version}")
    return section


def _verification(manifest: Manifest) -> Section:
    section, found = Section("Verification"), manifest.verification
    if found.status == "unverified":
        section.add("status", "unverified: nothing has compared its graphs with PyTorch")
        return section
    how = "live against" if found.status == "live" else "against a recording of"
    judge = ", ".join(f"{name} {value}" for name, value in found.judge.items())
    section.add("status", f"{verification_word(manifest)} {how} {judge}")
    if found.graphs == "fp32":
        section.add("of", "the fp32 graphs of the same weights; these graphs were then compared with those (Quality)")
    missed = [row for row in found.rows if not row.passed]
    errors = [row.max_abs_error for row in found.rows if row.max_abs_error is not None]
    worst = f", largest error {max(errors):.1e}" if errors else ""
    section.add("layers", f"{len(found.rows) - len(missed)} of {len(found.rows)} passed{worst}")
    section.add("missed", *(f"{row.layer}: {row.different} of {row.compared} differ" for row in missed))
    return section


def _model(manifest: Manifest) -> Section:
    section, sizes = Section("Model"), manifest.dimensions
    section.add("languages", _languages(manifest))
    section.add("encoder", f"{counted(sizes.encoder_layers, 'layer')}, {counted(sizes.encoder_heads, 'head')}")
    section.add("width", str(sizes.d_model))
    section.add("decoder", f"{sizes.decoder_layers} layers, {sizes.decoder_heads} heads of {sizes.head_dim}")
    section.add("vocabulary", f"{sizes.source_vocabulary:,} source, {sizes.target_vocabulary:,} target")
    positions = "no table" if sizes.positions is None else f"at most {sizes.positions} tokens"
    section.add("positions", positions)
    formats = records.to_json(manifest.precision)
    formats.pop("trimmed_head", None)
    formats.pop("shortlist", None)
    section.add("precision", ", ".join(f"{name} {value}" for name, value in formats.items()))
    if (head := manifest.precision.trimmed_head) is not None:
        section.add("head", f"trimmed to {head.rows:,} of {head.of:,} tokens: {head.why}")
    if (shortlist := manifest.precision.shortlist) is not None:
        section.add("head", shortlist.words)
    return section


def _languages(manifest: Manifest) -> str:
    sides = [listed(codes) or "not stated" for codes in (manifest.languages.source, manifest.languages.target)]
    told = [code for code in (manifest.languages.default_source, manifest.languages.default_target) if code is not None]
    return " → ".join(sides) + (f"; by default {' → '.join(told)}" if told else "")


def _graph(graph: GraphInfo) -> Section:
    section = Section(f"Graph {graph.file} (opset {graph.opset}, IR {graph.ir_version})")
    section.add("inputs", *_tensors(graph.inputs))
    section.add("outputs", *_tensors(graph.outputs))
    counts = sorted(graph.operators.items(), key=lambda item: (-item[1], item[0]))
    plain = [f"{name} {count}" for name, count in counts if "." not in name]
    own = [f"{name.removeprefix(_MICROSOFT)} {count}" for name, count in counts if "." in name]
    section.add("operators", f"{sum(graph.operators.values())} nodes: {', '.join(plain)}")
    if own:
        section.add("", f"ONNX Runtime's own (com.microsoft): {', '.join(own)}")
    return section


def _tensors(tensors: tuple[TensorInfo, ...]) -> list[str]:
    """One line each; the keys and values of all layers are one."""
    ports = merge_ports(Port(name=tensor.name, dtype=tensor.dtype, axes=tensor.axes) for tensor in tensors)
    return [f"{port.name} {type_name(port.dtype)} {shape_text(port.axes)}" for port in ports]


def _dynamic_axes(manifest: Manifest) -> list[str]:
    tensors = [tensor for graph in manifest.graphs.all for tensor in (*graph.inputs, *graph.outputs)]
    return list(dict.fromkeys(axis for tensor in tensors for axis in tensor.axes if isinstance(axis, str)))


def _decoding(bundle: Bundle) -> Section:
    section = Section(f"Decoding ({GENERATION_CONFIG_NAME})")
    add_settings(section, GenerationSettings.from_dict(_settings(bundle)))
    return section


def _settings(bundle: Bundle) -> dict[str, Any]:
    return read_json_object(bundle.path(GENERATION_CONFIG_NAME))


def _running() -> Section:
    section = Section("Running here")
    section.add("threads", threads_reason(cpu_limit()))
    return section


def _measured(manifest: Manifest) -> list[Section]:
    """Figures that other tools have written into the manifest: quality in short, the others as they are."""
    sections = [] if not manifest.quality else [_quality(manifest.quality)]
    for title, figures in (("Speed", manifest.speed), ("CPU", manifest.cpu)):
        if figures:
            section = Section(title)
            for name, value in figures.items():
                section.add(name, str(value))
            sections.append(section)
    return sections


def _quality(found: Mapping[str, Any]) -> Section:
    """The headline, how it was measured, and each mode beside fp32; the parts are in the manifest."""
    section = Section("Quality")
    for name in ("bleu", "chrf"):
        if isinstance(value := found.get(name), float):
            section.add(name, f"{value:.2f} with {counted(found.get('beams', 1), 'beam')}")
    how = found.get("how")
    if isinstance(how, Mapping):
        section.add("measured on", f"{how.get('lines')} lines of {how.get('set')}, {how.get('date')}")
        section.add("signatures", *(f"{name} {text}" for name, text in dict(how.get("signatures", {})).items()))
    section.add("beside fp32", {"not needed": "this is fp32"}.get(str(found.get("gate")), str(found.get("gate"))))
    modes = found.get("modes") if found.get("gate") != "not needed" else None
    for mode, row in modes.items() if isinstance(modes, Mapping) else ():
        drops = [
            f"{name} drop {drop['value']:.2f} ({drop['lower']:.2f} to {drop['upper']:.2f})"
            for name, drop in (("BLEU", row.get("bleu_drop")), ("chrF", row.get("chrf_drop")))
            if drop
        ]
        section.add(mode, ", ".join([*drops, f"{row['identical']:.0%} of the outputs identical"]))
    section.add("missed", *found.get("misses", ()))
    return section


def _files(bundle: Bundle) -> Section:
    files = sorted(bundle.manifest.files, key=lambda entry: -entry.bytes)
    section = Section(f"Files in {bundle.folder} ({size_text(bundle.size)})")
    for entry in files:
        section.add(entry.path, size_text(entry.bytes))
    return section
