"""fp32 bundle → bundle in another precision, behind the quality gate; and the search for the fastest that passes."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxmt.bundle import Bundle, BundleWriter, check_output, read_bundle
from onnxmt.errors import QualityGateError, SizeLimitError, UsageError
from onnxmt.fp32_weights import checkpoint_of, float_leftovers
from onnxmt.graph_export import ExportedGraphs, export_graphs
from onnxmt.head_trimming import HeadTrimming, plan_trimming
from onnxmt.manifest import Manifest
from onnxmt.measure.calibrate import calibrate, calibration_texts
from onnxmt.measure.calibration_options import CalibrationOptions
from onnxmt.measure.direction import requested_language
from onnxmt.measure.finite import require_finite
from onnxmt.measure.gate_report import FP32, GateLimits
from onnxmt.measure.report import REPORT_NAME, commit_with_report
from onnxmt.migration import GATE_MODES, GateMode, require_smaller
from onnxmt.models import architecture_of
from onnxmt.precision import PRESETS, Calibration, Recipe, search_order
from onnxmt.progress import Progress, Silent
from onnxmt.runtime.cpu_features import cpu_features
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator, load_model_of
from onnxmt.shortlisting import LearntShortlist, ShortlistOptions, learn_shortlist

if TYPE_CHECKING:
    from onnxmt.checkpoint import Checkpoint
    from onnxmt.measure.explain import Explanation
    from onnxmt.measure.gate import Outputs
    from onnxmt.measure.gate_report import GateReport
    from onnxmt.measure.texts import EvaluationSet

_TRIAL = ".trial"


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """How to quantise. `gate`, `limits` and `evaluation` as in MigrateOptions; a search needs the gate.

    `shortlist`: what a shortlist is learnt from; `precision` is then that of the recipe with it. Raises UsageError.
    """

    precision: Recipe = PRESETS["int8"]
    calibration: CalibrationOptions = field(default_factory=CalibrationOptions)
    gate: GateMode = "enforce"
    limits: GateLimits = field(default_factory=GateLimits)
    evaluation: EvaluationSet | None = None
    overwrite: bool = False
    shortlist: ShortlistOptions | None = None

    def __post_init__(self) -> None:
        if self.gate not in GATE_MODES:
            raise UsageError(f"the gate is {self.gate!r}; allowed: {', '.join(GATE_MODES)}")
        if self.shortlist is not None and not self.precision.shortlist:
            object.__setattr__(self, "precision", self.precision.with_shortlist())
        if self.precision.shortlist and self.shortlist is None:
            raise UsageError(f"precision {self.precision.name!r}: a shortlist needs a text to be learnt from")


@dataclass(frozen=True, kw_only=True)
class QuantizeResult:
    """The bundle that was written; its quality beside fp32 (None with gate="off"); bytes of graphs and weights before
    and after; float32 tensors of 64 KiB or more that are left, by bytes; what the user should know."""

    bundle: Bundle
    quality: GateReport | None
    fp32_bytes: int
    bytes: int
    leftovers: dict[str, int]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A recipe that a search tried: why it was not taken (empty: it was), and the bytes of its graphs and weights (None
    where it was refused before it was evaluated)."""

    recipe: Recipe
    misses: tuple[str, ...]
    bytes: int | None


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The bundle of the first recipe that passed, and all that were tried, in order."""

    result: QuantizeResult
    tried: tuple[Tried, ...]


Judge = Callable[[Translator, Recipe], "GateReport"]
"""Compares a candidate, loaded as a Translator, with fp32."""


def quantize(
    source: str | Path,
    output: str | Path,
    *,
    options: QuantizeOptions | None = None,
    judge: Judge | None = None,
    progress: Progress | None = None,
) -> QuantizeResult:
    """Write the fp32 bundle `source` in another precision to `output`; the checkpoint is not needed.

    Graphs and weights are byte for byte those of `onnxmt export MODEL --precision`. `judge` replaces the gate's own
    comparison. Raises UsageError for a bundle that is not fp32, QualityGateError for a missed limit, SizeLimitError for
    a result that is no smaller, and what reading, exporting and running raise; nothing is left at `output` then.
    """
    options, progress = options or QuantizeOptions(), progress or Silent()
    check_output(output, overwrite=options.overwrite)
    with _Source.opened(source, options, judge, progress) as fp32:
        if options.precision.trim_head:
            fp32.trimming()  # refused before the long work
        if options.shortlist is not None:
            fp32.learn(options.shortlist)
        fp32.prepare_gate()
        with BundleWriter(output, overwrite=options.overwrite) as writer:
            built = fp32.build(options.precision, writer.folder)
            quality = fp32.judged(built)
            if quality is not None and options.gate == "enforce":
                quality.raise_if_missed(model=fp32.manifest.name, fix=_fix(options.precision))
            return fp32.finish(built, quality, writer)


def search(
    source: str | Path,
    output: str | Path,
    *,
    options: QuantizeOptions | None = None,
    recipes: Sequence[Recipe] | None = None,
    judge: Judge | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """Try `recipes` (None: `search_order()`) in order, and write the first that passes the gate to `output`.

    `options.precision` gives only the layers to keep in fp32, and whether heads are trimmed. Raises QualityGateError,
    which names what each recipe missed, when none passes.
    """
    options, progress = options or QuantizeOptions(), progress or Silent()
    if options.gate == "off":
        raise UsageError("a search compares each recipe with fp32: leave --gate off out")
    if options.shortlist is not None:
        raise UsageError("a search has no shortlist: search first, and learn one for the precision that is found")
    kept = options.precision.keep_fp32
    candidates = [recipe.keeping(kept) if kept else recipe for recipe in recipes or search_order()]
    if options.precision.trim_head:
        candidates = [recipe.with_head(trimmed=True) for recipe in candidates]
    check_output(output, overwrite=options.overwrite)
    tried: list[Tried] = []
    with _Source.opened(source, options, judge, progress) as fp32:
        if options.precision.trim_head:
            fp32.trimming()  # refused before the long work
        fp32.prepare_gate()
        with BundleWriter(output, overwrite=options.overwrite) as writer:
            for recipe in candidates:
                try:
                    built = fp32.build(recipe, writer.folder / _TRIAL)
                except (SizeLimitError, QualityGateError) as error:  # no smaller, or not a number
                    tried.append(Tried(recipe=recipe, misses=(str(error),), bytes=None))
                    shutil.rmtree(writer.folder / _TRIAL)
                    continue
                quality = fp32.judged(built)
                assert quality is not None
                tried.append(Tried(recipe=recipe, misses=tuple(quality.misses), bytes=built.bytes))
                if quality.passed:
                    result = fp32.finish(built, quality, writer)
                    return SearchResult(result=result, tried=tuple(tried))
                built.discard()
            shown = "; ".join(f"{one.recipe.name}: {one.misses[0]}" for one in tried)
            raise QualityGateError(
                f"none of {len(tried)} recipes keeps the quality of {fp32.manifest.name}: {shown}. Nothing was "
                "written. Keep the fp32 bundle, allow more (--max-bleu-drop), or see what to exclude with --explain"
            )


def explain_damage(
    source: str | Path, *, options: QuantizeOptions | None = None, progress: Progress | None = None
) -> Explanation:
    """Rank the layers of the fp32 bundle `source` by what `options.precision` does to them; nothing is written.

    Runs on the calibration text. Raises as `quantize` does, and UsageError for fp16 and fp32.
    """
    from onnxmt.measure.explain import explain
    from onnxmt.runtime.direction import settle

    options, progress = options or QuantizeOptions(), progress or Silent()
    with (
        _Source.opened(source, options, None, progress) as fp32,
        tempfile.TemporaryDirectory(prefix="onnxmt-explain-") as scratch,
    ):
        # All layers are compared over all tokens: a trimmed head would be another output, not another precision.
        exported = fp32.export(options.precision.with_head(trimmed=False), Path(scratch))
        translator, codes = fp32.translator, fp32.manifest.languages
        texts = calibration_texts(options.calibration, codes)
        direction = settle(
            translator.tokenizer,
            translator.settings,
            source=requested_language(codes.source, texts.source) or codes.default_source,
            target=requested_language(codes.target, texts.target) or codes.default_target,
        )
        progress.step("exchange one layer at a time")
        return explain(
            translator,
            Path(scratch),
            exported.recipe,
            texts.lines,
            direction=direction,
            config=fp32.checkpoint.config,
            progress=progress.advance,
        )


def _fix(recipe: Recipe) -> str:
    return (
        f"Nothing was written. See which layers do the damage with --explain, keep them (--keep-fp32), take a safer "
        f"precision than {recipe.name}, or allow more (--max-bleu-drop)"
    )


@dataclass(kw_only=True)
class _Candidate:
    """Graphs of one recipe in a folder, loaded with the source's tokenizer and settings."""

    exported: ExportedGraphs
    folder: Path
    translator: Translator
    bytes: int

    def discard(self) -> None:
        """Close the graphs and delete the files."""
        self.translator.close()
        shutil.rmtree(self.folder)


@dataclass(kw_only=True)
class _Source:
    """The fp32 bundle: read once, translated with once, calibrated at most once."""

    translator: Translator
    checkpoint: Checkpoint
    options: QuantizeOptions
    judge: Judge | None
    progress: Progress
    calibration: Calibration | None = None
    texts: EvaluationSet | None = None
    baseline: Outputs | None = None
    learnt: LearntShortlist | None = None

    @classmethod
    @contextmanager
    def opened(
        cls, source: str | Path, options: QuantizeOptions, judge: Judge | None, progress: Progress
    ) -> Iterator[_Source]:
        """Read the bundle and load its graphs; both are given back at the end."""
        progress.step("read the fp32 bundle")
        checkpoint = checkpoint_of(read_bundle(source))
        with Translator.load(source, check="size") as translator, checkpoint.weights:
            yield cls(translator=translator, checkpoint=checkpoint, options=options, judge=judge, progress=progress)

    @property
    def manifest(self) -> Manifest:
        """The fp32 bundle's."""
        return self.translator.bundle.manifest

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each graph and weights file."""
        graphs = self.manifest.graphs
        names = (*(graph.file for graph in graphs.all), *graphs.weights)
        return {entry.path: entry.bytes for entry in self.manifest.files if entry.path in names}

    @property
    def bytes(self) -> int:
        """Of graphs and weights."""
        return sum(self.sizes.values())

    def prepare_gate(self) -> None:
        """Translate the evaluation set in fp32; what evaluating lacks is refused here, before the long work."""
        if self.options.gate == "off" or self.judge is not None:
            return
        from onnxmt.measure.direction import texts_for
        from onnxmt.measure.quality import translate_set
        from onnxmt.measure.scores import require_sacrebleu

        require_sacrebleu()
        self.texts = self.options.evaluation or texts_for(self.manifest.languages, model=self.manifest.name)
        self.progress.step("evaluate fp32")
        self.baseline = translate_set(self.translator, self.texts, progress=self.progress.advance)

    def export(self, recipe: Recipe, folder: Path) -> ExportedGraphs:
        """Write the graphs, calibrated where the recipe needs it."""
        if recipe.calibrated and self.calibration is None:
            self.progress.step("calibrate")
            options = self.options.calibration
            texts = calibration_texts(options, self.manifest.languages)
            self.calibration = calibrate(self.translator, texts, ranges=options.ranges, progress=self.progress.advance)
        self.progress.step(f"build the graphs in {recipe.name}")
        folder.mkdir(exist_ok=True)
        trimming = self.trimming() if recipe.trim_head else None
        exported = export_graphs(
            self.checkpoint, folder, precision=recipe, calibration=self.calibration, trimming=trimming
        )
        if recipe.shortlist:
            assert self.learnt is not None
            self.learnt.table.save(folder / self.learnt.info.file)
            exported = dataclasses.replace(exported, shortlist=self.learnt.info)
        return exported

    def learn(self, options: ShortlistOptions) -> None:
        """Learn the candidates of each source token. Raises UsageError."""
        self.progress.step("learn the shortlist")
        vocabulary = self.manifest.dimensions.target_vocabulary
        self.learnt = learn_shortlist(self.translator, options, vocabulary=vocabulary, progress=self.progress.advance)

    def trimming(self) -> HeadTrimming:
        """Return the tokens that a trimmed head keeps. Raises UsageError where the model has nothing to trim."""
        dimensions = architecture_of(self.checkpoint.config).dimensions
        translator = self.translator
        return plan_trimming(translator.tokenizer, translator.settings, dimensions, model=self.manifest.source.model)

    def build(self, recipe: Recipe, folder: Path) -> _Candidate:
        """Write the graphs, refuse them where they are no smaller, load them and run a few steps."""
        exported = self.export(recipe, folder)
        size = _bytes(folder, exported.files)
        require_smaller(recipe, size, self.bytes)
        self.progress.step("run them")
        candidate = _Candidate(exported=exported, folder=folder, translator=self._loaded(exported, folder), bytes=size)
        require_finite(candidate.translator, label=recipe.name)
        return candidate

    def _loaded(self, exported: ExportedGraphs, folder: Path) -> Translator:
        bundle = Bundle(folder=folder, manifest=self._manifest(exported))
        return Translator(
            bundle=bundle,
            model=load_model_of(bundle, options=RuntimeOptions()),
            tokenizer=self.translator.tokenizer,
            settings=self.translator.settings,
            runtime=RuntimeOptions(),
        )

    def judged(self, built: _Candidate) -> GateReport | None:
        """Compare the candidate with fp32; None without a gate."""
        if self.options.gate == "off":
            return None
        recipe = built.exported.recipe
        self.progress.step(f"evaluate {recipe.name}")
        if self.judge is not None:
            return self.judge(built.translator, recipe)
        from onnxmt.measure.direction import scored_language
        from onnxmt.measure.gate import QualityGate
        from onnxmt.measure.quality import translate_set, write_evaluation

        assert self.texts is not None
        assert self.baseline is not None
        outputs = translate_set(built.translator, self.texts, progress=self.progress.advance)
        language = scored_language(self.texts, self.manifest.languages)
        gate = QualityGate(self.texts, self.baseline, target_language=language, limits=self.options.limits)
        report = gate.judge(outputs, label=recipe.name)
        write_evaluation(built.folder, self.texts, {FP32: self.baseline, recipe.name: outputs})
        return report

    def finish(self, built: _Candidate, quality: GateReport | None, writer: BundleWriter) -> QuantizeResult:
        """Put everything together in the writer's folder, and commit."""
        self.progress.step("write the bundle")
        manifest = self._manifest(built.exported)
        if quality is not None and self.judge is None:
            from onnxmt.measure.quality import manifest_quality

            entry = manifest_quality(quality, built.translator, fp32_sizes=self.sizes)
            manifest = dataclasses.replace(manifest, quality=entry)
        built.translator.close()
        if built.folder != writer.folder:
            for path in built.folder.iterdir():
                path.rename(writer.folder / path.name)
            built.folder.rmdir()
        self._copy_others(writer.folder)
        files = [writer.folder / graph.file for graph in built.exported.graphs.all]
        leftovers = float_leftovers(files)
        missed = () if quality is None else tuple(f"a quality limit was missed: {miss}" for miss in quality.misses)
        finished = commit_with_report(writer, manifest)
        return QuantizeResult(
            bundle=finished.bundle,
            quality=quality,
            fp32_bytes=self.bytes,
            bytes=built.bytes,
            leftovers=leftovers,
            warnings=(*built.exported.recipe.warnings, *missed, *([finished.note] if finished.note else [])),
        )

    def _copy_others(self, folder: Path) -> None:
        """Copy all that is not graphs, weights, or said of fp32, its report among it."""
        from onnxmt.measure.quality import EVALUATION_NAME

        graphs = self.manifest.graphs
        left = {*(graph.file for graph in graphs.all), *graphs.weights, EVALUATION_NAME, REPORT_NAME}
        for entry in self.manifest.files:
            if entry.path not in left:
                (folder / entry.path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.translator.bundle.folder / entry.path, folder / entry.path)

    def _manifest(self, exported: ExportedGraphs) -> Manifest:
        verification = self.manifest.verification
        if verification.status != "unverified" and not exported.recipe.exact:
            verification = dataclasses.replace(verification, graphs="fp32")
        return dataclasses.replace(
            self.manifest,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            recipe=exported.recipe.name,
            precision=exported.precision,
            graphs=exported.graphs,
            verification=verification,
            quality=None,
            speed=None,
            cpu=cpu_features().to_dict(),
        )


def _bytes(folder: Path, names: Sequence[str]) -> int:
    return sum((folder / name).stat().st_size for name in names)
