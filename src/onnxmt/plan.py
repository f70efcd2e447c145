"""What is known of a checkpoint before the long work, and what a bundle of it holds and says about itself."""

from __future__ import annotations

import datetime
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxmt.checkpoint import Checkpoint, licence_warning, read_checkpoint
from onnxmt.errors import TokenizerError
from onnxmt.head_trimming import HeadTrimming, plan_trimming
from onnxmt.manifest import (
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    Dimensions,
    Graphs,
    Languages,
    Licence,
    Manifest,
    Source,
    Verification,
)
from onnxmt.models import architecture_of
from onnxmt.runtime.cpu_features import cpu_features
from onnxmt.runtime.direction import direction_warning, poor_script, settle, target_language, unwritable_script
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction, Tokenizer, TokenizerSpec, load_tokenizer, tokenizer_spec
from onnxmt.versions import package_versions

if TYPE_CHECKING:
    from onnxmt.graph_export import ExportedGraphs
    from onnxmt.hub import ResolvedModel

# What is told of the versions that made a bundle; a package that is absent is left out.
_TOOLS = ("onnxmt", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy", "sentencepiece", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checkpoint, its settings and its tokenizer: read, checked, and small but for the weights, which are lazy.

    `direction` is what the tokenizer is told where a call names no language; `warning` what a user should know of it.
    """

    resolved: ResolvedModel
    checkpoint: Checkpoint
    settings: GenerationSettings
    spec: TokenizerSpec
    tokenizer: Tokenizer
    direction: Direction
    warning: str | None

    @property
    def positions(self) -> int | None:
        """The length of the position table; None where the model has none."""
        return architecture_of(self.checkpoint.config).dimensions.max_source_positions

    @property
    def languages(self) -> Languages:
        """The model's own language codes, and those that stand where a call names none."""
        codes, told = self.tokenizer.languages(), self.direction
        return Languages(
            source=codes.source, target=codes.target, default_source=told.source, default_target=told.target
        )


def make_plan(
    resolved: ResolvedModel, *, source: str | None = None, target: str | None = None, prefix: str | None = None
) -> Plan:
    """Read and check all that is small, so that a wrong model is refused before the long work.

    `source` and `target` (any code or English name) become the bundle's defaults; `prefix` is the task prefix of a T5
    or BART model. Raises CheckpointError, TokenizerError, GenerationSettingsError; UnknownLanguageError for a language
    that the model does not have, and for a target that it needs and nobody names.
    """
    checkpoint = read_checkpoint(resolved)
    architecture_of(checkpoint.config)
    spec = tokenizer_spec(checkpoint.folder, checkpoint.config, prefix=prefix)
    settings = GenerationSettings.from_checkpoint(checkpoint.config, checkpoint.generation)
    tokenizer = load_tokenizer(checkpoint.folder, spec)
    direction = settle(tokenizer, settings, source=source, target=target)
    asked = target_language(tokenizer, direction)
    if (problem := unwritable_script(tokenizer, asked)) is not None:
        raise TokenizerError(f"{checkpoint.name}: {problem}")
    warnings = (
        poor_script(tokenizer, asked),
        direction_warning(tokenizer, direction, kind=spec.kind, config=checkpoint.config),
    )
    return Plan(
        resolved=resolved,
        checkpoint=checkpoint,
        settings=settings,
        spec=spec,
        tokenizer=tokenizer,
        direction=direction,
        warning="; ".join(warning for warning in warnings if warning) or None,
    )


def trimming_of(plan: Plan) -> HeadTrimming:
    """Return the tokens that a trimmed head of this model keeps. Raises UsageError where it cannot be trimmed."""
    dimensions = architecture_of(plan.checkpoint.config).dimensions
    return plan_trimming(plan.tokenizer, plan.settings, dimensions, model=plan.checkpoint.name)


def check_vocabulary(plan: Plan, exported: ExportedGraphs) -> None:
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


def copy_files(plan: Plan, folder: Path) -> None:
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


def manifest_of(plan: Plan, exported: ExportedGraphs, verification: Verification) -> Manifest:
    """Describe a bundle of these graphs; nothing has been measured yet, and no file is listed."""
    checkpoint, recipe, sizes = plan.checkpoint, exported.recipe, exported.dimensions
    return Manifest(
        name=checkpoint.name.rpartition("/")[2],
        version=None,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        source=Source(model=checkpoint.name, revision=checkpoint.revision, origin=plan.resolved.origin),
        architecture=str(checkpoint.config["model_type"]),
        languages=plan.languages,
        licence=Licence(id=checkpoint.licence, warning=licence_warning(checkpoint.licence)),
        recipe=recipe.name,
        precision=exported.precision,
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
        cpu=cpu_features().to_dict(),
        tools=package_versions(_TOOLS),
    )
