"""`--layout single`: encoder, decoder and search in one ONNX file, ids in and ids out."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxmt.checkpoint import licence_warning
from onnxmt.errors import OutputError, UsageError
from onnxmt.folder_writer import FolderWriter, check_folder_output
from onnxmt.graph_export import ExportedGraphs, export_graphs
from onnxmt.hub import resolve
from onnxmt.layouts.written import LAYOUT, LayoutOptions, WrittenLayout, commit_layout
from onnxmt.measure.sentences import choose_sentences
from onnxmt.plan import Plan, check_vocabulary, copy_files, make_plan
from onnxmt.progress import Progress, Silent
from onnxmt.runtime.decoder import load_model
from onnxmt.runtime.direction import begins_with_language, settings_for, source_language
from onnxmt.runtime.processors import check_vocabulary as check_settings
from onnxmt.runtime.settings import GenerationSettings

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxmt.layouts.single_run import SameTokens

MODEL_NAME, DATA_NAME = "model.onnx", "model.onnx.data"
OPSET = 18
# A file is one protobuf message, which cannot have 2 GiB; from here on the weights lie beside it.
LARGEST_FILE = 1_900_000_000
_OWN = ".own"  # the library's graphs, which the single one is made from and compared with
_COMPARED, _LONGEST = 6, 48


@dataclass(frozen=True, kw_only=True)
class Single:
    """A single graph that was written and compared: what those who build on it must know.

    `told` maps the input that names the target language to the default target's token; it is empty where there is none.
    """

    settings: GenerationSettings
    told: Mapping[str, int]
    languages: Mapping[str, int]
    same: SameTokens
    text: bool

    def to_dict(self) -> dict[str, Any]:
        """What onnxmt.json says of it."""
        return {
            "generation": self.settings.to_dict(),
            "language_input": next(iter(self.told), None),
            "language_tokens": dict(self.languages),
            "text": self.text,
            "compared_with_library": self.same.to_dict(),
        }


def export_single(
    model: str | Path, output: str | Path, *, options: LayoutOptions, progress: Progress | None = None
) -> WrittenLayout:
    """Write `model` to `output` as one graph, compared with the library's search before the folder appears.

    Raises OnnxmtError; nothing is left at `output` then: GenerationSettingsError for settings of the model that a graph
    cannot express, VerificationError where the graph gives other tokens than the library.
    """
    progress = progress or Silent()
    plan = read_plan(model, output, options, progress, layout="single")
    with FolderWriter(output, kind=LAYOUT, overwrite=options.overwrite) as writer:
        copy_files(plan, writer.folder)
        single = write_single(plan, writer.folder, options, progress)
        return commit_layout(
            writer,
            plan,
            layout="single",
            opset=OPSET,
            precision=options.precision,
            facts=single.to_dict(),
            warnings=layout_warnings(plan, options),
        )


def read_plan(
    model: str | Path, output: str | Path, options: LayoutOptions, progress: Progress, *, layout: str
) -> Plan:
    """Check what is asked for and read all that is small, before the long work. Raises OnnxmtError."""
    recipe = options.precision
    if options.opset not in (None, OPSET):
        raise UsageError(f"--opset is {options.opset}: the {layout} layout has opset {OPSET} alone; leave it out")
    if options.self_contained:
        raise UsageError(f"--self-contained is for --layout standard: the {layout} layout has one graph anyway")
    if recipe.calibrated or recipe.trim_head:
        raise UsageError(
            f"the {layout} layout does not hold the precision {recipe.name}: int8-static needs a calibration, and a "
            "trimmed head a table, which only a bundle has; take int8"
        )
    if options.text and layout != "single":
        raise UsageError(f"--text is for --layout single: the {layout} layout takes ids")
    check_folder_output(output, kind=LAYOUT, overwrite=options.overwrite)
    progress.step("find the model")
    resolved = resolve(model)
    progress.step("read the checkpoint")
    plan = make_plan(resolved, source=options.source, target=options.target, prefix=options.prefix)
    if options.beams is not None:
        answers = min(plan.settings.num_return_sequences, options.beams)
        settings = dataclasses.replace(plan.settings, num_beams=options.beams, num_return_sequences=answers)
        plan = dataclasses.replace(plan, settings=settings)
    from onnxmt.models.single_rules import refuse_inexpressible

    refuse_inexpressible(plan.settings)
    if options.text:
        from onnxmt.layouts.single_text import refuse_text

        refuse_text(plan)
    return plan


def write_single(plan: Plan, folder: Path, options: LayoutOptions, progress: Progress) -> Single:
    """Write model.onnx (and model.onnx.data above 1.9 GB) to `folder`, and compare it with the library."""
    import onnx_ir as ir

    from onnxmt.models.single_graph import SingleOptions, single_model

    progress.step(f"build the graphs in {options.precision.name}")
    own = folder / _OWN
    own.mkdir()
    exported = export_graphs(plan.checkpoint, own, precision=options.precision)
    check_vocabulary(plan, exported)
    settings = settings_for(plan.tokenizer, plan.settings, plan.direction.target)
    sizes = exported.dimensions
    if sizes.max_target_positions is not None:
        settings = settings.limited_to(sizes.max_target_positions)
    check_settings(settings, sizes.target_vocab_size)
    told, languages = _language_input(plan)
    progress.step("make them one")
    wanted = SingleOptions(
        settings=settings,
        vocabulary=sizes.target_vocab_size,
        positions=sizes.max_target_positions,
        told=next(iter(told), None),
    )
    model = single_model(ir.load(own / exported.encoder.file), ir.load(own / exported.decoder.file), wanted)
    _save(model, folder)
    progress.step("compare it with the library")
    same = _compare(plan, folder, exported, settings, padding=wanted.padding, told=dict(told))
    shutil.rmtree(own)
    if options.text:
        progress.step("add the tokenizer")
        _add_text(plan, folder, padding=wanted.padding)
    return Single(settings=settings, told=told, languages=languages, same=same, text=options.text)


def _add_text(plan: Plan, folder: Path, *, padding: int) -> None:
    """Make the graph take text, and compare it with itself given the library's ids."""
    from onnxmt.layouts.single_text import add_text, require_same_text

    path, ids = folder / MODEL_NAME, folder / f".ids-{MODEL_NAME}"
    shutil.copyfile(path, ids)
    add_text(path, plan, padding=padding)
    require_same_text(path, ids, plan, [text for text, _ in _chosen(plan) if text] or ["?"])
    ids.unlink()


def layout_warnings(plan: Plan, options: LayoutOptions) -> tuple[str, ...]:
    """What a user should know, in one line each."""
    found = (
        licence_warning(plan.checkpoint.licence),
        plan.warning,
        plan.settings.length_warning,
        *options.precision.warnings,
        "this layout is compared with the library's own graphs, not with PyTorch: onnxmt migrate does that",
    )
    return tuple(warning for warning in found if warning)


def _language_input(plan: Plan) -> tuple[dict[str, int], dict[str, int]]:
    """The graph's input that names the target, with the default target's token, and the token of each language.

    Both are empty where the target is told in the source text, or where there is nothing to tell.
    """
    from onnxmt.models.single_graph import FORCED_BOS, START_TOKEN

    tokenizer = plan.tokenizer
    default = tokenizer.forced_bos_token_id(plan.direction.target)
    codes = tokenizer.languages().target
    if default is None or len(codes) < 2:
        return {}, {}
    tokens = {code: token for code in codes if (token := tokenizer.forced_bos_token_id(code)) is not None}
    name = START_TOKEN if begins_with_language(tokenizer, plan.settings) else FORCED_BOS
    return {name: default}, tokens


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """A graph and those inside it."""
    import onnx_ir as ir

    yield graph
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from _graphs(attribute.as_graph())


def _save(model: ir.Model, folder: Path) -> None:
    """Write the model with its weights inside it, or beside it where it would be too large. Raises OutputError."""
    import numpy as np
    import onnx
    import onnx_ir as ir

    weights: list[Any] = [
        value
        for graph in _graphs(model.graph)
        for value in graph.initializers.values()
        if isinstance(value.const_value, ir.ExternalTensor)
    ]
    inside = sum(value.const_value.nbytes for value in weights) < LARGEST_FILE
    try:
        if inside:
            for value in weights:
                # Copied: the file that it is mapped from goes away.
                value.const_value = ir.tensor(np.array(value.const_value.numpy()), name=value.name)
        else:
            shutil.copyfile(weights[0].const_value.path, folder / DATA_NAME)  # ONNX Runtime refuses a link
            for value in weights:
                old = value.const_value
                value.const_value = ir.ExternalTensor(
                    DATA_NAME, old.offset, old.length, old.dtype, shape=old.shape, name=value.name, base_dir=folder
                )
        ir.save(model, folder / MODEL_NAME)
    except OSError as error:
        raise OutputError(f"cannot write the graph to {folder}: {error.strerror or error}") from error
    onnx.checker.check_model(str(folder / MODEL_NAME))


def _compare(
    plan: Plan,
    folder: Path,
    exported: ExportedGraphs,
    settings: GenerationSettings,
    *,
    padding: int,
    told: dict[str, int],
) -> SameTokens:
    """Decode a few sentences with the graph and with the library."""
    from onnxmt.layouts.single_run import SingleModel, require_same_tokens

    own = folder / _OWN
    sentences = [ids for _, ids in _chosen(plan)]
    limit = min(settings.length_limit - 1, _LONGEST)
    short = dataclasses.replace(settings, max_new_tokens=limit, max_length=None)
    model, single = (
        load_model(own, positions=exported.dimensions.max_target_positions),
        SingleModel(folder / MODEL_NAME),
    )
    try:
        return require_same_tokens(
            single,
            model,
            sentences,
            settings=short,
            padding=padding,
            told=told,
            together=exported.recipe.batch_invariant,
        )
    finally:
        model.close()
        single.close()


def _chosen(plan: Plan) -> list[tuple[str, list[int]]]:
    """A few sentences that the model has room for, and their ids; where none fits, one is cut and has no text."""
    direction, positions = plan.direction, plan.positions
    chosen = choose_sentences(source_language(plan.tokenizer, direction)).sentences.sentences
    encoded = [
        (s.text, plan.tokenizer.encode(s.text, source=direction.source, target=direction.target)) for s in chosen
    ]
    fitting = [(text, ids) for text, ids in encoded if positions is None or len(ids) <= positions]
    some = fitting[:: max(1, len(fitting) // _COMPARED)][:_COMPARED]
    return some or [("", min((ids for _, ids in encoded), key=len)[:positions])]
