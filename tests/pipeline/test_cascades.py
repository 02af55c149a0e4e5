"""Cascades that are alike are measured once: what is said to be alike has the same choices."""

from __future__ import annotations

from crtexport.ir.graph import Graph
from crtexport.pipeline.cascades.costs import BandCosts
from crtexport.pipeline.cascades.heights import choices
from crtexport.schedules.select.lower import Lowerer
from tests.helpers import target_of
from tests.lowering.rows.research import Layers


def blocks(size: int = 12) -> Graph:
    """Inverted residuals, in which the last layer reads again what the first one read: three alike,
    and one whose windows are larger."""
    layers = Layers(1, size, size, 4)
    layers.inverted(8, 4).inverted(8, 4).inverted(8, 4, 5).inverted(8, 4)
    return layers.mean_and_dense(3)


def test_runs_of_nodes_that_are_alike_have_the_same_choices() -> None:
    graph = blocks()
    costs = BandCosts(graph, graph, Lowerer(target_of("mps2_an386"), "balanced"))
    alike: dict[object, list[range]] = {}
    for start in range(12):
        for end in range(start + 2, min(start + 6, 12) + 1):
            run = range(start, end)
            if all(map(costs.can, run)):
                alike.setdefault(costs.structure(run, graph.nodes[end - 1].outputs), []).append(run)
    several = [runs for runs in alike.values() if len(runs) > 1]
    assert several
    for runs in several:
        first, *others = (choices(costs, run, graph.nodes[run[-1]].outputs) for run in runs)
        assert first
        assert all(other == first for other in others)


def test_what_is_read_later_and_other_readers_make_a_difference() -> None:
    graph = blocks()
    costs = BandCosts(graph, graph, Lowerer(target_of("mps2_an386"), "balanced"))
    block = range(4)
    last, first = graph.nodes[3].outputs, graph.nodes[0].outputs
    assert costs.structure(block, last) != costs.structure(block, (*first, *last))
    assert costs.structure(range(4), last) == costs.structure(range(4, 8), graph.nodes[7].outputs)
    assert costs.structure(range(4), last) != (
        costs.structure(range(8, 12), graph.nodes[11].outputs)  # windows of 5x5
    )
