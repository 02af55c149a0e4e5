"""Convolutions and fully connected layers on x86-64: vectors over output channels.

What the windows of a few pixels see is gathered once. Every block of output channels then runs
through these lines: each step broadcasts a value of each pixel (of int8: a pair, which PMADDWD
multiplies at once, or four, lifted to uint8 for VPDPBUSD) and meets as many weights as there are
lanes, all sums in registers. Channels are filled up to whole vectors with zero weights.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crtexport.frozen import dataclass
from crtexport.ir.ops import Conv2D, FullyConnected
from crtexport.ir.types import DType
from crtexport.kernels.build import add, const, load, load_vector, load_word, min_, mul
from crtexport.kernels.ir import Buffer, Expr, Scalar, Var
from crtexport.kernels.packing import Array, Packing, by_blocks
from crtexport.kernels.registry import SCALAR_OF, Context, Lowered, Lowering
from crtexport.kernels.sums import IntegerSums
from crtexport.schedules.geometry import Windows, windows_of
from crtexport.schedules.lanes_finish import (
    Finish,
    IntegerFinish,
    RealFinish,
    known,
    scales,
)
from crtexport.schedules.x86_gather import LIFT, Gather
from crtexport.schedules.x86_machine import Machine


def lower(context: Context, machine: Machine) -> Lowered | None:
    """A node that keeps its operator's rules in vectors; None where it can't be."""
    op = context.node.op
    if not isinstance(op, Conv2D | FullyConnected):
        return None
    windows = windows_of(context)
    if windows is None or not windows.taps or not context.output().elements:
        return None
    match context.input(0).dtype, context.input(1).dtype:
        case DType.INT8, DType.INT8:
            return _integers(context, machine, windows)
        case DType.FLOAT32, DType.FLOAT32 | DType.INT8 if known(context):
            return _reals(context, machine, windows)
        case _:
            return None


@dataclass(frozen=True)
class Block:
    """``pixels`` x ``vectors`` of sums are kept in registers."""

    pixels: int
    vectors: int


def block_for(pixels: int, most: int) -> Block:
    """Blocks of up to ``most`` pixels and two vectors that leave few pixels over."""
    if pixels == 1:
        return Block(1, 8 if most > 4 else 4)
    # Each step loads the weights once for the block and does two products a pixel.
    best = min(range(min(most, pixels), 0, -1), key=lambda p: -(-pixels // p) * (2 + 3 * p))
    return Block(best, 2)


@dataclass(frozen=True)
class Panels(Packing):
    """Weights (channels x taps) of ``itemsize`` bytes in the order that they are met: blocks of
    channels, steps of ``together`` taps, vectors, lanes, taps of the step. The last block has only
    the vectors it needs, channels of zeros in the last one."""

    vectors: int
    lanes: int
    together: int
    itemsize: int

    @property
    def block(self) -> int:
        return self.vectors * self.lanes

    @property
    def step(self) -> int:
        return self.together

    def nbytes(self, rows: int, columns: int) -> int:
        lanes, taps = -(-rows // self.lanes) * self.lanes, -(-columns // self.together)
        return lanes * taps * self.together * self.itemsize

    def __call__(self, weights: Array) -> Array:
        channels, taps = weights.shape
        lanes, steps = -(-channels // self.lanes) * self.lanes, -(-taps // self.together)
        padded = np.zeros((lanes, steps * self.together), weights.dtype)
        padded[:channels, :taps] = weights
        # What is met in one step moves as one number.
        return by_blocks(padded.view(f"u{self.together * self.itemsize}"), self.block)


def _name(context: Context, windows: Windows) -> str:
    if isinstance(context.node.op, FullyConnected):
        return "fully_connected"
    return "pointwise_conv2d" if windows.pointwise else "conv2d"


def _integers(context: Context, machine: Machine, windows: Windows) -> Lowered | None:
    dense = isinstance(context.node.op, FullyConnected)
    sums = IntegerSums.of(context, 0, fully_connected=dense)
    if sums.weight_zero or not scales(sums, machine):
        return None
    lowering = Lowering(_name(context, windows), context)
    x = lowering.input(0, "input")
    block = block_for(windows.pixels, 4)
    step = 4 if machine.dots else 2
    packing = Panels(block.vectors, machine.lanes, step, 1)
    # In whole words for dots.
    stored = Scalar.I32 if machine.dots else Scalar.I8
    weights = lowering.packed("weights", stored, packing, len(sums.folded))
    if machine.dots:  # sums of lifted values are that many times the weights too large
        sums = replace(sums, folded=sums.folded - LIFT * context.sums(1, 0, 0)[0])
    finish = IntegerFinish(lowering, machine, sums)
    output = lowering.output()
    pitch = -(-windows.taps // step) * step
    line = Scalar.I8 if machine.dots else Scalar.I16
    lines = lowering.scratch("lines", line, block.pixels * pitch)
    gather = Gather(
        lowering.b, machine, windows, x, lines, pitch, sums.zero_point, lifts=machine.dots
    )
    blocks = _DotBlocks if machine.dots else _IntegerBlocks
    blocks(lowering, machine, windows, block, weights, finish, output).emit(gather)
    return lowering.finish()


def _reals(context: Context, machine: Machine, windows: Windows) -> Lowered | None:
    lowering = Lowering(_name(context, windows), context)
    x = lowering.input(0, "input")
    block = block_for(windows.pixels, 6 if machine.lanes == 8 else 4)
    stored = context.input(1).dtype
    packing = Panels(block.vectors, machine.lanes, 1, stored.itemsize)
    weights = lowering.packed(
        "weights", SCALAR_OF[stored], packing, context.input(1).shape[0]
    )
    finish = RealFinish(lowering, machine)
    output = lowering.output()
    if windows.pointwise:
        blocks = _RealBlocks(lowering, machine, windows, block, weights, finish, output)
        blocks.emit_from(x)
        return lowering.finish()
    lines = lowering.scratch("lines", Scalar.F32, block.pixels * windows.taps)
    gather = Gather(lowering.b, machine, windows, x, lines, windows.taps, 0)
    _RealBlocks(lowering, machine, windows, block, weights, finish, output).emit(gather)
    return lowering.finish()


class _Blocks(abc.ABC):
    """Covers pixels x channels with blocks; what a step does is for those below to say."""

    step = 1
    """Taps that a step takes."""
    stored = 1
    """Elements of the weights that these are for a channel."""

    def __init__(
        self, lowering: Lowering, machine: Machine, windows: Windows, block: Block,
        weights: Buffer, finish: Finish, output: Buffer,
    ) -> None:
        self.b, self.machine, self.windows, self.block = lowering.b, machine, windows, block
        self.weights, self.finish, self.output = weights, finish, output
        self.channels = lowering.context.output().shape[-1]
        self.steps = -(-windows.taps // self.step)
        self.x: Buffer = weights

    def emit(self, gather: Gather) -> None:
        """All pixels, from gathered lines."""
        self.x = gather.lines
        with self.b.loop("pixels", self._rounds) as number:
            gather.emit(self.block.pixels, lambda line: self._pixel(number, line))
            starts = [const(i * gather.pitch) for i in range(self.block.pixels)]
            self._channels(number, starts)

    def emit_from(self, x: Buffer) -> None:
        """All pixels, each of which sees what lies at its own number."""
        self.x = x
        with self.b.loop("pixels", self._rounds) as number:
            starts = [
                self.b.let("start", mul(self._pixel(number, const(i)), const(self.windows.taps)))
                for i in range(self.block.pixels)
            ]
            self._channels(number, starts)

    @property
    def _rounds(self) -> int:
        return -(-self.windows.pixels // self.block.pixels)

    def _pixel(self, number: Expr, further: Expr) -> Expr:
        """Of a block; where some are left over at the end, the last one is done again."""
        at = add(mul(number, const(self.block.pixels)), further)
        if self.windows.pixels % self.block.pixels:
            return min_(at, const(self.windows.pixels - 1))
        return at

    def _channels(self, number: Expr, starts: Sequence[Expr]) -> None:
        """All output channels of a block of pixels, whose input begins at ``starts``."""
        rows = [
            self.b.let("row", mul(self._pixel(number, const(i)), const(self.channels)))
            for i in range(self.block.pixels)
        ]
        lanes, vectors = self.machine.lanes, self.block.vectors
        wide = lanes * vectors
        whole = self.channels // wide
        with self.b.loop("block", whole) as block:
            first = mul(block, const(wide * self.steps * self.stored))
            self._block(rows, starts, mul(block, const(wide)), [lanes] * vectors, first)
        left = self.channels - whole * wide
        if left:
            counts = [min(lanes, left - at) for at in range(0, left, lanes)]
            first = const(whole * wide * self.steps * self.stored)
            self._block(rows, starts, const(whole * wide), counts, first)

    def _block(
        self, rows: list[Expr], starts: Sequence[Expr], channel: Expr, counts: list[int],
        first: Expr,
    ) -> None:
        """A vector of channels for each of ``counts``, of which it stores that many lanes."""
        b, lanes = self.b, self.machine.lanes
        channels = [add(channel, const(i * lanes)) for i in range(len(counts))]
        sums = [[b.local("sum", self.finish.start(c)) for c in channels] for _ in rows]
        with b.loop("step", self.steps) as step:
            self._step(step, starts, sums, add(first, mul(
                step, const(len(counts) * lanes * self.stored)
            )))
        for vector, (at, count) in enumerate(zip(channels, counts, strict=True)):
            for row, line in zip(rows, sums, strict=True):
                self.finish.store(self.output, add(row, at), line[vector], at, count)

    @abc.abstractmethod
    def _step(
        self, step: Expr, starts: Sequence[Expr], sums: list[list[Var]], first: Expr
    ) -> None:
        """Adds the products of a step, whose weights are ``first`` and those behind it."""


class _IntegerBlocks(_Blocks):
    step = stored = 2

    def _step(
        self, step: Expr, starts: Sequence[Expr], sums: list[list[Var]], first: Expr
    ) -> None:
        b, machine = self.b, self.machine
        pairs = machine.pairs
        weights = [
            b.let("w", load_vector(self.weights, add(first, const(i * pairs.lanes)), pairs))
            for i in range(len(sums[0]))
        ]
        for start, line in zip(starts, sums, strict=True):
            word = load_word(self.x, add(start, mul(step, const(2))))
            x = b.let("x", machine.spread_pair(word))
            for total, w in zip(line, weights, strict=True):
                b.assign(total, machine.of_ints("add", total, machine.of_ints("madd", x, w)))


class _DotBlocks(_Blocks):
    step = 4

    def _step(
        self, step: Expr, starts: Sequence[Expr], sums: list[list[Var]], first: Expr
    ) -> None:
        b, machine = self.b, self.machine
        weights = [
            b.let("w", load_vector(
                self.weights, add(first, const(i * machine.lanes)), machine.ints
            ))
            for i in range(len(sums[0]))
        ]
        for start, line in zip(starts, sums, strict=True):
            word = load_word(self.x, add(start, mul(step, const(4))))
            x = b.let("x", machine.of_ints("dup", word))
            for total, w in zip(line, weights, strict=True):
                b.assign(total, machine.of_ints("dot", total, x, w))


class _RealBlocks(_Blocks):
    def _step(
        self, step: Expr, starts: Sequence[Expr], sums: list[list[Var]], first: Expr
    ) -> None:
        b, machine = self.b, self.machine
        weights = [
            b.let("w", self._weights(add(first, const(i * machine.lanes))))
            for i in range(len(sums[0]))
        ]
        for start, line in zip(starts, sums, strict=True):
            x = b.let("x", machine.of_reals("fdup", load(self.x, add(start, step))))
            for total, w in zip(line, weights, strict=True):
                b.assign(total, machine.plus_product(total, x, w))

    def _weights(self, at: Expr) -> Expr:
        if self.weights.dtype is Scalar.F32:
            return load_vector(self.weights, at, self.machine.reals)
        whole = load_vector(self.weights, at, self.machine.ints)
        return self.machine.of_reals("real", whole)
