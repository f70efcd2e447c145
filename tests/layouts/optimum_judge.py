"""Optimum's ORTModelForSeq2SeqLM, in a Python of its own: it wants transformers 4, and our judge is transformers 5.

Reads one JSON object from standard input ({"folder", "merged", "rows": [ids], "padded": [ids]}) and prints another: for
one beam and four the tokens of each row alone, and of the padded rows in one batch, without the start token.
"""

from __future__ import annotations

import json
import sys

import onnxruntime
import torch
from optimum.onnxruntime import ORTModelForSeq2SeqLM


def main() -> None:
    asked = json.load(sys.stdin)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    torch.set_num_threads(1)
    model = ORTModelForSeq2SeqLM.from_pretrained(asked["folder"], use_merged=asked["merged"], session_options=options)
    assert model.decoder.is_merged is asked["merged"]
    pad = model.generation_config.pad_token_id
    width = max(map(len, asked["padded"]))
    batch = torch.tensor([row + [pad] * (width - len(row)) for row in asked["padded"]])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in asked["padded"]])
    found = {}
    for beams in (1, 4):
        alone = []
        for row in asked["rows"]:
            ids = torch.tensor([row])
            alone.append(
                model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), num_beams=beams)[0].tolist()[1:]
            )
        together = model.generate(input_ids=batch, attention_mask=mask, num_beams=beams).tolist()
        found[str(beams)] = {"alone": alone, "together": [row[1:] for row in together]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
