"""A model without weights: the logits after a history are looked up by a hash of it, the same for numpy and for torch.

Being looked up, they are bit-identical whatever the batch, so that every difference between two searches is the searches'.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ENTRIES = 1009  # prime


@functools.cache
def noise(seed: int, vocabulary: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(ENTRIES, vocabulary)).astype(np.float32)


@dataclass
class FakeModel:
    """Logits for `vocabulary` tokens; token `eos` gets `ease` added, and `rise` more for each token already there."""

    seed: int = 0
    vocabulary: int = 17
    eos: int = 0
    ease: float = 0.5
    rise: float = 0.1
    scale: float = 2.0
    grid: float = 0.0  # round logits to multiples of this, to make ties
    table: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.table = noise(self.seed, self.vocabulary) * np.float32(self.scale)
        if self.grid:
            self.table = np.round(self.table / np.float32(self.grid)) * np.float32(self.grid)

    def logits(self, sentences: np.ndarray, history: np.ndarray) -> np.ndarray:
        """float32 [R, V] after `history` [R, L] of the sentences [R]."""
        state = (sentences.astype(np.int64) * 7919 + 13) % ENTRIES
        for column in history.T:
            state = (state * 31 + column * 97 + 5) % ENTRIES
        logits = self.table[state].copy()
        logits[:, self.eos] += np.float32(self.ease) + np.float32(self.rise) * history.shape[1]
        return logits

    def start(self, sentences: int | list[int]) -> FakeStep:
        numbers = np.arange(sentences) if isinstance(sentences, int) else np.array(sentences)
        return FakeStep(self, numbers)


@dataclass
class FakeStep:
    """The `Step` of a FakeModel; `calls` records how many rows each call had."""

    model: FakeModel
    sentences: np.ndarray
    history: np.ndarray | None = None
    calls: list[int] = field(default_factory=list)

    def __call__(self, tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        assert tokens.dtype == np.int64
        if parents is not None:
            assert parents.dtype == np.int64
            assert parents.shape == (len(tokens),)
            self.sentences = self.sentences[parents]
        if self.history is None:
            self.history = tokens
        else:
            held = self.history if parents is None else self.history[parents]
            self.history = np.concatenate((held, tokens), axis=1)
        self.calls.append(len(tokens))
        return self.model.logits(self.sentences, self.history)


@functools.cache
def torch_class() -> Any:
    """A MarianMTModel whose forward asks a FakeModel; the "encoder output" is the number of the sentence."""
    import torch
    from transformers import MarianConfig, MarianMTModel
    from transformers.modeling_outputs import Seq2SeqLMOutput

    class FakeMarian(MarianMTModel):
        fake: FakeModel
        steps = 0

        def forward(self, encoder_outputs: Any = None, decoder_input_ids: Any = None, **_: Any) -> Any:
            self.steps += 1
            sentences = encoder_outputs[0][:, 0, 0].numpy().astype(np.int64)
            logits = self.fake.logits(sentences, decoder_input_ids.numpy())
            return Seq2SeqLMOutput(logits=torch.from_numpy(logits)[:, None])

    def build(fake: FakeModel) -> FakeMarian:
        config = MarianConfig(
            vocab_size=fake.vocabulary, d_model=4, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
            decoder_attention_heads=1, encoder_ffn_dim=4, decoder_ffn_dim=4, max_position_embeddings=512,
            pad_token_id=fake.vocabulary - 1, decoder_start_token_id=fake.vocabulary - 1,
        )  # fmt: skip
        model = FakeMarian(config).eval()
        model.fake = fake
        return model

    return build


@dataclass
class Reference:
    """What generate() returned: for each output its tokens after the start token, and the beam scores; its forward calls."""

    tokens: list[list[int]]
    scores: list[float] | None
    steps: int


def generate(fake: FakeModel, sentences: int | list[int], settings: dict[str, Any]) -> Reference:
    """Run transformers' generate() on the fake with a generation_config of `settings` alone."""
    import torch
    from transformers import GenerationConfig
    from transformers.modeling_outputs import BaseModelOutput

    numbers = list(range(sentences)) if isinstance(sentences, int) else sentences
    model = torch_class()(fake)
    config = GenerationConfig(**settings, use_cache=False)
    model.generation_config = config
    with torch.no_grad():
        out = model.generate(
            encoder_outputs=BaseModelOutput(
                last_hidden_state=torch.tensor(numbers, dtype=torch.float32)[:, None, None]
            ),
            attention_mask=torch.ones(len(numbers), 1, dtype=torch.long),
            return_dict_in_generate=True,
            output_scores=True,
        )
    beams = settings.get("num_beams", 1) > 1
    return Reference(
        tokens=[row[1:] for row in out.sequences.tolist()],
        scores=out.sequences_scores.tolist() if beams else None,
        steps=model.steps,
    )
