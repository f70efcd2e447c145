"""PyTorch and transformers as the judge: the only file that imports them, inside functions (extra `reference`)."""

from __future__ import annotations

import contextlib
import copy
import datetime
import importlib.metadata
import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxmt.errors import CheckpointError, MissingExtraError, UsageError
from onnxmt.measure.expected import (
    BEAMS,
    MAX_NEW_TOKENS,
    STEPS,
    ExpectedSentence,
    JudgeFacts,
    Reference,
    Samples,
    SourceLine,
    forced_tokens,
    pad_batch,
)
from onnxmt.measure.instruction import Instruction, instruction_for
from onnxmt.measure.recording import RECORDING_NAME, checkpoint_identity, read_recording
from onnxmt.measure.sentences import SentenceSet
from onnxmt.runtime.cpu import cpu_limit

if TYPE_CHECKING:
    from onnxmt.checkpoint import Checkpoint
    from onnxmt.runtime.settings import GenerationSettings
    from onnxmt.runtime.tokenizer import Direction, Tokenizer, TokenizerSpec

Mode = Literal["auto", "live", "recording", "none"]
MODES: tuple[Mode, ...] = ("auto", "live", "recording", "none")
OLDEST_TRANSFORMERS = (5, 20)


@dataclass(frozen=True, kw_only=True)
class Told:
    """The languages of a verification: in the model's codes, and as transformers is told them; `tokenizer` is ours."""

    direction: Direction
    instruction: Instruction
    tokenizer: Tokenizer


def tell(tokenizer: Tokenizer, *, spec: TokenizerSpec, direction: Direction, settings: GenerationSettings) -> Told:
    """Return what a judge has to be told; `settings` are the bundle's before any target."""
    instruction = instruction_for(tokenizer, spec=spec, direction=direction, settings=settings)
    return Told(direction=direction, instruction=instruction, tokenizer=tokenizer)


def find_reference(
    checkpoint: Checkpoint, mode: Mode, sentences: SentenceSet, *, told: Told | None = None
) -> Reference | None:
    """Choose the judge of a checkpoint before any work is done; nothing is imported or loaded yet.

    `told`: the languages; None: the checkpoint as it stands. "auto" takes PyTorch where it is installed and else
    `verification.npz` of the checkpoint's folder; "none" returns None. Raises MissingExtraError (it names
    `[reference]`) where neither is there, RecordingError for a recording of other weights, sentences or languages,
    UsageError for an unknown mode or a transformers that is not supported.
    """
    if mode not in MODES:
        raise UsageError(f"the verification mode is {mode!r}; allowed: {', '.join(MODES)}")
    if mode == "none":
        return None
    path = checkpoint.folder / RECORDING_NAME
    missing = missing_package()
    if mode == "live" or (mode == "auto" and missing is None):
        if missing is not None:
            raise MissingExtraError(needed_for="live verification against PyTorch", extra="reference", module=missing)
        _check_version()
        return TorchReference(checkpoint.folder, name=checkpoint.name, revision=checkpoint.revision, told=told)
    if path.is_file():
        recording = read_recording(path)
        recording.require(
            sentences=sentences,
            identity=checkpoint_identity(checkpoint.weights),
            direction=None if told is None else told.direction,
        )
        return recording
    if mode == "recording":
        raise UsageError(
            f"{checkpoint.name} has no recorded reference: the file {RECORDING_NAME} is not in its folder. "
            "Verify live (pip install 'onnxmt[reference]'), or pass --verify none"
        )
    raise MissingExtraError(
        needed_for=f"verification of {checkpoint.name} (no {RECORDING_NAME} beside it; --verify none goes without)",
        extra="reference",
        module=missing or "torch",
    )


class TorchReference:
    """The checkpoint in PyTorch: float32 whatever its own dtype, eval mode, no gradients, nothing fetched.

    from_pretrained follows the checkpoint's dtype (transformers 5), and an fp16 judge is no judge. The model is
    loaded on first use and freed by `close`. `told` says which languages it is told, and in what way; its tokens are
    looked up in transformers' tokenizer, or in ours where that cannot read the files (`JudgeFacts.own_tokens` then says
    why). Source: transformers 5.0 … 5.24, `AutoModelForSeq2SeqLM.generate` and
    `forward`.
    """

    def __init__(self, folder: Path, *, name: str, revision: str | None = None, told: Told | None = None) -> None:
        self._folder, self._name, self._revision, self._told = folder, name, revision, told
        self._instruction = Instruction() if told is None else told.instruction

    def facts(self) -> JudgeFacts:
        """Say who judges; loads the model, whose generation settings and position table decide the limits."""
        positions = getattr(self._model.config, "max_position_embeddings", None)
        settings = self._model.generation_config
        own = settings.max_new_tokens or (settings.max_length - 1 if settings.max_length else MAX_NEW_TOKENS)
        table = MAX_NEW_TOKENS if positions is None else positions - 1
        direction = None if self._told is None else self._told.direction
        return JudgeFacts(
            kind="live",
            versions={name: importlib.metadata.version(name) for name in ("torch", "transformers")},
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            model=self._name,
            revision=self._revision,
            identity=None,
            max_new_tokens=max(1, min(MAX_NEW_TOKENS, own, table)),
            positions=positions,
            source=None if direction is None else direction.source,
            target=None if direction is None else direction.target,
            own_tokens=self._their_tokenizer if isinstance(self._their_tokenizer, str) else None,
        )

    def generation(self) -> dict[str, Any]:
        """Return the generation settings as transformers understood them (what differs from its defaults)."""
        settings: dict[str, Any] = self._model.generation_config.to_diff_dict()
        return settings

    def tokenize(self, texts: Sequence[str]) -> list[SourceLine]:
        """Encode with the checkpoint's own tokenizer, untruncated."""
        theirs, before = self._their_tokenizer, self._instruction.before
        with _quiet():
            return [
                SourceLine(
                    text=text,
                    tokens=tuple(self._our_ids(text) if isinstance(theirs, str) else theirs(before + text).input_ids),
                )
                for text in texts
            ]

    def _our_ids(self, text: str) -> list[int]:
        assert self._told is not None  # else a tokenizer that cannot be loaded is an error
        direction = self._told.direction
        return self._told.tokenizer.encode(text, source=direction.source, target=direction.target)

    def _decode(self, tokens: Sequence[int]) -> str:
        theirs = self._their_tokenizer
        if isinstance(theirs, str):
            assert self._told is not None  # as above
            return self._told.tokenizer.decode(tokens)
        text: str = theirs.decode(tokens, skip_special_tokens=True)
        return text

    def judge(self, lines: Sequence[SourceLine]) -> list[ExpectedSentence]:
        """Run the batch: greedy and beam 4 with `generate`, then one teacher-forced pass for the tensors."""
        import torch  # noqa: TID251 - this file is the judge

        pad = self._model.config.pad_token_id
        ids, mask = (torch.from_numpy(array) for array in pad_batch([line.tokens for line in lines], pad=pad))
        with torch.no_grad(), _quiet(), _allowed_threads():
            rows = [self._generate(ids, mask, beams=beams) for beams in (1, BEAMS)]
            greedy, beam = ([self._ended(row[1:]) for row in part] for part in rows)
            start = int(rows[0][0][0])  # what generate() began with, whichever setting it came from
            steps = min(STEPS, max(len(row) for row in greedy))
            fed = [forced_tokens(start, row, steps=steps, filler=pad) for row in greedy]
            output = self._model(
                input_ids=ids,
                attention_mask=mask,
                decoder_input_ids=torch.tensor(fed),
                use_cache=True,
                return_dict=True,
            )
            logits = output.logits.numpy()
            present, cross = _cached_tensors(output)
            texts = [[self._decode(row) for row in part] for part in (greedy, beam)]
        batch = _Batch(start=start, cross=cross, logits=logits, present=present)
        return [
            batch.sentence(row, line.tokens, (greedy[row], beam[row]), (texts[0][row], texts[1][row]))
            for row, line in enumerate(lines)
        ]

    def close(self) -> None:
        """Free the model."""
        self.__dict__.pop("_model", None)

    @cached_property
    def _model(self) -> Any:
        import torch  # noqa: TID251 - this file is the judge
        from transformers import AutoModelForSeq2SeqLM  # noqa: TID251

        try:
            with _quiet():
                model, loading = AutoModelForSeq2SeqLM.from_pretrained(
                    self._folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
                )
        except Exception as error:  # whatever transformers' readers raise means the same here
            raise CheckpointError(f"PyTorch cannot load {self._name} as the reference: {error}") from error
        half_loaded = sorted(map(str, {*loading["missing_keys"], *loading["mismatched_keys"]}))
        if half_loaded:  # transformers fills such weights with random numbers and only warns
            raise CheckpointError(
                f"PyTorch cannot judge {self._name}: transformers found no usable value for "
                f"{', '.join(half_loaded[:8])}"
            )
        return model.eval()

    @cached_property
    def _their_tokenizer(self) -> Any:
        """transformers' tokenizer; a string says why it is no judge here, and our tokens stand in."""
        import transformers  # noqa: TID251 - this file is the judge

        told = self._instruction
        if told.unreadable is not None:
            return told.unreadable
        kind = getattr(transformers, told.tokenizer_class or "AutoTokenizer")
        languages = {} if told.source_code is None else {"src_lang": told.source_code}
        try:
            with _quiet():
                return kind.from_pretrained(self._folder, local_files_only=True, **languages)
        except Exception as error:  # whatever transformers' readers raise means the same here
            if self._told is not None:
                return f"transformers cannot load the tokenizer ({str(error).strip().splitlines()[0][:200]})"
            raise CheckpointError(f"transformers cannot load the tokenizer of {self._name}: {error}") from error

    def _first_token(self) -> int | None:
        """The id of the target's token, by transformers' tokenizer where there is one."""
        code = self._instruction.target_code
        if code is None:
            return None
        theirs = self._their_tokenizer
        if isinstance(theirs, str):
            assert self._told is not None  # as above
            return self._told.tokenizer.forced_bos_token_id(code)
        if hasattr(theirs, "get_lang_id"):  # M2M100's tokens are __zh__, its codes zh
            return int(theirs.get_lang_id(code))
        return int(theirs.convert_tokens_to_ids(code))

    @cached_property
    def _cap(self) -> int:
        return self.facts().max_new_tokens

    def _generate(self, ids: Any, mask: Any, *, beams: int) -> list[list[int]]:
        """Return generate()'s rows, start token and padding included, under the model's own settings."""
        settings = copy.deepcopy(self._model.generation_config)
        settings.num_beams, settings.do_sample, settings.num_return_sequences = beams, False, 1
        settings.max_length, settings.max_new_tokens = None, self._cap
        if (first := self._first_token()) is not None:
            name = "decoder_start_token_id" if self._instruction.target_starts else "forced_bos_token_id"
            setattr(settings, name, first)
        for sampling in ("temperature", "top_k", "top_p"):  # unused without sampling, but warned about
            setattr(settings, sampling, None)
        rows: list[list[int]] = self._model.generate(
            input_ids=ids, attention_mask=mask, generation_config=settings
        ).tolist()
        return rows

    def _ended(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Cut the padding that generate() puts after the first EOS."""
        eos = self._model.generation_config.eos_token_id
        ends = {eos} if isinstance(eos, int) else set(eos or ())
        for index, token in enumerate(tokens):
            if token in ends:
                return tuple(tokens[: index + 1])
        return tuple(tokens)


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """The tensors of one teacher-forced pass over a batch, padding included."""

    start: int
    cross: Sequence[np.ndarray]
    logits: np.ndarray
    present: Sequence[np.ndarray]

    def sentence(
        self, row: int, source: tuple[int, ...], tokens: tuple[tuple[int, ...], tuple[int, ...]], texts: tuple[str, str]
    ) -> ExpectedSentence:
        """Cut one row out; copies, so that the batch can be freed. `tokens` and `texts`: greedy, beam."""
        steps = min(STEPS, len(tokens[0]))
        return ExpectedSentence(
            source=source,
            start_token=self.start,
            greedy=tokens[0],
            beam=tokens[1],
            greedy_text=texts[0],
            beam_text=texts[1],
            cross=tuple(_whole(array[row, :, : len(source)]) for array in self.cross),
            logits=tuple(_whole(self.logits[row, step]) for step in range(steps)),
            present=tuple(_whole(array[row, :, :steps]) for array in self.present),
        )


def _whole(array: np.ndarray) -> Samples:
    return Samples(shape=array.shape, values=array.astype(np.float32).reshape(-1))


def _cached_tensors(output: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the self-attention and the cross-attention tensors of a forward pass: key 0, value 0, key 1, …

    The output field is `past_key_values` in the first 5.x releases and `cache` in later ones.
    """
    cache = next(
        (value for name in ("cache", "past_key_values") if (value := getattr(output, name, None)) is not None), None
    )
    parts: list[Any] = [getattr(cache, f"{kind}_attention_cache", None) for kind in ("self", "cross")]
    if any(part is None for part in parts):
        version = importlib.metadata.version("transformers")
        raise UsageError(
            f"transformers {version} returned no encoder-decoder cache that onnxmt can read; "
            "install transformers 5.0 to 5.24"
        )
    present, cross = (
        [tensor.numpy() for layer in part.layers for tensor in (layer.keys, layer.values)] for part in parts
    )
    return present, cross


def missing_package() -> str | None:
    """Name the first package of the extra that is not installed; nothing is imported."""
    return next((name for name in ("torch", "transformers") if not _is_installed(name)), None)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # imports of it are blocked: a finder refuses, or sys.modules holds None
        return False


def _check_version() -> None:
    """Refuse a transformers whose cache or loading arguments differ, before any work."""
    version = importlib.metadata.version("transformers")
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < OLDEST_TRANSFORMERS or major > OLDEST_TRANSFORMERS[0]:
        raise UsageError(
            f"transformers {version} is installed; "
            f"live verification works with 5.{OLDEST_TRANSFORMERS[1]} or a later 5.x: "
            "pip install 'onnxmt[reference]', or verify against a recording"
        )


@contextlib.contextmanager
def _allowed_threads() -> Iterator[None]:
    """Hold torch to the CPUs this process may use, then restore its setting.

    By default it starts a thread for each CPU of the host; under a quota (cgroup) those wait for each other: the demo
    model took 130 s instead of 10 with two threads on less than one free CPU.
    """
    import torch  # noqa: TID251 - this file is the judge

    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, min(threads, cpu_limit().threads)))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars and advice off the terminal, and restore its settings."""
    from transformers.utils import logging  # noqa: TID251 - this file is the judge

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
