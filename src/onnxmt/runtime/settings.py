"""What decides which tokens are generated: `GenerationSettings`, read from a checkpoint or from a bundle.

Names and meaning are those of transformers 5's GenerationConfig. What a checkpoint asks for and the search cannot do is
refused by name here, before any work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from onnxmt.errors import GenerationSettingsError

DEFAULT_NEW_TOKENS = 20
"""How many tokens transformers generates where no length is set."""


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """How sentences are decoded; `dataclasses.replace` makes a variant of it.

    Lengths named `length` count the start token, those named `new_tokens` do not; where both are set, `new_tokens`
    wins, as in transformers. Token ids are those of the target vocabulary.

    Raises GenerationSettingsError, listing every problem, where a value is outside its range or two settings contradict
    each other.
    """

    decoder_start_token_id: int
    eos_token_ids: tuple[int, ...] = ()
    """Any of them ends a sentence; none at all means that only the length limit does."""
    pad_token_id: int | None = None
    """Not used by the search, which has no padding; kept for those that build batches."""
    forced_bos_token_id: int | None = None
    """The first generated token, such as the target language of NLLB, M2M100 and mBART."""
    forced_eos_token_ids: tuple[int, ...] = ()
    """What the last token becomes when the length limit is reached."""

    max_length: int | None = None
    max_new_tokens: int | None = None
    min_length: int = 0
    min_new_tokens: int | None = None

    num_beams: int = 1
    num_return_sequences: int = 1
    early_stopping: bool | Literal["never"] = False
    length_penalty: float = 1.0
    """Beam search divides sums of log-probabilities by (new tokens ** length_penalty): above 0 favours long outputs."""

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    exponential_decay_length_penalty: tuple[int, float] | None = None
    """(after how many new tokens, factor): EOS becomes more likely with each further token."""
    renormalize_logits: bool = False
    remove_invalid_values: bool = False

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    """Sampling draws from the k likeliest tokens; 0 = from all."""
    top_p: float = 1.0
    min_p: float | None = None

    def __post_init__(self) -> None:
        _raise_all(_problems({field.name: getattr(self, field.name) for field in fields(self)}))

    @classmethod
    def from_checkpoint(cls, config: Mapping[str, Any], generation: Mapping[str, Any]) -> GenerationSettings:
        """Read the settings of a Hugging Face checkpoint.

        `generation` is generation_config.json, or the generation fields of config.json where that file is absent;
        `config` is config.json, asked only for special tokens (start, end, padding) that `generation` lacks. There is
        no fallback from the start token to BOS as in transformers: the wrong one gives fluent nonsense (case G1).

        Raises GenerationSettingsError naming every setting that is wrong, missing or not implemented.
        """
        problems = [
            f"{key} = {generation[key]!r} asks for {refusal.what}, which is not implemented: remove {key} from "
            f"generation_config.json"
            for key, refusal in _REFUSED.items()
            if key in generation and not refusal.is_neutral(generation[key])
        ]
        values: dict[str, Any] = {}
        for name, rule in _RULES.items():
            value = generation.get(rule.key)
            if value is None and rule.in_config:
                value = config.get(rule.key)
            if value is not None:
                values[name] = rule.read(value)
        if "decoder_start_token_id" not in values:
            problems.append(
                "decoder_start_token_id is missing: neither generation_config.json nor config.json has it, and it is "
                "not guessed; add it to generation_config.json (Marian: the id of <pad>)"
            )
        _raise_all(problems + _problems(values))
        return cls(**values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GenerationSettings:
        """Read what `to_dict` wrote; any other key is an error, since a setting not understood changes the output."""
        names = {rule.key: name for name, rule in _RULES.items()}
        problems = [f"{key!r} is not a setting of this version" for key in values if key not in names]
        read = {names[key]: _RULES[names[key]].read(value) for key, value in values.items() if key in names}
        if "decoder_start_token_id" not in read:
            problems.append("decoder_start_token_id is missing")
        _raise_all(problems + _problems(read))
        return cls(**read)

    def to_dict(self) -> dict[str, Any]:
        """All settings as JSON under transformers' names, so that GenerationConfig reads them; None is left out."""
        written = {rule.key: rule.write(getattr(self, name)) for name, rule in _RULES.items()}
        return {key: value for key, value in written.items() if value is not None}

    @property
    def length_limit(self) -> int:
        """The most tokens a sequence may have, the start token included."""
        if self.max_new_tokens is not None:
            return self.max_new_tokens + 1
        return self.max_length if self.max_length is not None else DEFAULT_NEW_TOKENS + 1

    @property
    def length_minimum(self) -> int:
        """EOS is banned while a sequence has fewer tokens than this, the start token included."""
        return self.min_length if self.min_new_tokens is None else self.min_new_tokens + 1

    @property
    def length_warning(self) -> str | None:
        """One line for the user where no length is set, None otherwise."""
        if self.max_length is not None or self.max_new_tokens is not None:
            return None
        return (
            f"the model sets no output length: translations are cut at {DEFAULT_NEW_TOKENS} tokens, as transformers "
            "does; set max_new_tokens"
        )

    def limited_to(self, positions: int) -> GenerationSettings:
        """These settings with the length limit lowered to what a decoder with `positions` positions can hold (case L1).

        The last token is never fed back, so a sequence may be one token longer than the position table.
        """
        if self.length_limit <= positions + 1:
            return self
        return replace(self, max_length=positions + 1, max_new_tokens=None)


def unknown_settings(generation: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of a generation_config.json that neither this version nor transformers 5 knows: both ignore them."""
    known = {rule.key for rule in _RULES.values()} | _REFUSED.keys() | _WITHOUT_EFFECT
    return tuple(sorted(key for key in generation if key not in known))


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """How one setting is named in JSON, what it may be, and how it gets in and out of JSON."""

    key: str
    valid: Callable[[Any], bool]
    allowed: str
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value
    in_config: bool = False


@dataclass(frozen=True)
class _Refusal:
    """A setting that is not implemented, and the values with which it asks for nothing."""

    what: str
    neutral: tuple[Any, ...] = ()

    def is_neutral(self, value: Any) -> bool:
        return value is None or value is False or value in ([], {}, "") or value in self.neutral


def _raise_all(problems: list[str]) -> None:
    if problems:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise GenerationSettingsError(f"the generation settings have {count}: {'; '.join(problems)}")


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_ids(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_whole(token, 0) for token in value)


def _whole(key: str, least: int, *, optional: bool = False, in_config: bool = False) -> _Rule:
    return _Rule(
        key=key,
        valid=lambda value: _is_whole(value, least) or (optional and value is None),
        allowed=f"a whole number of {least} or more",
        in_config=in_config,
    )


def _ids(key: str, *, one_as_number: bool = False, in_config: bool = False) -> _Rule:
    """A list of token ids; with `one_as_number`, JSON may hold a single id without a list around it."""

    def read(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        return (value,) if one_as_number and type(value) is int else value

    def write(value: tuple[int, ...]) -> Any:
        if one_as_number:
            return None if not value else value[0] if len(value) == 1 else list(value)
        return list(value) or None

    allowed = "token ids of 0 or more, as a list" + (" or a single one" if one_as_number else "")
    return _Rule(key=key, valid=_is_ids, allowed=allowed, read=read, write=write, in_config=in_config)


def _flag(key: str) -> _Rule:
    return _Rule(key=key, valid=lambda value: type(value) is bool, allowed="true or false")


def _number(key: str, valid: Callable[[float], bool], allowed: str, *, optional: bool = False) -> _Rule:
    return _Rule(
        key=key,
        valid=lambda value: (_is_number(value) and valid(value)) or (optional and value is None),
        allowed=allowed,
    )


_RULES: dict[str, _Rule] = {
    "decoder_start_token_id": _whole("decoder_start_token_id", 0, in_config=True),
    "eos_token_ids": _ids("eos_token_id", one_as_number=True, in_config=True),
    "pad_token_id": _whole("pad_token_id", 0, optional=True, in_config=True),
    "forced_bos_token_id": _whole("forced_bos_token_id", 0, optional=True),
    "forced_eos_token_ids": _ids("forced_eos_token_id", one_as_number=True),
    # transformers refuses a limit that the start token alone reaches.
    "max_length": _whole("max_length", 2, optional=True),
    "max_new_tokens": _whole("max_new_tokens", 1, optional=True),
    "min_length": _whole("min_length", 0),
    "min_new_tokens": _whole("min_new_tokens", 0, optional=True),
    "num_beams": _whole("num_beams", 1),
    "num_return_sequences": _whole("num_return_sequences", 1),
    "early_stopping": _Rule(
        key="early_stopping",
        valid=lambda value: type(value) is bool or value == "never",
        allowed='true, false or "never"',
    ),
    "length_penalty": _number("length_penalty", lambda _: True, "a number"),
    "repetition_penalty": _number("repetition_penalty", lambda value: value > 0, "a number above 0"),
    "no_repeat_ngram_size": _whole("no_repeat_ngram_size", 0),
    "bad_words_ids": _Rule(
        key="bad_words_ids",
        valid=lambda value: isinstance(value, tuple) and all(_is_ids(word) and word for word in value),
        allowed="a list of lists of token ids, none of them empty",
        read=lambda value: (
            tuple(tuple(w) if isinstance(w, list) else w for w in value) if isinstance(value, list) else value
        ),
        write=lambda value: [list(word) for word in value] or None,
    ),
    "suppress_tokens": _ids("suppress_tokens"),
    "begin_suppress_tokens": _ids("begin_suppress_tokens"),
    "exponential_decay_length_penalty": _Rule(
        key="exponential_decay_length_penalty",
        valid=lambda value: (
            value is None
            or (
                isinstance(value, tuple)
                and len(value) == 2
                and _is_whole(value[0], 0)
                and _is_number(value[1])
                and value[1] > 0
            )
        ),
        allowed="[after how many new tokens, a factor above 0]",
        read=lambda value: tuple(value) if isinstance(value, list) else value,
        write=lambda value: None if value is None else list(value),
    ),
    "renormalize_logits": _flag("renormalize_logits"),
    "remove_invalid_values": _flag("remove_invalid_values"),
    "do_sample": _flag("do_sample"),
    "temperature": _number(
        "temperature", lambda value: value > 0, "a number above 0 (for no randomness set do_sample: false)"
    ),
    "top_k": _whole("top_k", 0),
    "top_p": _number("top_p", lambda value: 0 < value <= 1, "a number above 0, at most 1"),
    "min_p": _number("min_p", lambda value: 0 <= value <= 1, "a number from 0 to 1", optional=True),
}

_REFUSED: dict[str, _Refusal] = {
    "num_beam_groups": _Refusal("group beam search", (0, 1)),
    "diversity_penalty": _Refusal("group beam search", (0,)),
    "constraints": _Refusal("constrained beam search"),
    "force_words_ids": _Refusal("constrained beam search"),
    "penalty_alpha": _Refusal("contrastive search", (0,)),
    "dola_layers": _Refusal("DoLa decoding"),
    "prompt_lookup_num_tokens": _Refusal("assisted decoding"),
    "assistant_early_exit": _Refusal("assisted decoding"),
    "is_assistant": _Refusal("assisted decoding"),
    "use_mtp": _Refusal("multi-token prediction"),
    "guidance_scale": _Refusal("classifier-free guidance", (1,)),
    "sequence_bias": _Refusal("biased sequences"),
    "watermarking_config": _Refusal("watermarking"),
    "typical_p": _Refusal("typical sampling", (1,)),
    "epsilon_cutoff": _Refusal("epsilon sampling", (0,)),
    "eta_cutoff": _Refusal("eta sampling", (0,)),
    "top_h": _Refusal("top-H sampling"),
    "encoder_repetition_penalty": _Refusal("a penalty on the source's tokens", (1,)),
    "encoder_no_repeat_ngram_size": _Refusal("a ban on the source's n-grams", (0,)),
    "token_healing": _Refusal("token healing"),
    "stop_strings": _Refusal("stop strings"),
    "max_time": _Refusal("a time limit"),
    "low_memory": _Refusal("sequential beam search"),
    "forced_decoder_ids": _Refusal("forced decoder ids"),
    "force_bos_token_to_be_generated": _Refusal("a forced BOS under its old name (now forced_bos_token_id)"),
}

# Of GenerationConfig in transformers 5.24; they steer memory, caching, outputs or an assistant model, not the tokens.
_WITHOUT_EFFECT = frozenset(
    {
        "bos_token_id", "transformers_version", "_from_model_config", "_commit_hash", "use_cache", "cache_config",
        "cache_implementation", "max_cache_len", "output_attentions", "output_hidden_states", "output_scores",
        "output_logits", "return_dict_in_generate", "num_assistant_tokens", "num_assistant_tokens_schedule",
        "assistant_confidence_threshold", "max_matching_ngram_size", "assistant_lookbehind", "target_lookbehind",
        "assistant_ensemble_weight", "speculation_type", "compile_config", "disable_compile",
        "continuous_batching_config", "prefill_chunk_size", "trust_remote_code",
    }
)  # fmt: skip


def _problems(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with these settings (by field name): each alone, then together."""
    wrong = {
        name: f"{_RULES[name].key} is {value!r}: {_RULES[name].allowed} is needed"
        for name, value in values.items()
        if not _RULES[name].valid(value)
    }
    if wrong:
        return list(wrong.values())

    problems = []
    beams, answers = values.get("num_beams", 1), values.get("num_return_sequences", 1)
    sampling = values.get("do_sample", False)
    if sampling and beams > 1:
        problems.append(
            f"do_sample with num_beams = {beams} asks for beam sampling, which is not implemented: set one of them"
        )
    elif answers > beams and not sampling:
        problems.append(
            f"num_return_sequences is {answers} and num_beams {beams}: greedy search gives one answer and beam search "
            "at most num_beams; raise num_beams"
        )
    suppressed = set(values.get("suppress_tokens", ()))
    forced_bos = values.get("forced_bos_token_id")
    for key, forced in (
        ("forced_bos_token_id", set() if forced_bos is None else {forced_bos}),
        ("forced_eos_token_id", set(values.get("forced_eos_token_ids", ()))),
    ):
        if forced and forced <= suppressed:
            problems.append(f"{key} {sorted(forced)} is also in suppress_tokens, so that no token would be left")
    return problems
