"""The speed step of a migration: which sentences, told what, PyTorch or why not, and BLEU of what was translated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onnxmt.errors import MissingExtraError, TokenizerError
from onnxmt.manifest import MANIFEST_NAME, Manifest
from onnxmt.measure.bench.engines import EngineSpec
from onnxmt.measure.bench.migration import MigrationSpeed, SpeedText, measure_migration, spread
from onnxmt.measure.gate_report import FP32
from onnxmt.measure.reference import missing_package
from onnxmt.runtime.direction import settings_for

if TYPE_CHECKING:
    from onnxmt.bundle import Bundle
    from onnxmt.measure.texts import EvaluationSet
    from onnxmt.plan import Plan


def measure_speed(
    unfinished: Bundle, plan: Plan, texts: EvaluationSet, *, progress: Callable[[int, int], None] | None = None
) -> MigrationSpeed:
    """Measure the graphs of a bundle that is being made, and PyTorch on its checkpoint where that is installed.

    Raises BenchError where the bundle cannot be run, UsageError where no line of the set fits the model.
    """
    missing = missing_package()
    baseline: EngineSpec | str = f"the package {missing!r} is not installed (pip install 'onnxmt[reference]')"
    if missing is None:
        baseline = EngineSpec(engine="torch", precision=FP32, model=plan.checkpoint.folder)
    own = EngineSpec(engine="onnxmt", precision=unfinished.manifest.recipe, model=unfinished.folder)
    with _manifest_in(unfinished):
        speed = measure_migration(
            own,
            baseline,
            _sentences(plan, texts),
            beams=plan.settings.num_beams,
            told=_told(plan),
            progress=progress,
        )
    return _scored(speed, plan, texts, unfinished.manifest)


def pytorch_quality(speed: MigrationSpeed) -> dict[str, Any] | None:
    """Return what a manifest's `quality` says of PyTorch: scores on a part of the set, beside the bundle's own."""
    before, own = speed.baseline, speed.own
    if before is None or before.bleu is None:
        return None
    return {
        "lines": own.sentences,
        "beams": own.beams,
        "bleu": before.bleu,
        "chrf": before.chrf,
        "own_bleu": own.bleu,
        "own_chrf": own.chrf,
        "identical": sum(a == b for a, b in zip(*speed.outputs, strict=True)) / own.sentences,
    }


def pytorch_outputs(speed: MigrationSpeed, plan: Plan) -> dict[str, Any] | None:
    """Return what evaluation.json keeps of PyTorch's translations: line numbers from 0, and the texts."""
    if speed.baseline is None:
        return None
    outputs = [plan.tokenizer.decode(tokens) for tokens in speed.outputs[0]]
    return {"beams": speed.baseline.beams, "lines": list(speed.lines), "outputs": outputs}


@contextmanager
def _manifest_in(unfinished: Bundle) -> Iterator[None]:
    """Put a manifest into the folder, so that another process can load it, and take it away again."""
    path = unfinished.folder / MANIFEST_NAME
    path.write_text(unfinished.manifest.to_text(), encoding="utf-8")
    try:
        yield
    finally:
        path.unlink()


def _sentences(plan: Plan, texts: EvaluationSet) -> SpeedText:
    """Lines of all lengths that fit the model, as ids."""
    told, positions = plan.direction, plan.positions
    limits = [limit for limit in (plan.tokenizer.limit, positions) if limit is not None]
    found: list[tuple[int, tuple[int, ...]]] = []
    for line, source in enumerate(texts.sources or ()):
        try:
            ids = tuple(plan.tokenizer.encode(source, source=told.source, target=told.target))
        except TokenizerError:  # a line that cannot be encoded says nothing of the speed
            continue
        if len(ids) <= min(limits, default=len(ids)):
            found.append((line, ids))
    chosen = [found[place] for place in spread([len(ids) for _, ids in found])]
    return SpeedText(
        name=texts.name, lines=tuple(line for line, _ in chosen), sentences=tuple(ids for _, ids in chosen)
    )


def _told(plan: Plan) -> dict[str, int]:
    """The start token and the first token by which this model is told its target, and how long an output may be."""
    settings = settings_for(plan.tokenizer, plan.settings, plan.direction.target)
    if (positions := plan.positions) is not None:
        settings = settings.limited_to(positions)
    told = {
        "decoder_start_token_id": settings.decoder_start_token_id,
        "max_new_tokens": settings.length_limit - 1,
    }
    if settings.forced_bos_token_id is not None:
        told["forced_bos_token_id"] = settings.forced_bos_token_id
    return told


def _scored(speed: MigrationSpeed, plan: Plan, texts: EvaluationSet, manifest: Manifest) -> MigrationSpeed:
    """Add BLEU and chrF of each engine's translations; unchanged without references or sacrebleu."""
    if not texts.references:
        return speed
    from onnxmt.measure.direction import scored_language
    from onnxmt.measure.scores import Scorer, choose_tokenization

    references = [[column[line] for line in speed.lines] for column in texts.references]
    try:
        tokenization = choose_tokenization(scored_language(texts, manifest.languages), texts.references[0])
        scorer = Scorer(tokenization, ter=False)
    except MissingExtraError:
        return speed
    rows = []
    for row, outputs in zip(speed.rows, speed.outputs, strict=True):
        score = scorer.score(scorer.count([plan.tokenizer.decode(tokens) for tokens in outputs], references))
        rows.append(dataclasses.replace(row, bleu=score.bleu, chrf=score.chrf))
    return dataclasses.replace(speed, rows=tuple(rows))
