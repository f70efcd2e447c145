"""transformers on PyTorch, in float32 as everywhere in onnxmt."""

from __future__ import annotations

import torch  # noqa: TID251 (a peer, in a process of its own)
import transformers  # noqa: TID251


class Torch:
    """A checkpoint's `generate()`."""

    def __init__(self, checkpoint: str) -> None:
        self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(checkpoint, local_files_only=True)
        self._model = self._model.to(torch.float32).eval()

    def versions(self) -> dict[str, str]:
        """Return the packages that compute."""
        return {"torch": torch.__version__, "transformers": transformers.__version__}

    def translate(self, ids: list[list[int]], *, beams: int, tokens: int | None) -> list[int]:
        """Translate one batch; see run.Engine."""
        forced = {} if tokens is None else {"min_new_tokens": tokens, "max_new_tokens": tokens}
        return [_length(row, self._ends(), tokens) for row in self._generated(ids, beams, forced)]

    def outputs(self, ids: list[list[int]], *, beams: int, told: dict[str, int]) -> list[list[int]]:
        """Translate one batch; see run.SpeakingEngine."""
        return [row[: _length(row, self._ends(), None)] for row in self._generated(ids, beams, told)]

    def _generated(self, ids: list[list[int]], beams: int, more: dict[str, int]) -> list[list[int]]:
        """All tokens after the start token, padding at the end included."""
        width = max(len(row) for row in ids)
        padded = torch.tensor([row + [row[-1]] * (width - len(row)) for row in ids])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=padded, attention_mask=mask, num_beams=beams, do_sample=False, **more
            )
        return [row[1:] for row in output.tolist()]

    def _ends(self) -> list[int]:
        found = self._model.generation_config.eos_token_id
        return found if isinstance(found, list) else [found]


def _length(row: list[int], ends: list[int], tokens: int | None) -> int:
    """The tokens up to the first end; what follows is padding."""
    first = next((place for place, token in enumerate(row) if token in ends), len(row) - 1)
    return first + 1 if tokens is None else min(len(row), max(first + 1, 0))


def load(*, model: str, threads: int, workers: int) -> Torch:
    """Load a checkpoint; torch has one pool of threads for all who call it."""
    if workers != 1:
        raise ValueError("PyTorch shares one pool of threads: it is measured with one worker")
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    return Torch(model)
