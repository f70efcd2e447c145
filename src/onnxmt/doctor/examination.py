"""Examining a folder: read, look at its structure and settings, run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from onnxmt.bundle import read_bundle
from onnxmt.doctor.decoding import FolderModel
from onnxmt.doctor.findings import Examination, Finding
from onnxmt.doctor.folder import ModelFolder, read_folder
from onnxmt.doctor.probes import Trial, made_up_sentences, probe_findings, trial_of
from onnxmt.doctor.settings_checks import settings_findings, source_sentences
from onnxmt.doctor.structure import storage_notes, structure_findings
from onnxmt.errors import BundleError, MissingExtraError, OnnxmtError, TokenizerError
from onnxmt.runtime.tokenizer import Tokenizer, TokenizerSpec, load_tokenizer

__all__ = ["examine_folder"]


def examine_folder(folder: str | Path) -> Examination:
    """Examine a folder of ONNX graphs of one seq2seq model: a bundle, Optimum's or transformers.js's layout, or any
    export of encoder and decoders by names that can be told apart.

    Raises UsageError where there are no graphs, MissingExtraError without onnx_ir (the extra `export`).
    """
    try:
        import onnx_ir  # noqa: F401 - asked before the long work
    except ImportError as error:
        raise MissingExtraError(needed_for="doctor", extra="export", module="onnx_ir") from error
    read = read_folder(Path(folder))
    try:
        findings = [*read.findings, *_findings(read)]
        notes = [*_contents(read), *storage_notes(read)]
    finally:
        read.close()
    return Examination(what=str(folder), findings=tuple(_once(findings)), notes=tuple(notes))


def _findings(read: ModelFolder) -> Iterator[Finding]:
    if read.is_bundle:
        yield from _bundle(read)
    yield from structure_findings(read)
    yield from settings_findings(read)
    trial, found = _trial(read)
    yield from found
    for model in read.models:
        runnable = FolderModel.of(model)
        if runnable is not None and trial.sentences:
            quantized = model.claims_quantized or any(str(value).startswith("int") for value in read.precision.values())
            yield from probe_findings(runnable, trial, quantized=quantized)


def _bundle(read: ModelFolder) -> Iterator[Finding]:
    try:
        read_bundle(read.folder)
    except BundleError as error:
        yield Finding(kind="altered_file", where=read.folder.name, found=str(error), mend="copy the bundle again")


def _trial(read: ModelFolder) -> tuple[Trial, list[Finding]]:
    """Sentences to run the model on: real ones where the tokenizer loads and its language has some here."""
    trial, findings = trial_of(read)
    try:
        tokenizer = _tokenizer(read)
    except OnnxmtError as error:
        if isinstance(error, TokenizerError) and "missing" not in str(error) and "lacks" not in str(error):
            findings.append(
                Finding(
                    kind="tokenizer",
                    where=read.folder.name,
                    found=str(error),
                    mend="copy the tokenizer's files from the checkpoint again",
                )
            )
        tokenizer = None
    sizes = [size for model in read.models for graph in model.graphs if (size := graph.vocabulary) is not None]
    if tokenizer is not None:
        language = tokenizer.defaults().source or _named_source(read) or "en"
        texts = source_sentences(language)
        try:
            ids = tuple(tuple(tokenizer.encode(text)) for text in texts)
        except OnnxmtError:  # a family that must be told its languages: made-up ids will do
            ids = ()
        if ids and max(max(row) for row in ids) < min(sizes, default=1 << 62):
            return dataclasses.replace(trial, sentences=ids, real=True), findings
    vocabulary = min(sizes, default=read.config.get("vocab_size") or 0)
    sentences = made_up_sentences(vocabulary) if vocabulary > 1 else ()
    return dataclasses.replace(trial, sentences=sentences), findings


def _tokenizer(read: ModelFolder) -> Tokenizer:
    if read.is_bundle:
        manifest = read_bundle(read.folder, check="size").manifest
        return load_tokenizer(read.folder, TokenizerSpec.from_dict(manifest.tokenizer))
    from onnxmt.runtime.tokenizer import tokenizer_spec

    return load_tokenizer(read.folder, tokenizer_spec(read.folder, read.config))


def _named_source(read: ModelFolder) -> str | None:
    """The source language in a name such as opus-mt-zh-en."""
    name = str(read.config.get("_name_or_path", ""))
    parts = name.rsplit("opus-mt-", 1)
    return parts[1].split("-")[0] if len(parts) == 2 else None


def _contents(read: ModelFolder) -> Iterator[str]:
    for model in read.models:
        for graph in model.graphs:
            yield (
                f"{graph.path.name}: {_PARTS[graph.part]}; inputs {len(graph.inputs)} "
                f"({', '.join(list(graph.inputs)[:4])}{', …' if len(graph.inputs) > 4 else ''}), "
                f"outputs {len(graph.outputs)} ({', '.join(list(graph.outputs)[:2])}"
                f"{', …' if len(graph.outputs) > 2 else ''})"
            )


_PARTS = {
    "encoder": "encoder",
    "first": "decoder of the first step",
    "later": "decoder of later steps",
    "merged": "decoder of all steps, by a switch",
    "cached": "decoder of all steps, by the length of the past",
    "whole": "encoder and decoder in one",
    "single": "encoder, decoder and search in one",
    "unknown": "of no part that is known",
}


def _once(findings: list[Finding]) -> Iterator[Finding]:
    """Each mistake once: what one file says, another may repeat."""
    seen = set()
    for finding in findings:
        key = (finding.kind, finding.where)
        if key not in seen:
            seen.add(key)
            yield finding
