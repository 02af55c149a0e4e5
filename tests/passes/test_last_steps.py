"""Recurrent layers of which only the last step is read don't keep the others."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.ir.graph import Graph
from crtexport.ir.ops import (
    Direction,
    GateFunction,
    Gather,
    Gru,
    Lstm,
    Recurrent,
    Relu,
    Reshape,
    Rnn,
    Slice,
    Transpose,
)
from crtexport.passes import run
from tests.differential.network import interpret
from tests.plan.graphs import GraphBuilder

STEPS, BATCHES, DEPTH, UNITS = 5, 2, 3, 4
GATES: dict[type[Recurrent], tuple[int, int]] = {Rnn: (1, 1), Gru: (3, 4), Lstm: (4, 4)}
"""The numbers of weights and of biases that a unit has for each value."""


def layer(b: GraphBuilder, op: Recurrent, *, lengths: bool = False) -> list[int]:
    """A layer with random weights; returns its outputs."""
    rng = np.random.default_rng(1)
    gates, biases = GATES[type(op)]
    directions = 1 + (op.direction is Direction.BIDIRECTIONAL)

    def floats(*shape: int) -> int:
        return b.constant(rng.normal(0, 0.5, shape).astype(np.float32))

    x = b.input(*((BATCHES, STEPS) if op.batch_major else (STEPS, BATCHES)), DEPTH)
    weights = [floats(directions, UNITS, n, gates) for n in (DEPTH, UNITS)]
    valid = b.constant(np.array([2, 4], np.int32)) if lengths else None
    states = [floats(directions, BATCHES, UNITS) for _ in range(1 + isinstance(op, Lstm))]
    return b.node_of(op, x, *weights, floats(directions, UNITS, biases), valid, *states)


def read(b: GraphBuilder, op: Recurrent, steps: int, step: int, way: str) -> int:
    """Reads one step: as (batches, directions * units)."""
    axis, width = int(op.batch_major), b.tensors[steps].type.shape[2] * UNITS
    outer = (BATCHES, STEPS) if op.batch_major else (STEPS, BATCHES)
    flat = b.node(Reshape((*outer, width)), steps)
    if way == "transpose":
        flat, axis = b.node(Transpose((1, 0, 2)), flat), 1 - axis
    if way == "slice":
        begin, size = [0, 0, 0], [*outer, width]
        begin[axis], size[axis] = step, 1
        return b.node(Slice(tuple(begin), tuple(size), (1, 1, 1), (BATCHES, width)), flat)
    return b.node(Gather(axis), flat, b.constant(np.array(step, np.int32)))


def keeps_steps(graph: Graph) -> list[bool]:
    return [node.op.each_step for node in graph.nodes if isinstance(node.op, Recurrent)]


def both(graph: Graph) -> Graph:
    """Returns the graph after all passes, which computes the same, bit for bit."""
    made = run(graph)
    x = np.random.default_rng(2).normal(0, 1, graph.type(graph.inputs[0]).shape)
    inputs = [x.astype(np.float32)]
    for found, wanted in zip(interpret(made, inputs), interpret(graph, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)
    return made


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([Rnn(), Gru(linear_before_reset=True), Lstm()]),
    st.sampled_from(Direction), st.booleans(), st.integers(0, STEPS - 1),
    st.sampled_from(["gather", "slice", "transpose"]),
)
def test_the_last_step_is_the_state(
    kind: Recurrent, direction: Direction, batch_major: bool, step: int, way: str
) -> None:
    functions = (GateFunction.RELU,) * len(kind.usual)
    if direction is Direction.BIDIRECTIONAL:
        functions += kind.usual
    op = type(kind)(
        direction=direction, batch_major=batch_major, functions=functions,
        **({"linear_before_reset": True} if isinstance(kind, Gru) else {}),
    )
    b = GraphBuilder()
    outputs = layer(b, op)
    made = both(b.finish(b.node(Relu(), read(b, op, outputs[0], step, way))))
    last = 0 if direction is Direction.REVERSE else STEPS - 1
    if step != last:
        assert keeps_steps(made) == [True]
    elif direction is Direction.BIDIRECTIONAL:
        assert keeps_steps(made) == [False, False]
    else:
        assert keeps_steps(made) == [False]


def test_the_backward_layer_computes_the_one_step_that_is_read() -> None:
    b, op = GraphBuilder(), Lstm(direction=Direction.BIDIRECTIONAL)
    made = both(b.finish(read(b, op, layer(b, op)[0], STEPS - 1, "gather")))
    inputs = [made.required(n, 0) for n in made.nodes if isinstance(n.op, Recurrent)]
    assert [made.type(x).shape[0] for x in inputs] == [STEPS, 1]


def test_steps_stay_where_more_is_read() -> None:
    op = Gru(linear_before_reset=True)
    b = GraphBuilder()
    steps = layer(b, op)[0]
    last = read(b, op, steps, STEPS - 1, "gather")
    assert keeps_steps(both(b.finish(last, b.node(Relu(), steps)))) == [True]
    b = GraphBuilder()
    steps = layer(b, op)[0]
    assert keeps_steps(both(b.finish(read(b, op, steps, STEPS - 1, "slice"), steps))) == [True]


def test_steps_stay_where_sequences_end_before() -> None:
    b, op = GraphBuilder(), Gru(linear_before_reset=True)
    steps = layer(b, op, lengths=True)[0]
    assert keeps_steps(both(b.finish(read(b, op, steps, STEPS - 1, "gather")))) == [True]


def test_both_directions_stay_one_where_their_states_are_read() -> None:
    b, op = GraphBuilder(), Lstm(direction=Direction.BIDIRECTIONAL)
    steps, _, cells = layer(b, op)
    last = read(b, op, steps, STEPS - 1, "gather")
    assert keeps_steps(both(b.finish(last, b.node(Relu(), cells)))) == [True]
