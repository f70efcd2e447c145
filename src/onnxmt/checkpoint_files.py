"""The names of a checkpoint's files: which are known, which a kind of model needs, and which a folder lacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxmt.errors import MissingFileError
from onnxmt.json_file import read_json_object
from onnxmt.weights import weight_files

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
CARDS = ("README.md", "MODEL_CARD.md")
# All that the tokenizers of the supported families read (marian; m2m_100, nllb and mbart; t5, mt5 and umt5; bart).
TOKENIZER_FILES = (
    "source.spm", "target.spm", "vocab.json", "target_vocab.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.json", "sentencepiece.bpe.model", "spiece.model", "merges.txt",
    "tokenization_small100.py",  # its presence tells small100 from M2M100; it is never run
)  # fmt: skip
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SMALL_FILES = (CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES, *CARDS, *INDEXES)
# The tokenizer files without which a model of this model_type cannot be used.
REQUIRED_TOKENIZER_FILES: dict[str, tuple[str, ...]] = {"marian": ("source.spm", "target.spm", "vocab.json")}


def tokenizer_files(folder: Path) -> tuple[Path, ...]:
    """The tokenizer files that `folder` has, in the order of TOKENIZER_FILES."""
    return tuple(folder / name for name in TOKENIZER_FILES if (folder / name).is_file())


def required_tokenizer_files(folder: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the tokenizer files that the model described by `config` needs, present or not."""
    required = REQUIRED_TOKENIZER_FILES.get(str(config.get("model_type")), ())
    settings = folder / "tokenizer_config.json"
    # MarianTokenizer reads a second vocabulary exactly when its own settings say so.
    if required and settings.is_file() and read_json_object(settings).get("separate_vocabs"):
        return (*required, "target_vocab.json")
    return required


def missing_files(folder: Path, config: Mapping[str, Any], *, weights: bool = True) -> tuple[str, ...]:
    """What `folder` lacks of the files that the model described by `config` needs; names of files, weights in words."""
    missing = [name for name in required_tokenizer_files(folder, config) if not (folder / name).is_file()]
    if weights:
        try:
            weight_files(folder)
        except MissingFileError as error:
            missing.append(str(error))
    return tuple(missing)
