"""An operator behind which a graph output is transposed reads the graph's input as it came."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Activation, Add, Exp, Maximum, Mul, Op, Reshape, Sub, Transpose
from crtexport.passes import run
from crtexport.passes.move_transposes import move_transposes
from tests.differential.network import interpret
from tests.plan.graphs import GraphBuilder

SHAPE = (1, 3, 5, 7)
X = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def network(op: Op, *, swapped: bool, back: tuple[int, ...] = (0, 3, 1, 2)) -> Graph:
    """``op`` of an input and its exponentials, computed with channels last."""
    b = GraphBuilder()
    rows = b.node(Reshape((3, 35)), b.input(*SHAPE))
    last = b.node(Reshape((1, 5, 7, 3)), b.node(Transpose((1, 0)), rows))
    made = b.node(Exp(), last)
    result = b.node(op, *((made, last) if swapped else (last, made)))
    return b.finish(b.node(Transpose(back), result))


def reads_the_input(graph: Graph) -> bool:
    """Whether the last operator does, reshaped or not."""
    views = {*graph.inputs}
    for node in graph.nodes:
        if isinstance(node.op, Reshape) and node.inputs[0] in views:
            views.add(node.outputs[0])
    return not views.isdisjoint({t for t in graph.nodes[-1].inputs if t is not None})


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("op", "function"),
    [
        (Add(), np.add), (Sub(), np.subtract), (Mul(), np.multiply), (Maximum(), np.maximum),
        (Sub(Activation.RELU), lambda a, b: np.maximum(a - b, 0)),
    ],
)
def test_the_other_operand_is_transposed(
    op: Op, function: Callable[..., np.ndarray], swapped: bool
) -> None:
    graph = network(op, swapped=swapped)
    moved = run(graph)
    assert reads_the_input(moved)
    assert not reads_the_input(graph)
    assert sum(isinstance(n.op, Transpose) for n in moved.nodes) == 2
    operands = (np.exp(X), X) if swapped else (X, np.exp(X))
    (found,) = interpret(moved, [X])
    np.testing.assert_allclose(found, function(*operands), rtol=1e-5)


def test_another_order_stays() -> None:
    graph = network(Add(), swapped=False, back=(0, 3, 2, 1))
    assert move_transposes(graph) == graph


def test_a_result_that_something_else_reads_stays() -> None:
    b = GraphBuilder()
    last = b.node(Transpose((0, 2, 3, 1)), b.input(*SHAPE))
    result = b.node(Add(), last, b.node(Exp(), last))
    graph = b.finish(b.node(Transpose((0, 3, 1, 2)), result), b.node(Exp(), result))
    assert move_transposes(graph) == graph
