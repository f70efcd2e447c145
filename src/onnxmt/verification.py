"""Verifying a bundle that is there: with the recording inside it, or with PyTorch on its checkpoint."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from onnxmt.bundle import Bundle, read_bundle, require_changeable, update_manifest
from onnxmt.checkpoint import read_checkpoint
from onnxmt.errors import RecordingError, UsageError
from onnxmt.hub import resolve
from onnxmt.json_file import read_json_object
from onnxmt.manifest import GENERATION_CONFIG_NAME
from onnxmt.measure.agreement import AgreementReport, token_agreement
from onnxmt.measure.expected import Reference
from onnxmt.measure.recorder import Recorder
from onnxmt.measure.recording import RECORDING_NAME, checkpoint_identity, read_recording
from onnxmt.measure.reference import find_reference, tell
from onnxmt.measure.sentences import ChosenSentences, choose_sentences
from onnxmt.measure.verdict import VerificationReport
from onnxmt.measure.verify import Candidate
from onnxmt.measure.verify import verify as compare
from onnxmt.progress import Progress, Silent
from onnxmt.runtime.direction import settings_for, settle, source_language
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import TokenizerSpec, load_tokenizer
from onnxmt.runtime.translator import load_model_of


@dataclass(frozen=True, kw_only=True)
class VerifyBundleOptions:
    """How a bundle is verified: the judge (`recording`, or a MODEL for PyTorch), the languages, the sentences.

    `write` keeps the result in the manifest and, where PyTorch judged, its answers in a recording.
    """

    reference: str = "recording"
    source: str | None = None
    target: str | None = None
    sentences: Path | None = None
    write: bool = False


@dataclass(frozen=True, kw_only=True)
class VerifiedBundle:
    """The bundle as it now is, what verification found, and what the user should know."""

    bundle: Bundle
    report: VerificationReport | AgreementReport
    warnings: tuple[str, ...]


def verify(
    bundle: str | os.PathLike[str],
    *,
    options: VerifyBundleOptions | None = None,
    progress: Progress | None = None,
) -> VerifiedBundle:
    """Compare a bundle with PyTorch, layer by layer; a difference is in the report, not raised.

    Of a bundle that is not fp32 only tokens are compared. Raises OnnxmtError for what cannot be compared at all.
    """
    options, progress = options or VerifyBundleOptions(), progress or Silent()
    progress.step("read the bundle")
    found = read_bundle(bundle)
    if options.write:
        require_changeable(found.folder)
    exact = found.manifest.precision.exact
    if options.write and not exact:
        raise UsageError(
            f"the bundle {bundle} is of precision {found.manifest.recipe}, of which only tokens can be counted: "
            "there is nothing to --write. What its manifest holds was measured when it was made"
        )
    if options.write and (options.source is not None or options.target is not None):
        raise UsageError("--write keeps the proof for the bundle's own languages: leave --source and --target out")
    candidate = _candidate(found, source=options.source, target=options.target)
    chosen, judge = _judge(found, candidate, options)
    notes = () if chosen.note is None else (chosen.note,)
    progress.step("verify against the reference")
    if not exact:
        counted = token_agreement(candidate, judge, chosen.sentences, progress=progress.advance)
        return VerifiedBundle(bundle=found, report=counted, warnings=())
    report = compare(candidate, judge, chosen.sentences, notes=notes, progress=progress.advance)
    if not options.write:
        return VerifiedBundle(bundle=found, report=report, warnings=())
    return _written(found, report, judge)


def _written(bundle: Bundle, report: VerificationReport, judge: Reference) -> VerifiedBundle:
    """Keep the result in the manifest, and what PyTorch said in a recording, for later without torch."""
    from onnxmt.measure.report import renew_report

    written = []
    if isinstance(judge, Recorder):
        judge.recording().save(bundle.folder / RECORDING_NAME)
        written.append(RECORDING_NAME)
    manifest = dataclasses.replace(bundle.manifest, verification=report.for_manifest())
    changed = update_manifest(bundle, manifest, written=written)
    note = renew_report(changed)
    return VerifiedBundle(
        bundle=read_bundle(changed.folder, check="size"), report=report, warnings=(note,) if note else ()
    )


def _judge(bundle: Bundle, candidate: Candidate, options: VerifyBundleOptions) -> tuple[ChosenSentences, Reference]:
    """The sentences, and who judges them: the recording in the bundle, or PyTorch on a checkpoint, recorded if wanted.

    A recording brings its own sentences, unless it is too old to know their categories.
    """

    manifest, direction = bundle.manifest, candidate.direction
    reference, file = options.reference, options.sentences
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
    if not options.write:
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

    manifest, folder = bundle.manifest, bundle.folder
    tokenizer = load_tokenizer(folder, TokenizerSpec.from_dict(manifest.tokenizer))
    settings, codes = _settings(bundle), manifest.languages
    direction = settle(
        tokenizer, settings, source=source or codes.default_source, target=target or codes.default_target
    )
    return Candidate(
        graphs=load_model_of(bundle),
        tokenizer=tokenizer,
        settings=settings_for(tokenizer, settings, direction.target),
        direction=direction,
    )


def _settings(bundle: Bundle) -> GenerationSettings:

    return GenerationSettings.from_dict(read_json_object(bundle.folder / GENERATION_CONFIG_NAME))
