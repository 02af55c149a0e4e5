"""Recurrent networks whose sums stay in registers are as near to the truth as the plain kernels,
and the same as code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Direction, Gru, Lstm, Recurrent, Rnn
from crtexport.ir.types import DType
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context, Lowered
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.variants import variants_of
from tests.differential.backends import assert_backends_agree
from tests.differential.network import Step, Values, steps
from tests.helpers import target_of
from tests.plan.graphs import GraphBuilder
from tests.schedules.layers import Integer, drawing, search

KINDS = ("rnn", "gru", "reset last", "lstm", "coupled")
PRODUCTS = (("mps2_an386", "in_order_mul"), ("mps2_an500", "fma_f32"))
"""What products and their sums are on boards."""
GATES = {Rnn: 1, Gru: 3, Lstm: 4}


class Drawn:
    """A network of one operator with all or some of its inputs, and their values."""

    def __init__(self, integer: Integer, kind: str, units: int, *, computed: bool = False) -> None:
        self.integer, self.b = integer, GraphBuilder()
        self.rng, self.values = np.random.default_rng(integer(0, 99)), Values()
        op = self._operator(kind)
        steps, batches, depth = (integer(1, most) for most in (4, 2, 9))
        directions = 1 + (op.direction is Direction.BIDIRECTIONAL)
        gates, state = GATES[type(op)], (directions, batches, units)
        inputs = [
            self._input(*((batches, steps) if op.batch_major else (steps, batches)), depth),
            (self._input if computed else self._constant)(directions, units, depth, gates),
            self._constant(directions, units, units, gates),
            self._constant(directions, units, gates + (kind == "reset last")),
            self._lengths(batches, steps) if integer(0, 1) else None,
            self._input(*state) if integer(0, 1) else None,
        ]
        if isinstance(op, Lstm):
            inputs += [
                self._input(*state) if integer(0, 1) else None,
                self._constant(directions, units, 3) if integer(0, 1) else None,
            ]
        while inputs[-1] is None:
            inputs.pop()
        self.outputs = self.b.node_of(op, *inputs)
        self.graph: Graph = self.b.finish(*self.outputs)

    def _operator(self, kind: str) -> Recurrent:
        attributes: dict[str, Any] = {
            "direction": list(Direction)[self.integer(0, 2)],
            "batch_major": bool(self.integer(0, 1)), "each_step": bool(self.integer(0, 1)),
            "clip": 0.4 * self.integer(0, 1),
        }
        if kind == "rnn":
            return Rnn(**attributes)
        if kind in ("gru", "reset last"):
            return Gru(**attributes, linear_before_reset=kind == "reset last")
        return Lstm(**attributes, coupled=kind == "coupled")

    def _floats(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return self.rng.normal(0, 0.5, shape).astype(np.float32)

    def _constant(self, *shape: int) -> int:
        return self.b.constant(self._floats(shape))

    def _input(self, *shape: int) -> int:
        tensor = self.b.input(*shape)
        self.values[tensor] = self._floats(shape)
        return tensor

    def _lengths(self, batches: int, most: int) -> int:
        tensor = self.b.input(batches, dtype=DType.INT32)
        self.values[tensor] = self.rng.integers(0, most, batches, np.int32, endpoint=True)
        return tensor

    def context(self) -> Context:
        return Context(self.graph, self.graph.nodes[0])

    def run(self, lowered: Lowered) -> tuple[Step, Values]:
        """What the interpreter makes of the kernel."""
        values = {tensor: value.copy() for tensor, value in self.values.items()}
        (step,) = steps(self.graph, values, lambda _: lowered)
        return step, values

    def check(self, lowered: Lowered) -> Step:
        """Compares a kernel with the plain one."""
        _, wanted = self.run(operator_table.lower(self.context()))
        step, got = self.run(lowered)
        for tensor in self.outputs:
            np.testing.assert_allclose(got[tensor], wanted[tensor], rtol=0, atol=2e-6)
        return step


def found(context: Context, board: str = "mps2_an386") -> list[Candidate]:
    return variants_of(context, target_of(board), "balanced")


@pytest.mark.parametrize("kind", KINDS)
@search(25)
@given(data=st.data())
def test_blocks_of_units_are_near_the_plain_kernel(kind: str, data: st.DataObject) -> None:
    net = Drawn(drawing(data), kind, data.draw(st.integers(1, 17)))
    board, products = data.draw(st.sampled_from(PRODUCTS))
    variants = found(net.context(), board)
    lowered = variants[data.draw(st.integers(0, len(variants) - 1))].make()
    assert products in repr(lowered.kernel)
    net.check(lowered)


def test_they_compute_the_same_as_code(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    nets = [
        Drawn(lambda low, high: int(rng.integers(low, high + 1)), kind, units)
        for kind in KINDS for units in (8, 3)
    ]
    assert_backends_agree([net.check(found(net.context())[0].make()) for net in nets], tmp_path)


@pytest.mark.parametrize(("kind", "units", "name"), [
    ("rnn", 48, "16 units"), ("rnn", 18, "9 units"), ("gru", 24, "4 units"),
    ("reset last", 24, "4 units"), ("lstm", 24, "4 units"), ("lstm", 13, "1 units"),
])
def test_as_many_units_go_together_as_divide_them(kind: str, units: int, name: str) -> None:
    assert found(Drawn(lambda low, _: low, kind, units).context())[0].name == name


def test_others_keep_the_plain_kernel() -> None:
    """Weights that are computed, and processors without floats."""
    net = Drawn(lambda low, high: high, "gru", 8)
    computed = Drawn(lambda low, high: high, "gru", 8, computed=True)
    for board, products in PRODUCTS:
        assert products in repr(found(net.context(), board)[0].make().kernel)
        assert products not in repr(found(computed.context(), board)[0].make().kernel)
    plain = repr(found(net.context(), "mps2_an385")[0].make().kernel)
    assert not any(products in plain for _, products in PRODUCTS)
