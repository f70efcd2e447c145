"""How each family's pipeline of the `tokenizers` library is put together from a checkpoint's files.

transformers 5.24 takes only the vocabulary (and the character map) from a family's tokenizer.json or SentencePiece
model and builds the rest itself; these recipes build the same, step for step. Order and flags of the added tokens come
with the settings, because the library numbers new tokens in the order in which it gets them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken as LibraryToken
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizers import language_codes
from onnxmt.runtime.tokenizers.added_tokens import AddedToken
from onnxmt.runtime.tokenizers.files import read_bytes, read_json_object, read_vocabulary
from onnxmt.runtime.tokenizers.pipeline_settings import PipelineSettings
from onnxmt.runtime.tokenizers.spm_model import SentencePieceModel, read_sentencepiece_model

__all__ = ["build_pipeline"]

_TOKENIZER_JSON, _MERGES, _VOCABULARY = "tokenizer.json", "merges.txt", "vocab.json"
# fairseq's dictionary begins with these, in this order; sentencepiece's own three are dropped for them.
_FAIRSEQ_ROLES = ("bos", "pad", "eos", "unk")
_UNK_BEHIND_FAIRSEQ, _UNK_OF_T5 = 3, 2


@dataclass(frozen=True, kw_only=True)
class _Vocabulary:
    """What a file gives: `scored` pieces (Unigram) or numbered ones with merges (BPE), and the character map.

    `from_model`: from a SentencePiece model, so without the family's own tokens.
    """

    scored: list[tuple[str, float]] = field(default_factory=list)
    numbered: dict[str, int] = field(default_factory=dict)
    merges: list[tuple[str, str]] = field(default_factory=list)
    charsmap: bytes = b""
    from_model: bool = False


def build_pipeline(folder: Path, files: Iterable[str], settings: PipelineSettings) -> Tokenizer:
    """The library's tokenizer, without a post-processor: special tokens around the text are the caller's.

    Raises TokenizerError that names the file that is missing or wrong.
    """
    files = tuple(files)
    try:
        tokenizer: Tokenizer = _RECIPES[settings.recipe](folder, files, settings)
    except TokenizerError:
        raise
    except Exception as error:  # the library raises bare Exception for whatever it cannot build
        raise TokenizerError(f"tokenizer files {', '.join(files)} in {folder} do not fit together: {error}") from error
    tokenizer.add_tokens([_library_token(token) for token in settings.added])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _library_token(token: AddedToken) -> LibraryToken:
    normalized = {} if token.normalized is None else {"normalized": token.normalized}
    return LibraryToken(
        token.content,
        special=token.special,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        single_word=token.single_word,
        **normalized,
    )


# --- the recipes ----------------------------------------------------------------------------------------------------


def _nllb(folder: Path, files: tuple[str, ...], settings: PipelineSettings) -> Tokenizer:
    """BPE over fairseq's dictionary; the languages and <mask> behind it.

    From a SentencePiece model alone transformers 5.24 leaves the languages out, so that each becomes <unk>; here they
    stand where the model was trained to have them (eng_Latn at 256,047 in NLLB-200).
    """
    source = _read(folder, files, bpe=True)
    vocabulary = source.numbered
    if source.from_model:
        names = [settings.names[role] for role in _FAIRSEQ_ROLES]
        order = dict.fromkeys([*names, *vocabulary, *language_codes.NLLB, settings.names["mask"]])
        vocabulary = {token: index for index, token in enumerate(order)}
    tokenizer = Tokenizer(
        BPE(vocab=vocabulary, merges=source.merges, unk_token=settings.names["unk"], fuse_unk=True, byte_fallback=False)
    )
    if source.charsmap:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(source.charsmap), _single_spaces()])
    tokenizer.pre_tokenizer = _metaspace()
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return tokenizer


def _mbart(folder: Path, files: tuple[str, ...], settings: PipelineSettings) -> Tokenizer:
    """Unigram; no normaliser at all in transformers 5, whatever the file says; any white space separates words."""
    source = _read(folder, files)
    scored = _behind_fairseq(source.scored, settings, language_codes.MBART25) if source.from_model else source.scored
    tokenizer = Tokenizer(Unigram(scored, unk_id=_UNK_BEHIND_FAIRSEQ, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _metaspace()])
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return tokenizer


def _mbart50(folder: Path, files: tuple[str, ...], settings: PipelineSettings) -> Tokenizer:
    """Unigram; the file's character map, runs of spaces as one."""
    source = _read(folder, files)
    scored = source.scored
    if source.from_model or not {token for token, _ in scored} & set(language_codes.MBART50):
        scored = _behind_fairseq(scored, settings, language_codes.MBART50)
    tokenizer = Tokenizer(Unigram(scored, unk_id=_UNK_BEHIND_FAIRSEQ, byte_fallback=False))
    mapped = [normalizers.Precompiled(source.charsmap)] if source.charsmap else []
    tokenizer.normalizer = normalizers.Sequence([*mapped, _single_spaces()])
    tokenizer.pre_tokenizer = _metaspace()
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return tokenizer


def _t5(folder: Path, files: tuple[str, ...], settings: PipelineSettings) -> Tokenizer:
    """Unigram; the file's character map; any white space separates words; sentinel tokens behind the pieces."""
    source = _read(folder, files)
    scored = source.scored
    if source.from_model:
        scored = scored + [(f"<extra_id_{i}>", 0.0) for i in range(settings.extra_ids - 1, -1, -1)]
    tokenizer = Tokenizer(Unigram(scored, unk_id=_UNK_OF_T5, byte_fallback=False))
    if source.charsmap:
        tokenizer.normalizer = normalizers.Precompiled(source.charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _metaspace()])
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return tokenizer


def _bart(folder: Path, files: tuple[str, ...], settings: PipelineSettings) -> Tokenizer:
    """Byte-level BPE, as RoBERTa and GPT-2."""
    source = _read(folder, files, bpe=True)
    tokenizer = Tokenizer(
        BPE(
            vocab=source.numbered,
            merges=source.merges,
            continuing_subword_prefix="",
            end_of_word_suffix="",
            fuse_unk=False,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _as_it_is(folder: Path, files: tuple[str, ...], settings: PipelineSettings) -> Tokenizer:  # noqa: ARG001
    """tokenizer.json as it stands, post-processor included: umT5, and checkpoints without a class of their own."""
    read_bytes(folder / _TOKENIZER_JSON)  # for the message when it is missing
    return Tokenizer.from_file(str(folder / _TOKENIZER_JSON))


_RECIPES: dict[str, Callable[[Path, tuple[str, ...], PipelineSettings], Tokenizer]] = {
    "nllb": _nllb,
    "mbart": _mbart,
    "mbart50": _mbart50,
    "t5": _t5,
    "bart": _bart,
    "as_it_is": _as_it_is,
}


def _metaspace() -> Any:
    return pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)


def _single_spaces() -> Any:
    return normalizers.Replace(Regex(r" {2,}"), " ")


def _behind_fairseq(
    scored: list[tuple[str, float]], settings: PipelineSettings, codes: tuple[str, ...]
) -> list[tuple[str, float]]:
    """fairseq's four tokens, the pieces without sentencepiece's own three, the languages, <mask>."""
    front = [(settings.names[role], 0.0) for role in _FAIRSEQ_ROLES]
    return [*front, *scored[3:], *((code, 0.0) for code in codes), (settings.names["mask"], 0.0)]


# --- the files ------------------------------------------------------------------------------------------------------


def _read(folder: Path, files: tuple[str, ...], *, bpe: bool = False) -> _Vocabulary:
    """The vocabulary in the files that the spec names."""
    if _TOKENIZER_JSON in files:
        return _from_tokenizer_json(folder / _TOKENIZER_JSON, bpe=bpe)
    models = [name for name in files if name.endswith(".model")]
    if models:
        return _from_model(read_sentencepiece_model(folder / models[0]), bpe=bpe)
    vocabulary = read_vocabulary(folder / _VOCABULARY, required=())
    return _Vocabulary(numbered=vocabulary, merges=_read_merges(folder / _MERGES))


def _from_tokenizer_json(path: Path, *, bpe: bool) -> _Vocabulary:
    data = read_json_object(path)
    model = data.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not vocabulary:
        raise TokenizerError(f"tokenizer file {path} has no model.vocab")
    charsmap = _charsmap(data.get("normalizer"))
    if not bpe:
        if not isinstance(vocabulary, list):
            raise TokenizerError(f"tokenizer file {path}: model.vocab is not a list of pieces with scores (Unigram)")
        return _Vocabulary(scored=[(piece, score) for piece, score in vocabulary], charsmap=charsmap)
    if not isinstance(vocabulary, Mapping):
        vocabulary = {piece[0] if isinstance(piece, list) else piece: i for i, piece in enumerate(vocabulary)}
    merges = [_pair(merge, path) for merge in model.get("merges", [])]
    return _Vocabulary(numbered=dict(vocabulary), merges=merges, charsmap=charsmap)


def _pair(merge: object, path: Path) -> tuple[str, str]:
    """A merge, written as a list of two pieces or as a string with a space between them."""
    pieces = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(pieces, list) or len(pieces) != 2:
        raise TokenizerError(f"tokenizer file {path}: the merge {merge!r} is not two pieces")
    return str(pieces[0]), str(pieces[1])


def _charsmap(normalizer: object) -> bytes:
    """The first precompiled character map of a serialized normaliser."""
    parts = normalizer if isinstance(normalizer, list) else [normalizer]
    if isinstance(normalizer, Mapping) and normalizer.get("type") == "Sequence":
        parts = normalizer.get("normalizers", [])
    for part in parts:
        if isinstance(part, Mapping) and part.get("type") == "Precompiled" and part.get("precompiled_charsmap"):
            return base64.b64decode(part["precompiled_charsmap"])
    return b""


def _from_model(model: SentencePieceModel, *, bpe: bool) -> _Vocabulary:
    if not bpe:
        scored = [(piece.text, piece.score) for piece in model.pieces]
        return _Vocabulary(scored=scored, charsmap=model.charsmap, from_model=True)
    numbered = {piece.text: index for index, piece in enumerate(model.pieces)}
    return _Vocabulary(numbered=numbered, merges=_merges(numbered), charsmap=model.charsmap, from_model=True)


def _merges(numbered: Mapping[str, int]) -> list[tuple[str, str]]:
    """SentencePiece keeps no merges: every way to put a piece together from two others, best-ranked piece first."""
    return [
        (piece[:cut], piece[cut:])
        for piece in numbered
        for cut in range(1, len(piece))
        if piece[:cut] in numbered and piece[cut:] in numbered
    ]


def _read_merges(path: Path) -> list[tuple[str, str]]:
    """The pairs in a merges.txt; raises TokenizerError that names a line that is none."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"tokenizer file {path} is not UTF-8: {error}") from error
    merges = []
    for number, line in enumerate(text.split("\n"), start=1):
        pair = line.removesuffix("\r").split(" ")
        if line.startswith("#version") or pair == [""]:
            continue
        if len(pair) != 2:
            raise TokenizerError(f"tokenizer file {path}, line {number}: {line!r} is not two pieces")
        merges.append((pair[0], pair[1]))
    return merges
