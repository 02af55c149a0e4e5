"""Drawn networks of all operators: exported without an internal error, and computing one thing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.ir import ops
from crtexport.ir.graph import Graph
from crtexport.kir.analysis.integer_values import NamedValues
from crtexport.simulation.reference import find_runtime
from crtexport.support.errors import ToolMissingError
from tests.fuzz import artifacts
from tests.fuzz.checking import Checker, Example, Options, Outcome
from tests.fuzz.drawn import NOT_DRAWN, OPERATORS, PRODUCERS, drawn
from tests.fuzz.graphs import Tally, example, operators_of, rule
from tests.fuzz.growing import Grown
from tests.fuzz.reduction import kept, reduced
from tests.helpers import require, unavailable
from tests.plan.graphs import GraphBuilder

BATCHES, SIZE = 10, 20
"""Networks of the test suite; ``python -m tests.fuzz.graphs`` draws others."""


def test_every_operator_is_drawn() -> None:
    """A new operator needs a producer, or a reason why it has none."""
    assert set(OPERATORS) == {*PRODUCERS, *NOT_DRAWN}
    assert not PRODUCERS.keys() & NOT_DRAWN.keys()
    for number, kind in enumerate(PRODUCERS):
        names = {name for seed in range(3) for name in operators_of(
            drawn(f"{number} {seed}", kind).graph
        )}
        assert kind.__name__ in names


def test_the_same_seed_draws_the_same_network() -> None:
    for seed in range(20):
        first, second = example(seed), example(seed)
        assert first.grown.graph == second.grown.graph
        assert first.options == second.options
        for ours, theirs in zip(first.grown.runs, second.grown.runs, strict=True):
            for one, two in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_drawn_networks_are_exported_and_compute_one_thing(batch: int) -> None:
    """On the host, a Cortex-M4 and an M55: plan and proof, interpreter, C, LLVM, reference."""
    require("gcc")
    tally = Tally()
    with Checker() as checker:
        outcomes = checker.check([example(SIZE * batch + number) for number in range(SIZE)])
    found = [outcome for outcome in outcomes if tally.add(outcome)]
    assert not found, _told(found[0])
    assert tally.refusals.total() <= SIZE // 4
    # Many have an operator of ONNX, which the runtime doesn't know.
    assert tally.references["agreed"] >= SIZE // 10 or tally.references["not there"] >= SIZE // 4


def test_the_reference_is_there() -> None:
    """Without it the networks are compared with each other alone."""
    try:
        find_runtime("tflite-runtime")
    except ToolMissingError as missing:
        unavailable("tflite_runtime", str(missing))


def _told(outcome: Outcome) -> str:
    return f"network {outcome.example.seed}: {outcome.finding}\n{outcome.detail}"


def resizing() -> Graph:
    b = GraphBuilder()
    x = b.node(ops.Relu(), b.node(ops.Relu(), b.input(1, 2, 1, 4)))
    return b.finish(b.node(ops.Mean((1, 2)), b.node(ops.ResizeBilinear((6, 1)), x)))


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof by replay follows no loaded numbers; the planner does."""
    plain = NamedValues.reach
    monkeypatch.setattr(NamedValues, "reach", lambda names, expr: (
        plain(names, expr) if names.variables(expr) is not None else None
    ))


@pytest.mark.usefixtures("blind")
def test_a_plan_that_the_checker_refuses_is_found_and_made_small(
    tmp_path: Path,
) -> None:
    given = np.arange(8, dtype=np.float32).reshape(1, 2, 1, 4)
    whole = Example("resizing", Grown(resizing(), ((given,), (given,))), Options())
    with Checker(("host",)) as checker:
        (found,) = checker.check([whole])
    assert found.finding.startswith("export: PlanError")
    smaller = reduced(found)
    assert smaller.finding == found.finding
    assert len(smaller.example.grown.graph.nodes) <= 3
    assert sorted(p.name for p in kept(smaller, tmp_path).iterdir())[:2] == [
        "finding.txt", "inputs.npz"
    ]


def between_layers(op: ops.Op, before: tuple[int, int], *, weighted: bool) -> Grown:
    """A network of floats that resizes between two convolutions or two Relus."""
    draw = np.random.default_rng(5)
    b = GraphBuilder()

    def layer(x: int) -> int:
        if not weighted:
            return b.node(ops.Relu(), x)
        weights = draw.normal(size=(4, 1, 1, 4)).astype(np.float32)
        return b.node(ops.Conv2D(), x, b.constant(weights))

    graph = b.finish(layer(b.node(op, layer(b.input(1, *before, 4)))))
    images = (draw.normal(size=(1, *before, 4)).astype(np.float32) for _ in range(2))
    return Grown(graph, tuple((image,) for image in images))


@pytest.mark.parametrize("kind", [ops.ResizeBilinear, ops.ResizeNearestNeighbor])
def test_images_are_resized_between_layers_of_any_size(
    kind: type[ops.ResizeBilinear | ops.ResizeNearestNeighbor],
) -> None:
    """What the planner lets lie over each other, its checker must prove harmless."""
    examples = [
        Example(f"{op} {before} {weighted}", between_layers(op, before, weighted=weighted),
                Options())
        for before, after in (
            ((1, 1), (2, 2)), ((2, 3), (5, 4)), ((4, 5), (2, 2)), ((3, 3), (6, 6)),
        )
        for op in (kind(after), kind(after, align_corners=True),
                   kind(after, half_pixel_centers=True))
        for weighted in (False, True)
    ]
    with Checker() as checker:
        outcomes = checker.check(examples)
    assert [_told(outcome) for outcome in outcomes if outcome.finding] == []


def test_code_that_computes_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    graph = b.finish(b.node(ops.Add(), b.input(3), b.input(3)))
    runs = ((np.ones(3, np.float32), np.array([1, 2, 3], np.float32)),)
    one = Example("sum", Grown(graph, runs), Options())
    with Checker(("host",)) as checker:
        assert not checker.check([one])[0].finding
    plain = artifacts.emit_c
    monkeypatch.setattr(artifacts, "emit_c", lambda artifact: {
        name: text.replace("] + ", "] - ") for name, text in plain(artifact).items()
    })
    with Checker(("host",)) as checker:
        assert checker.check([one])[0].finding == "C for host against interpreter"


def test_refusals_are_told_by_their_rule() -> None:
    text = "1 node can't be exported:\n  operator 3 (Pad): Inputs must be alike. (found 2)"
    assert rule(text) == "Inputs must be alike"
    assert rule("int8[1x2] has no scale") == "a tensor has no scale"
