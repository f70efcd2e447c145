"""`onnxmt verify`: replay the proof of a bundle, or judge it by PyTorch."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from onnxmt.commands._options import AsJson, BundleFolder, Sentences, Source, Target

if TYPE_CHECKING:
    from pathlib import Path

    from onnxmt.bundle import Bundle
    from onnxmt.measure.expected import Reference
    from onnxmt.measure.sentences import ChosenSentences
    from onnxmt.measure.verdict import VerificationReport
    from onnxmt.measure.verify import Candidate
    from onnxmt.runtime.settings import GenerationSettings


def verify(
    bundle: BundleFolder,
    reference: Annotated[
        str,
        typer.Option(
            metavar="MODEL|recording",
            help="The checkpoint to run in PyTorch (a folder, a hub id, demo), or the bundle's own recording.",
        ),
    ] = "recording",
    source: Source = None,
    target: Target = None,
    sentences: Sentences = None,
    write: Annotated[bool, typer.Option("--write", help="Write the result into the bundle's manifest.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare BUNDLE with PyTorch, layer by layer.

    By default with the recording in the bundle of what PyTorch said when it was made: that needs no torch. Exit code
    1 when a layer differs; the first tensor and step that diverge are named. Of a bundle that is not fp32 only the
    tokens are compared: the tokenizer's must be equal, the translations' are counted. Languages are those that the
    bundle was made for; others can be verified with --target and --reference MODEL.

    \b
    Examples:
      onnxmt verify ./en-zh
      onnxmt verify ./en-zh --reference Helsinki-NLP/opus-mt-en-zh
    """
    from onnxmt.bundle import read_bundle
    from onnxmt.commands._console import print_json, stdout_console, step_progress
    from onnxmt.errors import UsageError
    from onnxmt.measure.agreement import AgreementReport, token_agreement
    from onnxmt.measure.verify import verify as run

    report: VerificationReport | AgreementReport
    with step_progress() as progress:
        progress.step("read the bundle")
        found = read_bundle(bundle)
        exact = found.manifest.precision.exact
        if write and not exact:
            raise UsageError(
                f"the bundle {bundle} is of precision {found.manifest.recipe}, of which only tokens can be counted: "
                "there is nothing to --write. What its manifest holds was measured when it was made"
            )
        if write and (source is not None or target is not None):
            raise UsageError("--write keeps the proof for the bundle's own languages: leave --source and --target out")
        candidate = _candidate(found, source=source, target=target)
        chosen, judge = _judge(found, candidate, reference, sentences, record=write)
        notes = () if chosen.note is None else (chosen.note,)
        progress.step("verify against the reference")
        if exact:
            report = run(candidate, judge, chosen.sentences, notes=notes, progress=progress.advance)
        else:
            report = token_agreement(candidate, judge, chosen.sentences, progress=progress.advance)
    if write and not isinstance(report, AgreementReport):
        _write(found, report, judge)
    if as_json:
        print_json({"bundle": str(found.folder), **report.to_dict()})
    else:
        report.print_to(stdout_console())
    if not report.passed:
        raise typer.Exit(1)


def _write(bundle: Bundle, report: VerificationReport, judge: Reference) -> None:
    """Keep the result in the manifest, and what PyTorch said in a recording, for later without torch."""
    from onnxmt.bundle import update_manifest
    from onnxmt.commands._console import warn
    from onnxmt.measure.recorder import Recorder
    from onnxmt.measure.recording import RECORDING_NAME
    from onnxmt.measure.report import renew_report

    written = []
    if isinstance(judge, Recorder):
        judge.recording().save(bundle.folder / RECORDING_NAME)
        written.append(RECORDING_NAME)
    manifest = dataclasses.replace(bundle.manifest, verification=report.for_manifest())
    if note := renew_report(update_manifest(bundle, manifest, written=written)):
        warn(note)


def _judge(
    bundle: Bundle, candidate: Candidate, reference: str, file: Path | None, *, record: bool
) -> tuple[ChosenSentences, Reference]:
    """The sentences, and who judges them: the recording in the bundle, or PyTorch on a checkpoint, recorded if wanted.

    A recording brings its own sentences, unless it is too old to know their categories.
    """
    from onnxmt.checkpoint import read_checkpoint
    from onnxmt.errors import RecordingError
    from onnxmt.hub import resolve
    from onnxmt.measure.recorder import Recorder
    from onnxmt.measure.recording import RECORDING_NAME, checkpoint_identity, read_recording
    from onnxmt.measure.reference import find_reference, tell
    from onnxmt.measure.sentences import ChosenSentences, choose_sentences
    from onnxmt.runtime.direction import source_language
    from onnxmt.runtime.tokenizer import TokenizerSpec

    manifest, direction = bundle.manifest, candidate.direction
    chosen = choose_sentences(source_language(candidate.tokenizer, direction), file=file)
    if reference == "recording":
        if all(entry.path != RECORDING_NAME for entry in manifest.files):
            raise RecordingError(
                f"the bundle {bundle.folder} has no recorded reference ({RECORDING_NAME}): name the checkpoint that it "
                f"was made of, as in --reference {manifest.source.model}"
            )
        recording = read_recording(bundle.path(RECORDING_NAME))
        if file is None and (own := recording.sentences()) is not None:
            chosen = ChosenSentences(sentences=own)
        recording.require(sentences=chosen.sentences, direction=direction)
        return chosen, recording
    checkpoint = read_checkpoint(resolve(reference))
    spec = TokenizerSpec.from_dict(manifest.tokenizer)
    told = tell(candidate.tokenizer, spec=spec, direction=direction, settings=_settings(bundle))
    judge = find_reference(checkpoint, "live", chosen.sentences, told=told)
    assert judge is not None  # only the mode "none" has no judge
    if not record:
        return chosen, judge
    recorder = Recorder(
        judge,
        sentences=chosen.sentences,
        identity=checkpoint_identity(checkpoint.weights),
        generation=candidate.settings.to_dict(),
    )
    return chosen, recorder


def _candidate(bundle: Bundle, *, source: str | None, target: str | None) -> Candidate:
    """What a Translator of this bundle would run for these languages, or for its own."""
    from onnxmt.measure.verify import Candidate
    from onnxmt.runtime.decoder import load_model
    from onnxmt.runtime.direction import settings_for, settle
    from onnxmt.runtime.tokenizer import TokenizerSpec, load_tokenizer

    manifest, folder = bundle.manifest, bundle.folder
    tokenizer = load_tokenizer(folder, TokenizerSpec.from_dict(manifest.tokenizer))
    settings, codes = _settings(bundle), manifest.languages
    direction = settle(
        tokenizer, settings, source=source or codes.default_source, target=target or codes.default_target
    )
    graphs = load_model(
        folder,
        encoder=manifest.graphs.encoder.file,
        decoder=manifest.graphs.decoder.file,
        positions=manifest.dimensions.positions,
    )
    return Candidate(
        graphs=graphs,
        tokenizer=tokenizer,
        settings=settings_for(tokenizer, settings, direction.target),
        direction=direction,
    )


def _settings(bundle: Bundle) -> GenerationSettings:
    from onnxmt.json_file import read_json_object
    from onnxmt.manifest import GENERATION_CONFIG_NAME
    from onnxmt.runtime.settings import GenerationSettings

    return GenerationSettings.from_dict(read_json_object(bundle.folder / GENERATION_CONFIG_NAME))
