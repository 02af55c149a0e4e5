"""The cells of ONNX's RNN, GRU and LSTM, and the loops around them.

A cell says which sums of products a unit has, and how its new state follows from them;
:class:`Products`, or a schedule, says how the sums of all units are computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from msgspec import Struct

from crtexport.ir.ops import Direction, Gru, Lstm, Recurrent, Rnn
from crtexport.kir.builder import (
    add,
    cast,
    clamp,
    const,
    eq,
    f32,
    load,
    lt,
    max_,
    mul,
    select,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.gate_functions import Gate, gates_of
from crtexport.lowering.registry import Lowered, Lowering

_X, WEIGHTS, RECURRENT, BIAS, LENGTHS, _STATE, _CELLS, _PEEPHOLES = range(8)


class Pass(Struct, frozen=True):
    """Products that are added to the sums of some gates, given by their numbers: ``size`` values of
    ``source`` from ``begin`` on, times weights. ``position``: the input that has the weights."""

    source: Buffer
    begin: Expr
    size: int
    position: int
    sums: dict[int, int]


class Products:
    """Sums of products of all units, one unit after the other.

    The weights of a unit's gates are stored side by side, so that each value of an input or a state
    is read once for all gates of a unit.
    """

    def __init__(self, lowering: Lowering) -> None:
        context = lowering.context
        self.b = lowering.b
        _, self.units, _, self.gates = context.input(WEIGHTS).shape
        self.weights = {
            WEIGHTS: self.stored(lowering, WEIGHTS, "weights"),
            RECURRENT: self.stored(lowering, RECURRENT, "recurrent"),
        }

    def stored(self, lowering: Lowering, position: int, name: str) -> Buffer:
        """Returns the weights at ``position``."""
        return lowering.input(position, name)

    @contextmanager
    def each_unit(
        self, first_unit: Expr, start: Callable[[Expr], Sequence[Expr]], passes: Sequence[Pass]
    ) -> Iterator[tuple[Expr, Sequence[Expr]]]:
        """Loops over the units; yields the number of a unit and its sums, which ``start``
        initializes. ``first_unit``: the first unit of the direction among all units."""
        b = self.b
        with b.loop("unit", self.units) as u:
            totals = [b.local(f"gate{g}", value) for g, value in enumerate(start(u))]
            for one in passes:
                row = one.size * self.gates
                base = b.let("at_weights", mul(add(first_unit, u), const(row)))
                with b.loop("k", one.size) as k:
                    value = b.let("value", load(one.source, add(one.begin, k)))
                    column = b.let("column", add(base, mul(k, const(self.gates))))
                    for gate, number in one.sums.items():
                        weight = load(self.weights[one.position], add(column, const(gate)))
                        b.assign(totals[number], add(totals[number], mul(weight, value)))
            yield u, totals


def lower(lowering: Lowering, products: Callable[[Lowering], Products] = Products) -> Lowered:
    """Returns the kernel of a node that keeps its operator's rules, with products computed by
    ``products``."""
    op = lowering.context.node.op
    if isinstance(op, Rnn):
        return _Rnn(lowering, products).lower()
    if isinstance(op, Gru):
        return (_ResetLast if op.linear_before_reset else _ResetFirst)(lowering, products).lower()
    return _Lstm(lowering, products).lower()


class _Place:
    """Positions inside of the loops: the direction's first unit among all units, and where the
    step's input, the state and the step's output begin."""

    def __init__(self, first_unit: Expr, x: Expr, state: Expr, out: Expr) -> None:
        self.first_unit, self.x, self.state, self.out = first_unit, x, state, out


class _Recurrent(ABC):
    """The loops that all cells share: directions, batches, steps."""

    def __init__(self, lowering: Lowering, products: Callable[[Lowering], Products]) -> None:
        context = self.context = lowering.context
        op = context.op(Recurrent)
        self.op, self.lowering, self.b = op, lowering, lowering.b
        shape = context.input(_X).shape
        self.batches, self.steps = shape[:2] if op.batch_major else shape[1::-1]
        self.depth, (self.directions, self.units) = shape[2], context.input(RECURRENT).shape[:2]
        self.x = lowering.input(_X, "x")
        self.products = products(lowering)
        self.bias = lowering.input(BIAS, "bias")
        self.lengths = lowering.input(LENGTHS, "lengths") if context.has(LENGTHS) else None
        self.start = lowering.input(_STATE, "initial") if context.has(_STATE) else None
        self.prepare()
        self.each = lowering.output(0, "each_step") if op.each_step else None
        self.state = lowering.output(int(op.each_step), "state")
        self.fresh = self.each or lowering.scratch("fresh", Scalar.F32, self.units)

    def prepare(self) -> None:  # noqa: B027, most cells need nothing more
        """Declares further inputs and memory."""

    def begin(self, place: Expr) -> None:  # noqa: B027
        """Initializes further state of a unit."""

    @abstractmethod
    def step(self, at: _Place, gates: Sequence[Gate]) -> None:
        """Writes the new state of all units to ``fresh``, from ``at.out`` on."""

    def lower(self) -> Lowered:
        """Returns the kernel. Directions whose gates have the same functions share one loop."""
        every = gates_of(self.op, self.directions)
        if every[0] == every[-1]:
            with self.b.loop("direction", self.directions) as d:
                self._direction(d, every[0])
        else:
            for number, gates in enumerate(every):
                self._direction(const(number), gates)
        return self.lowering.finish()

    def _direction(self, d: Expr, gates: Sequence[Gate]) -> None:
        b, units = self.b, const(self.units)
        first_unit = b.let("first_unit", mul(d, units))
        with b.loop("batch", self.batches) as n:
            state = b.let("at_state", mul(add(mul(d, const(self.batches)), n), units))
            with b.loop("unit", self.units) as u:
                value = load(self.start, add(state, u)) if self.start else f32(0.0)
                b.store(self.state, add(state, u), value)
                self.begin(add(state, u))
            length: Expr = const(self.steps)
            if self.lengths is not None:
                given = b.let("length", clamp(load(self.lengths, n), 0, self.steps))
                length = b.let("steps", cast(given, Scalar.INDEX))
            with b.loop("time", self.steps) as t:
                with b.if_(None if self.lengths is None else lt(t, length)):
                    self._step(d, n, self._ordered(d, t, length), first_unit, state, gates)
                if self.each is not None:
                    with b.else_():
                        self._silence(d, n, t)

    def _ordered(self, d: Expr, t: Expr, length: Expr) -> Expr:
        """Returns the step of the sequence that is computed at time ``t``."""
        backwards = sub(sub(length, const(1)), t)
        if self.lengths is not None:  # bounds are proven without conditions
            backwards = max_(backwards, const(0))
        match self.op.direction:
            case Direction.FORWARD:
                return t
            case Direction.REVERSE:
                return self.b.let("step", backwards)
            case Direction.BIDIRECTIONAL:
                back = self.b.let("back", backwards)
                return self.b.let("step", select(eq(d, const(1)), back, t))

    def _row(self, n: Expr, step: Expr) -> Expr:
        """Returns the number of a row of the input."""
        if self.op.batch_major:
            return self.b.let("row", add(mul(n, const(self.steps)), step))
        return self.b.let("row", add(mul(step, const(self.batches)), n))

    def _out(self, d: Expr, row: Expr) -> Expr:
        if self.each is None:
            return const(0)
        place = add(mul(row, const(self.directions)), d)
        return self.b.let("out", mul(place, const(self.units)))

    def _step(
        self, d: Expr, n: Expr, step: Expr, first_unit: Expr, state: Expr, gates: Sequence[Gate]
    ) -> None:
        b, row = self.b, self._row(n, step)
        x = b.let("at_x", mul(row, const(self.depth)))
        at = _Place(first_unit, x, state, self._out(d, row))
        self.step(at, gates)
        with b.loop("unit", self.units) as u:
            b.store(self.state, add(state, u), load(self.fresh, add(at.out, u)))

    def _silence(self, d: Expr, n: Expr, t: Expr) -> None:
        """Emits zeros for steps behind the end of a sequence."""
        out = self._out(d, self._row(n, t))
        with self.b.loop("unit", self.units) as u:
            self.b.store(self.fresh, add(out, u), f32(0.0))

    # -- sums of products

    def biased(self, at: _Place, count: int) -> Callable[[Expr], list[Expr]]:
        """Returns the sums of a unit's gates, initialized with the biases."""

        def start(unit: Expr) -> list[Expr]:
            first = self.b.let("at_bias", mul(add(at.first_unit, unit), const(count)))
            return [load(self.bias, add(first, const(g))) for g in range(count)]

        return start

    def of_input(self, at: _Place, gates: Sequence[int]) -> Pass:
        """Returns the products with the step's input."""
        return Pass(self.x, at.x, self.depth, WEIGHTS, {gate: gate for gate in gates})

    def of_state(self, at: _Place, sums: dict[int, int]) -> Pass:
        """Returns the products with the state before the step."""
        return Pass(self.state, at.state, self.units, RECURRENT, sums)

    def each_unit(
        self, at: _Place, start: Callable[[Expr], Sequence[Expr]], *passes: Pass
    ) -> AbstractContextManager[tuple[Expr, Sequence[Expr]]]:
        return self.products.each_unit(at.first_unit, start, passes)

    def applied(self, function: Gate, value: Expr) -> Expr:
        """Returns the value of a gate: the function of its sum, which is clipped first."""
        value = self.b.let("sum", value)
        if self.op.clip > 0:
            value = self.b.let("clipped", clamp(value, -self.op.clip, self.op.clip))
        return self.b.let("gate", function(self.b, value))


class _Rnn(_Recurrent):
    def step(self, at: _Place, gates: Sequence[Gate]) -> None:
        passes = self.of_input(at, (0,)), self.of_state(at, {0: 0})
        with self.each_unit(at, self.biased(at, 1), *passes) as (u, (total,)):
            self.b.store(self.fresh, add(at.out, u), self.applied(gates[0], total))


_Z, _RESET, _H = range(3)


def _mixed(update: Expr, candidate: Expr, old: Expr) -> Expr:
    """Returns (1 - z) candidate + z old."""
    return add(mul(sub(f32(1.0), update), candidate), mul(update, old))


class _ResetLast(_Recurrent):
    """GRU whose reset gate multiplies a sum of products with the state, so that one pass computes
    all gates."""

    def step(self, at: _Place, gates: Sequence[Gate]) -> None:
        b = self.b
        passes = self.of_input(at, range(3)), self.of_state(at, {_Z: _Z, _RESET: _RESET, _H: 3})
        with self.each_unit(at, self.biased(at, 4), *passes) as (u, sums):
            z, reset, of_x, of_h = sums
            chosen = self.applied(gates[0], reset)
            candidate = self.applied(gates[1], add(of_x, mul(chosen, of_h)))
            update = self.applied(gates[0], z)
            old = load(self.state, add(at.state, u))
            b.store(self.fresh, add(at.out, u), _mixed(update, candidate, old))


class _ResetFirst(_Recurrent):
    """GRU whose reset gate multiplies the state: the gates of all units are computed first, then
    the candidates."""

    def prepare(self) -> None:
        self.kept = self.lowering.scratch("reset_state", Scalar.F32, self.units)
        self.part = self.lowering.scratch("candidate", Scalar.F32, self.units)

    def step(self, at: _Place, gates: Sequence[Gate]) -> None:
        b = self.b
        passes = self.of_input(at, range(3)), self.of_state(at, {_Z: _Z, _RESET: _RESET})
        with self.each_unit(at, self.biased(at, 3), *passes) as (u, (z, reset, candidate)):
            b.store(self.part, u, candidate)
            b.store(self.fresh, add(at.out, u), self.applied(gates[0], z))
            chosen = self.applied(gates[0], reset)
            b.store(self.kept, u, mul(chosen, load(self.state, add(at.state, u))))
        kept = Pass(self.kept, const(0), self.units, RECURRENT, {_H: 0})
        with self.each_unit(at, lambda u: [load(self.part, u)], kept) as (u, (total,)):
            made = self.applied(gates[1], total)
            update = b.let("update", load(self.fresh, add(at.out, u)))
            old = load(self.state, add(at.state, u))
            b.store(self.fresh, add(at.out, u), _mixed(update, made, old))


_I, _O, _F, _C = range(4)


class _Lstm(_Recurrent):
    def prepare(self) -> None:
        context, lowering = self.context, self.lowering
        self.first = lowering.input(_CELLS, "initial_cells") if context.has(_CELLS) else None
        there = context.has(_PEEPHOLES)
        self.peepholes = lowering.input(_PEEPHOLES, "peepholes") if there else None
        self.cells = lowering.output(int(self.op.each_step) + 1, "cells")
        self.coupled = isinstance(self.op, Lstm) and self.op.coupled

    def begin(self, place: Expr) -> None:
        value = load(self.first, place) if self.first is not None else f32(0.0)
        self.b.store(self.cells, place, value)

    def step(self, at: _Place, gates: Sequence[Gate]) -> None:
        b = self.b
        wanted = [gate for gate in range(4) if gate != _F or not self.coupled]
        passes = self.of_input(at, wanted), self.of_state(at, {gate: gate for gate in wanted})
        with self.each_unit(at, self.biased(at, 4), *passes) as (u, total):
            place = b.let("at_cell", add(at.state, u))
            old = b.let("old", load(self.cells, place))
            taken = self.applied(gates[0], self._peeping(total[_I], _I, at, u, old))
            if self.coupled:
                kept = b.let("kept", sub(f32(1.0), taken))
            else:
                kept = self.applied(gates[0], self._peeping(total[_F], _F, at, u, old))
            new = self.applied(gates[1], total[_C])
            cell = b.let("cell", add(mul(kept, old), mul(taken, new)))
            b.store(self.cells, place, cell)
            shown = self.applied(gates[0], self._peeping(total[_O], _O, at, u, cell))
            b.store(self.fresh, add(at.out, u), mul(shown, gates[2](b, cell)))

    def _peeping(self, total: Expr, gate: int, at: _Place, unit: Expr, cell: Expr) -> Expr:
        """Returns a gate's sum plus its peephole connection to the cell state."""
        if self.peepholes is None:
            return total
        place = add(mul(add(at.first_unit, unit), const(3)), const(gate))
        return add(total, mul(load(self.peepholes, place), cell))
