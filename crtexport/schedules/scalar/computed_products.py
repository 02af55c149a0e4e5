"""Products of two computed matrices on machines without vectors: attention.

A block of rows times units has its sums in registers, so that each value that is loaded serves all
of them. With SMLAD two values are multiplied at once: the second matrix is put into a panel of a
few units first, as 16-bit numbers less their zero point in the order in which SXTB16 takes words of
the first apart; a panel serves all rows. The zero point of the first matrix is no part of these
products: what it would add is known from the sums of the panel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack

from msgspec import Struct

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    call,
    cast,
    const,
    i32,
    load,
    load_word,
    min_,
    mul,
    wrap_add,
    wrap_mul,
    wrap_sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.numerics.computed_product import (
    Matrices,
    Product,
    centred,
    plus,
)
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.stepped_products import stepped_product_of
from crtexport.schedules.common.target_features import has_dsp, has_few_registers, has_fpu
from crtexport.support.target import Target

_FEW_ROWS = 4
"""Fewer rows aren't worth a panel."""


class ComputedBlock(Struct, frozen=True):
    """``rows`` times ``units`` sums in registers; ``panel``: with SMLAD, from a panel."""

    rows: int
    units: int
    panel: bool = False

    @property
    def name(self) -> str:
        """Returns the name among the candidates of a node."""
        return f"{'panels of' if self.panel else 'blocks of'} {self.rows}x{self.units}"


def candidates(context: Context, target: Target) -> list[Candidate]:
    """Returns the variants of a node that multiplies two computed matrices and keeps its operator's
    rules, the usual one first; none where the matrices are too small."""
    shape = Matrices.of(context)
    if not shape.depth:
        return []
    return [
        Candidate(block.name, functools.partial(_lower, context, block))
        for block in _blocks(context, shape, target)
    ]


def _blocks(context: Context, shape: Matrices, target: Target) -> list[ComputedBlock]:
    if context.input(0).dtype.is_float:
        with_fpu = [ComputedBlock(2, 4), ComputedBlock(4, 2), ComputedBlock(1, 4)]
        sizes = with_fpu if has_fpu(target) else [ComputedBlock(2, 2)]
    elif has_few_registers(target):
        sizes = [ComputedBlock(1, 2), ComputedBlock(2, 1)]
    else:
        sizes = [ComputedBlock(2, 2), ComputedBlock(1, 4), ComputedBlock(4, 1)]
    found = [size for size in sizes if size.rows <= shape.rows and size.units <= shape.units]
    if has_dsp(target) and _paired(context, shape):
        panels = [ComputedBlock(2, 2, True), ComputedBlock(1, 4, True), ComputedBlock(1, 2, True)]
        found = [size for size in panels if size.units <= shape.units] + found
    return found


def _paired(context: Context, shape: Matrices) -> bool:
    """Returns whether words of the first matrix, along the depth, times a panel make sense."""
    x, w = context.input(0).dtype, context.input(1).dtype
    integers = x.is_integer and x.limits[0] < 0 and w.limits[0] < 0
    group = 4 // x.itemsize
    return (
        integers and not shape.adjoint[0] and shape.rows >= _FEW_ROWS and shape.depth >= 2 * group
        and shape.units >= 2
    )


def _lower(context: Context, block: ComputedBlock) -> Lowered:
    lowering = Lowering(context.node.operator.lower(), context)
    product, shape = stepped_product_of(lowering), Matrices.of(context)
    kind = _Panels if block.panel else _Blocks
    kind(lowering, product, shape, block).emit()
    return lowering.finish()


class _Blocks:
    """Blocks of sums whose values are loaded from both matrices where they lie."""

    def __init__(
        self, lowering: Lowering, product: Product, shape: Matrices, block: ComputedBlock
    ) -> None:
        self.b, self.product, self.shape, self.block = lowering.b, product, shape, block

    def emit(self) -> None:
        """Emits all matrices."""
        with ExitStack() as loops:
            batch = [loops.enter_context(self.b.loop("batch", n)) for n in self.shape.batch]
            _in_blocks(
                self.b, "units", self.shape.units, self.block.units,
                functools.partial(self._units, batch),
            )

    def _units(self, batch: list[Expr], units: list[Expr]) -> None:
        _in_blocks(
            self.b, "rows", self.shape.rows, self.block.rows,
            functools.partial(self._sums, batch, units),
        )

    def _sums(self, batch: list[Expr], units: list[Expr], rows: list[Expr]) -> None:
        b, product, shape = self.b, self.product, self.shape
        accs = [[product.start(unit) for unit in units] for _ in rows]
        with b.loop("d", shape.depth) as d:
            xs = [
                b.let(f"x{r}", centred(product, product.x, shape.left_index(batch, row, d)))
                for r, row in enumerate(rows)
            ]
            for u, unit in enumerate(units):
                index = shape.right_index(batch, unit, d)
                w = b.let(f"w{u}", centred(product, product.weights, index))
                for x, line in zip(xs, accs, strict=True):
                    b.assign(line[u], plus(product, line[u], x, w))
        self._finish(batch, rows, units, accs)

    def _finish(
        self, batch: list[Expr], rows: list[Expr], units: list[Expr], accs: list[list[Var]]
    ) -> None:
        for row, line in zip(rows, accs, strict=True):
            for unit, acc in zip(units, line, strict=True):
                self.product.finish(acc, unit, self.shape.result_index(batch, row, unit))


class _Panels(_Blocks):
    """Words of the rows times a panel: for each word of the depth and each unit the halves that
    meet those of the word, and at last what is left of the depth, unit by unit."""

    def __init__(
        self, lowering: Lowering, product: Product, shape: Matrices, block: ComputedBlock
    ) -> None:
        super().__init__(lowering, product, shape, block)
        self.bytes = product.x.dtype is Scalar.I8
        self.group = 4 if self.bytes else 2
        self.panel = lowering.scratch("panel", Scalar.I16, shape.depth * block.units)
        self.sums: Buffer | None = None
        if product.zero_point:
            self.sums = lowering.scratch("panel_sums", Scalar.I32, block.units)

    def _units(self, batch: list[Expr], units: list[Expr]) -> None:
        for number, unit in enumerate(units):
            self._fill(batch, len(units), number, unit)
        super()._units(batch, units)

    def _fill(self, batch: list[Expr], count: int, number: int, unit: Expr) -> None:
        """Puts a unit, which is ``number`` of ``count``, into the panel."""
        b, group, words = self.b, self.group, self.shape.depth // self.group
        total = b.local("total", i32(0)) if self.sums is not None else None

        def put(d: Expr, place: Expr) -> None:
            index = self.shape.right_index(batch, unit, d)
            value = b.let("value", centred(self.product, self.product.weights, index))
            b.store(self.panel, place, cast(value, Scalar.I16))
            if total is not None:
                b.assign(total, add(total, value))

        # SXTB16 takes bytes 0 and 2 of a word, then 1 and 3.
        order = (0, 2, 1, 3) if self.bytes else (0, 1)
        with b.loop("word", words) as word:
            first = mul(word, const(group))
            at = add(mul(first, const(count)), const(number * group))
            for place, d in enumerate(order):
                put(add(first, const(d)), add(at, const(place)))
        for d in range(words * group, self.shape.depth):
            put(const(d), self._tail(count, number, d))
        if self.sums is not None and total is not None:
            b.store(self.sums, const(number), total)

    def _tail(self, count: int, number: int, d: int) -> Expr:
        return const(d * count + number)

    def _sums(self, batch: list[Expr], units: list[Expr], rows: list[Expr]) -> None:
        b, product, shape, group = self.b, self.product, self.shape, self.group
        count = len(units)
        accs = [[self._start(unit, number) for number, unit in enumerate(units)] for _ in rows]
        starts = [
            b.let(f"x_row{r}", shape.left_index(batch, row, const(0)))
            for r, row in enumerate(rows)
        ]
        with b.loop("word", shape.depth // group) as word:
            first = mul(word, const(group))
            xs = [self._halves(f"x{r}", add(start, first)) for r, start in enumerate(starts)]
            for number in range(count):
                at = add(mul(first, const(count)), const(number * group))
                for half in range(len(xs[0])):
                    w = b.let(f"w{number}", load_word(self.panel, add(at, const(2 * half))))
                    for x, line in zip(xs, accs, strict=True):
                        b.assign(line[number], _products(x[half], w, line[number]))
        for d in range(shape.depth - shape.depth % group, shape.depth):
            for start, line in zip(starts, accs, strict=True):
                left = b.let("x", cast(load(product.x, add(start, const(d))), Scalar.I32))
                for number, acc in enumerate(line):
                    w = cast(load(self.panel, self._tail(count, number, d)), Scalar.I32)
                    term = cast(mul(left, w), acc.type)
                    b.assign(acc, wrap_add(acc, term))
        self._finish(batch, rows, units, accs)

    def _start(self, unit: Expr, number: int) -> Var:
        """Returns the sum of a unit, less what the zero point of the first matrix adds to the
        products."""
        acc = self.product.start(unit)
        if self.sums is not None:
            total = load(self.sums, const(number))
            more = wrap_mul(total, i32(self.product.zero_point))
            self.b.assign(acc, wrap_sub(acc, cast(more, acc.type)))
        return acc

    def _halves(self, name: str, index: Expr) -> list[Expr]:
        word = self.b.let(name, load_word(self.product.x, index))
        if not self.bytes:
            return [word]
        names = ("arm_sxtb16", "arm_sxtb16_ror8")
        return [self.b.let(name, call(half, word, type_=Scalar.I32)) for half in names]


def _products(x: Expr, w: Expr, acc: Var) -> Expr:
    name = "arm_smlad" if acc.type is Scalar.I32 else "arm_smlald"
    return call(name, x, w, acc, type_=acc.type)


def _in_blocks(
    b: KernelBuilder, name: str, count: int, size: int, emit: Callable[[list[Expr]], None]
) -> None:
    """Calls ``emit`` with the numbers of each block; the last one may overlap that before."""
    with b.loop(name, -(-count // size)) as number:
        first = mul(number, const(size))
        if count % size:
            first = min_(first, const(count - size))
        first = b.let(f"first_of_{name}", first)
        emit([add(first, const(i)) for i in range(size)])
