"""Cascades that are alike are measured once: what is said to be alike has the same choices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crtexport.ir.graph import Graph
from crtexport.ir.ops import MaxPool2D, Relu, Tanh
from crtexport.lowering.rows.bands import band
from crtexport.pipeline.cascades import heights, segments
from crtexport.pipeline.cascades.costs import BandCosts
from crtexport.pipeline.cascades.heights import choices
from crtexport.pipeline.cascades.segments import Segment, Segments
from crtexport.schedules.select.lower import Lowerer
from tests.helpers import target_of
from tests.lowering.rows.research import Layers, Q


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


@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_no_cascade_needs_less_than_its_bound(
    board: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[tuple[int, int]] = []
    measure = heights._Measuring._measure

    def noting(self: heights._Measuring, choice: heights.Choice) -> heights.Choice:
        found = measure(self, choice)
        bounds.append((choice.nbytes, found.nbytes))
        return found

    monkeypatch.setattr(heights._Measuring, "_measure", noting)
    graph = blocks(24)
    costs = BandCosts(graph, graph, Lowerer(target_of(board), "balanced"))
    for run in (range(2), range(4), range(1, 8), range(13)):
        assert choices(costs, run, graph.nodes[run[-1]].outputs)
    assert len(bounds) > 10
    assert all(0 < bound <= nbytes for bound, nbytes in bounds)


@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_many_rows_cost_about_what_is_expected_of_few(board: str) -> None:
    graph = blocks(24)
    lower = Lowerer(target_of(board), "balanced")
    costs = BandCosts(graph, graph, lower)
    expected = 0
    for number in range(13):
        for rows in (4, 8, 12):
            found = costs.of(number, rows)
            runs = (3 * costs.rows(number) // rows,)
            (node,) = lower(band(graph, graph.nodes[number], rows), runs=runs, around=graph).nodes
            counted = lower.costs.of(node.lowered.kernel)
            expected += found.instructions != counted.instructions
            assert abs(found.instructions / counted.instructions - 1) < 0.07
            assert found.facts.scratch <= node.facts.scratch
            freedom, exact = (f.forward.get((0, 0)) for f in (found.facts, node.facts))
            if freedom is not None and exact is not None:
                assert freedom.before <= exact.before + 16
                assert freedom.after >= exact.after - 16
    assert expected  # else none were derived


def drawn(rng: np.random.Generator) -> Graph:
    """Layers that widen and narrow, some of them in place, some of them added to earlier ones."""
    layers = Layers(1, 12, 12, 4, seed=int(rng.integers(100)))
    for _ in range(rng.integers(5, 12)):
        match rng.integers(5):
            case 0:
                layers.inverted(int(rng.integers(2, 7)) * 4, int(rng.choice([4, 8])))
            case 1:
                layers.x = layers.b.node(MaxPool2D((2, 2), (1, 1)), layers.x, quant=Q)
            case 2:
                layers.conv(int(rng.integers(2, 24)), int(rng.choice([1, 3])))
            case 3:
                layers.depthwise(3)
            case _:
                layers.x = layers.b.node(rng.choice([Relu(), Tanh()]), layers.x, quant=Q)
    return layers.mean_and_dense(3)


@pytest.mark.parametrize("longest", [3, 5, 96])
def test_cascades_that_are_left_out_are_in_no_path(
    longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_LONGEST", longest)
    rng = np.random.default_rng(longest)
    left_out, cascades = 0, 0
    for _ in range(5):
        graph = drawn(rng)
        costs = BandCosts(graph, graph, Lowerer(target_of("mps2_an386"), "balanced"))
        outside = {*graph.inputs, *graph.outputs} if rng.integers(2) else set()
        few = Segments(costs, outside)
        with monkeypatch.context() as patch:
            patch.setattr(Segments, "_single_bytes", lambda _: [math.inf] * 100)
            every = Segments(costs, outside)
        least = every.least
        assert least is not None
        assert least == few.least
        found = [segment for ended in every._by_end for segment in ended]
        left_out += len(found) - sum(map(len, few._by_end))
        for nbytes in {least, *(one.nbytes for one in found if one.nbytes > least)}:
            path = few.within(nbytes)
            assert path == every.within(nbytes)
            cascades += any(segment.rows for segment in path)
    assert cascades
    assert left_out > 0 or longest > 50


def test_networks_deeper_than_any_cascade_are_searched_in_no_pairs(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each of many equal layers needs what is alive between them, no cascade helps."""
    tried: list[Segment] = []
    add = Segments._add

    def noting(self: Segments, segment: Segment) -> None:
        tried.append(segment)
        add(self, segment)

    monkeypatch.setattr(Segments, "_add", noting)
    layers = Layers(1, 8, 8, 2)
    for _ in range(200):
        layers.x = layers.b.node(Relu(), layers.x, quant=Q)
    graph = layers.b.finish(layers.x)
    Segments(BandCosts(graph, graph, Lowerer(target_of("mps2_an386"), "balanced")), graph.inputs)
    assert len(tried) == 200
