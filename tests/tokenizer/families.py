"""Checkpoint folders of every tokenizer family but Marian, with SentencePiece models trained on tests/tiny.py's text."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from onnxmt.runtime.tokenizer import Tokenizer, TokenizerSpec, load_tokenizer, tokenizer_spec
from tests.tiny import CHINESE, ENGLISH

TEXT = ENGLISH.splitlines() * 3 + CHINESE.splitlines() * 3


def sentencepiece_model(**options: Any) -> Path:
    """A SentencePiece model of about 300 pieces over both languages; fairseq's numbering unless told otherwise."""
    return _trained(json.dumps(options, sort_keys=True))


@functools.cache
def _trained(options_json: str) -> Path:
    import sentencepiece

    options = json.loads(options_json)
    folder = Path(tempfile.mkdtemp(prefix="onnxmt-test-spm-"))
    (folder / "text.txt").write_text("\n".join(TEXT), encoding="utf-8")
    settings = {
        "vocab_size": 320, "hard_vocab_limit": False, "character_coverage": 1.0, "unk_id": 0, "bos_id": 1, "eos_id": 2,
        "minloglevel": 2, **options,
    }  # fmt: skip
    if settings.get("model_type") == "bpe":
        settings |= {"vocab_size": 420, "hard_vocab_limit": True}
    sentencepiece.SentencePieceTrainer.train(input=str(folder / "text.txt"), model_prefix=str(folder / "m"), **settings)
    return folder / "m.model"


FAIRSEQ_UNIGRAM: dict[str, Any] = {}
FAIRSEQ_BPE: dict[str, Any] = {"model_type": "bpe"}
T5_UNIGRAM: dict[str, Any] = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


def write(folder: Path, *, model_type: str, tokenizer_config: dict[str, Any], **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **config}))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder


def write_m2m100(
    folder: Path, *, tokenizer_class: str = "M2M100Tokenizer", listed: bool = True, **changes: Any
) -> Path:
    """As facebook/m2m100_418M: the languages are listed in special_tokens_map.json."""
    from onnxmt.runtime.tokenizers.language_codes import M2M100

    write(
        folder,
        model_type="m2m_100",
        tokenizer_config={"tokenizer_class": tokenizer_class, "model_max_length": 1024, **changes},
    )
    model = sentencepiece_model(**FAIRSEQ_BPE)
    shutil.copy(model, folder / "sentencepiece.bpe.model")
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    for index in range(3, processor.get_piece_size()):
        vocabulary.setdefault(processor.id_to_piece(index), len(vocabulary))
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    if listed:
        languages = [f"__{code}__" for code in M2M100]
        tokens = {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "sep_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
        }
        (folder / "special_tokens_map.json").write_text(json.dumps({**tokens, "additional_special_tokens": languages}))
    return folder


def write_from_model(
    folder: Path, *, model_type: str, tokenizer_class: str, file: str, options: dict[str, Any], **changes: Any
) -> Path:
    """A checkpoint with a SentencePiece model alone."""
    write(folder, model_type=model_type, tokenizer_config={"tokenizer_class": tokenizer_class, **changes})
    shutil.copy(sentencepiece_model(**options), folder / file)
    return folder


def write_nllb(folder: Path, **changes: Any) -> Path:
    return write_from_model(
        folder, model_type="m2m_100", tokenizer_class="NllbTokenizer", file="sentencepiece.bpe.model",
        options=FAIRSEQ_BPE, **changes,
    )  # fmt: skip


def write_mbart(folder: Path, **changes: Any) -> Path:
    return write_from_model(
        folder, model_type="mbart", tokenizer_class="MBartTokenizer", file="sentencepiece.bpe.model",
        options=FAIRSEQ_UNIGRAM, **changes,
    )  # fmt: skip


def write_mbart50(folder: Path, **changes: Any) -> Path:
    return write_from_model(
        folder, model_type="mbart", tokenizer_class="MBart50Tokenizer", file="sentencepiece.bpe.model",
        options=FAIRSEQ_UNIGRAM, **changes,
    )  # fmt: skip


def write_t5(folder: Path, *, model_type: str = "t5", options: dict[str, Any] | None = None, **changes: Any) -> Path:
    return write_from_model(
        folder, model_type=model_type, tokenizer_class="T5Tokenizer", file="spiece.model",
        options={**T5_UNIGRAM, **(options or {})}, **changes,
    )  # fmt: skip


def write_bart(folder: Path, **changes: Any) -> Path:
    """A byte-level BPE of 400 tokens, as vocab.json + merges.txt."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers, trainers

    write(folder, model_type="bart", tokenizer_config={"tokenizer_class": "BartTokenizer", **changes})
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(TEXT, trainer)
    library.model.save(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    vocabulary["<mask>"] = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    return folder


def judge(folder: Path, **options: Any):
    """The tokenizer that transformers gives for the folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, **options)


def load(folder: Path, **options: Any) -> Tokenizer:
    """Our tokenizer for the folder, through the JSON form of its spec."""
    config = json.loads((folder / "config.json").read_text())
    spec = tokenizer_spec(folder, config, **options)
    return load_tokenizer(folder, TokenizerSpec.from_dict(json.loads(json.dumps(spec.to_dict()))))


def save_as_transformers_does(folder: Path, target: Path) -> Path:
    """The same tokenizer, read and saved by transformers: for most families that makes a tokenizer.json."""
    judge(folder).save_pretrained(target)
    shutil.copy(folder / "config.json", target)
    return target
