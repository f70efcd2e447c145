"""What a checkpoint is and needs before its migration, found out from small files and the headers of its weights."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnxmt.checkpoint import read_config, read_generation
from onnxmt.checkpoint_files import missing_files
from onnxmt.errors import (
    CheckpointError,
    DownloadError,
    GenerationSettingsError,
    MissingExtraError,
    MissingFileError,
    TokenizerError,
    UnsupportedModelError,
    WeightsError,
)
from onnxmt.hub import ModelFile, ResolvedModel, model_files, weight_shapes, weights_among
from onnxmt.inspection.memory import MemoryEstimate, estimate_memory
from onnxmt.model_card import licence_warning, read_card
from onnxmt.runtime.direction import (
    DirectionNeeds,
    direction_needs,
    direction_warning,
    poor_script,
    target_language,
    unwritable_script,
)
from onnxmt.runtime.settings import GenerationSettings, unknown_settings
from onnxmt.runtime.tokenizer import LanguageCodes, Tokenizer, load_tokenizer, tokenizer_spec

if TYPE_CHECKING:
    from onnxmt.models.graphs import Architecture

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(kw_only=True)
class CheckpointFacts:
    """What is known; None and empty where it could not be found out, and `notes` then say why.

    `reasons` are all that stands against a migration: none means that it can be migrated. `needed` are the names of
    the files that a migration reads. `parameters` counts tied weights once. `direction` says what the model must be
    told of its languages, and `longest_input` how many tokens of a text it takes.
    """

    model: ResolvedModel
    config: Mapping[str, Any]
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    architecture: Architecture | None = None
    languages: LanguageCodes | None = None
    direction: DirectionNeeds | None = None
    longest_input: int | None = None
    licence: str | None = None
    licence_warning: str | None = None
    files: tuple[ModelFile, ...] = ()
    weights: tuple[ModelFile, ...] = ()
    missing: tuple[str, ...] = ()
    parameters: int | None = None
    parameters_basis: str = ""
    memory: MemoryEstimate | None = None
    settings: GenerationSettings | None = None
    generation_file: str = ""

    @property
    def supported(self) -> bool:
        """Whether nothing stands against a migration."""
        return not self.reasons


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The languages and the prefix that a migration would be given."""

    source: str | None = None
    target: str | None = None
    prefix: str | None = None


def checkpoint_facts(model: ResolvedModel, asked: Asked | None = None) -> CheckpointFacts:
    """Find out all that small files tell; raises CheckpointError where there is no config.json that can be read."""
    config = read_config(model.folder)
    facts = CheckpointFacts(model=model, config=config)
    _read_architecture(facts)
    _read_files(facts)
    _read_settings(facts)
    _read_tokenizer(facts, asked or Asked())
    _read_licence(facts)
    _read_weights(facts)
    return facts


def _read_architecture(facts: CheckpointFacts) -> None:
    facts.architecture, refusals = _architecture(facts.config)
    facts.reasons += refusals


def _architecture(config: Mapping[str, Any]) -> tuple[Architecture | None, list[str]]:
    """The architecture, and every refusal: each time the key that is refused is left out and the rest read again."""
    remaining = dict(config)
    refusals: list[str] = []
    while True:
        found = _try_architecture(remaining)
        if not isinstance(found, str):
            return (None if refusals else found), refusals
        refusals.append(found)
        # The key that a message names first is most likely the one it is about.
        named = sorted((key for key in remaining if key in found and key != "model_type"), key=found.index)
        culprit = next((key for key in named if _try_architecture(_without(remaining, key)) != found), None)
        if culprit is None:
            return None, refusals
        remaining = _without(remaining, culprit)


def _without(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != key}


def _try_architecture(config: Mapping[str, Any]) -> Architecture | str:
    try:
        from onnxmt.models import architecture_of

        return architecture_of(config)
    except UnsupportedModelError as error:
        return str(error)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            needed_for="looking into a checkpoint", extra="export", module=error.name or "onnxscript"
        ) from error


def _read_files(facts: CheckpointFacts) -> None:
    model = facts.model
    try:
        facts.files = model_files(model)
    except DownloadError as error:
        facts.notes.append(f"the files that are not downloaded yet are unknown: {error}")
        local = sorted(path for path in model.folder.iterdir() if path.is_file())
        facts.files = tuple(ModelFile(name=path.name, size=path.stat().st_size) for path in local)
    try:
        facts.weights = weights_among(model, facts.files)
    except (CheckpointError, MissingFileError) as error:
        facts.reasons.append(str(error))
    remote = model.origin == "hub"
    facts.missing = missing_files(model.folder, facts.config, weights=not remote)
    if remote and not facts.weights and not facts.notes:
        facts.missing += ("weights: model.safetensors or pytorch_model.bin",)
    facts.reasons += [f"a file is missing: {name}" for name in facts.missing]


def _read_settings(facts: CheckpointFacts) -> None:
    try:
        generation, facts.generation_file = read_generation(facts.model.folder, facts.config)
        facts.settings = GenerationSettings.from_checkpoint(facts.config, generation)
    except (GenerationSettingsError, CheckpointError) as error:
        facts.reasons.append(str(error))
        return
    if facts.settings.length_warning:
        facts.notes.append(facts.settings.length_warning)
    if ignored := unknown_settings(generation):
        facts.notes.append(f"generation settings without a meaning are left out: {', '.join(ignored)}")


def _read_tokenizer(facts: CheckpointFacts, asked: Asked) -> None:
    folder = facts.model.folder
    try:
        spec = tokenizer_spec(folder, facts.config, prefix=asked.prefix)
        tokenizer = load_tokenizer(folder, spec)
        facts.languages = tokenizer.languages()
    except TokenizerError as error:
        if not facts.missing and facts.architecture is not None:  # else the reason is named already
            facts.reasons.append(str(error))
        return
    _read_direction(facts, tokenizer, spec.kind, asked)
    if facts.architecture is not None:
        positions = facts.architecture.dimensions.max_source_positions
        facts.longest_input = min((n for n in (tokenizer.limit, positions) if n is not None), default=None)
        facts.reasons += _vocabulary_faults(tokenizer, facts.architecture)


def _read_direction(facts: CheckpointFacts, tokenizer: Tokenizer, kind: str, asked: Asked) -> None:
    """What has to be said of the languages; a language that the model lacks, or cannot write, is a reason."""
    if facts.settings is None:
        return
    try:
        facts.direction = direction_needs(tokenizer, facts.settings, source=asked.source, target=asked.target)
    except TokenizerError as error:
        facts.reasons.append(str(error))
        return
    settled = facts.direction.settled
    target = target_language(tokenizer, settled)
    if (problem := unwritable_script(tokenizer, target)) is not None:
        facts.reasons.append(problem)
    if (problem := poor_script(tokenizer, target)) is not None:
        facts.notes.append(problem)
    if (warning := direction_warning(tokenizer, settled, kind=kind, config=facts.config)) is not None:
        facts.notes.append(warning)


def _vocabulary_faults(tokenizer: Tokenizer, architecture: Architecture) -> list[str]:
    limits, sizes = tokenizer.vocabulary_limits, architecture.dimensions
    sides = (
        ("source", limits.source, "encoder", sizes.source_vocab_size),
        ("target", limits.target, "decoder", sizes.target_vocab_size),
    )
    return [
        f"the tokenizer's {side} side gives ids up to {largest}, and the {stack} embedding has {rows} rows"
        for side, largest, stack, rows in sides
        if largest >= rows
    ]


def _read_licence(facts: CheckpointFacts) -> None:
    card = read_card(facts.model.folder)
    facts.licence = card.licence if card else None
    facts.licence_warning = licence_warning(facts.licence)


def _read_weights(facts: CheckpointFacts) -> None:
    """Parameters and memory, by the shapes in the headers; by the size of the files where those are out of reach."""
    shapes: Shapes = {}
    if facts.weights:
        try:
            shapes = weight_shapes(facts.model) or {}
        except DownloadError as error:
            facts.notes.append(f"the weights' own headers could not be read: {error}")
        except CheckpointError as error:
            facts.reasons.append(str(error))
    if shapes:
        ties = _tied(facts.architecture)
        facts.parameters = sum(math.prod(shape) for name, shape in _once(shapes, ties))
        facts.parameters_basis = "the shapes in the weights' headers, tied weights counted once"
        if facts.architecture is not None:
            problems = list(weight_faults(facts.architecture, shapes))
            facts.reasons += [str(WeightsError(_names(facts.weights), problems))] if problems else []
    elif (total := _total(facts.weights)) is not None:
        width = 2 if str(facts.config.get("dtype") or facts.config.get("torch_dtype")) in ("float16", "bfloat16") else 4
        facts.parameters = total // width
        facts.parameters_basis = f"the size of {_names(facts.weights)} at {width} bytes each"
    if facts.parameters is not None:
        facts.memory = estimate_memory(facts.parameters)


def _names(files: Sequence[ModelFile]) -> str:
    return files[0].name if len(files) == 1 else f"{len(files)} files"


def _total(files: Sequence[ModelFile]) -> int | None:
    sizes = [file.size for file in files if file.size is not None]
    return sum(sizes) if sizes and len(sizes) == len(files) else None


def _tied(architecture: Architecture | None) -> list[tuple[str, ...]]:
    """Groups of names that are one weight."""
    ties: Mapping[str, tuple[str, ...]] = architecture.ties() if architecture is not None else {}
    return [(source, *targets) for source, targets in ties.items()]


def _once(shapes: Shapes, groups: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights without copies: of a tied group the first that is there."""
    copies = {name for group in groups for name in [name for name in group if name in shapes][1:]}
    return ((name, shape) for name, shape in shapes.items() if name not in copies)


def weight_faults(architecture: Architecture, shapes: Shapes) -> Iterator[str]:
    """What a migration will find wrong with weights of these names and shapes; their values are not known here."""
    from onnxmt.models.layers import weighted_modules

    groups = {name: group for group in _tied(architecture) for name in group}
    known = set(groups)
    seen: set[str] = set()
    for tree in (architecture.encoder_graph(), architecture.decoder_graph()):
        for path, module in weighted_modules(tree):
            for wanted in module.wanted(path):
                names = [name for name in groups.get(wanted.name, (wanted.name,)) if name in shapes]
                known.update(names or [wanted.name])
                name = wanted.name if wanted.name in shapes else next(iter(names), None)
                if name is None and not wanted.optional and wanted.name not in seen:
                    yield f"{wanted.name} is missing"
                elif name is not None and name not in seen and shapes[name] != wanted.shape:
                    yield f"{name} has the shape {shapes[name]}, expected {wanted.shape}"
                seen.add(name or wanted.name)
    ignored = architecture.ignored_weights()
    for name in sorted(set(shapes) - known):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored):
            yield f"{name} is not a weight of this model"
