"""Calibration: the range of every linear layer's input while our own search decodes text, for int8-static."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy.typing as npt

from onnxmt.errors import UsageError
from onnxmt.manifest import Languages
from onnxmt.measure.calibration_options import CalibrationOptions, RangeOptions
from onnxmt.measure.direction import requested_language
from onnxmt.measure.ranges import RangeHistogram
from onnxmt.measure.texts import read_lines
from onnxmt.precision import ActivationRange, Calibration
from onnxmt.runtime.decoder import Seq2SeqModel
from onnxmt.runtime.languages import parse_language
from onnxmt.runtime.session import RuntimeOptions, Session
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator

SHIPPED = "shipped"
_WINDOW = 64  # lines that are decoded together
_PRODUCTS = ("MatMul", "Gemm")
Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class CalibrationTexts:
    """Lines to calibrate on; `source` and `target` are languages for a model that has a choice."""

    name: str
    lines: tuple[str, ...]
    source: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        if not any(line.strip() for line in self.lines):
            raise UsageError(f"the calibration text {self.name} holds no line to translate")


def calibration_texts(options: CalibrationOptions, languages: Languages) -> CalibrationTexts:
    """Return the lines of the user's file, or the English ones that ship with onnxmt.

    Raises UsageError where the file cannot be read, or where the shipped lines are not in a language the model reads.
    """
    target = options.target
    if options.file is not None:
        lines = read_lines(options.file)
        return CalibrationTexts(name=options.file.name, lines=lines, source=options.source, target=target)
    codes = (languages.default_source,) if languages.default_source else languages.source
    parsed = [parse_language(code) for code in codes]
    if parsed and not any(language is not None and language.base == "eng" for language in parsed):
        raise UsageError(
            f"the calibration text that ships with onnxmt is English, and the model reads {', '.join(codes[:5])}: give "
            "text of your own with --calibration FILE"
        )
    if target is None and languages.default_target is None:
        target = "zh"
    text = resources.files("onnxmt.measure").joinpath("data", "calibration.txt").read_text(encoding="utf-8")
    return CalibrationTexts(name=SHIPPED, lines=tuple(text.splitlines()), source=options.source or "en", target=target)


def calibrate(
    fp32: Translator,
    texts: CalibrationTexts,
    *,
    ranges: RangeOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Decode the texts greedily with the fp32 graphs of `fp32`, and measure what goes into each linear layer.

    That is real decoding: the decoder's inputs are its own tokens over its own cache. Padding is not counted. Memory
    does not grow with the number of lines: each layer has one histogram. Raises UsageError for graphs without fp32
    layers, and what translating raises.
    """
    how_wide = ranges or RangeOptions()
    with tempfile.TemporaryDirectory(prefix="onnxmt-calibration-") as scratch:
        observed = observe(fp32.model, Path(scratch))
        watched = Translator(
            bundle=fp32.bundle, model=observed, tokenizer=fp32.tokenizer, settings=fp32.settings, runtime=fp32.runtime
        )
        codes = fp32.bundle.manifest.languages
        how = TranslateOptions(
            beams=1,
            source=requested_language(codes.source, texts.source),
            target=requested_language(codes.target, texts.target),
            text=None,
        )
        for first in range(0, len(texts.lines), _WINDOW):
            watched.translate_detailed(list(texts.lines[first : first + _WINDOW]), options=how)
            if progress is not None:
                progress(min(first + _WINDOW, len(texts.lines)), len(texts.lines))
        watched.close()
    found = observed.ranges(how_wide)
    method = how_wide.method if how_wide.method != "percentile" else f"percentile {how_wide.percentile:g}"
    return Calibration(ranges=found, texts=texts.name, lines=len(texts.lines), method=method)


class ObservedModel(Seq2SeqModel):
    """An fp32 model that counts what goes into its linear layers whenever it is run."""

    def __init__(self, *, encoder: ObservingSession, decoder: ObservingSession, positions: int | None = None) -> None:
        super().__init__(encoder=encoder, decoder=decoder, positions=positions)
        self._observing = (encoder, decoder)

    def ranges(self, options: RangeOptions) -> dict[str, ActivationRange]:
        """Return the input range of each layer that was run, by its path."""
        return {path: span for session in self._observing for path, span in session.ranges(options).items()}


def observe(fp32: Seq2SeqModel, scratch: Path) -> ObservedModel:
    """Return the model with its layers observed; the changed graphs are written to the folder `scratch`."""
    encoder, decoder = (_observing(session, scratch) for session in (fp32.encoder, fp32.decoder))
    return ObservedModel(encoder=encoder, decoder=decoder, positions=fp32.positions)


class ObservingSession(Session):
    """A session whose graph also gives the inputs of its linear layers, which are counted and kept from the caller."""

    def __init__(
        self, path: Path, *, options: RuntimeOptions, weights: Path, watched: Mapping[str, tuple[str, ...]]
    ) -> None:
        """`watched` maps a graph output to the paths of the layers that read it."""
        super().__init__(path, options=options, weights=weights)
        self._watched = watched
        self._histograms = {name: RangeHistogram() for name in watched}
        self.outputs = {name: info for name, info in self.outputs.items() if name not in watched}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the graph once, and count."""
        found = super().run(feeds)
        mask = feeds["attention_mask"].astype(bool)
        for name, histogram in self._histograms.items():
            values = found.pop(name)
            if self._of_encoder and values.ndim == 3:
                values = values[mask]
            histogram.add(values)
        return found

    @property
    def _of_encoder(self) -> bool:
        return not any(name.startswith("past.") for name in self.inputs)

    def ranges(self, options: RangeOptions) -> dict[str, ActivationRange]:
        """Return the input range of each layer that was run."""
        return {
            path: histogram.range(options)
            for name, histogram in self._histograms.items()
            if histogram.count
            for path in self._watched[name]
        }


def _observing(session: Session, scratch: Path) -> ObservingSession:
    """The same graph with the inputs of its linear layers as further outputs, over the same weights file."""
    import onnx_ir as ir

    model = ir.load(session.path)
    watched: dict[str, list[str]] = {}
    for node in model.graph:
        weight = node.inputs[1] if node.op_type in _PRODUCTS and node.domain == "" else None
        if weight is not None and weight.is_initializer() and str(weight.name).endswith(".weight"):
            value = node.inputs[0]
            assert value is not None
            if value.name not in watched:
                value.type = ir.TensorType(ir.DataType.FLOAT)
                model.graph.outputs.append(value)
            watched.setdefault(str(value.name), []).append(str(weight.name).removesuffix(".weight"))
    if not watched:
        raise UsageError(f"{session.path.name} has no linear layers in fp32: calibrate on an fp32 bundle")
    path = scratch / session.path.name
    ir.save(model, path)
    return ObservingSession(
        path,
        options=session.options,
        weights=session.path.parent,
        watched={name: tuple(paths) for name, paths in watched.items()},
    )
