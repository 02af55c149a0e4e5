"""RNN, GRU and LSTM of float32 on Cortex-M with a floating-point unit.

The sums of all gates of a few units stay in registers: each value of an input or a state is loaded
once for all of them. Weights are packed while exporting in the order in which they are met. What
becomes of the sums is there once, in a loop over the block's units, which finds them in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from crtexport.ir.ops import Gru, Lstm, Rnn
from crtexport.ir.types import DType
from crtexport.kir.builder import add, const, load, mul
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.numerics import recurrent_cells
from crtexport.lowering.numerics.recurrent_cells import RECURRENT, WEIGHTS, Pass, Products
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.lowering.weight_packing import BlockPacking
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.scalar.fpu_dense import add_products

SUMS = 16
"""Most sums of a block; with more, compilers run out of the 32 registers."""
_UNROLL = 4
"""Most steps that are written one after the other in a loop."""


def candidates(context: Context, *, fused: bool) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules; none where it is another one,
    its weights aren't constants, or there is nothing to compute. ``fused`` as for
    :func:`.fpu_dense.add_products`."""
    op = context.node.op
    if not isinstance(op, Rnn | Gru | Lstm):
        return []
    tensors = [t for t in (*context.node.inputs, *context.node.outputs) if t is not None]
    if not all(context.graph.type(t).elements for t in tensors):
        return []
    for position in (WEIGHTS, RECURRENT):
        if context.graph.constant(context.graph.required(context.node, position)) is None:
            return []
    _, units, biases = context.input(recurrent_cells.BIAS).shape
    most = max(SUMS // biases, 1)
    # Blocks of both directions are one row of blocks where none of them is cut short.
    counts = [count for count in range(most, 0, -1) if units % count == 0]
    return [
        Candidate(
            f"{count} units", functools.partial(_lower, context, op, count, fused),
            rare=number > 0,
        )
        for number, count in enumerate(counts)
    ]


def _lower(
    context: Context, op: Rnn | Gru | Lstm, units_per_block: int, fused: bool
) -> Lowered:
    lowering = Lowering(type(op).__name__.lower(), context)
    return recurrent_cells.lower(lowering, functools.partial(_UnitBlocks, units_per_block, fused))


class _UnitBlocks(Products):
    """Blocks of units whose number is a multiple of ``units_per_block``."""

    def __init__(self, units_per_block: int, fused: bool, lowering: Lowering) -> None:
        self.units_per_block, self._fused = units_per_block, fused
        super().__init__(lowering)
        most = lowering.context.input(recurrent_cells.BIAS).shape[2]
        self._lowering = lowering
        self._kept = lowering.scratch("sums", Scalar.F32, units_per_block * most)

    def stored(self, lowering: Lowering, position: int, name: str) -> Buffer:
        directions, units = lowering.context.input(position).shape[:2]
        packing = BlockPacking(self.units_per_block, DType.FLOAT32.itemsize)
        return lowering.packed(name, Scalar.F32, packing, directions * units, position=position)

    @contextmanager
    def each_unit(
        self, first_unit: Expr, start: Callable[[Expr], Sequence[Expr]], passes: Sequence[Pass]
    ) -> Iterator[tuple[Expr, Sequence[Expr]]]:
        b, count = self.b, self.units_per_block
        with b.loop("block", self.units // count) as block:
            first = b.let("first", mul(block, const(count)))
            lines = [
                [b.local(f"sum_u{i}_g{g}", value) for g, value in enumerate(start(one))]
                for i, one in enumerate(add(first, const(i)) for i in range(count))
            ]
            for one in passes:
                at = b.let("at_weights", mul(add(first_unit, first), const(one.size * self.gates)))
                self._accumulate(lines, one, at)
            sums = len(lines[0])
            for i, line in enumerate(lines):
                for g, total in enumerate(line):
                    b.store(self._kept, const(i * sums + g), total)
            with b.loop("unit_of_block", count, unroll=1) as number:
                found = [
                    b.let(f"gate{g}", load(self._kept, add(mul(number, const(sums)), const(g))))
                    for g in range(sums)
                ]
                yield b.let("unit", add(first, number)), found

    def _accumulate(self, lines: list[list[Var]], block: Pass, at: Expr) -> None:
        """Adds the products of a block, whose weights begin at ``at``, to the sums of its units."""
        b, step = self.b, self.gates * self.units_per_block
        unroll = next(n for n in range(_UNROLL, 0, -1) if block.size % n == 0)
        with b.loop("k", block.size, unroll=unroll) as k:
            value = b.let("value", load(block.source, add(block.begin, k)))
            column = b.let("column", add(at, mul(k, const(step))))
            products = []
            for gate, number in block.sums.items():
                for i, line in enumerate(lines):
                    place = add(column, const(gate * self.units_per_block + i))
                    weight = load(self.weights[block.position], place)
                    products.append((line[number], value, weight))
            add_products(b, products, fused=self._fused)
