"""What in the tokens of an output deserves a warning."""

from __future__ import annotations

from collections.abc import Sequence

from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.translation import TranslationWarning

_LONGEST_PERIOD = 8
_FEWEST_COPIES = 4
_FEWEST_REPEATED = 8


def warnings_of(
    tokens: Sequence[int], *, finished: bool, settings: GenerationSettings, span: tuple[int, int]
) -> list[TranslationWarning]:
    """Return the warnings for one output (tokens without EOS) of the source text at `span`."""
    found = []
    if not finished:
        reason = settings.length_warning or "raise max_new_tokens, or give the model less text at once"
        message = f"the output was cut at {settings.length_limit - 1} tokens before the model ended it: {reason}"
        found.append(TranslationWarning(kind="length_cap", message=message, span=span))
    loop = repeated_run(tokens)
    if loop:
        message = f"{loop} tokens of the output repeat the same few tokens over and over: the model may be in a loop"
        found.append(TranslationWarning(kind="repetition", message=message, span=span))
    return found


def repeated_run(tokens: Sequence[int]) -> int:
    """Return the length of the longest run that is four or more copies of one to eight tokens; 0 below 8 tokens."""
    longest = 0
    for period in range(1, _LONGEST_PERIOD + 1):
        run = period
        for place in range(period, len(tokens)):
            run = run + 1 if tokens[place] == tokens[place - period] else period
            if run >= max(_FEWEST_COPIES * period, _FEWEST_REPEATED):
                longest = max(longest, run)
    return longest
