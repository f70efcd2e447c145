"""One seeded tiny checkpoint of every family, with a tokenizer trained on both languages, and what transformers says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxmt.runtime.tokenizer import load_tokenizer, tokenizer_spec
from tests import tiny
from tests.tokenizer import families

SENTENCES = """short	Yes.
short	The library opens at nine.
numbers	He paid 45 dollars for 3 books.
names	Dr. Okafor arrived in Beijing on 3 March 2025 at 09:12.
technical	Machine translation is useful, but it makes mistakes.
long	The quick brown fox jumps over the lazy dog, and nobody checks the machine that makes 120 parts an hour.
"""
TASKS = {
    f"translation_en_to_{code}": {"prefix": f"translate English to {name}: "}
    for code, name in (("de", "German"), ("fr", "French"), ("ro", "Romanian"))
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """How a checkpoint is made, and how it is asked: `targets` are two languages, () where the model has no choice.

    `told`: what a person writes in front of a text for transformers, by target.
    """

    tokenizer: Callable[..., Path]
    model: Callable[..., Path]
    seed: int  # one whose outputs are not empty and differ from target to target
    targets: tuple[str, ...] = ()
    source: str | None = None
    prefix: str | None = None
    told: dict[str, str] = field(default_factory=dict)
    tokenizer_options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)


def small100(folder: Path) -> Path:
    """As it is published: M2M100's tokenizer class by name, and the authors' code beside it."""
    families.write_m2m100(folder)
    (folder / "tokenization_small100.py").write_text("raise SystemExit('this is never run')\n")
    return folder


def madlad(folder: Path) -> Path:
    """A T5 whose targets are tokens in front of the text."""
    options = {"user_defined_symbols": "<2de>,<2fr>,<2zh>"}
    return families.write_t5(folder, options=options)


FAMILIES: dict[str, Family] = {
    "m2m_100": Family(
        tokenizer=families.write_m2m100, model=tiny.build_m2m, seed=0, targets=("zh", "fr"), source="en",
    ),
    "nllb": Family(
        tokenizer=lambda folder: nllb(folder), model=tiny.build_m2m, seed=5, targets=("zho_Hans", "fra_Latn"), source="eng_Latn",
    ),
    "small100": Family(tokenizer=small100, model=tiny.build_m2m, seed=7, targets=("zh", "fr")),
    "mbart50": Family(
        tokenizer=families.write_mbart50, model=tiny.build_mbart, seed=7, targets=("zh_CN", "de_DE"), source="en_XX",
    ),
    "mbart": Family(
        tokenizer=families.write_mbart, model=tiny.build_mbart, seed=7, targets=("zh_CN", "ro_RO"), source="en_XX",
    ),
    "bart": Family(tokenizer=families.write_bart, model=tiny.build_bart, seed=0),
    "t5": Family(
        tokenizer=families.write_t5, model=tiny.build_t5, seed=7, targets=("de", "fr"),
        told={"de": "translate English to German: ", "fr": "translate English to French: "},
        config={"task_specific_params": TASKS}, tokenizer_options={"model_max_length": 512},
    ),
    "madlad": Family(
        tokenizer=madlad, model=tiny.build_t5, seed=7, targets=("zh", "de"), told={"zh": "<2zh> ", "de": "<2de> "},
        config={"tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"},
    ),
    "mt5": Family(
        tokenizer=lambda folder: families.write_t5(folder, model_type="mt5"), model=tiny.build_mt5, seed=0,
        prefix="translate English to Chinese: ", told={"": "translate English to Chinese: "},
    ),
    "umt5": Family(tokenizer=lambda folder: umt5(folder), model=tiny.build_umt5, seed=2),
}  # fmt: skip


def nllb(folder: Path) -> Path:
    """With a tokenizer.json, as it is published: transformers finds no languages in the SentencePiece model alone."""
    plain = families.write_nllb(folder.parent / f"{folder.name}-plain")
    families.write(folder, model_type="m2m_100", tokenizer_config={"tokenizer_class": "NllbTokenizer"})
    pipeline = families.load(plain)._engine._tokenizer  # type: ignore[attr-defined]
    (folder / "tokenizer.json").write_text(pipeline.to_str(), encoding="utf-8")
    return folder


def umt5(folder: Path) -> Path:
    """With the tokenizer.json that transformers saves."""
    plain = families.write_t5(folder.parent / f"{folder.name}-plain")
    families.save_as_transformers_does(plain, folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "umt5"}))
    return folder


def build(name: str, folder: Path, *, seed: int | None = None, **changes: Any) -> Path:
    """Write the checkpoint of a family; `changes` are further config fields."""
    family = FAMILIES[name]
    family.tokenizer(folder, **family.tokenizer_options)
    given = json.loads((folder / "config.json").read_text())
    tokenizer = load_tokenizer(folder, tokenizer_spec(folder, {**given, **family.config}))
    size = tokenizer.vocabulary_limits.source + 1
    generation = dict(family.generation)
    config = {"vocab_size": size, **family.config, **changes}
    if name == "mbart":  # a fine-tune starts from the token of its language
        start = tokenizer.forced_bos_token_id("ro_RO")
        config["decoder_start_token_id"] = generation["decoder_start_token_id"] = start
    if name in ("m2m_100", "nllb", "small100", "mbart50"):
        generation["decoder_start_token_id"] = 2
    return family.model(folder, seed=family.seed if seed is None else seed, config=config, generation=generation)


def sentences_file(folder: Path) -> Path:
    path = folder / "sentences.tsv"
    path.write_text(SENTENCES, encoding="utf-8")
    return path


class Judge:
    """transformers' own way from a text to a translation, by its documentation of each family."""

    def __init__(self, name: str, folder: Path) -> None:
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, M2M100Tokenizer

        self._name, self._family, self._folder = name, FAMILIES[name], folder
        self._model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._class = M2M100Tokenizer if name == "small100" else AutoTokenizer

    def translate(self, text: str, *, target: str | None, beams: int, new_tokens: int = 24) -> str:
        import torch

        family = self._family
        source = target if self._name == "small100" else family.source
        tokenizer = self._class.from_pretrained(self._folder, **({"src_lang": source} if source else {}))
        first: dict[str, int] = {}
        if family.source is not None and target is not None:
            token = (
                tokenizer.get_lang_id(target) if self._name == "m2m_100" else tokenizer.convert_tokens_to_ids(target)
            )
            first = {"decoder_start_token_id" if self._name == "mbart" else "forced_bos_token_id": token}
        encoded = tokenizer(family.told.get(target or "", "") + text, return_tensors="pt")
        with torch.no_grad():
            rows = self._model.generate(
                input_ids=encoded.input_ids, attention_mask=encoded.attention_mask, num_beams=beams, do_sample=False,
                max_new_tokens=new_tokens, max_length=None, **first,
            )  # fmt: skip
        return tokenizer.decode(rows[0], skip_special_tokens=True)
