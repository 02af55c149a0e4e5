"""Scales behind float layers become part of their weights."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport import passes
from crtexport.ir import ops
from tests.differential.network import interpret
from tests.plan.graphs import GraphBuilder


@pytest.mark.parametrize("kind", [ops.Mul, ops.Div, ops.Add, ops.Sub])
@pytest.mark.parametrize("number", [0.5, 1.0, 2.0, 3.0])
def test_a_layer_with_a_number_behind_it_gives_the_same(
    kind: type[ops.Op], number: float
) -> None:
    """Powers of two, and so exactly; a factor of 1 changes no weights."""
    b = GraphBuilder()
    x = b.input(2, 3)
    rng = np.random.default_rng(1)
    weights = rng.integers(-9, 9, (4, 3)).astype(np.float32)
    layer = b.node(ops.FullyConnected(), x, b.constant(weights))
    y = b.node(kind(), layer, b.constant(np.full(4, number, np.float32)))
    graph = b.finish(y)
    folded = passes.run(graph)
    assert len(folded.nodes) == 1
    data = rng.integers(-9, 9, (2, 3)).astype(np.float32)
    (expected,), (found,) = interpret(graph, [data]), interpret(folded, [data])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
