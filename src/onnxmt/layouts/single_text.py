"""Text in, text out: the single graph of a Marian model between onnxruntime-extensions' tokenizer operators."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxmt.errors import MissingExtraError, SessionError, UsageError, VerificationError
from onnxmt.models.single_graph import ATTENTION_MASK, INPUT_IDS, OUTPUT_IDS, OUTPUT_LENGTHS, SCORES
from onnxmt.runtime.tokenizers.files import load_sentencepiece
from onnxmt.runtime.tokenizers.marian import MarianSettings, MarianTokenizer

if TYPE_CHECKING:
    import onnx

    from onnxmt.plan import Plan

TEXT, TRANSLATION = "text", "translation"
_DOMAIN = "ai.onnx.contrib"
_WORD_MARK = "▁"
_END = np.iinfo(np.int64).max


def operator_library() -> str:
    """The path of onnxruntime-extensions' operators. Raises MissingExtraError."""
    try:
        from onnxruntime_extensions import get_library_path
    except ImportError as error:
        raise MissingExtraError(
            needed_for="a graph that takes text (--text)", extra="text-graph", module="onnxruntime_extensions"
        ) from error
    return str(get_library_path())


def refuse_text(plan: Plan) -> None:
    """Raise UsageError where the operators cannot do what the model's tokenizer does, and MissingExtraError."""
    if plan.spec.kind != "marian":
        raise UsageError(
            f"--text is for Marian models: the tokenizer of this one is {plan.spec.kind}, which the operators of "
            "onnxruntime-extensions do not reproduce; leave --text out and tokenize outside the graph"
        )
    if MarianSettings.from_dict(plan.spec.settings).clean_up_spaces:
        raise UsageError(
            "--text does not express clean_up_tokenization_spaces of tokenizer_config.json: set it to false, or leave "
            "--text out"
        )
    operator_library()


def add_text(path: Path, plan: Plan, *, padding: int) -> None:
    """Rewrite the graph at `path`: `text` string [batch] → `translation` string [batch] and scores.

    What SentencePiece does not know is `<unk>`, also where the target side has a piece for it, and nothing in a text is
    a command: neither `>>code<<` nor `</s>`. In that alone the ids differ from the library's.
    """
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    graph = model.graph
    nodes = _Nodes(graph)
    _encode(nodes, plan, padding)
    first = list(nodes.made)
    nodes.made.clear()
    _decode(nodes, plan)
    body = list(graph.node)
    del graph.node[:]
    graph.node.extend([*first, *body, *nodes.made])
    helper, kinds = onnx.helper, onnx.TensorProto
    kept_inputs = [node for node in graph.input if node.name not in (INPUT_IDS, ATTENTION_MASK)]
    kept_outputs = [node for node in graph.output if node.name not in (OUTPUT_IDS, OUTPUT_LENGTHS)]
    del graph.input[:], graph.output[:]
    graph.input.extend([helper.make_tensor_value_info(TEXT, kinds.STRING, ["batch"]), *kept_inputs])
    graph.output.extend([helper.make_tensor_value_info(TRANSLATION, kinds.STRING, ["batch"]), *kept_outputs])
    model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    onnx.save(model, str(path))


class _Nodes:
    """Nodes and constants for a graph that is an onnx message; onnx_ir holds no attribute that is not text."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph, self.made = graph, list[Any]()
        self._count = 0

    def constant(self, values: Any) -> str:
        """Add an initializer; → its name."""
        import onnx

        self._count += 1
        name = f"text.constant.{self._count}"
        array = np.asarray(values)
        if array.dtype.kind in "OU":
            encoded: Any = [str(text).encode("utf-8") for text in array.ravel()]
            tensor = onnx.helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, encoded)
        else:
            tensor = onnx.numpy_helper.from_array(array, name)
        self._graph.initializer.append(tensor)
        return name

    def __call__(
        self, operator: str, *inputs: Any, output: str | None = None, outputs: int = 1, **attributes: Any
    ) -> Any:
        """Add a node; inputs are names, or values for constants. → the name of its output, or of all."""
        import onnx

        self._count += 1
        names = [output] if output else [f"text.{operator}.{self._count}.{place}" for place in range(outputs)]
        given = [entry if isinstance(entry, str) else self.constant(entry) for entry in inputs]
        self.made.append(
            onnx.helper.make_node(operator, given, names, name=f"text/{operator}.{self._count}", **attributes)
        )
        return names[0] if outputs == 1 else names


def _ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def _encode(nodes: _Nodes, plan: Plan, padding: int) -> None:
    """text → input_ids, attention_mask: what MarianTokenizer.encode does, for a batch."""
    import onnx

    folder, tokenizer, direction = plan.checkpoint.folder, plan.tokenizer, plan.direction
    assert isinstance(tokenizer, MarianTokenizer)
    *prefix, eos = tokenizer.encode("", source=direction.source, target=direction.target)
    model = load_sentencepiece(folder / "source.spm")
    table = np.array(tokenizer.source_ids([model.id_to_piece(i) for i in range(model.get_piece_size())]), np.int64)
    off = np.array([False])
    found, begins = nodes(
        "SentencepieceTokenizer", TEXT, _ints(0), np.zeros(1, np.float32), off, off, off,
        outputs=2, domain=_DOMAIN, model=(folder / "source.spm").read_bytes(),
    )  # fmt: skip
    ids = nodes("Gather", table, nodes("Cast", found, to=onnx.TensorProto.INT64))
    count = nodes("Shape", ids)
    ids = nodes("Concat", ids, _ints(eos), axis=0)  # so that there is one to take, whatever the text
    first = nodes("Slice", begins, _ints(0), _ints(-1))
    lengths = nodes("Sub", nodes("Slice", begins, _ints(1), _ints(_END)), first)
    first, lengths = (nodes("Unsqueeze", x, _ints(1)) for x in (first, lengths))
    width = nodes("Add", nodes("ReduceMax", lengths, keepdims=0), np.array(1, np.int64))
    places = nodes("Range", np.array(0, np.int64), width, np.array(1, np.int64))
    taken = nodes("Gather", ids, nodes("Min", nodes("Add", first, places), count))
    after = nodes("Where", nodes("Equal", places, lengths), _ints(eos), _ints(padding))
    inside = nodes("LessOrEqual", places, lengths)
    rows = nodes("Where", nodes("Less", places, lengths), taken, after)
    mask = nodes("Cast", inside, to=onnx.TensorProto.INT64)
    if not prefix:
        nodes("Identity", rows, output=INPUT_IDS)
        nodes("Identity", mask, output=ATTENTION_MASK)
        return
    shape = nodes("Concat", nodes("Shape", rows, end=1), _ints(len(prefix)), axis=0)
    nodes("Concat", nodes("Expand", _ints(*prefix), shape), rows, axis=1, output=INPUT_IDS)
    nodes("Concat", nodes("Expand", _ints(1), shape), mask, axis=1, output=ATTENTION_MASK)


def _decode(nodes: _Nodes, plan: Plan) -> None:
    """output_ids → translation: what MarianTokenizer.decode does."""
    tokenizer = plan.tokenizer
    assert isinstance(tokenizer, MarianTokenizer)
    pieces = nodes("Gather", np.array(tokenizer.target_pieces(), object), OUTPUT_IDS)
    joined = nodes("StringJoin", pieces, np.array([""], object), _ints(1), domain=_DOMAIN)
    spaced = nodes(
        "StringRegexReplace", joined, np.array([_WORD_MARK], object), np.array([" "], object), domain=_DOMAIN
    )
    nodes(
        "StringRegexReplace", spaced, np.array([r"^\s+|\s+$"], object), np.array([""], object),
        domain=_DOMAIN, output=TRANSLATION,
    )  # fmt: skip


class TextModel:
    """A graph that takes text; its operator library needs a session of its own. Raises SessionError."""

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        if threads is not None:
            options.intra_op_num_threads = threads
        options.register_custom_ops_library(operator_library())
        try:
            self._session = ort.InferenceSession(os.fspath(path), options)
        except Exception as error:  # onnxruntime's exceptions derive from Exception alone
            raise SessionError(f"onnxruntime could not load {path.name}: {error}") from error

    def translate(self, texts: Sequence[str], **settings: Any) -> list[str]:
        """Translate texts in one batch; `settings` are further inputs of the graph."""
        feeds: Mapping[str, Any] = {TEXT: np.array(list(texts), object), **settings}
        try:
            found = self._session.run([TRANSLATION, SCORES], dict(feeds))
        except Exception as error:  # as above
            raise SessionError(f"onnxruntime could not run the graph: {error}") from error
        return [str(text) for text in found[0]]


def require_same_text(path: Path, ids: Path, plan: Plan, texts: Sequence[str]) -> None:
    """Compare with the same graph before it took text, given the library's ids. Raises VerificationError."""
    from onnxmt.layouts.single_run import Batch, SingleModel

    direction, tokenizer = plan.direction, plan.tokenizer
    encoded = [tokenizer.encode(text, source=direction.source, target=direction.target) for text in texts]
    single = SingleModel(ids)
    limit = min(48, plan.settings.length_limit - 1)
    wanted = [h[0].tokens for h in single.run(Batch.of(encoded, padding=0), max_new_tokens=limit)]
    single.close()
    found = TextModel(path).translate(texts, max_new_tokens=np.array([limit], np.int64))
    different = [text for text, one, ids in zip(texts, found, wanted, strict=True) if one != tokenizer.decode(ids)]
    if different:
        raise VerificationError(
            f"the graph with a tokenizer translates {len(different)} of {len(texts)} sentences otherwise than the "
            f"library, such as {different[0]!r}: nothing was written; leave --text out"
        )
