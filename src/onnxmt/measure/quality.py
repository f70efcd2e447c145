"""Quality as a bundle keeps it: translating the evaluation set in every mode, the manifest's entry, evaluation.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onnxmt.errors import BundleError, UsageError
from onnxmt.measure.direction import requested_language
from onnxmt.measure.outputs import BEAM, GREEDY, MODES, Output, translate_lines
from onnxmt.measure.provenance import measuring_versions, now, run_facts
from onnxmt.measure.texts import EvaluationSet
from onnxmt.runtime.translation import TranslateOptions

if TYPE_CHECKING:
    from onnxmt.bundle import Bundle
    from onnxmt.measure.gate import Outputs
    from onnxmt.measure.gate_report import GateReport
    from onnxmt.runtime.translator import Translator

EVALUATION_NAME = "evaluation.json"
FP32_SIZES = "fp32_sizes"
_FORMAT = 1
GateOutcome = Literal["passed", "missed", "not needed"]


def translate_options(translator: Translator, texts: EvaluationSet, *, beams: int) -> TranslateOptions:
    """Return how the set is translated, in its languages where the model has a choice.

    Sentence by sentence as any text is, but without the text layer: what is measured is the model.
    """
    codes = translator.bundle.manifest.languages
    return TranslateOptions(
        beams=beams,
        source=requested_language(codes.source, texts.source_language),
        target=requested_language(codes.target, texts.target_language),
        text=None,
    )


def translate_set(
    translator: Translator, texts: EvaluationSet, *, progress: Callable[[int, int], None] | None = None
) -> Outputs:
    """Translate the set in every mode of the gate; `progress` counts lines over all modes."""
    if texts.sources is None:
        raise UsageError(f"the evaluation set {texts.name} has no sources to translate")
    outputs = {}
    total = texts.lines * len(MODES)
    for number, (mode, beams) in enumerate(MODES.items()):
        before = number * texts.lines

        def advance(done: int, _lines: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        options = translate_options(translator, texts, beams=beams)
        outputs[mode] = translate_lines(translator, texts.sources, options, progress=advance)
    return outputs


def manifest_quality(
    report: GateReport, translator: Translator, *, fp32_sizes: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return the manifest's `quality`: the headline first, then how it was measured, then every mode and part.

    The headline is the mode of the bundle's own decoding: greedy where it searches with one beam, else beam 4. What
    quotes the set stays out unless the set is the shipped one: a bundle is handed on. `fp32_sizes` are the bytes of
    each graph and weights file as fp32 has it.
    """
    mode = GREEDY if translator.settings.num_beams == 1 else BEAM
    whole = report.row(mode)
    texts = report.texts
    found = report.to_dict(texts=texts.shipped)
    outcome: GateOutcome = "not needed" if report.exact else "passed" if report.passed else "missed"
    return {
        "bleu": None if whole.candidate is None else whole.candidate.bleu,
        "chrf": None if whole.candidate is None else whole.candidate.chrf,
        "beams": MODES[mode],
        "gate": outcome,
        "how": {
            "set": texts.name,
            "sha256": texts.sha256,
            "lines": texts.lines,
            "references": len(texts.references),
            "target_language": report.tokenization.language,
            "signatures": dict(report.signatures),
            "date": now(),
            **run_facts(translator.runtime, provider=translator.provider),
            "versions": measuring_versions(),
        },
        **{key: value for key, value in found.items() if key not in ("label", "passed")},
        **({FP32_SIZES: dict(fp32_sizes)} if fp32_sizes else {}),
    }


@dataclass(frozen=True, kw_only=True)
class RecordedEvaluation:
    """What evaluation.json holds: the set's lines, and by mode and precision the outputs when the bundle was made."""

    sha256: str
    lines: tuple[Mapping[str, Any], ...]
    outputs: Mapping[str, Mapping[str, Sequence[str]]]

    def of(self, mode: str, precision: str) -> tuple[Output, ...] | None:
        """Return the outputs of a precision in a mode, None where they were not kept."""
        found = self.outputs.get(mode, {}).get(precision)
        return None if found is None else tuple(Output(text=text) for text in found)


def write_evaluation(folder: Path, texts: EvaluationSet, outputs: Mapping[str, Outputs]) -> None:
    """Write evaluation.json: the set and the outputs of each precision (`outputs`), for later comparison and reports.

    Nothing is written for a set that is not the shipped one: a user's texts do not go into a bundle.
    """
    if not texts.shipped:
        return
    record = {
        "format": _FORMAT,
        "set": texts.name,
        "sha256": texts.sha256,
        "lines": [
            {
                "domain": texts.domains[line],
                "source": (texts.sources or ())[line],
                "references": [column[line] for column in texts.references],
            }
            for line in range(texts.lines)
        ],
        "outputs": {
            mode: {label: [output.text for output in found[mode]] for label, found in outputs.items()} for mode in MODES
        },
    }
    text = json.dumps(record, ensure_ascii=False, indent=1)
    (folder / EVALUATION_NAME).write_text(text + "\n", encoding="utf-8")


def add_to_evaluation(folder: Path, name: str, value: Mapping[str, Any]) -> None:
    """Add one key to the evaluation.json of a bundle that is being made, where it has one."""
    path = folder / EVALUATION_NAME
    if path.is_file():
        record = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**record, name: value}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_evaluation(bundle: Bundle) -> RecordedEvaluation | None:
    """Read evaluation.json of a bundle, None where it has none; raises BundleError where it is not one."""
    if all(entry.path != EVALUATION_NAME for entry in bundle.manifest.files):
        return None
    path = bundle.path(EVALUATION_NAME)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise BundleError(f"{path} is of format {found['format']}; this onnxmt reads format {_FORMAT}")
        return RecordedEvaluation(sha256=found["sha256"], lines=tuple(found["lines"]), outputs=found["outputs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(
            f"{path} cannot be read as a recorded evaluation: {error!r}. Copy the bundle again"
        ) from error
