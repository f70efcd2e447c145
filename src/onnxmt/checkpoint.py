"""A local folder in Hugging Face format as a `Checkpoint`: config, generation settings, weights, files, licence."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxmt.checkpoint_files import CONFIG, GENERATION_CONFIG, missing_files, tokenizer_files
from onnxmt.errors import CheckpointError, MissingFileError, WeightsError
from onnxmt.hub import ResolvedModel
from onnxmt.json_file import read_json_object
from onnxmt.mapped_file import FLOATS, shown
from onnxmt.model_card import licence_warning, read_card
from onnxmt.weights import Weights, nearest, open_weights

__all__ = [
    "GENERATION_FIELDS", "Checkpoint", "TiedGroup", "WeightSpec", "check_weights", "licence_warning", "read_checkpoint",
    "read_config", "read_generation", "tied_group",
]  # fmt: skip

# The settings that transformers 5.24's GenerationConfig takes out of a config.json that holds them (its __init__ with
# _from_model_config); every other key of a config.json is the model's own.
GENERATION_FIELDS = (
    "max_length", "max_new_tokens", "min_length", "min_new_tokens", "early_stopping", "max_time", "stop_strings",
    "do_sample", "num_beams", "use_mtp", "use_cache", "cache_implementation", "cache_config", "max_cache_len",
    "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff",
    "repetition_penalty", "encoder_repetition_penalty", "length_penalty", "no_repeat_ngram_size", "bad_words_ids",
    "renormalize_logits", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "sequence_bias", "token_healing",
    "guidance_scale", "watermarking_config", "num_return_sequences", "output_attentions", "output_hidden_states",
    "output_scores", "output_logits", "return_dict_in_generate", "pad_token_id", "bos_token_id", "eos_token_id",
    "encoder_no_repeat_ngram_size", "decoder_start_token_id", "is_assistant", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "assistant_confidence_threshold", "prompt_lookup_num_tokens",
    "max_matching_ngram_size", "assistant_early_exit", "assistant_lookbehind", "target_lookbehind",
    "assistant_ensemble_weight", "speculation_type", "compile_config", "disable_compile", "continuous_batching_config",
    "low_memory", "penalty_alpha", "dola_layers", "diversity_penalty", "num_beam_groups", "constraints",
    "force_words_ids", "prefill_chunk_size",
)  # fmt: skip
METADATA = ("_from_model_config", "_commit_hash", "transformers_version")
HINTS = 8  # as many as a WeightsError shows; looking for similar names is slow where hundreds are missing


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """All that a checkpoint folder says, with the weights still on disk.

    `generation` holds the settings that are set, by their names in transformers' GenerationConfig, from
    generation_config.json or, where `generation_file` says so, from config.json. `licence` is as the card states it.
    """

    folder: Path
    name: str
    revision: str | None
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    generation_file: str
    weights: Weights
    tokenizer_files: tuple[Path, ...]
    licence: str | None
    card: Path | None


@dataclass(frozen=True, kw_only=True)
class WeightSpec:
    """A weight that a model needs: its name and its sizes."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TiedGroup:
    """How weights that should be one stand in a checkpoint.

    `source` is the weight that all of `tied` are (it is one of them; None when none of the names is present); `untied`
    are those that are present with other values, and are weights of their own.
    """

    source: str | None
    tied: tuple[str, ...]
    untied: tuple[str, ...]

    def stored(self, name: str) -> str:
        """The name under which the checkpoint stores what the model calls `name`; KeyError outside of the group."""
        if name in self.untied:
            return name
        if name in self.tied and self.source is not None:
            return self.source
        raise KeyError(name)


def read_checkpoint(resolved: ResolvedModel) -> Checkpoint:
    """Read the folder that `hub.resolve` found; only small files and the headers of the weights are read.

    MissingFileError names every file that is absent and needed; CheckpointError and UnsafePickleError as for
    `open_weights`. The weights are not yet checked against the model: see `check_weights`.
    """
    folder = resolved.folder
    config = read_config(folder)
    generation, generation_file = read_generation(folder, config)
    missing = missing_files(folder, config)
    if missing:
        raise MissingFileError(
            f"the {config['model_type']} checkpoint {folder} is incomplete: {_listed(missing)}. "
            "Copy the folder again from where the model comes from, with all of its files"
        )
    card = read_card(folder)
    return Checkpoint(
        folder=folder,
        name=resolved.name,
        revision=resolved.revision,
        config=config,
        generation=generation,
        generation_file=generation_file,
        weights=open_weights(folder),
        tokenizer_files=tokenizer_files(folder),
        licence=card.licence if card else None,
        card=card.path if card else None,
    )


def _listed(missing: Sequence[str]) -> str:
    files = [name for name in missing if " " not in name]
    sentences = [text for text in missing if " " in text]
    return "; ".join([*([f"it lacks {', '.join(files)}"] if files else []), *sentences])


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json, an object that names a model_type; MissingFileError or CheckpointError otherwise."""
    path = folder / CONFIG
    if not path.exists():
        raise MissingFileError(f"{folder} has no {CONFIG}: it is not a checkpoint in Hugging Face format")
    config = read_json_object(path)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        found = "none" if model_type is None else shown(model_type)
        raise CheckpointError(f'{path} must name a model_type, such as "marian"; found {found}')
    return config


def read_generation(folder: Path, config: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The generation settings that are set, and the name of the file that they are from.

    generation_config.json where it exists, and then nothing of config.json; else the settings inside config.json, as
    transformers 5 takes them (GenerationConfig.from_model_config). Unlike transformers, which then quietly uses
    config.json, a generation_config.json that cannot be read is a CheckpointError.
    """
    path = folder / GENERATION_CONFIG
    if path.exists():
        settings = read_json_object(path)
        return {key: value for key, value in settings.items() if value is not None and key not in METADATA}, path.name
    return _generation_of_config(config), CONFIG


def _generation_of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    settings = {key: config[key] for key in GENERATION_FIELDS if config.get(key) is not None}
    if config.get("force_bos_token_to_be_generated"):  # the name that configs of 2020 have for it
        settings["forced_bos_token_id"] = config.get("bos_token_id")
    # Some configs keep the settings with the decoder; they count where the outer config leaves one unset.
    nested = next((config[key] for key in ("decoder", "generator", "text_config") if config.get(key)), None)
    if isinstance(nested, Mapping):
        inner = {key: nested[key] for key in GENERATION_FIELDS if nested.get(key) is not None}
        settings = {**inner, **settings}
    return {key: value for key, value in settings.items() if value is not None}


def check_weights(weights: Weights, required: Sequence[WeightSpec], *, allowed_extra: Sequence[str] = ()) -> None:
    """Check that exactly the `required` weights are there, rightly shaped and finite; WeightsError lists all faults.

    `allowed_extra` are fnmatch patterns of further names that may be present; their values are not looked at. Every
    required weight is read once, in pieces, so that memory stays at some megabytes.
    """
    missing = [spec for spec in required if spec.name not in weights]
    extra = sorted(weights.names() - {spec.name for spec in required})
    problems = [_missing(spec, extra if index < HINTS else ()) for index, spec in enumerate(missing)]
    unexpected = [name for name in extra if not any(fnmatch.fnmatchcase(name, pattern) for pattern in allowed_extra)]
    problems += [f"{shown(name)} is not a weight of this model" for name in unexpected]
    for spec in required:
        if spec.name in weights:
            problems += _faults(weights, spec)
    if problems:
        raise WeightsError(weights.source, problems)


def _missing(spec: WeightSpec, candidates: Collection[str]) -> str:
    near = nearest(spec.name, candidates)
    return f"{shown(spec.name)} is missing" + (f" (nearest is {near})" if near else "")


def _faults(weights: Weights, spec: WeightSpec) -> list[str]:
    faults = []
    if (shape := weights.shape(spec.name)) != spec.shape:
        faults.append(f"{shown(spec.name)} has the shape {shape}, expected {spec.shape}")
    if (dtype := weights.dtype(spec.name)) not in FLOATS:
        faults.append(f"{shown(spec.name)} holds {dtype}, allowed are {', '.join(FLOATS)}")
    else:
        faults += _not_finite(weights, spec.name)
    return faults


def _not_finite(weights: Weights, name: str) -> list[str]:
    count, first, value, seen = 0, -1, 0.0, 0
    for chunk in weights.chunks(name):
        finite = np.isfinite(chunk)
        if not finite.all():
            if first < 0:
                position = int(np.argmin(finite))
                first, value = seen + position, float(chunk[position])
            count += int(chunk.size - np.count_nonzero(finite))
        seen += chunk.size
    if not count:
        return []
    shape = weights.shape(name)
    index = tuple(int(i) for i in np.unravel_index(first, shape)) if shape else ()
    place = f"the first, {value}, at {index}" if index else f"it is {value}"
    return [f"{shown(name)} has {count} of {math.prod(shape)} values that are not finite in float32, {place}"]


def tied_group(weights: Weights, names: Sequence[str]) -> TiedGroup:
    """Find out which of the weights `names`, that transformers ties together (the source first), are one.

    As transformers 5's `tie_weights` in from_pretrained: names that are absent are the source; names that are present
    are the source when they equal it and are untied otherwise; where the source itself is absent, the first name that
    is present takes its place. Comparing takes some megabytes, and nothing for views of one storage.
    """
    source = next((name for name in names if name in weights), None)
    if source is None:
        return TiedGroup(source=None, tied=(), untied=())
    untied = tuple(name for name in names if name in weights and not _equal(weights, source, name))
    return TiedGroup(source=source, tied=tuple(name for name in names if name not in untied), untied=untied)


def _equal(weights: Weights, first: str, second: str) -> bool:
    """torch.equal on float32 values, so 0.0 equals -0.0; the same storage is equal whatever it holds."""
    if first == second or weights.same_storage(first, second):
        return True
    if weights.shape(first) != weights.shape(second):
        return False
    pairs = zip(weights.chunks(first), weights.chunks(second), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)
