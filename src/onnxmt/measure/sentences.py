"""The sentence sets that verification runs on: reading them, and the fingerprint that ties a recording to its set."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from onnxmt.errors import UsageError
from onnxmt.runtime.languages import is_chinese, language_name, parse_language

CATEGORIES = ("short", "long", "numbers", "names", "colloquial", "technical")
"""The categories of the shipped set, in the order in which reports show them."""

_SHIPPED = {"en": "verification.tsv", "zh": "verification.zh.tsv"}


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """One line of a sentence set; `line` counts from 1."""

    line: int
    category: str
    text: str


@dataclass(frozen=True, kw_only=True)
class SentenceSet:
    """Sentences in file order, all different; `sha256` is taken over categories and texts, whatever the line ends."""

    name: str
    sentences: tuple[Sentence, ...]

    def __post_init__(self) -> None:
        if not self.sentences:
            raise UsageError(f"{self.name} holds no sentence; one line is CATEGORY, a tab, TEXT")
        twice = [text for text, count in Counter(s.text for s in self.sentences).items() if count > 1]
        if twice:
            raise UsageError(f"{self.name} holds {len(twice)} sentence(s) more than once, the first is {twice[0]!r}")

    @property
    def sha256(self) -> str:
        """Lower-case hexadecimal SHA-256 of the set's content."""
        content = "".join(f"{sentence.category}\t{sentence.text}\n" for sentence in self.sentences)
        return hashlib.sha256(content.encode("utf-8")).hexdigest()

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories that occur: the known ones in their order, then others as they appear."""
        found = dict.fromkeys(sentence.category for sentence in self.sentences)
        return (*(c for c in CATEGORIES if c in found), *(c for c in found if c not in CATEGORIES))


def parse_sentences(text: str, *, name: str) -> SentenceSet:
    """Read lines of CATEGORY, a tab, TEXT; blank lines are skipped. Raises UsageError that lists every bad line."""
    sentences, bad = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        category, tab, sentence = line.partition("\t")
        if not tab or not category.strip() or not sentence.strip() or "\t" in sentence:
            bad.append(str(number))
        else:
            sentences.append(Sentence(line=number, category=category.strip(), text=sentence.strip()))
    if bad:
        raise UsageError(f"{name}: line(s) {', '.join(bad)} are not CATEGORY, one tab, TEXT")
    return SentenceSet(name=name, sentences=tuple(sentences))


def verification_sentences(language: str = "en") -> SentenceSet:
    """Return the set that ships with onnxmt in English, or in Chinese ("zh")."""
    name = _SHIPPED[language]
    data = resources.files("onnxmt.measure").joinpath("data", name)
    return parse_sentences(data.read_text(encoding="utf-8"), name=name)


@dataclass(frozen=True, kw_only=True)
class ChosenSentences:
    """The set that a verification runs on, and what has to be said of the choice."""

    sentences: SentenceSet
    note: str | None = None


def choose_sentences(language: str | None, *, file: Path | None = None) -> ChosenSentences:
    """Return the set for texts in `language`: a file of one's own, or the one that ships.

    For a language that none ships in it is the English one, and the note says so: tokens and tensors are compared all
    the same, on text that is not what the model was trained on.
    """
    if file is not None:
        return ChosenSentences(sentences=read_sentences(file))
    if language is not None and is_chinese(language):
        return ChosenSentences(sentences=verification_sentences("zh"))
    parsed = None if language is None else parse_language(language)
    if parsed is None or parsed.base == "eng":
        return ChosenSentences(sentences=verification_sentences())
    reads = language_name(str(language)) or language
    return ChosenSentences(
        sentences=verification_sentences(),
        note=f"the sentences are English, and the model reads {reads}: everything is compared all the same, on text "
        "that it was not trained on; give sentences in its language with --sentences",
    )


def read_sentences(path: Path) -> SentenceSet:
    """Read a sentence set from a file; raises UsageError when it cannot be read as one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the sentence set {path} cannot be read as UTF-8 text: {error}") from error
    return parse_sentences(text, name=path.name)
