"""How a judge is told the languages of a verification, in transformers' own terms."""

from __future__ import annotations

from dataclasses import dataclass

from onnxmt.runtime.direction import begins_with_language
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction, Tokenizer, TokenizerSpec

__all__ = ["Instruction", "instruction_for"]


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What to say to transformers' tokenizer and `generate`; by default nothing: the checkpoint as it stands.

    `source_code`: the tokenizer's `src_lang`. `before`: text in front of every sentence. `target_code`: the language
    whose token the judge looks up in its own tokenizer, and generates first; with `target_starts` it is the start token
    instead. `tokenizer_class`: the class of transformers that reads these files, where the checkpoint's name for it is
    not one of transformers'. `unreadable`: why transformers' tokenizer is no judge of this one; the ids are ours then.
    """

    source_code: str | None = None
    before: str = ""
    target_code: str | None = None
    target_starts: bool = False
    tokenizer_class: str | None = None
    unreadable: str | None = None


def instruction_for(
    tokenizer: Tokenizer, *, spec: TokenizerSpec, direction: Direction, settings: GenerationSettings
) -> Instruction:
    """Translate what our tokenizer is told into what the judge has to be told."""
    if (
        spec.kind == "small100"
    ):  # its class is not part of transformers; M2M100's with the target as source gives its ids
        return Instruction(source_code=direction.target, tokenizer_class="M2M100Tokenizer")
    forced = tokenizer.forced_bos_token_id(direction.target) is not None
    return Instruction(
        source_code=direction.source if tokenizer.needs_target else None,
        before=tokenizer.written(source=direction.source, target=direction.target),
        target_code=direction.target if forced else None,
        target_starts=forced and begins_with_language(tokenizer, settings),
        unreadable=_unreadable(spec),
    )


def _unreadable(spec: TokenizerSpec) -> str | None:
    """Why transformers 5.24 reads these files otherwise than the models were trained with; None where it does not."""
    if spec.kind == "pieces":
        return "transformers puts no end token behind a text where there is a SentencePiece model alone"
    if spec.kind.startswith("nllb") and "tokenizer.json" not in spec.files:
        return "transformers finds no language tokens in NLLB's SentencePiece model alone"
    return None
