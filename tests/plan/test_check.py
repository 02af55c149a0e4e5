"""The checker finds every mistake in a plan, and says what it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from crtexport.ir.ops import Concatenation, Pad, Relu, Softmax
from crtexport.passes import simplify
from crtexport.plan import Placement, Plan, Space, Step, plan
from crtexport.plan.check import PlanError, check
from crtexport.plan.kernel_proof import ReplayProof
from tests.control.networks import Network, branch, collatz
from tests.lowered import plain, without_kernels
from tests.plan.graphs import GraphBuilder
from tests.plan.plans import at, moved, residual


def test_the_checker_says_what_is_wrong() -> None:
    graph, good = residual()
    wrong: list[tuple[Plan, str]] = [
        (moved(good, 2, at(0)),
         r"1 \(Softmax\) overwrites what it reads: tensor 1 't1' is bytes 0 to 32 of workspace, t"),
        (moved(good, 3, at(16)), r"operator 3 \(Reshape\) never runs"),
        (moved(good, 2, None), "tensor 2 't2' is used but has no place"),
        (moved(good, 2, at(48)), r"takes bytes 48 to 80 of workspace, which has 64"),
        (moved(good, 2, at(-16)), r"takes bytes -16 to 16 of workspace"),
        (moved(replace(good, workspace_size=128), 2, at(42)), "not aligned to 4"),
        (moved(good, 5, at(32)), "graph output 0, tensor 5 't5', ends in bytes 32 to 40"),
        (moved(good, 5, Placement(Space.OUTPUT, 1)), "output 1, which doesn't exist"),
        (moved(good, 1, Placement(Space.INPUT, 0)), r"writes tensor 1 't1' to bytes 0 to 32 of i"),
        (moved(good, 1, Placement(Space.CONSTANT, 3)), "which doesn't exist"),
        (moved(good, 0, Placement(Space.OUTPUT, 0)), "0 to 32 of output 0, which has 8"),
        (replace(good, alignment=3), "alignment 3"),
        (replace(good, placements=good.placements[1:]), "another number of tensors"),
        (replace(good, steps=(*good.steps, Step(9))), "there is no node 9"),
        (replace(good, steps=(good.steps[1], good.steps[0], *good.steps[2:])), "nothing yet"),
        (replace(good, steps=(*good.steps[:2], Step(2), *good.steps[3:])), "overwrites what it"),
        (replace(good, steps=(*good.steps[:2], Step(2, ((0, 0), (0, 1))), *good.steps[3:])),
         "says in place"),
        (replace(good, steps=(good.steps[0], *good.steps[2:])), "operator 1 .* never runs"),
        (replace(good, steps=(Step(0, ((0, 0),)), *good.steps[1:])), "says in place"),
    ]
    for bad, message in wrong:
        with pytest.raises(PlanError, match=message):
            check(graph, bad, ReplayProof(plain(graph)))


def test_the_checker_names_what_overwrote_a_tensor() -> None:
    b = GraphBuilder()
    x = b.input(1, 8)
    a = b.node(Softmax(), x)
    c = b.node(Softmax(), x)
    graph = b.finish(b.node(Concatenation(1), a, c))
    good = plan(without_kernels(graph))
    with pytest.raises(PlanError, match=(
        r"operator 2 \(Concatenation\) reads tensor 1 't1' \(bytes 0 to 32 of workspace\), but "
        r"bytes 16 to 32 hold tensor 2 't2'"
    )):
        check(graph, moved(good, c, at(16)), ReplayProof(plain(graph)))


def test_nothing_may_be_in_place_without_a_proof() -> None:
    graph, good = residual()
    with pytest.raises(PlanError, match="can't work in place"):
        check(graph, good)


def test_an_output_must_not_run_into_what_is_still_read() -> None:
    """A sum may be written over its operand or behind it, but not ahead of it."""
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 8))
    c = b.node(Relu(), a)
    graph = b.finish(b.node(Pad(((0, 0), (0, 1))), c))
    steps = (Step(0), Step(1, ((0, 0),)), Step(2))
    placements = (Placement(Space.INPUT, 0), at(16), at(0), Placement(Space.OUTPUT, 0))
    behind = Plan(steps, placements, 64, 16)
    check(graph, behind, ReplayProof(plain(graph)))
    with pytest.raises(PlanError, match="can't work in place"):
        check(graph, moved(behind, c, at(32)), ReplayProof(plain(graph)))


@pytest.mark.parametrize("make", [branch, collatz])
def test_the_plans_of_inner_graphs_may_not_be_forgotten(make: Callable[[], Network]) -> None:
    graph = simplify(make().graph).graph
    good = plan(plain(graph))
    check(graph, good, ReplayProof(plain(graph)))
    for number, step in enumerate(good.steps):
        for kept in range(len(step.inner)):
            steps = list(good.steps)
            steps[number] = replace(step, inner=step.inner[:kept])
            with pytest.raises(PlanError, match=f"has 2 graphs, but {kept} plans of them"):
                check(graph, replace(good, steps=tuple(steps)), ReplayProof(plain(graph)))


@pytest.mark.parametrize("make", [branch, collatz])
def test_inner_graphs_are_planned_for_the_node_that_runs_them(make: Callable[[], Network]) -> None:
    graph = simplify(make().graph).graph
    good = plan(plain(graph))
    number, step = next((n, step) for n, step in enumerate(good.steps) if step.inner)
    first, *others = step.inner
    own = "planned as if it were a network of its own"
    for inner, message in (
        (replace(first, plan=replace(first.plan, io_in_workspace=True)), own),
        (replace(first, plan=replace(first.plan, alignment=2 * good.alignment)), own),
        (replace(first, outputs=()), "doesn't put its outputs where"),
    ):
        steps = list(good.steps)
        steps[number] = replace(step, inner=(inner, *others))
        with pytest.raises(PlanError, match=message):
            check(graph, replace(good, steps=tuple(steps)), ReplayProof(plain(graph)))
