"""From a checkpoint folder to a TokenizerSpec, for every family but Marian: which class, which files, which tokens.

Each builder states what differs for one tokenizer class of transformers 5.24; what the classes do with their special
tokens when they load is in `special_tokens.py`, what they build in `recipes.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizer import TokenizerSpec
from onnxmt.runtime.tokenizers import language_codes
from onnxmt.runtime.tokenizers.added_tokens import AddedToken
from onnxmt.runtime.tokenizers.checkpoint_config import (
    model_max_length,
    read_tokenizer_config,
    refuse_unimplemented,
    text_or_none,
)
from onnxmt.runtime.tokenizers.coded import CodedSettings, CodedTokenizer, m2m100_codes
from onnxmt.runtime.tokenizers.engines import PieceSettings
from onnxmt.runtime.tokenizers.files import read_vocabulary
from onnxmt.runtime.tokenizers.pipeline_settings import PipelineSettings
from onnxmt.runtime.tokenizers.plain import PlainSettings, PlainTokenizer
from onnxmt.runtime.tokenizers.prefixes import Prefix, prefixes_of_config, prefixes_of_vocabulary, read_prefix
from onnxmt.runtime.tokenizers.recipes import build_pipeline
from onnxmt.runtime.tokenizers.special_tokens import SpecialTokens, read_special_tokens
from onnxmt.runtime.tokenizers.spm_model import CONTROL, USER_DEFINED, read_sentencepiece_model

__all__ = ["family_spec"]

_T5_LENGTH = 512
_TOKENIZER_JSON = "tokenizer.json"
# small100 is published with M2M100's tokenizer class in its settings; what tells it apart is its authors' code beside
# it, which is never run.
_SMALL100_CODE = "tokenization_small100.py"
_FAIRSEQ_MODEL, _T5_MODEL = "sentencepiece.bpe.model", "spiece.model"
_NAMES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
}
_CLEAN_UP_BPE = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"


@dataclass(frozen=True, kw_only=True)
class _Checkpoint:
    """What every builder gets: the folder, config.json, tokenizer_config.json, and the prefix a person gave."""

    folder: Path
    config: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]
    prefix: str | None

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def cleans_up(self, *, bpe: bool) -> bool:
        """transformers 5 ignores the wish for BPE, which it would damage, unless it is wished for twice."""
        wished = bool(self.tokenizer_config.get("clean_up_tokenization_spaces"))
        return wished and (not bpe or bool(self.tokenizer_config.get(_CLEAN_UP_BPE)))


def family_spec(folder: Path, config: Mapping[str, Any], *, prefix: str | None) -> TokenizerSpec:
    """The spec of a checkpoint of any family but Marian. Raises TokenizerError for a class that is not implemented."""
    tokenizer_config = read_tokenizer_config(folder)
    refuse_unimplemented(tokenizer_config, folder)
    model_type = str(config.get("model_type"))
    classes = _BUILDERS[model_type]
    named = tokenizer_config.get("tokenizer_class") or config.get("tokenizer_class")
    name = str(named).removesuffix("Fast") if named else next(iter(classes))
    if name not in classes:
        raise TokenizerError(
            f"tokenizer_class {named!r} is not implemented for model_type {model_type!r}; "
            f"implemented: {', '.join(classes)}"
        )
    checkpoint = _Checkpoint(folder=folder, config=config, tokenizer_config=tokenizer_config, prefix=prefix)
    return classes[name](checkpoint)


def _files(checkpoint: _Checkpoint, *choices: tuple[str, ...]) -> tuple[str, ...]:
    """The first of `choices` that is complete. Raises TokenizerError that names what is missing."""
    for files in choices:
        if all(checkpoint.has(name) for name in files):
            return files
    wanted = ", or ".join(" + ".join(files) for files in choices)
    absent = sorted({name for files in choices for name in files if not checkpoint.has(name)})
    raise TokenizerError(
        f"{checkpoint.folder} lacks the tokenizer file {' and '.join(absent)}: this tokenizer needs {wanted}"
    )


def _own_pieces(folder: Path, files: Sequence[str]) -> tuple[AddedToken, ...]:
    """The control and user-defined pieces of a SentencePiece model, which transformers never splits."""
    model = read_sentencepiece_model(folder / files[0])
    return tuple(
        AddedToken(content=piece.text, special=piece.kind == CONTROL, normalized=False)
        for piece in model.pieces
        if piece.kind in (CONTROL, USER_DEFINED)
    )


# --- families with language tokens ----------------------------------------------------------------------------------


def _no_prefix(checkpoint: _Checkpoint) -> None:
    if checkpoint.prefix is not None:
        raise TokenizerError(
            f"a prefix ({checkpoint.prefix!r}) is for T5 and BART models; this one has language tokens"
        )


def _m2m100(checkpoint: _Checkpoint, *, layout: str = "m2m_100") -> TokenizerSpec:
    """vocab.json + SentencePiece; the languages are numbered behind the vocabulary."""
    _no_prefix(checkpoint)
    folder, config = checkpoint.folder, checkpoint.tokenizer_config
    if checkpoint.has(_SMALL100_CODE) or _SMALL100_CODE.removesuffix(".py") in json.dumps(config.get("auto_map")):
        layout = "small100"
    defaults = {role: name for role, name in _NAMES.items() if role != "cls_token"}
    tokens = read_special_tokens(folder, config, defaults)
    files = _files(checkpoint, ("vocab.json", _FAIRSEQ_MODEL))
    read_sentencepiece_model(folder / _FAIRSEQ_MODEL)
    vocabulary = read_vocabulary(folder / "vocab.json", required=(tokens.name("eos_token"), tokens.name("unk_token")))
    settings = CodedSettings(
        layout=layout,
        eos=tokens.name("eos_token"),
        codes=m2m100_codes(str(config.get("language_codes") or "m2m100")),
        source_language=text_or_none(config.get("src_lang")),
        target_language=text_or_none(config.get("tgt_lang")),
        limit=model_max_length(config, folder),
        clean_up_spaces=checkpoint.cleans_up(bpe=False),
        pieces=PieceSettings(
            model_file=_FAIRSEQ_MODEL,
            vocabulary_file="vocab.json",
            unk=tokens.name("unk_token"),
            added=tokens.numbered(vocabulary),
        ),
    )
    return _checked_coded(checkpoint, TokenizerSpec(kind=layout, files=files, settings=settings.to_dict()))


def _small100(checkpoint: _Checkpoint) -> TokenizerSpec:
    return _m2m100(checkpoint, layout="small100")


def _nllb(checkpoint: _Checkpoint) -> TokenizerSpec:
    mask = AddedToken(content="<mask>", special=True, normalized=True, lstrip=True)
    tokens = read_special_tokens(checkpoint.folder, checkpoint.tokenizer_config, {**_NAMES, "mask_token": mask})
    files = _files(checkpoint, (_TOKENIZER_JSON,), (_FAIRSEQ_MODEL,))
    codes = _as_tokens(language_codes.NLLB)
    if tokens.extra is not None:
        further = tokens.extra
    elif files == (_TOKENIZER_JSON,):
        further = codes if tokens.older is None else tokens.older
    else:
        further = (*_own_pieces(checkpoint.folder, files), *codes)
    layout = "nllb_legacy" if checkpoint.tokenizer_config.get("legacy_behaviour") else "nllb"
    return _pipeline_with_codes(
        checkpoint, tokens, files=files, further=further, layout=layout, recipe="nllb", bpe=True,
        known=language_codes.NLLB, shape=r"[a-z]{3}_[A-Z][a-z]{3}",
    )  # fmt: skip


def _mbart(checkpoint: _Checkpoint) -> TokenizerSpec:
    mask = AddedToken(content="<mask>", lstrip=True)
    tokens = read_special_tokens(checkpoint.folder, checkpoint.tokenizer_config, {**_NAMES, "mask_token": mask})
    files = _files(checkpoint, (_TOKENIZER_JSON,), (_FAIRSEQ_MODEL,))
    older = (tokens.older or ()) if files == (_TOKENIZER_JSON,) else _own_pieces(checkpoint.folder, files)
    further = tokens.further((*_as_tokens(language_codes.MBART25), *older))
    return _pipeline_with_codes(
        checkpoint, tokens, files=files, further=further, layout="mbart", recipe="mbart", bpe=False,
        known=language_codes.MBART25, shape=r"[a-z]{2,3}_[A-Z]{2}",
    )  # fmt: skip


def _mbart50(checkpoint: _Checkpoint) -> TokenizerSpec:
    mask = AddedToken(content="<mask>", lstrip=True)
    defaults = {role: name for role, name in _NAMES.items() if role != "bos_token"}
    tokens = read_special_tokens(checkpoint.folder, checkpoint.tokenizer_config, {**defaults, "mask_token": mask})
    files = _files(checkpoint, (_TOKENIZER_JSON,), (_FAIRSEQ_MODEL,))
    older = (tokens.older or ()) if files == (_TOKENIZER_JSON,) else _own_pieces(checkpoint.folder, files)
    further = tokens.further((*older, *_as_tokens(language_codes.MBART50)))
    return _pipeline_with_codes(
        checkpoint, tokens, files=files, further=further, layout="mbart50", recipe="mbart50", bpe=False,
        known=language_codes.MBART50, shape=r"[a-z]{2,3}_[A-Z]{2}",
    )  # fmt: skip


def _as_tokens(codes: Sequence[str]) -> tuple[AddedToken, ...]:
    return tuple(AddedToken(content=code, special=True) for code in codes)


def _pipeline_with_codes(
    checkpoint: _Checkpoint,
    tokens: SpecialTokens,
    *,
    files: tuple[str, ...],
    further: Sequence[AddedToken],
    layout: str,
    recipe: str,
    bpe: bool,
    known: Sequence[str],
    shape: str,
) -> TokenizerSpec:
    """The spec of a `tokenizers` pipeline; its languages are those of `known` and the added tokens of that `shape` that
    the vocabulary has."""
    _no_prefix(checkpoint)
    folder, config = checkpoint.folder, checkpoint.tokenizer_config
    added = tokens.in_order(further)
    pipeline = PipelineSettings(
        recipe=recipe,
        added=added,
        names={
            "bos": tokens.named["cls_token"].content if layout == "mbart50" else tokens.name("bos_token"),
            "pad": tokens.name("pad_token"),
            "eos": tokens.name("eos_token"),
            "unk": tokens.name("unk_token"),
            "mask": tokens.name("mask_token"),
        },
    )
    built = build_pipeline(folder, files, pipeline)
    candidates = dict.fromkeys([*known, *(t.content for t in added if re.fullmatch(shape, t.content))])
    settings = CodedSettings(
        layout=layout,
        eos=tokens.name("eos_token"),
        codes=tuple(code for code in candidates if built.token_to_id(code) is not None),
        source_language=text_or_none(config.get("src_lang")),
        target_language=text_or_none(config.get("tgt_lang")),
        limit=model_max_length(config, folder),
        clean_up_spaces=checkpoint.cleans_up(bpe=bpe),
        pipeline=pipeline,
    )
    return _checked_coded(checkpoint, TokenizerSpec(kind=layout, files=files, settings=settings.to_dict()))


def _checked_coded(checkpoint: _Checkpoint, spec: TokenizerSpec) -> TokenizerSpec:
    CodedTokenizer.load(checkpoint.folder, spec)  # what cannot be loaded later is refused now
    return spec


# --- families without language tokens -------------------------------------------------------------------------------


def _t5(checkpoint: _Checkpoint) -> TokenizerSpec:
    """T5 and mT5: the sentinel tokens are special, from wherever they come."""
    folder, config = checkpoint.folder, checkpoint.tokenizer_config
    tokens = read_special_tokens(folder, config, {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})
    files = _files(checkpoint, (_TOKENIZER_JSON,), (_T5_MODEL,))
    count = config.get("extra_ids", 100)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise TokenizerError(
            f"{folder / 'tokenizer_config.json'}: extra_ids is {count!r}, not an integer of at least 0"
        )
    sentinels = _as_tokens([f"<extra_id_{index}>" for index in range(count)])
    older = tokens.older if files == (_TOKENIZER_JSON,) else _own_pieces(folder, files)
    if older is None:
        further = sentinels
    elif any("<extra_id_" in token.content for token in older):
        further = older
    else:
        further = (*older, *sentinels)
    pipeline = PipelineSettings(recipe="t5", added=tokens.in_order(tokens.further(further)), extra_ids=count)
    return _plain(checkpoint, tokens, files=files, pipeline=pipeline, behind=tokens.name("eos_token"))


def _bart(checkpoint: _Checkpoint) -> TokenizerSpec:
    tokens = read_special_tokens(checkpoint.folder, checkpoint.tokenizer_config, {**_NAMES, "mask_token": "<mask>"})
    files = _files(checkpoint, (_TOKENIZER_JSON,), ("vocab.json", "merges.txt"))
    pipeline = PipelineSettings(
        recipe="bart",
        added=tokens.in_order(tokens.further(tokens.older or ())),
        add_prefix_space=bool(checkpoint.tokenizer_config.get("add_prefix_space")),
    )
    before, behind = tokens.name("cls_token"), tokens.name("sep_token")
    return _plain(checkpoint, tokens, files=files, pipeline=pipeline, before=before, behind=behind)


def _as_it_is(checkpoint: _Checkpoint) -> TokenizerSpec:
    """tokenizer.json as it stands; umT5 with a SentencePiece model alone uses that."""
    if not checkpoint.has(_TOKENIZER_JSON) and checkpoint.has(_T5_MODEL):
        return _pieces_alone(checkpoint)
    tokens = read_special_tokens(checkpoint.folder, checkpoint.tokenizer_config, {})
    files = _files(checkpoint, (_TOKENIZER_JSON,))
    pipeline = PipelineSettings(recipe="as_it_is", added=tokens.in_order(tokens.further(tokens.older or ())))
    return _plain(checkpoint, tokens, files=files, pipeline=pipeline)


def _pieces_alone(checkpoint: _Checkpoint) -> TokenizerSpec:
    """A SentencePiece model with its own ids, and one end token (which transformers 5.24 forgets here)."""
    folder = checkpoint.folder
    model = read_sentencepiece_model(folder / _T5_MODEL)
    vocabulary = {piece.text: index for index, piece in enumerate(model.pieces)}
    defaults = {"eos_token": "</s>", "unk_token": model.pieces[model.unk_id].text, "pad_token": "<pad>"}
    tokens = read_special_tokens(folder, checkpoint.tokenizer_config, defaults)
    special = [piece for piece in _own_pieces(folder, [_T5_MODEL]) if piece.special]
    numbered = tokens.numbered(vocabulary, otherwise=special)
    pieces = PieceSettings(model_file=_T5_MODEL, vocabulary_file=None, unk=tokens.name("unk_token"), added=numbered)
    return _plain(checkpoint, tokens, files=(_T5_MODEL,), pieces=pieces, behind=tokens.name("eos_token"))


def _plain(
    checkpoint: _Checkpoint,
    tokens: SpecialTokens,
    *,
    files: tuple[str, ...],
    before: str | None = None,
    behind: str | None = None,
    pipeline: PipelineSettings | None = None,
    pieces: PieceSettings | None = None,
) -> TokenizerSpec:
    """The spec of a tokenizer without language tokens, with the prefixes that its checkpoint or a person gives it."""
    folder, bpe, own_ends = checkpoint.folder, False, False
    vocabulary: Mapping[str, int] = {}
    if pipeline is not None:
        built = build_pipeline(folder, files, pipeline)
        vocabulary = built.get_vocab(with_added_tokens=True)
        bpe = type(built.model).__name__ == "BPE"
        if pipeline.recipe == "as_it_is":
            own_ends = built.num_special_tokens_to_add(False) > 0
            behind = None if own_ends else tokens.name("eos_token")
    prefixes, always = _prefixes(checkpoint, vocabulary)
    settings = PlainSettings(
        before=before,
        behind=behind,
        own_ends=own_ends,
        prefixes=prefixes,
        always_prefix=always,
        limit=_plain_limit(checkpoint),
        clean_up_spaces=checkpoint.cleans_up(bpe=bpe),
        pieces=pieces,
        pipeline=pipeline,
    )
    kind = pipeline.recipe if pipeline is not None else "pieces"
    spec = TokenizerSpec(kind=kind, files=files, settings=settings.to_dict())
    PlainTokenizer.load(folder, spec)  # what cannot be loaded later is refused now
    return spec


def _plain_limit(checkpoint: _Checkpoint) -> int | None:
    """The most tokens of one text: what the tokenizer's settings say, else config.json, else T5's own length.

    T5 and its kin have no position table that would end a text, and attention grows with its square: a line of 100,000
    characters would take tens of GB. 512 is what T5 was trained with. BART has a table, which the caller knows.
    """
    stated = model_max_length(checkpoint.tokenizer_config, checkpoint.folder)
    if stated is not None or checkpoint.config.get("model_type") == "bart":
        return stated
    positions = checkpoint.config.get("n_positions")
    return positions if type(positions) is int and positions > 0 else _T5_LENGTH


def _prefixes(checkpoint: _Checkpoint, vocabulary: Mapping[str, int]) -> tuple[tuple[Prefix, ...], bool]:
    """The prefixes, and whether the first one stands where no language is asked for: a given one, or the only one."""
    if checkpoint.prefix is not None:
        return (read_prefix(checkpoint.prefix),), True
    found = prefixes_of_config(checkpoint.config)
    if found:
        return found, len(found) == 1 or bool(checkpoint.config.get("prefix"))
    return prefixes_of_vocabulary(vocabulary), False


_Builder = Callable[[_Checkpoint], TokenizerSpec]
# model_type → tokenizer_class → builder; the first class is the one a checkpoint without the entry has.
_BUILDERS: dict[str, dict[str, _Builder]] = {
    "m2m_100": {"M2M100Tokenizer": _m2m100, "NllbTokenizer": _nllb, "SMALL100Tokenizer": _small100},
    "mbart": {"MBartTokenizer": _mbart, "MBart50Tokenizer": _mbart50},
    "bart": {
        "BartTokenizer": _bart,
        "RobertaTokenizer": _bart,
        "PreTrainedTokenizer": _as_it_is,
        "TokenizersBackend": _as_it_is,
    },
    "t5": {"T5Tokenizer": _t5, "PreTrainedTokenizer": _as_it_is, "TokenizersBackend": _as_it_is},
    "mt5": {"T5Tokenizer": _t5, "MT5Tokenizer": _t5, "PreTrainedTokenizer": _as_it_is, "TokenizersBackend": _as_it_is},
    "umt5": {"T5Tokenizer": _as_it_is, "PreTrainedTokenizer": _as_it_is, "TokenizersBackend": _as_it_is},
}
MODEL_TYPES = ("marian", *_BUILDERS)
