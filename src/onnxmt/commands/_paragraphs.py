"""Lines → paragraphs, for what needs to see more than a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxmt.commands._lines import Line, Source
from onnxmt.errors import UsageError

# A paragraph is held in memory whole, and ends here at the latest.
LONGEST_PARAGRAPH = 2**16


class Paragraphs:
    """The lines of a source, those between two blank ones taken together as one; blank lines stay as they are."""

    def __init__(self, lines: Source) -> None:
        self._lines = lines

    @property
    def size(self) -> int | None:
        """Bytes in all; None where that is not known beforehand."""
        return self._lines.size

    def windows(self) -> Iterator[list[Line]]:
        """Yield the paragraphs in order, as soon as they are complete; raises what the source raises."""
        waiting: list[Line] = []
        held = 0
        windows = self._lines.windows()
        while True:
            try:
                window = next(windows, None)
            except UsageError:
                if waiting:  # what came before the fault is translated first
                    yield [_joined(waiting)]
                raise
            if window is None:
                break
            complete: list[Line] = []
            for line in window:
                alone = line.error is not None or not line.text.strip()
                if waiting and (alone or held + len(line.text) > LONGEST_PARAGRAPH):
                    complete.append(_joined(waiting))
                    waiting, held = [], 0
                if alone:
                    complete.append(line)
                else:
                    waiting.append(line)
                    held += len(line.text)
            if complete:
                yield complete
        if waiting:
            yield [_joined(waiting)]


def _joined(lines: Sequence[Line]) -> Line:
    if len(lines) == 1:
        return lines[0]
    *before, last = lines
    number = last.where.rpartition(" ")[2]
    return Line(
        text="".join(line.text + line.ending.decode("ascii") for line in before) + last.text,
        ending=last.ending,
        where=f"{lines[0].where}-{number}",
        bytes=sum(line.bytes for line in lines),
    )
