"""Learning a bundle's shortlist: a parallel text, the bundle's own tokenizer and settings → the table of candidates."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from onnxmt.errors import TokenizerError, UsageError
from onnxmt.lexical_table import Pairs, learn_lexicon
from onnxmt.manifest import ShortlistInfo
from onnxmt.own_candidates import own_candidates
from onnxmt.runtime.languages import parse_language
from onnxmt.runtime.shortlist import Shortlist, Table

if TYPE_CHECKING:
    from onnxmt.runtime.settings import GenerationSettings
    from onnxmt.runtime.tokenizer import Tokenizer
    from onnxmt.runtime.translator import Translator

SHORTLIST_FILE = "shortlist.npz"
# Longer sentences say little of which word stands for which, and cost the product of both lengths.
_LONGEST = 128
# A source token that the text has in fewer lines than this is also asked of the model itself.
_SELDOM = 50


@dataclass(frozen=True, kw_only=True)
class ShortlistOptions:
    """Two files of lines, line n of `target` being a translation of line n of `source`, and how much is kept.

    `per_token`: the most candidates that are learnt for a source token; `always`: so many of the target side's most
    frequent tokens are candidates of every sentence. Raises UsageError.
    """

    source: Path
    target: Path
    per_token: int = 50
    always: int = 500

    def __post_init__(self) -> None:
        if not 1 <= self.per_token <= 1000:
            raise UsageError(f"per_token (--per-token) is {self.per_token}; 1 to 1000 candidates are allowed")
        if not 0 <= self.always <= 5000:
            raise UsageError(f"always (--always) is {self.always}; 0 to 5000 tokens are allowed")


@dataclass(frozen=True, kw_only=True)
class LearntShortlist:
    """The table, and what the manifest says of it."""

    table: Shortlist
    info: ShortlistInfo


def learn_shortlist(
    translator: Translator,
    options: ShortlistOptions,
    *,
    vocabulary: int,
    progress: Callable[[int, int], None] | None = None,
) -> LearntShortlist:
    """Learn the candidates of each source token of `translator`'s bundle, whose decoder scores `vocabulary` tokens.

    The languages are the bundle's default ones. Raises UsageError for files that cannot be read or do not fit each
    other, and for a model whose target language is open.
    """
    manifest, tokenizer, settings = translator.bundle.manifest, translator.tokenizer, translator.settings
    foreign = _foreign(translator)
    pairs, left_out = _read_pairs(translator, options)
    sources = manifest.dimensions.source_vocabulary
    offsets, tokens = learn_lexicon(
        pairs,
        source_vocabulary=sources,
        target_vocabulary=vocabulary,
        per_token=options.per_token,
        progress=progress,
    )
    texts = _texts(translator, limit=sources)
    offsets, tokens = _joined(offsets, tokens, {s: tokenizer.target_ids(text) for s, text in texts.items()}, vocabulary)
    seen = np.bincount(pairs.source, minlength=sources)
    seldom = {source: text for source, text in texts.items() if seen[source] < _SELDOM}
    own = own_candidates(translator, seldom, progress=progress)
    offsets, tokens = _joined(offsets, tokens, own, vocabulary)
    target = translator.direction.target
    always = _always(tokenizer, settings, target, pairs, vocabulary=vocabulary, frequent=options.always)
    table = Shortlist(
        offsets=offsets,
        tokens=tokens,
        always=np.array(sorted(always), np.int32),
        foreign=np.array(sorted(foreign), np.int32),
        vocabulary=vocabulary,
    )
    info = ShortlistInfo(
        file=SHORTLIST_FILE,
        pairs=len(pairs),
        left_out=left_out,
        per_token=options.per_token,
        always=int(table.always.size),
        candidates=int(table.tokens.size),
    )
    return LearntShortlist(table=table, info=info)


def _read_pairs(translator: Translator, options: ShortlistOptions) -> tuple[Pairs, int]:
    """The text as tokens, and how many of its pairs are left out: empty, too long, or not to be encoded."""
    tokenizer, told = translator.tokenizer, translator.direction
    left_out = 0

    def usable() -> Iterator[tuple[list[int], list[int]]]:
        nonlocal left_out
        for number, (here, there) in enumerate(_side_by_side(source, target, options), 1):
            try:
                ids = tokenizer.encode(here, source=told.source, target=told.target)
                wanted = tokenizer.target_ids(there)
            except TokenizerError as error:
                raise UsageError(f"{options.source}, line {number}: {error}") from error
            if here and there and wanted and len(ids) <= _LONGEST and len(wanted) <= _LONGEST:
                yield ids, wanted
            else:
                left_out += 1

    with _opened(options.source) as source, _opened(options.target) as target:
        pairs = Pairs.of(usable())
    if not len(pairs):
        raise UsageError(
            f"{options.source} and {options.target} hold no pair of lines to learn from (neither side empty, at most "
            f"{_LONGEST} tokens)"
        )
    return pairs, left_out


def _opened(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8-sig", newline="\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _side_by_side(source: TextIO, target: TextIO, options: ShortlistOptions) -> Iterator[tuple[str, str]]:
    """Lines of both files; as many of one as of the other, or none of it is worth anything."""
    counts = [0, 0]
    try:
        while True:
            here, there = source.readline(), target.readline()
            if not here or not there:
                break
            counts = [count + 1 for count in counts]
            yield here.strip(), there.strip()
        counts[0] += bool(here) + sum(1 for _ in source)
        counts[1] += bool(there) + sum(1 for _ in target)
    except OSError as error:
        raise UsageError(f"{options.source} or {options.target} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{options.source} or {options.target} is not UTF-8 after line {counts[0]} ({error.reason}): convert it"
        ) from error
    if counts[0] != counts[1]:
        raise UsageError(
            f"{options.source} has {counts[0]} lines and {options.target} {counts[1]}: line n of one must be the "
            "translation of line n of the other"
        )


def _foreign(translator: Translator) -> set[int]:
    """The source tokens that say another language, on either side, than the text to learn from is in.

    Raises UsageError where the model has several target languages and its bundle names none, or where words of the text
    tell the language.
    """
    tokenizer, told = translator.tokenizer, translator.direction
    codes = tokenizer.languages().target
    own = told.target or translator.target_language
    others = [code for code in codes if not _same_language(code, own)]
    usual = set(tokenizer.encode("", source=told.source, target=told.target))
    found: set[int] = set()
    for code in tokenizer.languages().source:
        if told.source is None or not _same_language(code, told.source):
            found.update(tokenizer.encode("", source=code, target=told.target))
    if not others:
        return found - usual
    if not own:
        raise UsageError(
            f"{translator.bundle.manifest.name} translates into {len(codes)} languages and its bundle has none of them "
            "as default, so that a shortlist would be of no language: make the bundle with --target (onnxmt migrate)"
        )
    if translator.bundle.manifest.tokenizer["kind"] in ("t5", "bart", "as_it_is", "pieces"):
        raise UsageError(
            f"{translator.bundle.manifest.name} is told its target language ({', '.join(codes)}) by words in the text, "
            "which cannot be told from the text itself: a shortlist for one of them would be used for all"
        )
    for code in others:
        found.update(tokenizer.encode("", source=told.source, target=code))
    return found - usual


def _same_language(code: str, other: str) -> bool:
    meanings = parse_language(code), parse_language(other)
    if meanings[0] is None or meanings[1] is None:
        return code == other
    return meanings[0].base == meanings[1].base or all(one.base in _CHINESE for one in meanings if one)


_CHINESE = frozenset({"zho", "cmn", "yue", "wuu", "hak", "nan", "gan", "hsn", "lzh", "cdo"})


def _always(
    tokenizer: Tokenizer,
    settings: GenerationSettings,
    target: str | None,
    pairs: Pairs,
    *,
    vocabulary: int,
    frequent: int,
) -> set[int]:
    """What every sentence may say: what generation names, single digits and signs, and the most frequent tokens."""
    forced = tokenizer.forced_bos_token_id(target)
    tokens = {
        settings.decoder_start_token_id,
        *settings.eos_token_ids,
        *settings.forced_eos_token_ids,
        *(id_ for id_ in (settings.pad_token_id, settings.forced_bos_token_id, forced) if id_ is not None),
    }
    for index, data in tokenizer.written_bytes().items():
        text = data.decode("utf-8", "replace").strip()
        if (len(text) <= 1 and not (text and text[0].isalpha())) or _is_signs(text):
            tokens.add(index)
    counts = np.bincount(pairs.target, minlength=vocabulary)
    order = np.lexsort((np.arange(counts.size), -counts))[:frequent]
    tokens.update(order[counts[order] > 0].tolist())
    return {token for token in tokens if 0 <= token < vocabulary}


def _is_signs(text: str) -> bool:
    """Whether a token is punctuation alone, `...` or `——`, at most three characters of it."""
    return 0 < len(text) <= 3 and all(unicodedata.category(character)[0] == "P" for character in text)


def _texts(translator: Translator, *, limit: int) -> dict[int, str]:
    """What the source tokens write, by what the target side says of the same ids; nothing where each side has its own.

    What a token writes is a candidate on the other side, so that names and numbers can be copied.
    """
    if translator.bundle.manifest.tokenizer["settings"].get("separate_vocabularies", False):
        return {}
    found = {}
    for index, data in translator.tokenizer.written_bytes().items():
        text = data.decode("utf-8", "replace").strip()
        if index < limit and text and "\ufffd" not in text:
            found[index] = text
    return found


def _joined(offsets: Table, tokens: Table, more: Mapping[int, list[int]], vocabulary: int) -> tuple[Table, Table]:
    """The table with these tokens added to the rows of their source tokens."""
    sources = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    pairs = [(source, token) for source, every in more.items() for token in every if token < vocabulary]
    added = np.array(pairs, np.int64).reshape(-1, 2)
    keys = np.unique(
        np.concatenate([sources * vocabulary + tokens, added[:, 0] * vocabulary + added[:, 1]]).astype(np.int64)
    )
    source, token = np.divmod(keys, vocabulary)
    return np.searchsorted(source, np.arange(offsets.size)).astype(np.int32), token.astype(np.int32)
