"""The main job: MODEL → verified bundle of the wanted precision, one named step a line."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxmt.bundle import Bundle, BundleWriter, check_output
from onnxmt.checkpoint import licence_warning
from onnxmt.errors import SizeLimitError, UsageError
from onnxmt.graph_export import ExportedGraphs, export_graphs
from onnxmt.hub import resolve
from onnxmt.manifest import UNVERIFIED, Manifest
from onnxmt.measure.bench.migration import MigrationSpeed, SpeedLimits
from onnxmt.measure.calibration_options import CalibrationOptions
from onnxmt.measure.gate_report import FP32, GateLimits
from onnxmt.measure.report import commit_with_report
from onnxmt.measure.sentences import ChosenSentences, choose_sentences
from onnxmt.plan import Plan, check_vocabulary, copy_files, make_plan, manifest_of, trimming_of
from onnxmt.precision import PRESETS, Calibration, Recipe
from onnxmt.progress import Progress, Silent
from onnxmt.runtime.direction import settings_for, source_language
from onnxmt.runtime.settings import unknown_settings

if TYPE_CHECKING:
    from onnxmt.measure.expected import Reference
    from onnxmt.measure.gate import Outputs
    from onnxmt.measure.gate_report import GateReport
    from onnxmt.measure.texts import EvaluationSet
    from onnxmt.measure.verdict import VerificationReport
    from onnxmt.runtime.translator import Translator

VerifyMode = Literal["auto", "live", "recording", "none"]
GateMode = Literal["enforce", "report", "off"]
GATE_MODES: tuple[GateMode, ...] = ("enforce", "report", "off")
_LIMITS, _NO_LIMITS = GateLimits(), SpeedLimits()
_FP32 = PRESETS["fp32"]
# Where the fp32 graphs are while a bundle of another precision is made: inside the unfinished bundle, so that whatever
# ends the work takes them away with it.
_BASELINE = ".fp32"


@dataclass(frozen=True, kw_only=True)
class MigrateOptions:
    """What `migrate` may be told; the defaults are right for most models.

    `gate`: a precision that misses `limits` against fp32 stops the migration ("enforce"), is only reported ("report"),
    or nothing is evaluated at all ("off"). `evaluation`: texts of one's own instead of the shipped ones.

    `source`, `target`: the languages that the bundle translates between where a call names none; `prefix`: the task
    prefix of a T5 or BART model, instead of what its config says. `sentences`: a file to verify on instead of the
    shipped sentences.

    `bench`: measure the speed of single sentences, beside PyTorch where that is installed, and hold it to `speed`. It
    takes up to a minute; the command line does it unless it is told not to.
    """

    precision: Recipe = PRESETS["int8"]
    verify: VerifyMode = "auto"
    gate: GateMode = "enforce"
    limits: GateLimits = _LIMITS
    evaluation: EvaluationSet | None = None
    calibration: CalibrationOptions = field(default_factory=CalibrationOptions)
    overwrite: bool = False
    source: str | None = None
    target: str | None = None
    prefix: str | None = None
    sentences: Path | None = None
    bench: bool = False
    speed: SpeedLimits = _NO_LIMITS

    def __post_init__(self) -> None:
        if self.gate not in GATE_MODES:
            raise UsageError(f"the gate is {self.gate!r}; allowed: {', '.join(GATE_MODES)}")
        if self.speed.any and not self.bench:
            raise UsageError("limits of speed need the measurement: leave --no-bench (bench=False) out")


@dataclass(frozen=True, kw_only=True)
class MigrateResult:
    """The bundle that was written, the verification report (None with verify="none"), the quality beside fp32 (None
    with gate="off"), its speed (None without bench), and what the user should know."""

    bundle: Bundle
    report: VerificationReport | None
    quality: GateReport | None
    warnings: tuple[str, ...]
    speed: MigrationSpeed | None = None


def migrate(
    model: str | Path, output: str | Path, *, options: MigrateOptions | None = None, progress: Progress | None = None
) -> MigrateResult:
    """Move `model` (a folder, a hub id, or `demo`) to a verified bundle at `output`.

    The fp32 graphs are verified; those of another precision are then run, evaluated beside them, and held to
    `options.limits`. Raises OnnxmtError: nothing is left at `output` then, and what was there before still is. A
    verification that fails raises VerificationError, a quality limit that is missed QualityGateError, one of speed
    SpeedLimitError, a result that is no smaller than fp32 SizeLimitError (with gate="enforce").
    """
    options, progress = options or MigrateOptions(), progress or Silent()
    check_output(output, overwrite=options.overwrite)
    progress.step("find the model")
    resolved = resolve(model)
    progress.step("read the checkpoint")
    plan = make_plan(resolved, source=options.source, target=options.target, prefix=options.prefix)
    if options.precision.trim_head:
        trimming_of(plan)  # a model that has nothing to trim is refused before the long work
    chosen = choose_sentences(source_language(plan.tokenizer, plan.direction), file=options.sentences)
    reference = _find_reference(plan, chosen, options)
    texts = _find_texts(plan, options)
    timed = _timed_texts(plan, texts, options)
    exact = options.precision.exact
    with BundleWriter(output, overwrite=options.overwrite) as writer:
        copy_files(plan, writer.folder)
        fp32 = report = baseline = quality = size_note = None
        if exact or reference is not None or texts is not None or options.precision.calibrated:
            progress.step("build the graphs")
            fp32 = _build(plan, writer.folder if exact else writer.folder / _BASELINE, _FP32)
        if fp32 is not None and reference is not None:
            progress.step("verify against the reference")
            report = _verify(fp32, reference, chosen, writer.folder, progress)
            report.raise_if_failed()
        if fp32 is not None and texts is not None:
            progress.step("evaluate fp32")
            baseline = _evaluate(fp32, texts, progress)
        built = fp32 if fp32 is not None and exact else None
        if built is None:
            calibration = None
            if fp32 is not None and options.precision.calibrated:
                progress.step("calibrate")
                calibration = _calibrate(fp32, options.calibration, progress)
            if fp32 is not None:
                fp32.unload()
            progress.step(f"build the graphs in {options.precision.name}")
            built = _build(plan, writer.folder, options.precision, calibration)
            size_note = None if fp32 is None else _size_note(built, fp32, options)
            progress.step("run them")
            _run(built)
        if texts is not None and baseline is not None:
            progress.step(f"evaluate {options.precision.name}")
            quality = _judge(built, baseline, texts, options, progress)
        built.unload()
        manifest = _manifest(built, report, quality, fp32_sizes={} if fp32 is None else fp32.sizes)
        shutil.rmtree(writer.folder / _BASELINE, ignore_errors=True)
        speed = None
        if timed is not None:
            progress.step("measure the speed")
            speed = _measure(writer.described(manifest), plan, timed, options, progress)
            manifest = _with_speed(manifest, speed)
        progress.step("write the bundle and its report")
        finished = commit_with_report(writer, manifest)
    unmeasured = options.bench and timed is None
    warnings = (
        *_warnings(built, report, quality),
        *([size_note] if size_note else []),
        *(["the speed was not measured: no shipped text is in a language that the model reads"] if unmeasured else []),
        *([finished.note] if finished.note else []),
    )
    return MigrateResult(bundle=finished.bundle, report=report, quality=quality, warnings=warnings, speed=speed)


def _size_note(built: _Built, fp32: _Built, options: MigrateOptions) -> str | None:
    """What is to be said of a result that is no smaller than fp32; raises SizeLimitError with gate="enforce"."""
    try:
        require_smaller(options.precision, sum(built.sizes.values()), sum(fp32.sizes.values()))
    except SizeLimitError as error:
        if options.gate == "enforce":
            raise
        return str(error)
    return None


def require_smaller(recipe: Recipe, size: int, fp32: int) -> None:
    """Raise SizeLimitError unless a quantised model is smaller than its fp32 one, both in bytes."""
    if not recipe.exact and size >= fp32:
        raise SizeLimitError(
            f"the model takes {size:,} bytes in {recipe.name} and {fp32:,} in fp32: quantising it so wins nothing. "
            "Give lm_head and embedding one precision, since a tied table is then stored once, or keep fp32"
        )


def export(
    model: str | Path, output: str | Path, *, options: MigrateOptions | None = None, progress: Progress | None = None
) -> MigrateResult:
    """Write a bundle of any recipe (by default fp32) without verification or evaluation.

    It says `unverified` wherever it is shown. Of the options only `precision`, `overwrite` and the languages count.
    """
    given = options or MigrateOptions(precision=_FP32)
    unverified = dataclasses.replace(
        given, verify="none", gate="off", evaluation=None, sentences=None, bench=False, speed=_NO_LIMITS
    )
    return migrate(model, output, options=unverified, progress=progress)


@dataclass(kw_only=True)
class _Built:
    """Graphs that were written to a folder; they are loaded when they are first run."""

    plan: Plan
    exported: ExportedGraphs
    folder: Path

    @cached_property
    def translator(self) -> Translator:
        """What will load them from the bundle."""
        from onnxmt.runtime.decoder import load_model
        from onnxmt.runtime.session import RuntimeOptions
        from onnxmt.runtime.translator import Translator

        manifest, runtime = manifest_of(self.plan, self.exported, UNVERIFIED), RuntimeOptions()
        return Translator(
            bundle=Bundle(folder=self.folder, manifest=manifest),
            model=load_model(self.folder, positions=manifest.dimensions.positions, options=runtime),
            tokenizer=self.plan.tokenizer,
            settings=self.plan.settings,
            runtime=runtime,
        )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes of each graph and weights file."""
        names = (self.exported.encoder.file, self.exported.decoder.file, self.exported.weights_file)
        return {name: (self.folder / name).stat().st_size for name in names}

    def unload(self) -> None:
        """Give the graphs' memory back; they cannot be run after that."""
        if "translator" in self.__dict__:
            self.translator.close()


def _find_reference(plan: Plan, chosen: ChosenSentences, options: MigrateOptions) -> Reference | None:
    if options.verify == "none":
        return None
    from onnxmt.measure.reference import find_reference, tell

    told = tell(plan.tokenizer, spec=plan.spec, direction=plan.direction, settings=plan.settings)
    return find_reference(plan.checkpoint, options.verify, chosen.sentences, told=told)


def _find_texts(plan: Plan, options: MigrateOptions) -> EvaluationSet | None:
    """The texts to evaluate on; what evaluation lacks is refused here, before the long work."""
    if options.gate == "off":
        return None
    from onnxmt.measure.direction import texts_for
    from onnxmt.measure.scores import require_sacrebleu

    require_sacrebleu()
    return options.evaluation or texts_for(plan.languages, model=plan.checkpoint.name)


def _timed_texts(plan: Plan, texts: EvaluationSet | None, options: MigrateOptions) -> EvaluationSet | None:
    """The texts to measure the speed on; None where nothing is measured, or no shipped text fits."""
    if not options.bench:
        return None
    from onnxmt.measure.direction import texts_for

    found = options.evaluation or texts
    if found is None:
        try:
            found = texts_for(plan.languages, model=plan.checkpoint.name)
        except UsageError:
            if options.speed.any:
                raise
    return found


def _measure(
    unfinished: Bundle, plan: Plan, texts: EvaluationSet, options: MigrateOptions, progress: Progress
) -> MigrationSpeed:
    """Measure beside PyTorch, hold the result to the limits, and keep what PyTorch translated."""
    from onnxmt.measure.migration_speed import measure_speed, pytorch_outputs
    from onnxmt.measure.quality import add_to_evaluation

    speed = measure_speed(unfinished, plan, texts, progress=progress.advance)
    speed.raise_if_missed(options.speed, model=plan.checkpoint.name)
    if (outputs := pytorch_outputs(speed, plan)) is not None:
        add_to_evaluation(unfinished.folder, "pytorch", outputs)
    return speed


def _with_speed(manifest: Manifest, speed: MigrationSpeed) -> Manifest:
    """Say what was measured, and in `quality` how PyTorch itself scores."""
    from onnxmt.measure.migration_speed import pytorch_quality

    quality, before = manifest.quality, pytorch_quality(speed)
    if quality is not None and before is not None:
        quality = {**quality, "pytorch": before}
    return dataclasses.replace(manifest, quality=quality, speed=speed.to_dict())


def _calibrate(fp32: _Built, options: CalibrationOptions, progress: Progress) -> Calibration:
    """Measure what goes into each layer while the fp32 graphs decode text."""
    from onnxmt.measure.calibrate import calibrate, calibration_texts

    texts = calibration_texts(options, fp32.plan.languages)
    return calibrate(fp32.translator, texts, ranges=options.ranges, progress=progress.advance)


def _build(plan: Plan, folder: Path, recipe: Recipe, calibration: Calibration | None = None) -> _Built:
    """Write the graphs of one recipe."""
    folder.mkdir(exist_ok=True)
    trimming = trimming_of(plan) if recipe.trim_head else None
    exported = export_graphs(plan.checkpoint, folder, precision=recipe, calibration=calibration, trimming=trimming)
    check_vocabulary(plan, exported)
    return _Built(plan=plan, exported=exported, folder=folder)


def _verify(
    built: _Built, reference: Reference, chosen: ChosenSentences, output: Path, progress: Progress
) -> VerificationReport:
    """Compare the graphs with the reference, and keep the recording of it in the bundle at `output`."""
    from onnxmt.measure.recorder import Recorder
    from onnxmt.measure.recording import RECORDING_NAME, Recording, checkpoint_identity
    from onnxmt.measure.verify import Candidate, verify

    plan, sentences = built.plan, chosen.sentences
    notes = () if chosen.note is None else (chosen.note,)
    settings = settings_for(plan.tokenizer, plan.settings, plan.direction.target)
    candidate = Candidate(
        graphs=built.translator.model, tokenizer=plan.tokenizer, settings=settings, direction=plan.direction
    )
    if isinstance(reference, Recording):
        report = verify(candidate, reference, sentences, notes=notes, progress=progress.advance)
        shutil.copyfile(plan.checkpoint.folder / RECORDING_NAME, output / RECORDING_NAME)
        return report
    recorder = Recorder(
        reference,
        sentences=sentences,
        identity=checkpoint_identity(plan.checkpoint.weights),
        generation=settings.to_dict(),
    )
    report = verify(candidate, recorder, sentences, notes=notes, progress=progress.advance)
    recorder.recording().save(output / RECORDING_NAME)
    return report


def _evaluate(built: _Built, texts: EvaluationSet, progress: Progress) -> Outputs:
    """Translate the evaluation set in every mode."""
    from onnxmt.measure.quality import translate_set

    return translate_set(built.translator, texts, progress=progress.advance)


def _run(built: _Built) -> None:
    """Load the graphs and run a few steps: a file that ONNX Runtime refuses, or a NaN, is found here and not later."""
    from onnxmt.measure.finite import require_finite

    require_finite(built.translator, label=built.exported.recipe.name)


def _judge(
    built: _Built, baseline: Outputs, texts: EvaluationSet, options: MigrateOptions, progress: Progress
) -> GateReport:
    """Hold the graphs to the limits beside fp32, and keep both outputs in the bundle. fp32 itself is only measured."""
    from onnxmt.measure.direction import scored_language
    from onnxmt.measure.gate import QualityGate
    from onnxmt.measure.quality import write_evaluation

    name, plan = built.exported.recipe.name, built.plan
    exact = options.precision.exact
    outputs = baseline if exact else _evaluate(built, texts, progress)
    language = scored_language(texts, plan.languages)
    report = QualityGate(texts, baseline, target_language=language, limits=options.limits).judge(outputs, label=name)
    if options.gate == "enforce":
        report.raise_if_missed(
            model=plan.checkpoint.name,
            fix="Nothing was written. Take a safer precision, allow more (--max-bleu-drop), or look at everything with "
            "--gate report",
        )
    if not exact:
        write_evaluation(built.folder, texts, {FP32: baseline, name: outputs})
    return report


def _manifest(
    built: _Built, report: VerificationReport | None, quality: GateReport | None, *, fp32_sizes: Mapping[str, int]
) -> Manifest:
    """Describe the bundle with all that was found out about it."""
    verification = UNVERIFIED if report is None else report.for_manifest()
    if report is not None and not built.exported.recipe.exact:
        verification = dataclasses.replace(verification, graphs="fp32")
    manifest = manifest_of(built.plan, built.exported, verification)
    if quality is None:
        return manifest
    from onnxmt.measure.quality import manifest_quality

    return dataclasses.replace(manifest, quality=manifest_quality(quality, built.translator, fp32_sizes=fp32_sizes))


def _warnings(built: _Built, report: VerificationReport | None, quality: GateReport | None) -> tuple[str, ...]:
    """What a user should know of this model, in one line each."""
    checkpoint, exported = built.plan.checkpoint, built.exported
    found: Sequence[str | None] = (
        licence_warning(checkpoint.licence),
        built.plan.warning,
        built.plan.settings.length_warning,
        f"generation settings without a meaning were left out: {', '.join(ignored)}"
        if (ignored := unknown_settings(checkpoint.generation))
        else None,
        f"these weights differ from the one they should be tied to and are kept apart, as transformers does: "
        f"{', '.join(exported.untied)}"
        if exported.untied
        else None,
        "the bundle is unverified: nothing has compared its graphs with PyTorch" if report is None else None,
        *exported.recipe.warnings,
        *(() if quality is None else (f"a quality limit was missed: {miss}" for miss in quality.misses)),
    )
    return tuple(warning for warning in found if warning)
