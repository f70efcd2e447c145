"""The regression set of a model: sentences, what each version makes of them, what was approved, and what changed."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from onnxmt import records
from onnxmt.errors import StoreError, UsageError
from onnxmt.store.files import write_whole
from onnxmt.store.shelf import OUTPUTS, Shelf, who

if TYPE_CHECKING:
    from onnxmt.runtime.translator import Translator

T = TypeVar("T")
_SET_NAME, _FORMAT, _WINDOW = "regression.json", 1, 16


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a version made of one sentence, decoded by the version's own settings."""

    text: str
    tokens: tuple[int, ...]
    finished: bool


@dataclass(frozen=True, kw_only=True)
class Approved:
    """An output that somebody found good, and whose it was."""

    output: Output
    version: str
    who: str


@dataclass(frozen=True, kw_only=True)
class RegressionSet:
    """What is kept of it: the user's own sentences with their categories, and approved outputs by sentence."""

    format: int = _FORMAT
    own: Mapping[str, str] = field(default_factory=dict)
    approved: Mapping[str, Approved] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence of the set."""

    text: str
    category: str
    origin: Literal["verification", "own"]


@dataclass(frozen=True, kw_only=True)
class VersionOutputs:
    """A version's outputs by sentence, and the onnxmt that made them: its text rules are part of a translation."""

    onnxmt: str
    outputs: Mapping[str, Output]
    format: int = _FORMAT


@dataclass(frozen=True, kw_only=True)
class Changed:
    """A sentence whose output is another one. `first_token` is where the tokens part (from 0; None: they are equal)."""

    sentence: str
    before: str
    after: str
    marked: str
    first_token: int | None
    tokens_before: int
    tokens_after: int
    tokens_changed: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What changed between two sides over the sentences that both have; `tokens_only` have equal texts."""

    before: str
    after: str
    compared: int
    changed: tuple[Changed, ...]
    tokens_only: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        plain: dict[str, Any] = records.to_json(self)
        return plain


def read_set(shelf: Shelf) -> RegressionSet:
    """Read a model's set; an empty one where there is none. Raises StoreError."""
    return _read(shelf.folder / _SET_NAME, RegressionSet) or RegressionSet()


def sentences_of(shelf: Shelf, language: str | None) -> tuple[Sentence, ...]:
    """The sentences of verification for texts in `language`, and the user's own, each once."""
    from onnxmt.measure.sentences import choose_sentences

    shipped = choose_sentences(language).sentences.sentences
    found = {one.text: Sentence(text=one.text, category=one.category, origin="verification") for one in shipped}
    for text, category in read_set(shelf).own.items():
        found.setdefault(text, Sentence(text=text, category=category, origin="own"))
    return tuple(found.values())


def add_sentences(shelf: Shelf, texts: Sequence[str], *, category: str = "own") -> int:
    """Add sentences of one's own; returns how many were new. Raises UsageError, StoreError."""
    wanted = [text.strip() for text in texts if text.strip()]
    if not wanted:
        raise UsageError("no sentence to add: give texts, or a file with one a line")
    shelf.require()
    with shelf.changing():
        found = read_set(shelf)
        own = {**found.own, **{text: category for text in wanted if text not in found.own}}
        _write(shelf.folder / _SET_NAME, dataclasses.replace(found, own=own))
    return len(own) - len(found.own)


def read_outputs(shelf: Shelf, version: str) -> VersionOutputs | None:
    """Read what is kept of a version; None where nothing is, or where another onnxmt made it."""
    found = _read(_outputs_path(shelf, version), VersionOutputs)
    return found if found is not None and found.onnxmt == _own_version() else None


def outputs_of(
    shelf: Shelf, version: str, *, progress: Callable[[int, int], None] | None = None
) -> Mapping[str, Output]:
    """A version's outputs for the present set; what is missing is translated and kept. Raises as Translator does."""
    from onnxmt.runtime.translator import Translator

    kept = read_outputs(shelf, version)
    with Translator.load(shelf.version_folder(version), check="size") as translator:
        outputs = translated(translator, shelf, known={} if kept is None else kept.outputs, progress=progress)
    if kept is None or outputs.keys() - kept.outputs.keys():
        with shelf.changing():
            write_outputs(shelf, version, outputs)
    return outputs


def translated(
    translator: Translator,
    shelf: Shelf,
    *,
    known: Mapping[str, Output],
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Output]:
    """Translate the sentences of the set that are not `known`; a sentence that the model refuses is left out."""
    from onnxmt.runtime.direction import source_language

    language = source_language(translator.tokenizer, translator.direction)
    wanted = [one.text for one in sentences_of(shelf, language)]
    found = {text: known[text] for text in wanted if text in known}
    missing = [text for text in wanted if text not in known]
    for first in range(0, len(missing), _WINDOW):
        window = missing[first : first + _WINDOW]
        for text, one in zip(window, translator.translate_detailed(window, errors="return"), strict=True):
            if one.error is None:
                found[text] = Output(text=one.text, tokens=one.tokens, finished=one.finished)
        if progress is not None:
            progress(first + len(window), len(missing))
    return found


def write_outputs(shelf: Shelf, version: str, outputs: Mapping[str, Output]) -> None:
    """Keep a version's outputs; call it with the shelf's lock held."""
    _write(_outputs_path(shelf, version), VersionOutputs(onnxmt=_own_version(), outputs=outputs))


def approve(
    shelf: Shelf, version: str, outputs: Mapping[str, Output], *, only: Sequence[str] = (), reason: str | None = None
) -> int:
    """Keep a version's outputs (or those of the sentences `only`) as the approved ones; returns how many.

    Raises UsageError for a sentence that is not in the set.
    """
    unknown = [text for text in only if text not in outputs]
    if unknown:
        raise UsageError(f"{len(unknown)} sentence(s) are not in the regression set, the first is {unknown[0]!r}")
    chosen = {text: outputs[text] for text in (only or outputs)}
    with shelf.changing() as change:
        found, name = read_set(shelf), who()
        approved = {text: Approved(output=one, version=version, who=name) for text, one in chosen.items()}
        _write(shelf.folder / _SET_NAME, dataclasses.replace(found, approved={**found.approved, **approved}))
        change.commit(
            change.state, "approve", version=version, reason=reason, evidence={"regression_approved": len(chosen)}
        )
    return len(chosen)


def approved_outputs(shelf: Shelf) -> dict[str, Output]:
    """The approved outputs by sentence."""
    return {text: one.output for text, one in read_set(shelf).approved.items()}


def compare(before: Mapping[str, Output], after: Mapping[str, Output], *, labels: tuple[str, str]) -> Comparison:
    """Compare two sides sentence by sentence, texts and tokens."""
    both = [text for text in after if text in before]
    changed = [_changed(text, before[text], after[text]) for text in both if before[text].text != after[text].text]
    tokens_only = sum(
        before[text].text == after[text].text and before[text].tokens != after[text].tokens for text in both
    )
    return Comparison(
        before=labels[0], after=labels[1], compared=len(both), changed=tuple(changed), tokens_only=tokens_only
    )


def _changed(sentence: str, before: Output, after: Output) -> Changed:
    pairs = zip(before.tokens, after.tokens, strict=False)
    shortest = min(len(before.tokens), len(after.tokens))
    part = next((place for place, (old, new) in enumerate(pairs) if old != new), shortest)
    same = difflib.SequenceMatcher(None, before.tokens, after.tokens, autojunk=False).get_matching_blocks()
    longest = max(len(before.tokens), len(after.tokens))
    return Changed(
        sentence=sentence,
        before=before.text,
        after=after.text,
        marked=marked(before.text, after.text),
        first_token=None if before.tokens == after.tokens else part,
        tokens_before=len(before.tokens),
        tokens_after=len(after.tokens),
        tokens_changed=longest - sum(block.size for block in same),
    )


def marked(before: str, after: str) -> str:
    """One text with what went as [-…-] and what came as {+…+}."""
    parts = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(before[a:b])
            continue
        parts += [f"[-{before[a:b]}-]"] if b > a else []
        parts += [f"{{+{after[c:d]}+}}"] if d > c else []
    return "".join(parts)


def _outputs_path(shelf: Shelf, version: str) -> Path:
    return shelf.folder / OUTPUTS / f"{version}.json"


def _own_version() -> str:
    return importlib.metadata.version("onnxmt")


def _write(path: Path, record: RegressionSet | VersionOutputs) -> None:
    write_whole(path, json.dumps(records.to_json(record), ensure_ascii=False, indent=1) + "\n")


def _read(path: Path, cls: type[T]) -> T | None:
    try:
        return records.from_json(cls, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} cannot be read: {error}. Restore it from a backup of the store") from error
