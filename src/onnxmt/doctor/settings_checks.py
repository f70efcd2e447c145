"""Mistakes in what stands beside the graphs: settings, tokenizer, languages, vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnxmt.doctor.findings import Finding
from onnxmt.doctor.folder import ModelFolder

# What each family begins with, and why: transformers' shift_tokens_right of each model.
_STARTS = {
    "marian": ("pad_token_id", "Marian begins with <pad>"),
    "t5": ("pad_token_id", "T5 begins with <pad>"),
    "mt5": ("pad_token_id", "mT5 begins with <pad>"),
    "umt5": ("pad_token_id", "umT5 begins with <pad>"),
    "m2m_100": ("eos_token_id", "M2M100 and NLLB begin with </s>"),
    "mbart": ("eos_token_id", "mBART-50 begins with </s>"),
}
_TOKENIZERS: dict[str, tuple[tuple[str, ...], ...]] = {  # any one of the groups will do
    "marian": (("source.spm", "target.spm", "vocab.json"), ("tokenizer.json",)),
    "t5": (("spiece.model",), ("tokenizer.json",)),
    "mt5": (("spiece.model",), ("tokenizer.json",)),
    "umt5": (("spiece.model",), ("tokenizer.json",)),
    "m2m_100": (("sentencepiece.bpe.model", "vocab.json"), ("sentencepiece.bpe.model",), ("tokenizer.json",)),
    "mbart": (("sentencepiece.bpe.model",), ("tokenizer.json",)),
    "bart": (("vocab.json", "merges.txt"), ("tokenizer.json",)),
}
_MULTILINGUAL = ("m2m_100", "mbart")


def settings_findings(read: ModelFolder) -> Iterator[Finding]:
    """Every mistake of this kind."""
    if not read.config:
        if not any(finding.where == "config.json" for finding in read.findings):
            yield Finding(
                kind="settings",
                where="config.json",
                found="there is no config.json: neither the family nor the start token is known",
                mend="copy config.json and generation_config.json from the checkpoint",
            )
        return
    yield from _start(read)
    yield from _padding(read)
    yield from _tokenizer(read)
    yield from _language(read)
    yield from _vocabulary(read)


def _start(read: ModelFolder) -> Iterator[Finding]:
    says = {
        name: values["decoder_start_token_id"]
        for name, values in (("generation_config.json", read.generation), ("config.json", read.config))
        if values.get("decoder_start_token_id") is not None
    }
    where = " and ".join(says) or "generation_config.json"
    usual, why = _STARTS.get(read.family, ("", ""))
    wanted = _first(read.setting(usual)) if usual else None
    mend = f"set decoder_start_token_id to {wanted} in generation_config.json ({why})"
    if not says:
        found = "decoder_start_token_id is missing, and programs then begin with BOS or 0"
        mend = mend if wanted is not None else "set decoder_start_token_id in generation_config.json"
    elif len(set(says.values())) > 1:
        found = f"decoder_start_token_id differs: {', '.join(f'{value} in {name}' for name, value in says.items())}"
    elif wanted is not None and read.family != "mbart" and set(says.values()) != {wanted}:
        found = f"decoder_start_token_id is {next(iter(says.values()))}: outputs are fluent nonsense"
    else:
        return
    yield Finding(kind="start_token", where=where, found=found, mend=mend)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _padding(read: ModelFolder) -> Iterator[Finding]:
    """Marian only: its padding is its start token, and was never trained to be anything else (case G2)."""
    pad = read.setting("pad_token_id")
    banned = read.setting("bad_words_ids") or []
    suppressed = read.setting("suppress_tokens") or []
    if read.family != "marian" or pad is None or [pad] in banned or pad in suppressed:
        return
    yield Finding(
        kind="unbanned_pad",
        where="generation_config.json",
        found=f"<pad> ({pad}) is there only to start the decoder, and nothing bans it from the output",
        mend=f"add [{pad}] to bad_words_ids in generation_config.json",
    )


def _tokenizer(read: ModelFolder) -> Iterator[Finding]:
    groups = _TOKENIZERS.get(read.family)
    if groups is None:
        return
    here = {path.name for path in read.folder.iterdir()}
    lacking = [[name for name in group if name not in here] for group in groups]
    if not all(lacking):
        return
    fewest = min(lacking, key=len)
    yield Finding(
        kind="tokenizer",
        where=read.folder.name,
        found=f"the tokenizer is incomplete: {' and '.join(fewest)} {'are' if len(fewest) > 1 else 'is'} missing",
        mend=f"copy {' and '.join(fewest)} from the checkpoint",
    )


def _language(read: ModelFolder) -> Iterator[Finding]:
    if read.family not in _MULTILINGUAL or read.is_bundle:
        return
    if read.setting("forced_bos_token_id") is None and not read.tokenizer_settings().get("tgt_lang"):
        yield Finding(
            kind="language",
            where="generation_config.json",
            found="nothing says which of its languages it writes: neither forced_bos_token_id nor tgt_lang is set",
            mend="set forced_bos_token_id to the target language's token, or have each caller give the language",
        )


def _vocabulary(read: ModelFolder) -> Iterator[Finding]:
    sizes = dict(_scored(read))
    if not sizes:
        return
    scored = min(sizes.values())
    where, problems = next(name for name, size in sizes.items() if size == scored), []
    wanted = read.config.get("decoder_vocab_size") or read.config.get("vocab_size")
    if isinstance(wanted, int) and wanted != scored:
        problems.append(f"config.json says {wanted}")
    largest = read.largest_token()
    if largest is not None and (largest >= scored or (read.family == "marian" and largest + 1 != scored)):
        problems.append(f"the tokenizer's ids end at {largest}")
    special = {name: _first(read.setting(name)) for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id")}
    problems += [f"{name} is {value}" for name, value in special.items() if isinstance(value, int) and value >= scored]
    if problems:
        yield Finding(
            kind="vocabulary",
            where=where,
            found=f"the graph scores {scored} tokens, but {', '.join(problems)}",
            mend="take graphs, config and tokenizer from one checkpoint: they do not belong together",
        )


def _scored(read: ModelFolder) -> Iterator[tuple[str, int]]:
    """How many tokens each decoder scores, by file."""
    for model in read.models:
        for graph in model.graphs:
            if graph.vocabulary is not None:
                yield graph.path.name, graph.vocabulary


def source_sentences(language: str) -> tuple[str, ...]:
    """Plain sentences of a language, to translate as a trial; empty for one of which there are none here."""
    return _SENTENCES.get(language.split("-")[0].split("_")[0].lower()[:2], ())


_SENTENCES = {
    "en": (
        "Good morning.",
        "Where is the nearest station?",
        "The library opens at nine.",
        "He bought a new car last week.",
    ),
    "zh": ("早上好。", "最近的车站在哪里？", "图书馆九点开门。", "他上周买了一辆新车。"),
    "de": ("Guten Morgen.", "Wo ist der nächste Bahnhof?", "Die Bibliothek öffnet um neun."),
    "fr": ("Bonjour.", "Où est la gare la plus proche ?", "La bibliothèque ouvre à neuf heures."),
    "es": ("Buenos días.", "¿Dónde está la estación más cercana?", "La biblioteca abre a las nueve."),
}
