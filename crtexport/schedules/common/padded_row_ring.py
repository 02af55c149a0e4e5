"""The rows of an image that a window covers, with their padding, in a ring buffer in scratch
memory.

The ring holds as many padded rows as a window is high. Each row of the image is copied into it
once, and its padding is filled with the zero point. So no tap needs a test whether it lies in the
image, and the output may overwrite rows of the input that have been copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from crtexport.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    call,
    const,
    div,
    eq,
    f32,
    ge,
    i32,
    load_vector,
    lt,
    min_,
    mul,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.registry import Context, Lowering

SCRATCH = 2048
"""Bytes that a ring may always have."""
Copies = Mapping[Scalar, tuple[Scalar, str]]
"""By types of values: the vectors that they are copied in, and what makes one of a number."""
MVE: Copies = {
    Scalar.I8: (Scalar.I8X16, "mve_dup_s8"), Scalar.I16: (Scalar.I16X8, "mve_dup_s16"),
    Scalar.F32: (Scalar.F32X4, "mve_dup_f32"),
}


def geometry(context: Context, op: Conv2D | DepthwiseConv2D) -> WindowGeometry:
    """Returns the window geometry of a convolution."""
    shape = context.input(1).shape
    return WindowGeometry.of(
        op, context.input(0).shape, context.output().shape, (shape[1], shape[2])
    )


class RingRows(Struct, frozen=True):
    """Rows that are multiplied where they are, without a copy: lines of rows.

    ``counts``: the number of lines, and of rows in each; ``steps``: the distance from one to the
    next in the input, in elements. ``name`` is the kernel's.
    """

    name: str
    counts: tuple[int, int]
    steps: tuple[int, int]

    @staticmethod
    def of(context: Context) -> RingRows | None:
        """Returns the rows of a fully connected layer, or the pixels of a convolution with 1x1
        windows; None for other nodes, and where there is nothing to multiply."""
        op, x, w, y = (
            context.node.op, context.input(0).shape, context.input(1).shape, context.output().shape
        )
        if 0 in (*x, *w, *y):
            return None
        if isinstance(op, FullyConnected):
            return RingRows("fully_connected", (1, context.input(0).elements // w[1]), (0, w[1]))
        if not isinstance(op, Conv2D) or w[1:3] != (1, 1) or op.padding.any or w[3] != x[3]:
            return None
        if op.stride == (1, 1):
            return RingRows("pointwise_conv2d", (1, y[0] * y[1] * y[2]), (0, x[3]))
        if x[0] > 1:
            return None
        line = op.stride[0] * x[2] * x[3]
        return RingRows("pointwise_conv2d", (y[1], y[2]), (line, op.stride[1] * x[3]))


class Clip(Struct, frozen=True):
    """The numbers of columns of padding before the image, of the image, and of padding behind it.
    """

    left: int
    width: int
    right: int


class RingLine(Struct, frozen=True):
    """``Ring.width`` columns of the output from ``first`` on, in row ``oy`` of image ``n``.
    ``slots``: the ring's slot of each row of their windows."""

    n: Expr
    oy: Expr
    slots: list[Expr]
    first: Expr

    def pixel(self, window: WindowGeometry) -> Expr:
        """Returns the number of the line's first pixel among those of the output."""
        row = add(mul(self.n, const(window.y[1])), self.oy)
        return add(mul(row, const(window.y[2])), self.first)


class Ring:
    """Padded rows: ``rows[block][slot][column][cell]``.

    A block has ``cell`` neighbouring channels: all of them where there is one block; the last of
    several may repeat channels of the one before it. A whole vector may be loaded from every cell,
    unless the ring is ``exact``.
    Where memory for whole rows would make the workspace larger, the ring holds only some columns,
    which are copied again for each row of the output.
    """

    def __init__(
        self, lowering: Lowering, source: Buffer, window: WindowGeometry, cell: int, zero: int = 0,
        copies: Copies = MVE, *, exact: bool = False,
    ) -> None:
        """``source``: a type that ``copies`` has; ``zero``: the value that stands for 0 in it;
        ``exact``: nothing behind the last cell is loaded."""
        self.vector, self._everywhere = copies[source.dtype]
        self.b: KernelBuilder = lowering.b
        self.source, self.window, self.cell, self.zero = source, window, cell, zero
        self.channels = window.x[3]
        self.blocks = -(-self.channels // cell)
        width = window.y[2]
        self.slots = window.rows.span
        self._behind = 0 if exact else self.vector.lanes
        limit = _spare(lowering.context) // source.dtype.itemsize
        self.tiles = 1
        while self._size(-(-width // self.tiles)) > limit and self._can_split(self.tiles + 1):
            self.tiles += 1
        if self.tiles > 1:
            self.slots = window.kernel[0]
        self.width = -(-width // self.tiles)
        self.tiles = -(-width // self.width)
        self.columns = window.columns.covered(self.width)
        self.line = self.columns * cell
        self.rows = lowering.scratch("lines", source.dtype, self._size(self.width))

    def _size(self, width: int) -> int:
        """Returns the number of elements that ``width`` columns of the output need."""
        line = self.window.columns.covered(width) * self.cell
        return self.blocks * self.slots * line + self._behind

    def _can_split(self, tiles: int) -> bool:
        """Returns whether only the first and the last of some tiles contain padding."""
        window, width = self.window, -(-self.window.y[2] // tiles)
        last_inner = (-(-window.y[2] // width) - 2) * width * window.stride[1]
        return (
            width >= 2 and width * window.stride[1] >= window.pad_before[1]
            and last_inner - window.pad_before[1] + window.columns.covered(width) <= window.x[2]
        )

    def channel(self, block: Expr) -> Expr:
        """Returns the first channel of a block."""
        first = mul(block, const(self.cell))
        if self.channels % self.cell == 0:
            return first
        return min_(first, const(self.channels - self.cell))

    def start(self, block: Expr, slot: Expr) -> Expr:
        """Returns the index of the first cell of a row."""
        return mul(add(mul(block, const(self.slots)), slot), const(self.line))

    def starts(self, block: Expr, line: RingLine) -> list[Expr]:
        """Names the index of the first cell of each row in the windows of ``line``."""
        return [
            self.b.let(f"row_ky{ky}", self.start(block, slot))
            for ky, slot in enumerate(line.slots)
        ]

    @contextmanager
    def walk(self) -> Iterator[RingLine]:
        """Loops over the output's rows, or over parts of them; yields each as a line."""
        with (self._walk_whole() if self.tiles == 1 else self._walk_tiles()) as line:
            yield line

    @contextmanager
    def _walk_whole(self) -> Iterator[RingLine]:
        b, window = self.b, self.window
        stride = window.stride[0]
        fresh = min(stride, self.slots)
        ahead = -(-(self.slots - fresh) // fresh)  # iterations that only copy
        missing = ahead * fresh - (self.slots - fresh)
        self._fill_columns()
        with b.loop("n", window.x[0]) as n, b.loop("turn", window.y[1] + ahead) as iteration:
            with b.loop("new", fresh) as new:
                step = fresh if ahead else stride
                row = b.let(
                    "padded_row", sub(add(mul(iteration, const(step)), new), const(missing))
                )
                with b.if_(ge(row, const(0)) if missing else None):
                    slot = b.let("slot", self._slot(row))
                    self._copy(n, row, slot, (const(0), self._clip(0)))
            with b.if_(ge(iteration, const(ahead)) if ahead else None):
                oy = b.let("oy", sub(iteration, const(ahead)))
                slots = []
                for ky in range(window.kernel[0]):
                    with b.named(f"ky{ky}"):
                        row = add(mul(oy, const(stride)), const(ky * window.dilation[0]))
                        slots.append(b.let("slot", self._slot(row)))
                yield RingLine(n, oy, slots, const(0))

    @contextmanager
    def _walk_tiles(self) -> Iterator[RingLine]:
        b, window = self.b, self.window
        last = const(window.y[2] - self.width)
        with (
            b.loop("n", window.x[0]) as n, b.loop("oy", window.y[1]) as oy,
            b.loop("tile", self.tiles) as tile,
        ):
            first = b.let("first_column", min_(mul(tile, const(self.width)), last))
            with b.loop("ky", self.slots) as ky:
                down = mul(ky, const(window.dilation[0]))
                row = b.let("padded_row", add(mul(oy, const(window.stride[0])), down))
                with b.if_(eq(tile, const(0))):
                    self._copy_padded(n, row, ky, (const(0), self._clip(0)))
                with b.else_(), b.if_(eq(tile, const(self.tiles - 1))):
                    self._copy_padded(n, row, ky, (last, self._clip(window.y[2] - self.width)))
                if self.tiles > 2:
                    inner = and_(ge(tile, const(1)), lt(tile, const(self.tiles - 1)))
                    with b.if_(inner):
                        start = mul(tile, const(self.width))
                        self._copy_padded(n, row, ky, (start, Clip(0, self.columns, 0)))
            yield RingLine(n, oy, [const(i) for i in range(self.slots)], first)

    def _slot(self, row: Expr) -> Expr:
        if self.slots == 1:
            return const(0)
        whole = self.b.let("padded_row", row)
        return sub(whole, mul(div(whole, const(self.slots)), const(self.slots)))

    def _clip(self, first: int) -> Clip:
        """Returns how much of the columns from output column ``first`` on is padding."""
        begin = first * self.window.stride[1] - self.window.pad_before[1]
        left = min(max(-begin, 0), self.columns)
        width = max(min(self.window.x[2] - max(begin, 0), self.columns - left), 0)
        return Clip(left, width, self.columns - left - width)

    def _zeros(self) -> Expr:
        zero = f32(0.0) if self.vector.is_float else i32(self.zero)
        return call(self._everywhere, zero, type_=self.vector)

    def _fill_columns(self) -> None:
        """Fills the columns before and behind the image, which don't change afterwards."""
        b, clip = self.b, self._clip(0)
        if not clip.left and not clip.right:
            return
        with b.loop("line", self.blocks * self.slots) as line:
            start = b.let("start", mul(line, const(self.line)))
            self._fill_sides(start, clip)

    def _fill_sides(self, start: Expr, clip: Clip) -> None:
        self._fill(start, clip.left)
        self._fill(add(start, const((clip.left + clip.width) * self.cell)), clip.right)

    def _fill(self, start: Expr, cells: int) -> None:
        lanes = self.vector.lanes
        whole, rest = divmod(cells * self.cell, lanes)
        with self.b.loop("chunk", whole) as chunk:
            self.b.store_vector(self.rows, add(start, mul(chunk, const(lanes))), self._zeros())
        if rest:
            at = add(start, const(whole * lanes))
            self.b.store_vector(self.rows, at, self._zeros(), rest)

    def _copy_padded(self, n: Expr, row: Expr, slot: Expr, part: tuple[Expr, Clip]) -> None:
        """Copies a part of a row with the padding beside it."""
        self._copy(n, row, slot, part)
        with self.b.loop("block", self.blocks) as block:
            self._fill_sides(self.start(block, slot), part[1])

    def _copy(self, n: Expr, row: Expr, slot: Expr, part: tuple[Expr, Clip]) -> None:
        """Copies into a slot the part of a padded row that windows cover from an output column on.
        """
        b, window = self.b, self.window
        first, clip = part
        iy = b.let("iy", sub(row, const(window.pad_before[0])))
        tests = [ge(iy, const(0))] if window.rows.pad_before else []
        tests += [lt(iy, const(window.x[1]))] if window.rows.end > window.x[1] else []
        begin = sub(mul(first, const(window.stride[1])), const(window.pad_before[1] - clip.left))
        with b.loop("block", self.blocks) as block:
            target = b.let(
                "target", add(self.start(block, slot), const(clip.left * self.cell))
            )
            with b.if_(and_(*tests) if tests else None):
                line = mul(add(mul(n, const(window.x[1])), iy), const(window.x[2]))
                source = add(mul(add(line, begin), const(self.channels)), self.channel(block))
                self._copy_line(target, b.let("source", source), clip.width)
            if tests:
                with b.else_():
                    self._fill(target, clip.width)

    def _copy_line(self, target: Expr, source: Expr, width: int) -> None:
        b, lanes = self.b, self.vector.lanes

        def move(there: Expr, here: Expr, count: int) -> None:
            value = load_vector(self.source, add(source, here), self.vector, count)
            b.store_vector(self.rows, add(target, there), value, count)

        if self.blocks > 1:
            with b.loop("column", width, unroll=_unroll(width)) as column:
                move(mul(column, const(self.cell)), mul(column, const(self.channels)), lanes)
            return
        whole, rest = divmod(width * self.cell, lanes)  # neighbours stay neighbours
        with b.loop("chunk", whole, unroll=_unroll(whole)) as chunk:
            at = mul(chunk, const(lanes))
            move(at, at, lanes)
        if rest:
            move(const(whole * lanes), const(whole * lanes), rest)


def _spare(context: Context) -> int:
    """Returns the bytes of scratch that don't make the workspace larger, since other nodes need as
    much."""
    graph = context.graph
    sizes = [
        max((graph.type(t).nbytes for t in (*node.inputs, *node.outputs)
             if t is not None and graph.constant(t) is None), default=0)
        for node in graph.nodes
    ]
    own = max(context.input(0).nbytes, context.output().nbytes)
    return max(SCRATCH, max(sizes, default=0) - own)


def _unroll(extent: int) -> int | None:
    return next((n for n in (4, 3, 2) if extent % n == 0), None)
