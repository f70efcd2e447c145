"""Greedy search over the four files with onnxruntime and nothing of ours: how a person would write it from the names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort


class PlainLoop:
    """One loop for both ways: the merged decoder, or one file for the first step and one for the later ones."""

    def __init__(self, folder: Path, *, merged: bool, suffix: str = "") -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4

        def session(name: str) -> Any:
            return ort.InferenceSession(folder / "onnx" / f"{name}{suffix}.onnx", options, ["CPUExecutionProvider"])

        self.merged = merged
        self.encoder = session("encoder_model")
        self.first = session("decoder_model_merged" if merged else "decoder_model")
        self.later = self.first if merged else session("decoder_with_past_model")
        self.settings = json.loads((folder / "generation_config.json").read_text())

    def decode(
        self, ids: np.ndarray, mask: np.ndarray, *, steps: int | None = None
    ) -> tuple[list[list[int]], np.ndarray]:
        """Tokens of each row up to its end token (int64 [B, S] each), and the logits of the first step."""
        settings, rows = self.settings, len(ids)
        eos, banned = settings["eos_token_id"], [word[0] for word in settings.get("bad_words_ids", [])]
        (states,) = self.encoder.run(["last_hidden_state"], {"input_ids": ids, "attention_mask": mask})
        tokens = np.full((rows, 1), settings["decoder_start_token_id"], np.int64)
        found: list[list[int]] = [[] for _ in range(rows)]
        past: dict[str, np.ndarray] = {}
        first_logits = None
        limit = steps or settings["max_length"] - 1
        for step in range(limit):
            session = self.later if step else self.first
            given = {"input_ids": tokens, "encoder_hidden_states": states, "encoder_attention_mask": mask, **past}
            given["use_cache_branch"] = np.array([step > 0])
            for node in session.get_inputs():
                if node.name not in given:  # the merged decoder's past, which its first step does not look at
                    heads, size = node.shape[1], node.shape[3] if isinstance(node.shape[3], int) else 3
                    given[node.name] = np.ones((rows, heads, 2, size), np.float32)
            names = [node.name for node in session.get_outputs()]
            outputs = dict(
                zip(names, session.run(names, {n.name: given[n.name] for n in session.get_inputs()}), strict=True)
            )
            past |= {n.replace("present.", "past_key_values."): v for n, v in outputs.items() if n != "logits"}
            scores = outputs["logits"][:, -1].copy()
            first_logits = outputs["logits"] if first_logits is None else first_logits
            scores[:, banned] = -np.inf
            if step == 0 and (forced := settings.get("forced_bos_token_id")) is not None:
                scores[:, np.arange(scores.shape[1]) != forced] = -np.inf
            if step == limit - 1 and steps is None and (forced := settings.get("forced_eos_token_id")) is not None:
                scores[:, np.arange(scores.shape[1]) != forced] = -np.inf
            tokens = scores.argmax(axis=1)[:, None].astype(np.int64)
            for row, token in zip(found, tokens[:, 0].tolist(), strict=True):
                if eos not in row:
                    row.append(token)
            if all(eos in row for row in found):
                break
        return found, first_logits


def padded(texts: list[list[int]], padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask, int64 [B, S]."""
    mask = np.zeros((len(texts), max(map(len, texts))), np.int64)
    ids = np.full_like(mask, padding)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return ids, mask
