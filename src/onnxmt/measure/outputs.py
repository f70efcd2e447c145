"""What a system made of an evaluation set: the texts, which of them never ended, and which of them run in circles."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # scoring a file of translations needs no ONNX Runtime
    from onnxmt.runtime.translation import TranslateOptions
    from onnxmt.runtime.translator import Translator

GREEDY, BEAM = "greedy", "beam 4"
MODES: dict[str, int] = {GREEDY: 1, BEAM: 4}
"""How a precision is compared with fp32, and the beams of it: damage shows under beams before it shows under greedy."""
# Lines that go to the translator at once: it sorts them by length, and the progress moves with each.
_WINDOW = 64
# A loop is one letter 8 times, or a piece of 2 to 20 letters 4 times in a row; spaces, digits and marks do not count:
# neither "100,000,000" nor a dotted line is one. None of 18,000 human translations at hand holds one.
_LOOP = re.compile(r"(.)\1{7,}|(.{2,20}?)\2{3,}")


@dataclass(frozen=True, kw_only=True)
class Output:
    """One line's translation; `finished` is False where a length limit cut it, None where a text is all there is."""

    text: str
    finished: bool | None = None

    @property
    def repeating(self) -> bool:
        """Whether the text runs in circles."""
        return is_loop(self.text)


def is_loop(text: str) -> bool:
    """Whether a text holds one piece over and over again, 的的的的的的的的."""
    return _LOOP.search("".join(filter(str.isalpha, text))) is not None


def translate_lines(
    translator: Translator,
    sources: Sequence[str],
    options: TranslateOptions,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Output, ...]:
    """Translate every line; `progress` is called with lines done and lines in all. Raises what the Translator does."""
    outputs: list[Output] = []
    for first in range(0, len(sources), _WINDOW):
        window = list(sources[first : first + _WINDOW])
        for translation in translator.translate_detailed(window, options=options):
            outputs.append(Output(text=translation.text, finished=translation.finished))
        if progress is not None:
            progress(len(outputs), len(sources))
    return tuple(outputs)


@dataclass(frozen=True, kw_only=True)
class OutputCounts:
    """What is wrong with outputs at first sight; `unfinished` is None where nobody knows (a file of texts)."""

    empty: int
    repeating: int
    unfinished: int | None


def count_faults(outputs: Sequence[Output], sources: Sequence[str] | None) -> OutputCounts:
    """Count empty outputs (of sources that are not), loops, and outputs that a length limit cut."""
    asked = [True] * len(outputs) if sources is None else [bool(source.strip()) for source in sources]
    known = [output.finished for output in outputs if output.finished is not None]
    return OutputCounts(
        empty=sum(not output.text.strip() and wanted for output, wanted in zip(outputs, asked, strict=True)),
        repeating=sum(output.repeating for output in outputs),
        unfinished=known.count(False) if len(known) == len(outputs) else None,
    )
