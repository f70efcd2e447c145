"""A Marian model in PyTorch behind the calls that verification makes of our graphs: right by construction, easy to break."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np


class TorchGraphs:
    """Encoder and decoder "graphs" run by transformers; the tests break one thing at a time by overriding a method."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import MarianMTModel

        self.model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
        self.layers = self.model.config.decoder_layers

    def encode(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> dict[str, np.ndarray]:
        import torch

        with torch.no_grad():
            states = self.model.get_encoder()(
                input_ids=torch.from_numpy(input_ids), attention_mask=torch.from_numpy(attention_mask)
            ).last_hidden_state
            outputs = {}
            for i, layer in enumerate(self.model.get_decoder().layers):
                for half, projection in (("key", layer.encoder_attn.k_proj), ("value", layer.encoder_attn.v_proj)):
                    flat = projection(states)
                    split = flat.view(*flat.shape[:2], layer.encoder_attn.num_heads, -1).transpose(1, 2)
                    outputs[f"cross.{i}.{half}"] = split.contiguous().numpy()
        return outputs

    def run_decoder(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        import torch
        from transformers import DynamicCache, EncoderDecoderCache

        past, cross = DynamicCache(), DynamicCache()
        for i in range(self.layers):
            for cache, kind in ((past, "past"), (cross, "cross")):
                key, value = (torch.from_numpy(feeds[f"{kind}.{i}.{half}"].copy()) for half in ("key", "value"))
                if key.shape[2]:
                    cache.update(key, value, i)
        mask = torch.from_numpy(feeds["attention_mask"])
        with torch.no_grad():
            output = self.model.get_decoder()(
                input_ids=torch.from_numpy(np.ascontiguousarray(feeds["input_ids"])),
                encoder_hidden_states=torch.zeros(*mask.shape, self.model.config.d_model),
                encoder_attention_mask=mask,
                cache=EncoderDecoderCache(past, cross),
                use_cache=True,
            )
            logits = self.model.lm_head(output.last_hidden_state[:, -1]) + self.model.final_logits_bias
        present = output.cache.self_attention_cache.layers
        outputs = {"logits": logits.numpy()}
        for i, layer in enumerate(present):
            outputs[f"present.{i}.key"], outputs[f"present.{i}.value"] = layer.keys.numpy(), layer.values.numpy()
        return outputs

    def empty_past(self, rows: int) -> dict[str, np.ndarray]:
        config = self.model.config
        heads = config.decoder_attention_heads
        shape = (rows, heads, 0, config.d_model // heads)
        return {
            f"past.{i}.{half}": np.zeros(shape, np.float32) for i in range(self.layers) for half in ("key", "value")
        }

    def start(self, input_ids: np.ndarray, attention_mask: np.ndarray):
        state = {
            "mask": attention_mask,
            "cross": self.encode(input_ids, attention_mask),
            "past": self.empty_past(len(input_ids)),
        }

        def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
            if parents is not None:
                state["mask"] = state["mask"][parents]
                for kind in ("cross", "past"):
                    state[kind] = {name: tensor[parents] for name, tensor in state[kind].items()}
            outputs = self.run_decoder(
                {"input_ids": tokens, "attention_mask": state["mask"], **state["cross"], **state["past"]}
            )
            state["past"] = {n.replace("present", "past"): t for n, t in outputs.items() if n.startswith("present")}
            return outputs["logits"].copy()

        return step
