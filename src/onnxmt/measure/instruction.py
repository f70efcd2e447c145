"""How a judge is told the languages of a verification, in transformers' own terms."""

from __future__ import annotations

from dataclasses import dataclass

from onnxmt.runtime.direction import begins_with_language
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction, Tokenizer

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
    tokenizer: Tokenizer, *, kind: str, direction: Direction, settings: GenerationSettings
) -> Instruction:
    """Translate what our tokenizer (of the spec's `kind`) is told into what the judge has to be told."""
    if kind == "small100":  # its class is not part of transformers; M2M100's with the target as source gives its ids
        return Instruction(source_code=direction.target, tokenizer_class="M2M100Tokenizer")
    if kind == "pieces":
        return Instruction(
            before=tokenizer.written(source=direction.source, target=direction.target),
            unreadable="transformers puts no end token behind a text where there is a SentencePiece model alone",
        )
    forced = tokenizer.forced_bos_token_id(direction.target) is not None
    return Instruction(
        source_code=direction.source if tokenizer.needs_target else None,
        before=tokenizer.written(source=direction.source, target=direction.target),
        target_code=direction.target if forced else None,
        target_starts=forced and begins_with_language(tokenizer, settings),
    )
