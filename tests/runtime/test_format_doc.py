"""docs/bundle-format.md, followed to the letter by a program that knows nothing of onnxmt."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import sentencepiece

from onnxmt import manifest as room
from tests.runtime.conftest import FORMAT1

BUNDLE = FORMAT1 / "bundle"
DOC = (Path(__file__).parent.parent.parent / "docs" / "bundle-format.md").read_text(encoding="utf-8")


def translate(text: str) -> str:
    manifest = json.loads((BUNDLE / "manifest.json").read_text(encoding="utf-8"))
    settings = json.loads((BUNDLE / "generation_config.json").read_text(encoding="utf-8"))
    encoder, decoder = (
        onnxruntime.InferenceSession(BUNDLE / manifest["graphs"][name]["file"], providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    )
    vocabulary = json.loads((BUNDLE / "vocab.json").read_text(encoding="utf-8"))
    pieces = {number: piece for piece, number in vocabulary.items()}
    source = sentencepiece.SentencePieceProcessor(model_file=str(BUNDLE / "source.spm"))
    target = sentencepiece.SentencePieceProcessor(model_file=str(BUNDLE / "target.spm"))
    ids = [vocabulary.get(piece, vocabulary["<unk>"]) for piece in source.encode(text, out_type=str)]
    ids.append(vocabulary["</s>"])
    feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
    names = [output.name for output in encoder.get_outputs()]
    cross = dict(zip(names, encoder.run(names, feeds), strict=True))

    sizes = manifest["dimensions"]
    empty = np.zeros((1, sizes["decoder_heads"], 0, sizes["head_dim"]), np.float32)
    past = {f"past.{i}.{part}": empty for i in range(sizes["decoder_layers"]) for part in ("key", "value")}
    token, output = settings["decoder_start_token_id"], []
    names = [o.name for o in decoder.get_outputs()]
    while len(output) + 1 < settings["max_length"]:
        step = {"input_ids": np.array([[token]]), "attention_mask": feeds["attention_mask"], **cross, **past}
        out = dict(zip(names, decoder.run(names, step), strict=True))
        logits = out["logits"][0]
        for word in settings["bad_words_ids"]:
            if len(word) == 1:
                logits[word[0]] = -np.inf
        forced = settings.get("forced_eos_token_id")
        last = len(output) + 2 == settings["max_length"]
        token = forced if last and forced is not None else int(logits.argmax())
        if token == settings["eos_token_id"]:
            break
        output.append(token)
        past = {name: out[name.replace("past.", "present.")] for name in past}
    return target.decode_pieces([pieces[token] for token in output])


def test_the_page_is_enough_to_run_a_bundle(expected: list[dict[str, Any]]) -> None:
    assert [translate(row["source"]) for row in expected] == [row["greedy"]["text"] for row in expected]


RECORDS = [value for value in vars(room).values() if isinstance(value, type) and dataclasses.is_dataclass(value)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_page_names_every_key_of_the_manifest(record: Any) -> None:
    prose = re.sub(r"```.*?```", "", DOC, flags=re.DOTALL)
    named = {word for code in re.findall(r"`([^`]+)`", prose) for word in re.findall(r"[A-Za-z0-9_]+", code)}

    assert {field.name for field in dataclasses.fields(record)} - named == set()


@pytest.mark.parametrize("graph", ["encoder", "decoder"])
def test_the_page_names_every_tensor(graph: str) -> None:
    tensors = json.loads((BUNDLE / "manifest.json").read_text(encoding="utf-8"))["graphs"][graph]
    for tensor in tensors["inputs"] + tensors["outputs"]:
        assert f"`{re.sub(r'[.]0[.]', '.{i}.', tensor['name'])}`" in DOC
