"""Seeded tiny checkpoints in Hugging Face format, made by transformers itself, for the tests.

Real SentencePiece models are trained on the sentences below, so that ids, padding and text behave as in a real model.
"""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ENGLISH = """The library opens at nine. He bought three books yesterday and paid 45 dollars!
Please close the door. Thank you? This machine makes one hundred and twenty parts an hour; nobody checks them.
A black cat is sleeping on the red sofa. Dr. Okafor arrived in Beijing on 3 March 2025 at 09:12.
Where is the nearest station, and how much does a ticket cost? I will bring the umbrella because it may rain.
The quick brown fox jumps over the lazy dog. Machine translation is useful, but it makes mistakes."""
CHINESE = """图书馆九点开门。他昨天买了三本书，花了四十五元！请把门关上，谢谢？
这台机器每小时可以生产一百二十个零件；没有人检查它们。一只黑猫在红色的沙发上睡觉。
奥卡福博士于二〇二五年三月三日到达北京。最近的车站在哪里，票价多少？我会带雨伞，因为可能下雨。
敏捷的棕色狐狸跳过懒狗。机器翻译很有用，但是会出错。"""
SENTENCES = [
    "Yes.",
    "The library opens at nine.",
    "A black cat is sleeping on the red sofa, and nobody checks the machine that makes 120 parts an hour.",
    "Where is the nearest station?",
    "He paid 45 dollars for three books yesterday because the umbrella may rain on Dr. Okafor in Beijing at 09:12.",
]


@functools.cache
def _sentencepiece_models() -> Path:
    """Train the source and target SentencePiece models once a test process."""
    import sentencepiece

    folder = Path(tempfile.mkdtemp(prefix="onnxmt-test-spm-"))
    for side, text, size in (("source", ENGLISH, 160), ("target", CHINESE, 150)):
        (folder / f"{side}.txt").write_text("\n".join(text.splitlines() * 4), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / f"{side}.txt"), model_prefix=str(folder / side), vocab_size=size, hard_vocab_limit=False,
            character_coverage=1.0, bos_id=-1, eos_id=0, unk_id=1, minloglevel=2,
        )  # fmt: skip
    return folder


def write_marian_tokenizer(
    folder: Path, *, separate_vocabs: bool = False, model_max_length: int = 512
) -> tuple[int, int]:
    """Write source.spm, target.spm, vocab.json (and target_vocab.json); return the source and target vocabulary sizes."""
    import sentencepiece

    models = _sentencepiece_models()
    pieces = {}
    for side in ("source", "target"):
        shutil.copy(models / f"{side}.model", folder / f"{side}.spm")
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        pieces[side] = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]

    def vocabulary(*sides: str) -> dict[str, int]:
        vocab = {"</s>": 0, "<unk>": 1}
        for side in sides:
            for piece in pieces[side]:
                vocab.setdefault(piece, len(vocab))
        vocab[">>zho<<"] = len(vocab)
        vocab["<pad>"] = len(vocab)
        return vocab

    vocabs = [vocabulary("source"), vocabulary("target")] if separate_vocabs else [vocabulary("source", "target")] * 2
    if separate_vocabs:  # transformers needs one pad id for both sides: make the two vocabularies equally long
        size = max(len(v) for v in vocabs)
        for vocab in vocabs:
            del vocab["<pad>"]
            while len(vocab) < size:
                vocab[f"▁unused{len(vocab)}"] = len(vocab)
            vocab["<pad>"] = size
    for name, vocab in zip(
        ("vocab.json", "target_vocab.json"), vocabs if separate_vocabs else vocabs[:1], strict=False
    ):
        (folder / name).write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "MarianTokenizer",
                "source_lang": "eng",
                "target_lang": "zho",
                "model_max_length": model_max_length,
                "separate_vocabs": separate_vocabs,
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "pad_token": "<pad>",
            }
        )
    )
    return len(vocabs[0]), len(vocabs[1])


def build_marian(
    folder: Path,
    *,
    seed: int = 0,
    separate_vocabs: bool = False,
    config: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    logits_bias: float = 0.0,
    init_std: float = 0.4,
    dtype: str = "float32",
    weights: str = "safetensors",
) -> Path:
    """Write a seeded Marian checkpoint (d=32, 2+2 layers) to `folder` and return it.

    `config` and `generation` override MarianConfig and GenerationConfig fields; `logits_bias` is the half-width of a
    random final_logits_bias; `weights`: safetensors | sharded | zip | legacy | none. The large `init_std` makes outputs
    differ from sentence to sentence, which near-zero weights would not.
    """
    import torch
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True, exist_ok=True)
    source_size, target_size = write_marian_tokenizer(folder, separate_vocabs=separate_vocabs)
    pad = source_size - 1
    fields: dict[str, Any] = {
        "vocab_size": source_size, "decoder_vocab_size": target_size, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "max_position_embeddings": 128, "activation_function": "swish", "scale_embedding": True, "pad_token_id": pad,
        "eos_token_id": 0, "bos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0, "init_std": init_std,
        "share_encoder_decoder_embeddings": not separate_vocabs, "tie_word_embeddings": True,
    }  # fmt: skip
    fields.update(config or {})
    torch.manual_seed(seed)
    model = MarianMTModel(MarianConfig(**fields)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # biases and norms are 0 and 1 in a fresh model
            if name.endswith("bias") or "layer_norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        if logits_bias:
            model.final_logits_bias.uniform_(-logits_bias, logits_bias)
    settings = {"bad_words_ids": [[pad]], "max_length": 40, "num_beams": 1, **(generation or {})}
    for key, value in settings.items():
        setattr(model.generation_config, key, value)
    model = model.to(getattr(torch, dtype))
    if weights == "safetensors":
        model.save_pretrained(folder)
    elif weights == "sharded":
        model.save_pretrained(folder, max_shard_size="40KB")
    else:
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
        if weights != "none":
            torch.save(
                model.state_dict(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=weights == "zip"
            )
    return folder


def _write_seq2seq(
    folder: Path,
    model_type: str,
    fields: Mapping[str, Any],
    *,
    seed: int,
    generation: Mapping[str, Any],
    dtype: str,
    logits_bias: float = 0.0,
) -> Path:
    """Write config, generation settings and seeded weights of a `model_type`, without a tokenizer; biases and norms are not 0 and 1."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(model_type, **fields)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        if logits_bias:
            model.final_logits_bias.uniform_(-logits_bias, logits_bias)
    for key, value in generation.items():
        setattr(model.generation_config, key, value)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    return folder


BART_VOCAB = (
    120  # <s> 0, <pad> 1, </s> 2, <unk> 3, pieces, and the languages of mbart, m2m_100 and nllb in the last rows
)
LANGUAGES = (BART_VOCAB - 3, BART_VOCAB - 2, BART_VOCAB - 1)


def _bart_fields(config: Mapping[str, Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "vocab_size": BART_VOCAB, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 128,
        "init_std": 0.3, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
    }  # fmt: skip
    return {**fields, **(config or {})}


def build_bart(
    folder: Path, *, seed: int = 0, config: Mapping[str, Any] | None = None, generation: Mapping[str, Any] | None = None,
    dtype: str = "float32", logits_bias: float = 1.0,
) -> Path:  # fmt: skip
    """Write a seeded tiny BART (post-norm, learned positions) without a tokenizer."""
    settings = {"max_length": 30, "forced_eos_token_id": 2, **(generation or {})}
    return _write_seq2seq(
        folder, "bart", _bart_fields(config), seed=seed, generation=settings, dtype=dtype, logits_bias=logits_bias
    )


def build_mbart(
    folder: Path, *, seed: int = 0, config: Mapping[str, Any] | None = None, generation: Mapping[str, Any] | None = None,
    dtype: str = "float32", logits_bias: float = 1.0,
) -> Path:  # fmt: skip
    """Write a seeded tiny mBART (pre-norm, learned positions, scaled embeddings) without a tokenizer."""
    fields = _bart_fields({"scale_embedding": True, **(config or {})})
    settings = {"max_length": 30, "forced_eos_token_id": 2, **(generation or {})}
    return _write_seq2seq(folder, "mbart", fields, seed=seed, generation=settings, dtype=dtype, logits_bias=logits_bias)


def build_m2m(
    folder: Path,
    *,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    dtype: str = "float32",
) -> Path:
    """Write a seeded tiny M2M100 or NLLB (pre-norm, computed positions) without a tokenizer."""
    settings = {"max_length": 30, **(generation or {})}
    return _write_seq2seq(folder, "m2m_100", _bart_fields(config), seed=seed, generation=settings, dtype=dtype)


def _build_t5_like(
    folder: Path,
    model_type: str,
    seed: int,
    config: Mapping[str, Any] | None,
    generation: Mapping[str, Any] | None,
    dtype: str,
) -> Path:
    fields: dict[str, Any] = {
        "vocab_size": 120, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
        "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "initializer_factor": 1.5,
    }  # fmt: skip
    fields.update(config or {})
    settings = {"max_length": 30, **(generation or {})}
    return _write_seq2seq(folder, model_type, fields, seed=seed, generation=settings, dtype=dtype)


def build_t5(
    folder: Path,
    *,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    dtype: str = "float32",
) -> Path:
    """Write a seeded tiny T5 (plain relu, scaled tied head) without a tokenizer."""
    return _build_t5_like(folder, "t5", seed, config, generation, dtype)


def build_mt5(
    folder: Path,
    *,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    dtype: str = "float32",
) -> Path:
    """Write a seeded tiny mT5 (gated gelu, unscaled head) without a tokenizer."""
    return _build_t5_like(folder, "mt5", seed, config, generation, dtype)


def build_umt5(
    folder: Path,
    *,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    dtype: str = "float32",
) -> Path:
    """Write a seeded tiny umT5 (gated gelu, a relative bias in every layer) without a tokenizer."""
    return _build_t5_like(folder, "umt5", seed, config, generation, dtype)
