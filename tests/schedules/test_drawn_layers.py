"""Of drawn networks, every variant that a schedule has of a node computes what its plain kernel
does, on processors of all kinds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from crtexport.firmware.board import load_board
from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Op
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context, Lowered
from crtexport.pipeline.driver import prepare
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.variants import PLAIN, variants_of
from crtexport.support.errors import CrtExportError
from tests.differential.network import Values, add_constants, run_kernel
from tests.fuzz.drawn import drawn
from tests.fuzz.growing import Array, Drawing, Grown
from tests.lowered import unwritten

BOARDS = (
    "qemu_cortex_m0", "mps2_an385", "mps2_an386", "mps3_an547", "qemu_riscv32", "qemu_riscv32_v",
    "host", "host_avx2", "host_vnni", "host_avx512",
)
NETWORKS = 52
"""Drawn for each board: others for each."""

KINDS: tuple[type[Op], ...] = (
    ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected, ops.BatchMatMul, ops.TransposeConv2D,
    ops.AveragePool2D, ops.MaxPool2D, ops.Mean, ops.Add, ops.Mul, ops.Lstm,
    ops.UnidirectionalSequenceLstm, ops.TreeEnsemble,
)
"""Operators with schedules, one of which is in each network."""


def prepared(grown: Grown, board: str) -> Graph | None:
    """Returns the network as passes leave it for a board; None where a rule is broken."""
    try:
        # For speed, nodes run one after the other.
        made = prepare(grown.graph, load_board(board), system_lib=False, optimize="speed")
    except CrtExportError:
        return None
    return made.lowered.graph


def chosen(context: Context, board: str, draw: Drawing) -> Iterator[Candidate]:
    """All that a schedule wrote, and now and then loops that it only copied."""
    optimize = draw.choice(("balanced", "speed"))
    for variant in variants_of(context, load_board(board).target, optimize):
        if variant.name != PLAIN and (PLAIN not in variant.name or draw.chance(5)):
            yield variant


def computed(graph: Graph, node: Node, lowered: Lowered, values: Values) -> Values:
    """Returns the outputs of a node, and the variables that it writes."""
    found = {tensor: values[tensor].copy() for tensor in graph.written(node)}
    for tensor in node.outputs:
        found[tensor] = unwritten(graph.type(tensor))
    run_kernel(graph, node, lowered, {**values, **found})
    return found


def assert_alike(found: Array, wanted: Array, inputs: list[Array], what: str) -> None:
    """Integers are equal; floats are near, measured by the largest sum that they may be of."""
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, what)
        return
    reals = [np.abs(x[np.isfinite(x)]).max(initial=1.0) for x in inputs if x.dtype.kind == "f"]
    reach = 1e-6 * math.prod(float(x) for x in reals) * max(x.size for x in inputs) ** 0.5
    np.testing.assert_allclose(found, wanted, 1e-5, max(reach, 1e-6), err_msg=what)


def nodes_with_values(graph: Graph, runs: tuple[Array, ...]) -> Iterator[tuple[Context, Values]]:
    """Goes through the nodes; with each come the values of all tensors before it."""
    values: Values = dict(zip(graph.inputs, runs, strict=True))
    add_constants(graph, values)
    for node in graph.nodes:
        if isinstance(node.op, ops.If | ops.While):
            return
        if isinstance(node.op, ops.Quantize) and any(
            np.isnan(values[t]).any() for t in node.inputs if t is not None
        ):
            return  # C leaves open what becomes of it
        context = Context(graph, node)
        yield context, values
        values |= computed(graph, node, operator_table.lower(context), values)


@pytest.mark.parametrize("board", BOARDS)
def test_every_variant_computes_what_the_plain_kernel_does(board: str) -> None:
    tried = 0
    for number in range(NETWORKS):
        grown = drawn(f"{board} {number}", KINDS[number % len(KINDS)])
        graph, draw = prepared(grown, board), Drawing(number)
        if graph is None:
            continue
        for context, values in nodes_with_values(graph, grown.runs[0]):
            node = context.node
            variants = [*chosen(context, board, draw)]
            if not variants:
                continue
            wanted = computed(graph, node, operator_table.lower(context), values)
            inputs = [values[t] for t in node.inputs if t is not None]
            for variant in variants:
                found = computed(graph, node, variant.make(), values)
                what = f"network {number}, {node.origin}, {variant.name}"
                for tensor, value in wanted.items():
                    assert_alike(found[tensor], value, inputs, what)
                tried += 1
    assert tried > 5
