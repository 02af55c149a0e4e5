"""Decision trees as tables and as comparisons give the same, and the smaller form is taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.ir.graph import Graph
from crtexport.ir.ops import TreeEnsemble
from crtexport.lowering.ops import trees
from crtexport.lowering.registry import Context, Derived
from crtexport.schedules.variants import variants_of
from tests.differential.backends import assert_backends_agree
from tests.differential.network import Array, Step, Values, steps
from tests.differential.numpy_cases import walked
from tests.helpers import target_of
from tests.plan.graphs import GraphBuilder

M4 = target_of("mps2_an386")
SPECIAL = np.array([0, -0.0, 1, np.nan, np.inf, -np.inf], np.float32)
FORMS = {"tables": trees.tables, "comparisons": trees.comparisons}


def grown(
    rng: np.random.Generator, nodes: int, width: int, leaves: int, targets: int = 2
) -> list[Array]:
    """The constants of trees with ``nodes`` comparisons in all; NaN goes left in about half of
    them, leaves come again."""
    features = rng.integers(-width, width, nodes).astype(np.int16)
    thresholds = rng.choice(np.append(SPECIAL, rng.normal(0, 1, 9)), nodes).astype(np.float32)
    children = ~rng.integers(0, leaves, (nodes, 2)).astype(np.int16)
    roots = [0]
    for node in range(1, nodes):
        free = np.argwhere(children[:node] < 0)
        if rng.random() < 0.2:
            roots.append(node)
        else:
            children[tuple(free[rng.integers(len(free))])] = node
    values = rng.integers(-9, 10, (leaves, targets)) / 4
    return [features, thresholds, children, np.array(roots, np.int16), values.astype(np.float32)]


def forest(tables: list[Array], rows: int, width: int) -> Graph:
    b = GraphBuilder()
    x = b.input(rows, width)
    return b.finish(*b.node_of(TreeEnsemble(), x, *(b.constant(table) for table in tables)))


def variants(tables: list[Array], width: int, optimize: str) -> list[str]:
    graph = forest(tables, 1, width)
    return [found.name for found in variants_of(Context(graph, graph.nodes[0]), M4, optimize)]


def test_both_forms_walk_from_the_roots_to_the_leaves(tmp_path: Path) -> None:
    found: list[Step] = []
    for seed, (nodes, width, leaves) in enumerate(
        [(1, 1, 1), (9, 3, 5), (40, 130, 7), (90, 300, 64), (300, 5, 200)]
    ):
        rng = np.random.default_rng(seed)
        tables = grown(rng, nodes, width, leaves)
        graph = forest(tables, 7, width)
        x = np.where(
            rng.random((7, width)) < 0.5, rng.choice(SPECIAL, (7, width)),
            rng.normal(0, 1, (7, width)),
        ).astype(np.float32)
        for lower in FORMS.values():
            values: Values = {graph.inputs[0]: x}
            found += steps(graph, values, lower)
            np.testing.assert_array_equal(values[graph.outputs[0]], walked(x, *tables))
    assert_backends_agree(found, tmp_path)


@pytest.mark.parametrize(
    ("nodes", "optimize", "compared"),
    [(4, "size", True), (4, "balanced", True), (60, "size", False), (60, "balanced", False),
     (60, "speed", True), (5000, "speed", False)],
)
def test_comparisons_are_for_few_or_for_speed(nodes: int, optimize: str, compared: bool) -> None:
    tables = grown(np.random.default_rng(1), nodes, 6, 9)
    assert (variants(tables, 6, optimize) == ["comparisons"]) is compared


def test_deep_trees_are_not_nested() -> None:
    nodes = 100
    children = np.stack([np.append(np.arange(1, nodes), ~0), np.full(nodes, ~0)], 1)
    chain = [
        np.zeros(nodes, np.int16), np.arange(nodes, dtype=np.float32), children.astype(np.int16),
        np.zeros(1, np.int16), np.ones((1, 1), np.float32),
    ]
    assert variants(chain, 1, "speed") != ["comparisons"]


def test_numbers_take_as_few_bytes_as_they_need() -> None:
    """A byte each for the feature, the number of the threshold and, below 256, each child."""
    rng = np.random.default_rng(2)
    for nodes, leaves, bytes_each in ((200, 50, 4), (300, 50, 6)):
        graph = forest(grown(rng, nodes, 9, leaves), 1, 9)
        lowered = trees.tables(Context(graph, graph.nodes[0]))
        sizes = {
            arg.purpose: arg.data.nbytes for arg in lowered.args if isinstance(arg, Derived)
        }
        each = ("features", "thresholds_numbers", "children")
        assert sum(sizes[name] for name in each) == bytes_each * nodes
        assert sizes["thresholds"] == 16 * 4
