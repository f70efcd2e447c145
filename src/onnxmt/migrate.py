"""The main job: MODEL → verified bundle, one named step a line."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from onnxmt.bundle import Bundle, BundleWriter, check_output
from onnxmt.checkpoint import Checkpoint, licence_warning, read_checkpoint
from onnxmt.errors import TokenizerError, UsageError
from onnxmt.export import ExportedGraphs, export_graphs
from onnxmt.hub import ResolvedModel, resolve
from onnxmt.manifest import (
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    UNVERIFIED,
    Dimensions,
    Graphs,
    Languages,
    Licence,
    Manifest,
    Precision,
    Source,
    Verification,
)
from onnxmt.models import architecture_of
from onnxmt.precision import PRESETS, Recipe
from onnxmt.runtime.settings import GenerationSettings, unknown_settings
from onnxmt.runtime.tokenizer import Tokenizer, TokenizerSpec, load_tokenizer, tokenizer_spec

if TYPE_CHECKING:
    from onnxmt.measure.expected import Reference
    from onnxmt.measure.verdict import VerificationReport

VerifyMode = Literal["auto", "live", "recording", "none"]
# What is told of the versions that made a bundle; a package that is absent is left out.
_TOOLS = ("onnxmt", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy", "sentencepiece", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class MigrateOptions:
    """What `migrate` may be told; the defaults are right for most models."""

    precision: Recipe = PRESETS["fp32"]
    verify: VerifyMode = "auto"
    overwrite: bool = False


@dataclass(frozen=True, kw_only=True)
class MigrateResult:
    """The bundle that was written, the verification report (None with verify="none"), and what the user should know."""

    bundle: Bundle
    report: VerificationReport | None
    warnings: tuple[str, ...]


class Progress(Protocol):
    """Who is told how far the work is."""

    def step(self, name: str) -> None:
        """A step begins."""

    def advance(self, done: int, total: int) -> None:
        """Part of the present step is done."""


class Silent:
    """Tells nobody."""

    def step(self, name: str) -> None:
        """Ignore it."""

    def advance(self, done: int, total: int) -> None:
        """Ignore it."""


def migrate(
    model: str | Path, output: str | Path, *, options: MigrateOptions | None = None, progress: Progress | None = None
) -> MigrateResult:
    """Move `model` (a folder, a hub id, or `demo`) to a verified bundle at `output`.

    Raises OnnxmtError: nothing is left at `output` then, and what was there before still is. A verification that fails
    raises VerificationError.
    """
    options, progress = options or MigrateOptions(), progress or Silent()
    check_output(output, overwrite=options.overwrite)
    progress.step("find the model")
    resolved = resolve(model)
    progress.step("read the checkpoint")
    plan = _plan(resolved)
    reference = _find_reference(plan.checkpoint, options)
    with BundleWriter(output, overwrite=options.overwrite) as writer:
        progress.step("build the graphs")
        exported = export_graphs(plan.checkpoint, writer.folder, precision=options.precision)
        _check_vocabulary(plan, exported)
        _copy_files(plan, writer.folder)
        report = None
        if reference is not None:
            progress.step("verify against the reference")
            report = _verify(plan, reference, writer.folder, progress)
            report.raise_if_failed()
        progress.step("write the bundle")
        verification = UNVERIFIED if report is None else report.for_manifest()
        bundle = writer.commit(_manifest(plan, exported, verification))
    return MigrateResult(bundle=bundle, report=report, warnings=_warnings(plan, exported, report))


def export(
    model: str | Path, output: str | Path, *, options: MigrateOptions | None = None, progress: Progress | None = None
) -> MigrateResult:
    """Write a bundle of any recipe without verification; it says `unverified` wherever it is shown."""
    given = options or MigrateOptions()
    unverified = MigrateOptions(precision=given.precision, verify="none", overwrite=given.overwrite)
    return migrate(model, output, options=unverified, progress=progress)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Everything known of a checkpoint before any work is done on it."""

    resolved: ResolvedModel
    checkpoint: Checkpoint
    settings: GenerationSettings
    spec: TokenizerSpec
    tokenizer: Tokenizer


def _plan(resolved: ResolvedModel) -> _Plan:
    """Read and check all that is small, so that a wrong model is refused before the long work."""
    checkpoint = read_checkpoint(resolved)
    architecture_of(checkpoint.config)
    spec = tokenizer_spec(checkpoint.folder, checkpoint.config)
    return _Plan(
        resolved=resolved,
        checkpoint=checkpoint,
        settings=GenerationSettings.from_checkpoint(checkpoint.config, checkpoint.generation),
        spec=spec,
        tokenizer=load_tokenizer(checkpoint.folder, spec),
    )


def _find_reference(checkpoint: Checkpoint, options: MigrateOptions) -> Reference | None:
    if options.verify == "none":
        return None
    from onnxmt.measure.reference import find_reference
    from onnxmt.measure.sentences import verification_sentences

    if not options.precision.exact:
        raise UsageError(
            f"precision {options.precision.name!r} is not equal to PyTorch by nature and cannot be verified like fp32: "
            "use --precision fp32, or --verify none"
        )
    return find_reference(checkpoint, options.verify, verification_sentences())


def _check_vocabulary(plan: _Plan, exported: ExportedGraphs) -> None:
    """Refuse a tokenizer that can yield ids which the embedding has no row for."""
    limits, dimensions = plan.tokenizer.vocabulary_limits, exported.dimensions
    problems = [
        f"the {side} side gives ids up to {largest}, and the {stack} embedding has {rows} rows"
        for side, largest, stack, rows in (
            ("source", limits.source, "encoder", dimensions.source_vocab_size),
            ("target", limits.target, "decoder", dimensions.target_vocab_size),
        )
        if largest >= rows
    ]
    if problems:
        raise TokenizerError(
            f"the tokenizer of {plan.checkpoint.name} does not match its weights: {'; '.join(problems)}. "
            "Use the tokenizer files that belong to this checkpoint"
        )


def _copy_files(plan: _Plan, folder: Path) -> None:
    """Put beside the graphs all that running and understanding them needs."""
    checkpoint = plan.checkpoint
    for name in plan.spec.files:
        shutil.copyfile(checkpoint.folder / name, folder / name)
    if checkpoint.card is not None:
        shutil.copyfile(checkpoint.card, folder / checkpoint.card.name)
    _write_json(folder / CONFIG_NAME, dict(checkpoint.config))
    _write_json(folder / GENERATION_CONFIG_NAME, plan.settings.to_dict())


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _verify(plan: _Plan, reference: Reference, folder: Path, progress: Progress) -> VerificationReport:
    """Compare the graphs in `folder` with the reference, and keep the recording of it in the bundle."""
    from onnxmt.measure.recorder import Recorder
    from onnxmt.measure.recording import RECORDING_NAME, Recording, checkpoint_identity
    from onnxmt.measure.sentences import verification_sentences
    from onnxmt.measure.verify import Candidate, verify
    from onnxmt.runtime.decoder import load_model

    sentences = verification_sentences()
    candidate = Candidate(graphs=load_model(folder), tokenizer=plan.tokenizer, settings=plan.settings)
    if isinstance(reference, Recording):
        report = verify(candidate, reference, sentences, progress=progress.advance)
        shutil.copyfile(plan.checkpoint.folder / RECORDING_NAME, folder / RECORDING_NAME)
        return report
    recorder = Recorder(
        reference,
        sentences=sentences,
        identity=checkpoint_identity(plan.checkpoint.weights),
        generation=plan.settings.to_dict(),
    )
    report = verify(candidate, recorder, sentences, progress=progress.advance)
    recorder.recording().save(folder / RECORDING_NAME)
    return report


def _manifest(plan: _Plan, exported: ExportedGraphs, verification: Verification) -> Manifest:
    checkpoint, recipe, sizes = plan.checkpoint, exported.recipe, exported.dimensions
    codes = plan.tokenizer.languages()
    return Manifest(
        name=checkpoint.name.rpartition("/")[2],
        version=None,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        source=Source(model=checkpoint.name, revision=checkpoint.revision, origin=plan.resolved.origin),
        architecture=str(checkpoint.config["model_type"]),
        languages=Languages(source=codes.source, target=codes.target),
        licence=Licence(id=checkpoint.licence, warning=licence_warning(checkpoint.licence)),
        recipe=recipe.name,
        precision=Precision(
            encoder=recipe.encoder,
            decoder=recipe.decoder,
            cross_kv=recipe.cross_kv,
            lm_head=recipe.lm_head,
            embedding=recipe.embedding,
        ),
        graphs=Graphs(encoder=exported.encoder, decoder=exported.decoder, weights=(exported.weights_file,)),
        dimensions=Dimensions(
            encoder_layers=sizes.encoder.layers,
            decoder_layers=sizes.decoder.layers,
            encoder_heads=sizes.encoder.heads,
            decoder_heads=sizes.decoder.heads,
            head_dim=sizes.decoder.head_dim,
            d_model=sizes.d_model,
            source_vocabulary=sizes.source_vocab_size,
            target_vocabulary=sizes.target_vocab_size,
            positions=sizes.max_source_positions,
        ),
        tokenizer=plan.spec.to_dict(),
        verification=verification,
        tools=_tool_versions(),
    )


def _tool_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _TOOLS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _warnings(plan: _Plan, exported: ExportedGraphs, report: VerificationReport | None) -> tuple[str, ...]:
    """What a user should know of this model, in one line each."""
    checkpoint = plan.checkpoint
    found: Sequence[str | None] = (
        licence_warning(checkpoint.licence),
        plan.settings.length_warning,
        f"generation settings without a meaning were left out: {', '.join(ignored)}"
        if (ignored := unknown_settings(checkpoint.generation))
        else None,
        f"these weights differ from the one they should be tied to and are kept apart, as transformers does: "
        f"{', '.join(exported.untied)}"
        if exported.untied
        else None,
        "the bundle is unverified: nothing has compared its graphs with PyTorch" if report is None else None,
    )
    return tuple(warning for warning in found if warning)
