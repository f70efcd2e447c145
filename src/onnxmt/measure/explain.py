"""Which layers a precision damages most: the output's error with one layer alone quantised, in the real kernels."""

from __future__ import annotations

import dataclasses
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from rich import box
from rich.table import Table

from onnxmt import records
from onnxmt.errors import UsageError
from onnxmt.measure.hybrid import layer_of, write_hybrid
from onnxmt.models import architecture_of
from onnxmt.models.layers import quantizable_modules
from onnxmt.precision import Recipe
from onnxmt.runtime.decoder import Seq2SeqModel
from onnxmt.runtime.direction import settings_for
from onnxmt.runtime.search import search
from onnxmt.runtime.session import Session
from onnxmt.runtime.tokenizer import Direction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from onnxmt.runtime.translator import Translator

SENTENCES = 16
PREFIXES = (1, 3, 6, 12, 24)
"""Target tokens that the decoder is given before its next scores are compared."""
_NAMED = 5
_SHARE = 0.5
Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class LayerDamage:
    """The error of the next-token scores with this layer alone quantised.

    `divergence` is the mean Kullback-Leibler divergence from fp32's distribution, in nats; `largest_error` the largest
    absolute difference of a logit; `flipped` the share of positions where another token comes first.
    """

    layer: str
    component: str
    precision: str
    divergence: float
    largest_error: float
    flipped: float


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Layers from the most to the least damage, and the same figures with all of them quantised (`whole`)."""

    recipe: str
    layers: tuple[LayerDamage, ...]
    whole: LayerDamage
    sentences: int
    positions: int

    @property
    def exclude(self) -> tuple[str, ...]:
        """Patterns for --keep-fp32: the worst layers that do half of the summed damage, at most five."""
        total, found, reached = sum(row.divergence for row in self.layers), [], 0.0
        for row in self.layers[:_NAMED]:
            if reached >= _SHARE * total:
                break
            found.append(row.layer.removeprefix("model."))
            reached += row.divergence
        return tuple(found)

    def command(self, bundle: str) -> str:
        """Return the command that quantises without them."""
        kept = " ".join(f"--keep-fp32 {shlex.quote(pattern)}" for pattern in self.exclude)
        return f"onnxmt quantize {shlex.quote(bundle)} --precision {shlex.quote(self.recipe)} {kept}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        plain: dict[str, Any] = records.to_json(self)
        return {**plain, "exclude": list(self.exclude)}

    def print_to(self, console: Console) -> None:
        """Print the table, worst layer first."""
        title = f"Error of the output with one layer alone in {self.recipe} ({self.positions} positions)"
        table = Table(title=title, title_justify="left", box=box.SIMPLE)
        for heading in ("layer", "precision"):
            table.add_column(heading, no_wrap=True)
        for heading in ("KL (nats)", "largest logit error", "other token"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in (*self.layers, self.whole):
            table.add_row(
                row.layer, row.precision, f"{row.divergence:.3g}", f"{row.largest_error:.3g}", f"{row.flipped:.1%}"
            )
        console.print(table)


@dataclass(frozen=True, kw_only=True)
class _Position:
    """Rows of the batch that are compared after a prefix, and fp32's logits there."""

    rows: Array
    tokens: Array
    logits: Array


def explain(
    fp32: Translator,
    quantized: Path,
    recipe: Recipe,
    texts: Sequence[str],
    *,
    direction: Direction,
    config: Mapping[str, Any],
    progress: Callable[[int, int], None] | None = None,
) -> Explanation:
    """Rank the layers that `recipe` quantises, by exchanging one at a time in the fp32 graphs.

    `quantized` is the folder of the graphs in `recipe`, `config` the model's config.json. Each layer runs in its own
    kernel, activations quantised as they will be; the decoder is given what fp32 translated (teacher forcing), so the
    errors of different layers are comparable. Raises UsageError for fp16, which is not a matter of single layers, and
    for a recipe that quantises nothing.
    """
    if recipe.half:
        raise UsageError("fp16 changes what flows between the layers: there is no layer alone in fp16 to measure")
    layers = _quantised_layers(config, recipe)
    if not layers:
        raise UsageError(f"the recipe {recipe.name} quantises no layer: there is nothing to explain")
    trial = _Trial(fp32, _spread(texts), direction)
    rows: list[LayerDamage] = []
    others = {name: ir.load(quantized / name) for name in (fp32.model.encoder.path.name, fp32.model.decoder.path.name)}
    with tempfile.TemporaryDirectory(prefix="onnxmt-explain-") as scratch:
        for done, (layer, (component, precision)) in enumerate(layers.items(), 1):
            for session in (fp32.model.encoder, fp32.model.decoder):
                other = others[session.path.name]
                if not any(layer_of(node) == layer for node in other.graph):
                    continue
                file = Path(scratch) / session.path.name
                write_hybrid(session.path, other, layer, file)
                hybrid = Session(file, options=session.options, weights=session.path.parent)
                rows.append(
                    trial.damage(hybrid, of_encoder=session is fp32.model.encoder).named(layer, component, precision)
                )
                hybrid.close()
            if progress is not None:
                progress(done, len(layers))
    encoder, decoder = (
        Session(quantized / s.path.name, options=s.options) for s in (fp32.model.encoder, fp32.model.decoder)
    )
    whole = trial.compare(Seq2SeqModel(encoder=encoder, decoder=decoder, positions=fp32.model.positions))
    rows.sort(key=lambda row: (-row.divergence, -row.largest_error, row.layer))
    return Explanation(
        recipe=recipe.name,
        layers=tuple(rows),
        whole=whole.named("all of them", "", recipe.name),
        sentences=trial.sentences,
        positions=trial.positions,
    )


def _quantised_layers(config: Mapping[str, Any], recipe: Recipe) -> dict[str, tuple[str, str]]:
    """{path: (component, precision)} of each layer that is not in fp32."""
    architecture = architecture_of(config)
    found = {}
    for tree in (architecture.encoder_graph(), architecture.decoder_graph()):
        for path, module in quantizable_modules(tree):
            precision = module.precision(path, recipe)
            if precision != "fp32":
                found[path] = (module.component, precision)
    return found


def _spread(texts: Sequence[str]) -> list[str]:
    """Some of the texts, from short to long."""
    ordered = sorted(dict.fromkeys(text for text in texts if text.strip()), key=lambda text: (len(text), text))
    if not ordered:
        raise UsageError("there is no text to explain a precision on")
    count = min(SENTENCES, len(ordered))
    # not the longest tenth: one of them would pad the whole batch
    last = max(0, len(ordered) * 9 // 10 - 1)
    return [ordered[i * last // max(1, count - 1)] for i in range(count)]


@dataclass(frozen=True, kw_only=True)
class _Error:
    divergence: float
    largest_error: float
    flipped: float

    def named(self, layer: str, component: str, precision: str) -> LayerDamage:
        return LayerDamage(layer=layer, component=component, precision=precision, **dataclasses.asdict(self))


class _Trial:
    """One batch of sentences, translated by fp32, and the positions at which others are compared with it."""

    def __init__(self, fp32: Translator, texts: Sequence[str], direction: Direction) -> None:
        self._model = fp32.model
        tokenizer, limit = fp32.tokenizer, fp32.limit
        rows = [tokenizer.encode(text, source=direction.source, target=direction.target)[:limit] for text in texts]
        self._ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        self._mask = np.zeros_like(self._ids)
        for number, row in enumerate(rows):
            self._ids[number, : len(row)], self._mask[number, : len(row)] = row, 1
        self._cross = self._model.encode(self._ids, self._mask)
        settings = settings_for(tokenizer, fp32.settings, direction.target)
        settings = dataclasses.replace(settings, num_beams=1, num_return_sequences=1, do_sample=False)
        found = search(self._model.start(self._ids, self._mask), rows=len(rows), settings=settings)
        outputs = [(settings.decoder_start_token_id, *best[0].tokens) for best in found]
        self._positions: list[_Position] = []
        for length in PREFIXES:
            chosen = np.array([number for number, tokens in enumerate(outputs) if len(tokens) > length], dtype=np.int64)
            if chosen.size:
                tokens = np.array([outputs[number][:length] for number in chosen], dtype=np.int64)
                logits = self._logits(self._model, self._cross, chosen, tokens)
                self._positions.append(_Position(rows=chosen, tokens=tokens, logits=logits))
        self.sentences = len(rows)
        self.positions = sum(len(position.rows) for position in self._positions)

    def damage(self, hybrid: Session, *, of_encoder: bool) -> _Error:
        """Compare with one of the two graphs exchanged."""
        model = self._model
        if of_encoder:
            encoder, decoder = hybrid, model.decoder
        else:
            encoder, decoder = model.encoder, hybrid
        return self.compare(Seq2SeqModel(encoder=encoder, decoder=decoder, positions=model.positions), again=of_encoder)

    def compare(self, model: Seq2SeqModel, *, again: bool = True) -> _Error:
        """Compare the scores of `model` with fp32's; `again` runs its encoder, else fp32's keys and values serve."""
        cross = model.encode(self._ids, self._mask) if again else self._cross
        divergences, errors, flips = [], [], []
        for position in self._positions:
            found = self._logits(model, cross, position.rows, position.tokens)
            wanted = _log_softmax(position.logits)
            divergences.append((np.exp(wanted) * (wanted - _log_softmax(found))).sum(axis=1))
            errors.append(np.abs(found - position.logits).max(axis=1))
            flips.append(found.argmax(axis=1) != position.logits.argmax(axis=1))
        return _Error(
            divergence=float(np.concatenate(divergences).mean()),
            largest_error=float(np.concatenate(errors).max()),
            flipped=float(np.concatenate(flips).mean()),
        )

    def _logits(self, model: Seq2SeqModel, cross: Mapping[str, Array], rows: Array, tokens: Array) -> Array:
        feeds = {name: value[rows] for name, value in cross.items()}
        past = model.empty_past(len(rows))
        found = model.run_decoder({"input_ids": tokens, "attention_mask": self._mask[rows], **feeds, **past})
        return found["logits"].astype(np.float64)


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found
