"""The part of a loop that its schedule depends on: pipes, latencies and values, no offsets.

Layers of different depths or widths often have loops with the same outline: it is scheduled once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from crtexport.kir.assembly.mve.body import NONE, Body, MveOp
from crtexport.kir.assembly.mve.instructions import Bank, Pipe, VectorAccess
from crtexport.kir.assembly.mve.lags import Lag
from crtexport.kir.assembly.mve.lives import roots_of

MEMORY, INTEGER, MULTIPLY, SCALAR = range(4)
_NUMBERS = {
    Pipe.MEMORY: MEMORY, Pipe.INTEGER: INTEGER, Pipe.MULTIPLY: MULTIPLY, Pipe.SCALAR: SCALAR,
}


class OutlineStep(Struct, frozen=True):
    """An instruction. ``args``: the values that it takes, that of a store last; ``dest``: the value
    that it makes. ``latency``: cycles until another instruction can use the result. ``tied``: its
    first operand's register becomes its result's. ``access``: it stores; ``lag``: the number
    of the tail's pointer for that; ``partial``: only some lanes are stored. ``tail``: it is in the
    tail."""

    pipe: int
    dest: int
    args: tuple[int, ...]
    latency: int
    tied: bool
    access: bool
    lag: int
    partial: bool
    tail: bool


class Outline(Struct, frozen=True):
    """``steps`` in the order in which they are given times. ``loads``: loaded values, each with the
    number of the tail's pointer for it or NONE; ``dups``: vectors of a scalar. ``roots``: the first
    value in the register of each vector. ``kept``: how many vectors registers hold all the time.
    ``lags``: how many instructions move each of the tail's pointers, and the register with its step
    or FOLLOWS. ``late``: the tail's stores come behind all loads of the other iteration."""

    steps: tuple[OutlineStep, ...]
    loads: tuple[tuple[int, int], ...]
    dups: tuple[int, ...]
    roots: tuple[tuple[int, int], ...]
    kept: int
    lags: tuple[tuple[int, int], ...]
    late: bool


def ordered(body: Body, first: int, *, late: bool) -> tuple[list[MveOp], list[bool]]:
    """Returns the instructions of an iteration in the order in which they are given times, and
    whether each is in the tail, which begins with instruction ``first``."""
    tail, head = body.ops[first:], body.ops[:first]
    last = [op for op in tail if late and op.place is not None]
    early = [op for op in tail if not (late and op.place is not None)]
    marks = [True] * len(early) + [False] * len(head) + [True] * len(last)
    return [*early, *head, *last], marks


def outline(
    body: Body, order: tuple[Sequence[MveOp], Sequence[bool]], kept: Collection[int],
    lags: Sequence[Lag], *, late: bool,
) -> Outline:
    """Returns the outline of an iteration whose instructions are given times in an order; ``kept``:
    values that registers hold all the time."""
    numbers = {place: number for number, lag in enumerate(lags) for place in lag.places}
    loads = {value: load for value, load in body.loads.items() if value not in kept}
    return Outline(
        tuple(
            _step(op, tail, NONE if op.place is None else numbers.get(op.place, NONE))
            for op, tail in zip(*order, strict=True)
        ),
        tuple((value, numbers.get(load.place, NONE)) for value, load in loads.items()),
        tuple(value for value in body.dups if value not in kept),
        _vectors(body, roots_of(body).items()),
        len(kept), tuple((lag.instructions, lag.temporary) for lag in lags), late,
    )


def _vectors(body: Body, roots: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(each for each in roots if body.banks[each[1]] is Bank.VECTOR))


def is_partial(op: MveOp) -> bool:
    """Returns whether an instruction stores some lanes only: one before it says so."""
    return isinstance(op.form, VectorAccess) and op.number > 0


def _step(op: MveOp, tail: bool, lag: int) -> OutlineStep:
    args = (*op.args, op.value)
    if isinstance(op.form, VectorAccess):
        return OutlineStep(MEMORY, op.dest, args, 0, False, True, lag, is_partial(op), tail)
    form = op.form
    return OutlineStep(
        _NUMBERS[form.pipe], op.dest, args, form.latency, form.tied, False, lag, False, tail
    )
