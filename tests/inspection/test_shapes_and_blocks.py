"""Graphs as blocks: every node in one block, equal layers folded, shapes where ONNX's own inference gives none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from onnxmt.errors import BundleError
from onnxmt.graph_export import export_graphs
from onnxmt.inspection.graph_blocks import Block, GraphBlocks, Port, graph_blocks, merge_ports, read_graph_blocks
from onnxmt.inspection.tensor_shapes import tensor_shapes
from onnxmt.precision import Recipe, recipe
from onnxmt.weights import open_weights
from tests.models.random_checkpoint import write_random_checkpoint

MARIAN = {
    "model_type": "marian", "vocab_size": 40, "d_model": 16, "encoder_layers": 3, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 24,
    "max_position_embeddings": 20, "pad_token_id": 39, "decoder_start_token_id": 39,
}  # fmt: skip
M2M = {**MARIAN, "model_type": "m2m_100", "pad_token_id": 1}
T5 = {
    "model_type": "t5", "vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 3, "num_heads": 2,
    "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip


class _Checkpoint:
    """The part of a checkpoint that export_graphs reads."""

    def __init__(self, folder: Path, config: dict[str, object]) -> None:
        write_random_checkpoint(folder, config)
        self.config, self.weights = config, open_weights(folder)


def build(folder: Path, config: dict[str, object], precision: Recipe | None = None) -> dict[str, GraphBlocks]:
    folder.mkdir(exist_ok=True)
    checkpoint = _Checkpoint(folder / "checkpoint", config)
    export_graphs(checkpoint, folder, precision=precision or recipe("fp32"))  # type: ignore[arg-type]
    return {side: read_graph_blocks(folder / f"{side}.onnx") for side in ("encoder", "decoder")}


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GraphBlocks]:
    return build(tmp_path_factory.mktemp("marian"), MARIAN)


def titles(graph: GraphBlocks) -> list[tuple[str, tuple[int, int] | None]]:
    return [(block.title, block.layers) for block in graph.blocks]


def test_marian_blocks(marian: dict[str, GraphBlocks]) -> None:
    assert titles(marian["encoder"]) == [
        ("Embeddings", None),
        ("Self-attention", (0, 2)),
        ("Feed-forward", (0, 2)),
        ("Keys and values for cross-attention", (0, 1)),
    ]
    assert titles(marian["decoder"]) == [
        ("Embeddings", None),
        ("Self-attention", (0, 1)),
        ("Cross-attention", (0, 1)),
        ("Feed-forward", (0, 1)),
        ("Output projection", None),
    ]


def test_each_node_is_in_one_block(marian: dict[str, GraphBlocks], tmp_path: Path) -> None:
    build(tmp_path, MARIAN)
    for side, graph in marian.items():
        nodes = Counter(
            f"{node.domain}.{node.op_type}".lstrip(".") for node in ir.load(tmp_path / f"{side}.onnx").graph
        )
        found: Counter[str] = Counter({"Cast": 1})  # of the mask: it belongs to the input
        for block in graph.blocks:
            count = 1 if block.layers is None else block.layers[1] - block.layers[0] + 1
            for operator in block.operators:
                found[operator] += count
        assert found == nodes
        assert graph.nodes == sum(nodes.values())


def block_of(graph: GraphBlocks, title: str) -> Block:
    return next(block for block in graph.blocks if block.title == title)


def test_ports_and_weights_of_a_block(marian: dict[str, GraphBlocks]) -> None:
    attention = block_of(marian["decoder"], "Self-attention")
    assert attention.inputs == (Port(name="past.{i}.key|value", dtype="float", axes=("batch", 4, "past", 4)),)
    assert attention.outputs == (Port(name="present.{i}.key|value", dtype="float", axes=("batch", 4, "present", 4)),)
    assert attention.scope == "model.decoder.layers.{0…1}"
    matrices = {weight.name: weight.shape for weight in attention.weights if len(weight.shape) == 2}
    assert sorted(matrices.values()) == [(16, 16), (16, 48)]
    assert block_of(marian["encoder"], "Self-attention").inputs[0].name == "attention_mask"
    cross = block_of(marian["decoder"], "Cross-attention")
    assert {port.name for port in cross.inputs} == {"cross.{i}.key|value", "attention_mask"}
    lengths = {port.name: port.only_length for port in block_of(marian["decoder"], "Embeddings").inputs}
    assert lengths == {"input_ids": False, "past.0.key": True}


def test_arrows_carry_shapes_and_layers_are_chained_or_side_by_side(marian: dict[str, GraphBlocks]) -> None:
    for side, axis in (("encoder", "source"), ("decoder", "target")):
        graph = marian[side]
        assert [(edge.start, edge.end) for edge in graph.edges] == [(i, i + 1) for i in range(len(graph.blocks) - 1)]
        assert {edge.shape for edge in graph.edges} == {("batch", axis, 16)}
    assert [block.chained for block in marian["encoder"].blocks] == [False, True, False, False]


def test_a_tied_head_is_the_same_array_as_the_embedding(marian: dict[str, GraphBlocks]) -> None:
    table = next(w for w in block_of(marian["encoder"], "Embeddings").weights if "embed_tokens" in w.name)
    head = next(w for w in block_of(marian["decoder"], "Output projection").weights if len(w.shape) == 2)
    assert head.place == table.place
    assert head.bytes == 40 * 16 * 4


def test_pre_norm_layers_that_differ_stay_apart(tmp_path: Path) -> None:
    """The first layer's norm stands alone, the later ones' are fused with a sum: other operators, so another layer."""
    graphs = build(tmp_path, M2M)
    assert titles(graphs["encoder"]) == [
        ("Embeddings", None),
        ("Self-attention", (0, 0)),
        ("Feed-forward", (0, 0)),
        ("Self-attention", (1, 2)),
        ("Feed-forward", (1, 2)),
        ("Final norm", None),
        ("Keys and values for cross-attention", (0, 1)),
    ]
    skip = [(edge.start, edge.end) for edge in graphs["encoder"].edges if edge.end != edge.start + 1]
    assert skip == [(0, 2)]  # the residual stream passes over the first attention


def test_a_layer_of_another_precision_stays_apart(tmp_path: Path) -> None:
    mixed = replace(recipe("int8"), name="mixed", keep_fp32=("model.encoder.layers.2.*",))
    blocks = build(tmp_path, MARIAN, mixed)["encoder"].blocks
    assert [block.layers for block in blocks if block.title == "Feed-forward"] == [(0, 1), (2, 2)]
    assert "com.microsoft.MatMulNBits" in blocks[2].operators
    assert "com.microsoft.MatMulNBits" not in blocks[4].operators


def test_t5_blocks(tmp_path: Path) -> None:
    graphs = build(tmp_path, T5)
    found = {title for title, layers in titles(graphs["decoder"]) if layers is not None}
    assert found == {"Self-attention", "Cross-attention", "Feed-forward"}
    spans = [layers for title, layers in titles(graphs["decoder"]) if title == "Cross-attention"]
    assert spans[0] is not None
    assert spans[-1] is not None
    assert (spans[0][0], spans[-1][1]) == (0, 2)


def test_keys_and_values_of_all_layers_are_one_port() -> None:
    axes = ("batch", 2, "past", 4)
    names = ["input_ids", *(f"past.{i}.{part}" for i in range(3) for part in ("key", "value"))]
    merged = merge_ports(Port(name=name, dtype="float", axes=axes) for name in names)
    assert [port.name for port in merged] == ["input_ids", "past.0…2.key|value"]


def test_shapes_go_through_operators_that_onnx_does_not_know(tmp_path: Path) -> None:
    build(tmp_path, MARIAN)
    graph = ir.load(tmp_path / "decoder.onnx").graph
    shapes = tensor_shapes(graph)
    by_operator = {node.op_type: shapes.get(node.outputs[0].name or "") for node in graph}
    assert by_operator["MultiHeadAttention"] == ("batch", "target", 16)
    assert by_operator["LayerNormalization"] == ("batch", "target", 16)
    assert by_operator["Gemm"] == ("batch", 40)
    split = next(node for node in graph if node.op_type == "Split")
    assert [shapes[output.name or ""] for output in split.outputs] == [("batch", "target", 16)] * 3


def test_a_graph_of_another_maker_is_still_blocks() -> None:
    """Nodes without module scopes: one block, nothing breaks."""
    x = ir.val("x", ir.DataType.FLOAT, [1, 4])
    node = ir.node("Relu", [x], name="n1")
    node.outputs[0].name = "y"
    graph = ir.Graph([x], [node.outputs[0]], nodes=[node], opset_imports={"": 18})
    blocks = graph_blocks(graph, file="x.onnx").blocks
    assert [(block.title, block.operators) for block in blocks] == [("Other operators", ("Relu",))]


def test_a_file_that_is_no_graph_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"\x00not a graph\xff" * 9)
    with pytest.raises(BundleError, match=r"x\.onnx is not an ONNX file"):
        read_graph_blocks(tmp_path / "x.onnx")
    with pytest.raises(BundleError, match="No such file"):
        read_graph_blocks(tmp_path / "none.onnx")
