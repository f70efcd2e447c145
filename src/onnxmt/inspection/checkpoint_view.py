"""The facts of a checkpoint as JSON and as a page."""

from __future__ import annotations

import dataclasses
from typing import Any

from onnxmt.inspection.checkpoint_facts import CheckpointFacts
from onnxmt.inspection.page import Section, add_settings, counted, listed, page_text, size_text


def checkpoint_json(facts: CheckpointFacts) -> dict[str, Any]:
    """Return the facts as JSON values."""
    model, sizes = facts.model, facts.architecture.dimensions if facts.architecture is not None else None
    needed = {file.name for file in facts.weights}
    codes = facts.languages
    return {
        "kind": "checkpoint",
        "model": model.name,
        "revision": model.revision,
        "origin": model.origin,
        "path": str(model.folder),
        "supported": facts.supported,
        "reasons": facts.reasons,
        "notes": facts.notes,
        "model_type": facts.config.get("model_type"),
        "dimensions": None if sizes is None else dataclasses.asdict(sizes),
        "languages": None if codes is None else {"source": list(codes.source), "target": list(codes.target)},
        "direction": None
        if facts.direction is None
        else {
            **dataclasses.asdict(facts.direction.settled),
            "needed": facts.direction.missing,
            "longest_input": facts.longest_input,
        },
        "licence": facts.licence,
        "licence_warning": facts.licence_warning,
        "files": [{"name": f.name, "bytes": f.size, "weights": f.name in needed} for f in facts.files],
        "missing": list(facts.missing),
        "parameters": facts.parameters,
        "parameters_basis": facts.parameters_basis or None,
        "memory": None if facts.memory is None else dataclasses.asdict(facts.memory),
        "generation_file": facts.generation_file or None,
        "generation": None if facts.settings is None else facts.settings.to_dict(),
    }


def checkpoint_page(facts: CheckpointFacts) -> str:
    """Return the facts as text."""
    verdict = "can be migrated" if facts.supported else "cannot be migrated"
    heading = f"{facts.model.name}: a {facts.config.get('model_type')} checkpoint that {verdict}"
    return page_text(
        heading, [_reasons(facts), _provenance(facts), _model(facts), _needs(facts), _decoding(facts), _files(facts)]
    )


def _reasons(facts: CheckpointFacts) -> Section:
    section = Section("Why not" if facts.reasons else "To know before")
    for number, reason in enumerate(facts.reasons, 1):
        section.add(f"{number}", reason)
    section.add("note", *facts.notes)
    return section


def _provenance(facts: CheckpointFacts) -> Section:
    section, model = Section("Provenance"), facts.model
    section.add("model", f"{model.name}{f' at commit {model.revision}' if model.revision else ''}")
    section.add("licence", facts.licence or "not stated")
    if facts.licence_warning:
        section.add("", f"warning: {facts.licence_warning}")
    return section


def _model(facts: CheckpointFacts) -> Section:
    section = Section("Model")
    section.add("family", str(facts.config.get("model_type")))
    if facts.languages is not None:
        sides = [listed(codes) or "not stated" for codes in (facts.languages.source, facts.languages.target)]
        section.add("languages", " → ".join(sides))
    if facts.architecture is not None:
        sizes = facts.architecture.dimensions
        for name, stack in (("encoder", sizes.encoder), ("decoder", sizes.decoder)):
            section.add(
                name,
                f"{counted(stack.layers, 'layer')}, {counted(stack.heads, 'head')} of {stack.head_dim}, "
                f"feed-forward {stack.ffn_dim}",
            )
        section.add("width", str(sizes.d_model))
        section.add("vocabulary", f"{sizes.source_vocab_size:,} source, {sizes.target_vocab_size:,} target")
        positions = sizes.max_source_positions
        section.add("positions", "no table" if positions is None else f"at most {positions} tokens")
        if facts.longest_input is not None:
            section.add("longest input", f"{facts.longest_input} tokens at once; longer texts are split")
    if facts.parameters is not None:
        section.add("parameters", f"{facts.parameters:,} ({facts.parameters_basis})")
    return section


def _needs(facts: CheckpointFacts) -> Section:
    section, memory = Section("What it will need"), facts.memory
    if facts.direction is not None:
        section.add("target language", facts.direction.target)
        if facts.direction.missing is not None:
            section.add("", facts.direction.missing)
    sizes = [file.size for file in facts.weights]
    if sizes and all(size is not None for size in sizes):
        where = "to download" if facts.model.origin == "hub" else "on disk"
        section.add("weights", f"{size_text(sum(size or 0 for size in sizes))} {where}")
    if memory is not None:
        section.add("bundle", f"about {size_text(memory.weights)} of weights in fp32")
        section.add(
            "memory", f"about {size_text(memory.build)} to build it, {size_text(memory.run)} to translate with it"
        )
        section.add("", f"({memory.basis})")
    return section


def _decoding(facts: CheckpointFacts) -> Section:
    section = Section(f"Decoding ({facts.generation_file})")
    if facts.settings is not None:
        add_settings(section, facts.settings)
    return section


def _files(facts: CheckpointFacts) -> Section:
    section = Section("Files on the hub" if facts.model.origin == "hub" else f"Files in {facts.model.folder}")
    needed = {file.name for file in facts.weights}
    for file in sorted(facts.files, key=lambda file: -(file.size or 0)):
        mark = "  (the weights that are used)" if file.name in needed else ""
        section.add(file.name, f"{'size unknown' if file.size is None else size_text(file.size)}{mark}")
    for name in facts.missing:
        section.add(name, "missing")
    return section
