"""tokenizer.json for a checkpoint that has none: our tokenizer as a pipeline of the `tokenizers` library.

transformers.js, and whatever else has no SentencePiece, reads nothing else. Marian and M2M100 have no such file of
their own: their pieces are numbered by vocab.json and scored by the SentencePiece model, as Unigram or BPE can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizers.added_tokens import NumberedToken
from onnxmt.runtime.tokenizers.coded import LAYOUTS, CodedSettings
from onnxmt.runtime.tokenizers.engines import PieceSettings
from onnxmt.runtime.tokenizers.files import read_vocabulary
from onnxmt.runtime.tokenizers.marian import MarianSettings
from onnxmt.runtime.tokenizers.plain import PlainSettings
from onnxmt.runtime.tokenizers.spm_model import BPE, SentencePieceModel, read_sentencepiece_model

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Pipeline

    from onnxmt.runtime.tokenizer import Direction, Tokenizer, TokenizerSpec

TOKENIZER_JSON = "tokenizer.json"
_CODED = ("m2m_100", "small100", "nllb", "nllb_legacy", "mbart", "mbart50")
# A piece that encoding must not choose, because only the target's SentencePiece model has it. Unigram takes an unknown
# character at 10 below the lowest score, so such a piece still wins over "unknown": Marian too looks up a run of
# characters that source.spm does not know in the whole vocabulary.
_OTHER_SIDE = -1000.0


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How the pipeline's ids compare with our tokenizer's on some sentences; `first` is one that differs."""

    sentences: int
    different: int
    first: str | None

    def to_dict(self) -> dict[str, Any]:
        """What onnxmt.json says of it."""
        return {"sentences": self.sentences, "different": self.different, "first": self.first}


def fast_tokenizer(folder: Path, spec: TokenizerSpec, direction: Direction) -> Pipeline:
    """Build the pipeline of the checkpoint in `folder`; the special tokens around a text are those of `direction`.

    Raises TokenizerError for one that no pipeline can say.
    """
    if spec.kind == "marian":
        return _marian(folder, MarianSettings.from_dict(spec.settings))
    if spec.kind in _CODED:
        return _coded(folder, spec, CodedSettings.from_dict(spec.settings), direction)
    plain = PlainSettings.from_dict(spec.settings)
    pipeline = _engine(folder, spec, plain)
    if not plain.own_ends:
        _surround(pipeline, [plain.before] if plain.before else [], [plain.behind] if plain.behind else [])
    return pipeline


def compare(pipeline: Pipeline, tokenizer: Tokenizer, direction: Direction, texts: Sequence[str]) -> Difference:
    """Encode `texts` with both."""
    different = [
        text
        for text in texts
        if pipeline.encode(tokenizer.written(source=direction.source, target=direction.target) + text).ids
        != tokenizer.encode(text, source=direction.source, target=direction.target)
    ]
    return Difference(sentences=len(texts), different=len(different), first=different[0] if different else None)


def _marian(folder: Path, settings: MarianSettings) -> Pipeline:
    if settings.separate_vocabularies:
        raise TokenizerError(
            "this model has a vocabulary of its own for each side, and a tokenizer.json holds one: it is left out, and "
            "transformers.js cannot read this model's texts"
        )
    vocabulary = read_vocabulary(folder / "vocab.json", required=(settings.eos, settings.unk))
    pipeline = _pieces(
        read_sentencepiece_model(folder / "source.spm"), vocabulary, unk=settings.unk, added=settings.added
    )
    _surround(pipeline, [], [settings.eos])
    return pipeline


def _coded(folder: Path, spec: TokenizerSpec, settings: CodedSettings, direction: Direction) -> Pipeline:
    pipeline = _engine(folder, spec, settings)
    layout = LAYOUTS[settings.layout]
    source = direction.source or settings.source_language or layout.default_source
    codes = {"source": source, "target": direction.target or settings.target_language}

    def token(place: str) -> str:
        code = settings.eos if place == "eos" else codes[place]
        # M2M100 writes its codes so; "en" alone is one of its pieces.
        found = [name for name in (f"__{code}__", str(code)) if pipeline.token_to_id(name) is not None]
        if not found:
            raise TokenizerError(f"tokenizer.json cannot be written: the vocabulary has no token for {code!r}")
        return found[0]

    _surround(pipeline, [token(place) for place in layout.before], [token(place) for place in layout.behind])
    return pipeline


def _engine(folder: Path, spec: TokenizerSpec, settings: CodedSettings | PlainSettings) -> Pipeline:
    if settings.pipeline is not None:
        from onnxmt.runtime.tokenizers.recipes import build_pipeline

        return build_pipeline(folder, spec.files, settings.pipeline)
    assert settings.pieces is not None  # one of the two is there: the settings have checked it
    pieces: PieceSettings = settings.pieces
    model = read_sentencepiece_model(folder / pieces.model_file)
    if pieces.vocabulary_file is None:
        vocabulary = {piece.text: index for index, piece in enumerate(model.pieces)}
    else:
        vocabulary = read_vocabulary(folder / pieces.vocabulary_file, required=(pieces.unk,))
    return _pieces(model, vocabulary, unk=pieces.unk, added=pieces.added)


def _pieces(
    model: SentencePieceModel, vocabulary: Mapping[str, int], *, unk: str, added: Sequence[NumberedToken]
) -> Pipeline:
    """The pipeline of a SentencePiece model whose pieces have the ids of `vocabulary`."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers

    names = _by_id(vocabulary, added)
    pipeline = Tokenizer(_bpe(model, names, unk) if model.model_type == BPE else _unigram(model, names, unk))
    mapped = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    pipeline.normalizer = normalizers.Sequence(
        [*mapped, normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(left=True, right=True)]
    )
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    pipeline.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    for numbered in sorted(added, key=lambda n: n.id):
        token = numbered.token
        made = AddedToken(
            token.content, special=token.special, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False
        )
        pipeline.add_special_tokens([made]) if token.special else pipeline.add_tokens([made])
        if pipeline.token_to_id(token.content) != numbered.id:
            raise TokenizerError(
                f"tokenizer.json cannot be written: {token.content!r} has the id {numbered.id}, and would get "
                f"{pipeline.token_to_id(token.content)}"
            )
    return pipeline


def _by_id(vocabulary: Mapping[str, int], added: Sequence[NumberedToken]) -> list[str]:
    """The tokens in id order; an id that no token has (M2M100 has eight) gets a name that no text can hold."""
    by_id = {index: token for token, index in vocabulary.items()} | {n.id: n.token.content for n in added}
    return [by_id.get(index, f"\0{index}") for index in range(max(by_id) + 1)]


def _unigram(model: SentencePieceModel, names: Sequence[str], unk: str) -> Any:
    from tokenizers.models import Unigram

    scores = {piece.text: piece.score for piece in model.pieces}
    return Unigram([(name, scores.get(name, _OTHER_SIDE)) for name in names], unk_id=names.index(unk))


def _bpe(model: SentencePieceModel, names: Sequence[str], unk: str) -> Any:
    """SentencePiece keeps no merges: every way to put a piece together from two others, best-ranked piece first."""
    from tokenizers import models

    numbered = {name: index for index, name in enumerate(names)}
    merges = [
        (piece.text[:cut], piece.text[cut:])
        for piece in model.pieces
        if piece.text in numbered
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in numbered and piece.text[cut:] in numbered
    ]
    return models.BPE(vocab=numbered, merges=merges, unk_token=unk, fuse_unk=True, byte_fallback=False)


def _surround(pipeline: Pipeline, before: Sequence[str], behind: Sequence[str]) -> None:
    """Let the pipeline put special tokens around a text."""
    from tokenizers import processors

    tokens = dict.fromkeys([*before, *behind])
    if not tokens:
        return
    pipeline.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *behind],
        pair=[*before, "$A", "$B", *behind],
        special_tokens=[(token, pipeline.token_to_id(token)) for token in tokens],
    )
