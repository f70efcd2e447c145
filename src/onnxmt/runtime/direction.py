"""Which languages a call is about, and how generation is told the target: the same for a Translator and for a proof."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxmt.errors import UnknownLanguageError
from onnxmt.runtime.languages import is_chinese, language_name, nearest_languages, usual_script
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction, Tokenizer

__all__ = [
    "DirectionNeeds",
    "begins_with_language",
    "direction_needs",
    "direction_warning",
    "poor_script",
    "settings_for",
    "settle",
    "source_language",
    "target_language",
    "unwritable_script",
]

# Some of the commonest characters of each script: a model that lacks them cannot write the language.
_COMMON = {
    "Hans": "的一是不了人我在有他这们来个中大上为国",
    "Hant": "的一是不了人我在有他這們來個中大上為國",
    "Jpan": "のにはをたがでてとしれさあいるんア日",
    "Hang": "이다는을가에의하고지로기",
    "Cyrl": "оеаинтсрвлкмдпу",
    "Grek": "αοιετσνηυρπκμλ",
    "Arab": "البينمتورفدكسع",
    "Hebr": "אבדהוילמנרשת",
    "Thai": "กนรอาเงมยลวดท",
    "Deva": "कनरसतमहलयदपव",
    "Beng": "করনসতমহলযদপব",
    "Taml": "கனரதமபலவயடச",
}
_MOST = 0.5
"""A language is beyond a model that lacks more than this part of its script's commonest characters."""


@dataclass(frozen=True, kw_only=True)
class DirectionNeeds:
    """What a model has to be told and whether it is: `settled` where nothing is missing.

    `target` says what happens to the target language in one line, `missing` what has to be said and is not.
    """

    settled: Direction
    target: str
    missing: str | None


def settle(
    tokenizer: Tokenizer,
    settings: GenerationSettings,
    *,
    source: str | None = None,
    target: str | None = None,
) -> Direction:
    """Return what the tokenizer is told, in the model's own codes.

    Where no target is named, a family that always needs one takes the language whose token the generation settings
    begin with (`forced_bos_token_id`, or the start token in mBART-25), or else the tokenizer's own `tgt_lang`. Raises
    UnknownLanguageError for a language that the model does not have (it names the nearest), and where nothing names a
    target that is needed.
    """
    needs = direction_needs(tokenizer, settings, source=source, target=target)
    if needs.missing is not None:
        raise UnknownLanguageError(needs.missing)
    return needs.settled


def direction_needs(
    tokenizer: Tokenizer,
    settings: GenerationSettings,
    *,
    source: str | None = None,
    target: str | None = None,
) -> DirectionNeeds:
    """Say what a model must be told. Raises UnknownLanguageError for a language that it does not have."""
    asked = tokenizer.resolve(source=source, target=target)
    codes = tokenizer.languages().target
    if not tokenizer.needs_target:
        return DirectionNeeds(settled=asked, target=_optional_target(asked, codes), missing=None)
    own = tokenizer.defaults()
    settled = Direction(
        source=asked.source or own.source,
        target=asked.target or _target_of(tokenizer, settings) or own.target,
    )
    if settled.target is not None:
        by = "as asked" if asked.target else "the model's own default; --target says another"
        return DirectionNeeds(settled=settled, target=f"{_shown(settled.target)}: {by}", missing=None)
    missing = (
        "this model must be told its target language and has no default: pass --target LANG (target= in Python); "
        f"its {len(codes)} languages include {', '.join(map(_shown, nearest_languages('zh', codes, count=3)))}"
    )
    return DirectionNeeds(settled=settled, target=f"needed: --target LANG, one of {len(codes)}", missing=missing)


def _optional_target(asked: Direction, codes: tuple[str, ...]) -> str:
    if asked.target is not None:
        return f"{_shown(asked.target)}: as asked"
    if len(codes) > 1:
        return f"--target LANG chooses one of {len(codes)}; without it the text itself must say"
    return "nothing to choose"


def _shown(code: str) -> str:
    return f"{code} ({name})" if (name := language_name(code)) else code


def _target_of(tokenizer: Tokenizer, settings: GenerationSettings) -> str | None:
    """The language whose token the checkpoint's own settings make generation begin with."""
    tokens = (settings.forced_bos_token_id, settings.decoder_start_token_id)
    return next((code for token in tokens if token is not None and (code := tokenizer.language_of(token))), None)


def settings_for(tokenizer: Tokenizer, settings: GenerationSettings, target: str | None) -> GenerationSettings:
    """Return the settings under which the model answers in `target`; None leaves them as they are.

    The target's token is the first that the decoder must generate. Where the start token is itself a language's
    (mBART-25, which was trained so), the target's replaces it instead. Raises UnknownLanguageError.
    """
    first = tokenizer.forced_bos_token_id(target)
    if first is None:
        return settings
    if begins_with_language(tokenizer, settings):
        return dataclasses.replace(settings, decoder_start_token_id=first)
    return dataclasses.replace(settings, forced_bos_token_id=first)


def begins_with_language(tokenizer: Tokenizer, settings: GenerationSettings) -> bool:
    """Whether decoding starts from a language's token, and forces none behind it."""
    return settings.forced_bos_token_id is None and tokenizer.language_of(settings.decoder_start_token_id) is not None


def direction_warning(
    tokenizer: Tokenizer, direction: Direction, *, kind: str, config: Mapping[str, Any]
) -> str | None:
    """Say what about the languages deserves a warning: nothing chosen among several, or the shape of another model."""
    if kind == "m2m_100" and (config.get("encoder_layers"), config.get("decoder_layers")) == (12, 3):
        return (
            "this has small100's shape (12 and 3 layers) and M2M100's tokenizer: if it is small100, whose target "
            "stands in front of the source, put its tokenization_small100.py (or an empty file of that name) beside "
            "the checkpoint"
        )
    chosen = direction.target is not None or tokenizer.written()
    if tokenizer.needs_target or chosen or len(tokenizer.languages().target) < 2:
        return None
    own = tokenizer.defaults().target
    if own is not None and language_name(own) is not None:
        return None  # opus-mt-en-zh: codes for kinds of Chinese, and it needs none of them
    codes = ", ".join(tokenizer.languages().target[:6])
    return (
        f"no target language was chosen among {codes}…: texts go to the model as they are, and must themselves say "
        "what to do, unless a call names a target; --target LANG sets one for good"
    )


def source_language(tokenizer: Tokenizer, direction: Direction) -> str | None:
    """The language that texts come in, as far as the model says: told, its default, or its only one."""
    known = direction.source or tokenizer.defaults().source
    if known is not None:
        return known
    codes = tokenizer.languages().source
    return codes[0] if len(codes) == 1 else None


def target_language(tokenizer: Tokenizer, direction: Direction) -> str | None:
    """The language that translations are in, as far as the model says: told, its default, or its only one."""
    known = direction.target or tokenizer.defaults().target
    if known is not None:
        return known
    codes = tokenizer.languages().target
    return codes[0] if len(codes) == 1 else None


def unwritable_script(tokenizer: Tokenizer, target: str | None) -> str | None:
    """Say why the model cannot write `target`, None where it can or nothing is known of it (case T2).

    English T5 has no Chinese characters, however it is asked: every one of them comes out as an unknown token.
    """
    gap = _script_gap(tokenizer, target)
    return gap.text if gap is not None and len(gap.lacking) == gap.tried else None


def poor_script(tokenizer: Tokenizer, target: str | None) -> str | None:
    """Say that the model lacks most, and not all, of the commonest characters of `target`; None otherwise."""
    gap = _script_gap(tokenizer, target)
    return gap.text if gap is not None and _MOST * gap.tried < len(gap.lacking) < gap.tried else None


@dataclass(frozen=True, kw_only=True)
class _ScriptGap:
    lacking: str
    tried: int
    text: str


def _script_gap(tokenizer: Tokenizer, target: str | None) -> _ScriptGap | None:
    if target is None:
        return None
    script = usual_script(target)
    if is_chinese(target):
        script = "Hant" if script == "Hant" else "Hans"
    sample = _COMMON.get(script or "")
    if sample is None:
        return None
    lacking = "".join(tokenizer.unwritable(sample))
    if not lacking:
        return None
    return _ScriptGap(
        lacking=lacking,
        tried=len(sample),
        text=(
            f"the model's vocabulary cannot write {_shown(target)}: {len(lacking)} of the {len(sample)} commonest "
            f"characters that were tried have no token (the first is {lacking[0]!r}). "
            "Use a model that was trained for it"
        ),
    )
