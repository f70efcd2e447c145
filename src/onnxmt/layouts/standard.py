"""`--layout standard`: plain ONNX operators in the files and names that Optimum and transformers.js read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxmt.checkpoint import GENERATION_FIELDS, licence_warning
from onnxmt.errors import OutputError, TokenizerError, UsageError
from onnxmt.folder_writer import FolderWriter, check_folder_output
from onnxmt.graph_export import export_graphs, resolve_ties
from onnxmt.hub import resolve
from onnxmt.layouts.standard_readme import readme
from onnxmt.layouts.standard_run import Sameness, SamenessLimits, compare_with
from onnxmt.layouts.standard_tokenizer import TOKENIZER_JSON, Difference, compare, fast_tokenizer
from onnxmt.layouts.written import LAYOUT, LayoutOptions, WrittenLayout, commit_layout
from onnxmt.manifest import CONFIG_NAME, GENERATION_CONFIG_NAME
from onnxmt.measure.sentences import choose_sentences
from onnxmt.models import architecture_of
from onnxmt.plan import Plan, check_vocabulary, make_plan
from onnxmt.progress import Progress, Silent
from onnxmt.runtime.decoder import load_model
from onnxmt.runtime.direction import settings_for, source_language

if TYPE_CHECKING:
    from onnxmt.models.standard import StandardGraph

# transformers.js looks here, and Optimum finds it.
GRAPHS = "onnx"
WEIGHTS = "model.onnx_data"
# The precisions that plain operators hold, and what transformers.js wants in the file names for each.
_SUFFIXES = {"fp32": "", "int8-dynamic": "_quantized"}
_DTYPES = {"fp32": "fp32", "int8-dynamic": "q8"}
# A file is one protobuf message, which cannot have more.
_MESSAGE_LIMIT = 2**31 - 1
_OWN = ".own"  # our own graphs, for the comparison: inside the unfinished folder, so that they go with it
_COMPARED = 8
# Quantised: a value that lies between two of 255 steps falls on either, once any sum before it was rounded otherwise.
_LIMITS = {
    "fp32": SamenessLimits(same=1.0, difference=1e-3),
    "int8-dynamic": SamenessLimits(same=0.5, difference=0.25),
}
_SPECIAL = ("decoder_start_token_id", "eos_token_id", "pad_token_id", "bos_token_id")
_CLASSES = {
    "marian": "MarianTokenizer", "m2m_100": "M2M100Tokenizer", "nllb": "NllbTokenizer", "nllb_legacy": "NllbTokenizer",
    "mbart": "MBartTokenizer", "mbart50": "MBart50Tokenizer", "t5": "T5Tokenizer", "bart": "BartTokenizer",
}  # fmt: skip


def export_standard(
    model: str | Path, output: str | Path, *, options: LayoutOptions, progress: Progress | None = None
) -> WrittenLayout:
    """Write `model` to `output` in the standard layout, compared with our own graphs before it appears.

    Raises OnnxmtError; nothing is left at `output` then. Graphs that give other tokens raise VerificationError.
    """
    from onnxmt.models.standard import checked_opset

    progress = progress or Silent()
    precision, opset = _checked_precision(options), checked_opset(options.opset)
    check_folder_output(output, kind=LAYOUT, overwrite=options.overwrite)
    progress.step("find the model")
    resolved = resolve(model)
    progress.step("read the checkpoint")
    plan = make_plan(resolved, source=options.source, target=options.target, prefix=options.prefix)
    with FolderWriter(output, kind=LAYOUT, overwrite=options.overwrite) as writer:
        progress.step("write the settings and the tokenizer")
        _write_settings(plan, writer.folder, precision)
        tokenizer = _write_tokenizer(plan, writer.folder)
        progress.step("build our own graphs")
        _write_own(plan, writer.folder / _OWN, options)
        progress.step(f"build the standard graphs (opset {opset})")
        _write_graphs(plan, writer.folder / GRAPHS, options, opset=opset)
        progress.step("compare them")
        same = _compare(plan, writer.folder, precision)
        _LIMITS[precision].require(same)
        shutil.rmtree(writer.folder / _OWN)
        sizes = {entry.path: entry.bytes for entry in writer.entries() if entry.path.startswith(f"{GRAPHS}/")}
        text = readme(plan, sizes, opset=opset, precision=precision, suffix=_SUFFIXES[precision], tokenizer=tokenizer)
        (writer.folder / GRAPHS / "README.md").write_text(text, encoding="utf-8")
        return commit_layout(
            writer,
            plan,
            layout="standard",
            opset=opset,
            precision=options.precision,
            facts={
                "self_contained": options.self_contained,
                "compared_with_own_graphs": same.to_dict(),
                "tokenizer_json": tokenizer.to_dict(),
            },
            warnings=_warnings(plan, options, tokenizer),
        )


def _checked_precision(options: LayoutOptions) -> str:
    """The one precision of the recipe. Raises UsageError for what plain operators do not hold."""
    if options.beams is not None:
        raise UsageError(
            "--beams is for a layout with the search inside; who reads the standard layout takes num_beams from "
            "generation_config.json, or sets it for each call"
        )
    if options.text:
        raise UsageError("--text is for the single layout: plain ONNX operators hold no tokenizer")
    recipe = options.precision
    found = set(recipe.components.values())
    if len(found) > 1 or not found <= set(_SUFFIXES) or recipe.keep_fp32 or recipe.trim_head:
        raise UsageError(
            f"the standard layout does not hold the precision {recipe.name}: block-wise int8 and int4 are operators of "
            f"onnxruntime alone; fp16, mixtures and trimmed heads are not made; allowed: {', '.join(_SUFFIXES)}"
        )
    return found.pop()


def _write_settings(plan: Plan, folder: Path, precision: str) -> None:
    """config.json and generation_config.json, each setting in one place only.

    transformers lets a generation setting in config.json win over generation_config.json, so config.json keeps none but
    the special tokens.
    """
    config = {
        key: value
        for key, value in plan.checkpoint.config.items()
        if key not in GENERATION_FIELDS or key in _SPECIAL or key == "use_cache"
    }
    settings = settings_for(plan.tokenizer, plan.settings, plan.direction.target).to_dict()
    for key in _SPECIAL:
        if key in settings:
            config[key] = settings[key]
    config["transformers.js_config"] = {"dtype": _DTYPES[precision]}
    _write_json(folder / CONFIG_NAME, config)
    _write_json(folder / GENERATION_CONFIG_NAME, settings)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class TokenizerJson:
    """Where tokenizer.json comes from (the checkpoint, or made here), why there is none, and how it compares."""

    origin: str
    difference: Difference | None = None
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """What onnxmt.json says of it."""
        compared = {} if self.difference is None else {"compared_with_ours": self.difference.to_dict()}
        return {"origin": self.origin, **({} if self.problem is None else {"problem": self.problem}), **compared}


def _write_tokenizer(plan: Plan, folder: Path) -> TokenizerJson:
    """The checkpoint's tokenizer files, and a tokenizer.json where it has none."""
    checkpoint = plan.checkpoint
    for path in checkpoint.tokenizer_files:
        if path.suffix != ".py":  # other people's code is not handed on
            shutil.copyfile(path, folder / path.name)
    if checkpoint.card is not None:
        shutil.copyfile(checkpoint.card, folder / checkpoint.card.name)
    if (folder / TOKENIZER_JSON).exists():
        return TokenizerJson(origin="the checkpoint's own")
    try:
        pipeline = fast_tokenizer(checkpoint.folder, plan.spec, plan.direction)
    except TokenizerError as error:
        return TokenizerJson(origin="none", problem=str(error))
    pipeline.save(str(folder / TOKENIZER_JSON))
    _name_tokens(plan, folder, pipeline)
    texts = [s.text for s in choose_sentences(source_language(plan.tokenizer, plan.direction)).sentences.sentences]
    return TokenizerJson(origin="made here", difference=compare(pipeline, plan.tokenizer, plan.direction, texts))


def _name_tokens(plan: Plan, folder: Path, pipeline: Any) -> None:
    """Say in tokenizer_config.json what other readers do not guess: the class, and the special tokens."""
    path = folder / "tokenizer_config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    settings = plan.settings
    if plan.spec.kind in _CLASSES:
        config.setdefault("tokenizer_class", _CLASSES[plan.spec.kind])
    ids = {"eos_token": next(iter(settings.eos_token_ids), None), "pad_token": settings.pad_token_id}
    for role, index in ids.items():
        token = None if index is None else pipeline.id_to_token(index)
        if token is not None:
            config.setdefault(role, token)
    unknown = json.loads(pipeline.to_str())["model"]
    name = unknown.get("unk_token") or (pipeline.id_to_token(unknown["unk_id"]) if "unk_id" in unknown else None)
    if name is not None:
        config.setdefault("unk_token", name)
    _write_json(path, config)


def _write_own(plan: Plan, folder: Path, options: LayoutOptions) -> None:
    """Our own graphs of the same precision; building them checks the checkpoint's weights."""
    folder.mkdir()
    check_vocabulary(plan, export_graphs(plan.checkpoint, folder, precision=options.precision))


def _write_graphs(plan: Plan, folder: Path, options: LayoutOptions, *, opset: int) -> None:
    """The four graphs, over one weights file or each with its own. Raises OutputError."""
    import onnx
    import onnx_ir as ir

    from onnxmt.models.layers import WeightBinding
    from onnxmt.models.standard import standard_graphs
    from onnxmt.weights_file import WeightsFile

    folder.mkdir()
    checkpoint = plan.checkpoint
    architecture = architecture_of(checkpoint.config)
    binding = WeightBinding(
        read=checkpoint.weights.read,
        present=checkpoint.weights.names(),
        recipe=options.precision,
        ties=resolve_ties(checkpoint, architecture).stored,
    )
    graphs = standard_graphs(architecture, binding, opset=opset)
    suffix = _SUFFIXES[options.precision.encoder]
    paths = []
    if options.self_contained:
        for graph in graphs:
            _fill(graph)
            paths.append(folder / f"{graph.name}{suffix}.onnx")
            ir.save(graph.model, paths[-1])
    else:
        with WeightsFile(folder / WEIGHTS) as file:
            for graph in graphs:
                file.externalise(graph.model)
                paths.append(folder / f"{graph.name}{suffix}.onnx")
                ir.save(graph.model, paths[-1])
    for path in paths:
        onnx.checker.check_model(str(path), full_check=True)


def _fill(graph: StandardGraph) -> None:
    """Refuse a graph that one file cannot hold with its weights. Raises OutputError."""
    initializers: Any = graph.model.graph.initializers.values()
    size = sum(value.const_value.nbytes for value in initializers)
    if size > _MESSAGE_LIMIT - (1 << 20):
        raise OutputError(
            f"{graph.name}.onnx would hold {size / 1e9:.1f} GB of weights, and one file can hold 2: leave "
            "--self-contained out"
        )


def _compare(plan: Plan, folder: Path, precision: str) -> Sameness:
    """Decode sentences with our own graphs and with the standard ones."""
    direction, positions = plan.direction, architecture_of(plan.checkpoint.config).dimensions.max_source_positions
    chosen = choose_sentences(source_language(plan.tokenizer, direction)).sentences.sentences
    encoded = [
        plan.tokenizer.encode(sentence.text, source=direction.source, target=direction.target) for sentence in chosen
    ]
    fitting = [ids for ids in encoded if positions is None or len(ids) <= positions]
    texts = fitting[:: max(1, len(fitting) // _COMPARED)][:_COMPARED] or [min(encoded, key=len)[:positions]]
    settings = settings_for(plan.tokenizer, plan.settings, direction.target)
    own = load_model(folder / _OWN)
    try:
        return compare_with(
            own,
            folder / GRAPHS,
            suffix=_SUFFIXES[precision],
            texts=texts,
            settings=settings if positions is None else settings.limited_to(positions),
        )
    finally:
        own.close()


def _warnings(plan: Plan, options: LayoutOptions, tokenizer: TokenizerJson) -> tuple[str, ...]:
    """What a user should know, in one line each."""
    found = (
        licence_warning(plan.checkpoint.licence),
        plan.warning,
        *options.precision.warnings,
        None if tokenizer.problem is None else f"there is no tokenizer.json: {tokenizer.problem}",
        None
        if tokenizer.difference is None or not tokenizer.difference.different
        else f"tokenizer.json gives other ids than the model's own tokenizer for {tokenizer.difference.different} of "
        f"{tokenizer.difference.sentences} sentences, such as {tokenizer.difference.first!r}",
        "this layout is compared with our own graphs, not with PyTorch: onnxmt migrate does that",
    )
    return tuple(warning for warning in found if warning)
