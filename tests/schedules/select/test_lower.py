"""Kernels for several numbers of rows of one layer read its weights in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Conv2D, DepthwiseConv2D
from crtexport.ir.ops.base import Padding2D
from crtexport.ir.types import DType, Quantization
from crtexport.lowering.lowered_graph import LoweredNode, LoweredRows
from crtexport.lowering.registry import Context, Derived
from crtexport.lowering.rows.bands import cascade
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.select import choose, cost_model
from crtexport.schedules.select.cost_model import Cost
from crtexport.schedules.select.lower import Lowerer
from tests.helpers import target_of
from tests.plan.graphs import GraphBuilder

M4 = target_of("mps2_an386")
Q = Quantization((0.05,), (0,))


def _network() -> Graph:
    """A convolution of which a row has five pixels, and one behind it."""
    b, rng = GraphBuilder(), np.random.default_rng(3)
    x = b.input(1, 49, 10, 1, dtype=DType.INT8, quant=Q)

    def weights(*shape: int) -> int:
        return b.constant(rng.integers(-90, 90, shape).astype(np.int8), Quantization((0.01,), (0,)))

    x = b.node(
        Conv2D(stride=(2, 2), padding=Padding2D(4, 5, 1, 1)), x, weights(64, 10, 4, 1), quant=Q
    )
    x = b.node(DepthwiseConv2D(padding=Padding2D(1, 1, 1, 1)), x, weights(1, 3, 3, 64), quant=Q)
    return b.finish(x)


def _by_rows(context: Context, found: Sequence[Candidate], part: float) -> Candidate:
    """Chooses another variant for four rows at once than for others."""
    likely = [one for one in found if not one.rare]
    return likely[-1] if context.output().shape[1] == 4 else likely[0]


def _in_rows(lower: Lowerer, graph: Graph) -> tuple[LoweredRows, list[LoweredNode]]:
    """Lowers a graph in bands of four rows; and those of its convolution, several."""
    (node,) = lower(graph.with_nodes((cascade(graph.nodes, graph.outputs, (4, 4)),))).nodes
    assert node.rows is not None
    bands = [n for n in node.rows.lowered.nodes if isinstance(n.node.op, Conv2D)]
    assert len(bands) > 1
    return node.rows, bands


def _order(node: LoweredNode) -> bytes:
    return b"".join(
        chunk for arg in node.lowered.args if isinstance(arg, Derived) and arg.purpose == "weights"
        for chunk in arg.data.chunks()
    )


def test_weights_of_a_layer_are_stored_once_whatever_rows_are_computed_at_once() -> None:
    rows, bands = _in_rows(Lowerer(M4, "balanced", _by_rows), _network())
    assert len({_order(one) for one in bands}) == 1
    # Alone they would be read in several.
    alone = Lowerer(M4, "balanced", _by_rows)(rows.bands.graph).nodes
    assert len({_order(one) for one in alone if isinstance(one.node.op, Conv2D)}) > 1


@pytest.mark.parametrize(("optimize", "most"), [("compact", 1), ("balanced", 1), ("speed", 2)])
def test_rows_of_a_layer_share_one_variant_where_code_counts(optimize: str, most: int) -> None:
    _, bands = _in_rows(Lowerer(M4, optimize, _by_rows), _network())
    assert len({one.chosen for one in bands}) == most


def test_rows_have_the_variant_of_the_whole_layer_where_they_can() -> None:
    graph, lower = _network(), Lowerer(M4, "balanced")
    whole, _ = lower(graph).nodes
    _, bands = _in_rows(lower, graph)
    for one in bands:
        assert one.chosen == whole.chosen or whole.chosen not in one.candidates
    assert any(one.chosen == whole.chosen for one in bands)


def test_costs_are_known_of_nodes_that_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []
    estimate = cost_model.estimate

    def counting(*args: Any, **options: Any) -> Cost:
        counted.append(args)
        return estimate(*args, **options)

    monkeypatch.setattr(choose, "estimate", counting)
    graph, lower = _network(), Lowerer(M4, "balanced")
    first = lower(graph)
    assert counted
    counted.clear()
    assert [n.chosen for n in lower(graph).nodes] == [n.chosen for n in first.nodes]
    assert not counted
