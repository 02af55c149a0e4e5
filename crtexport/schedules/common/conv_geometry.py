"""Windows of convolutions as lines of words (im2col), and the integer layers that sum over them.

A fully connected layer counts as a convolution with windows of one cell.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.ops import Conv2D, FullyConnected
from crtexport.ir.types import DType
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    const,
    flat_index,
    ge,
    lt,
    mul,
)
from crtexport.kir.language import Expr
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Context, Lowering

FEW = 4
"""Input channels up to which whole rows of a window are neighbours that are worth a run."""


class Windows(WindowGeometry, frozen=True, kw_only=True):
    """Windows whose values are gathered into lines of words (im2col).

    ``group``: the number of values that are gathered at once: 4 bytes as two words of pairs, 2
    int16 values in a word, or 1 value in a word of its own.
    """

    group: int = 4

    @property
    def taps(self) -> int:
        """Returns the number of values in a window: cells times channels."""
        return self.kernel[0] * self.kernel[1] * self.x[3]

    @property
    def row_runs(self) -> bool:
        """Returns True where the cells of a window's row are gathered as one run of neighbouring
        values."""
        return self.dilation[1] == 1 and (self.x[3] % self.group == 0 or self.x[3] < FEW)

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Returns (ky, kx) of the first cell of each run."""
        columns = (0,) if self.row_runs else tuple(range(self.kernel[1]))
        return tuple((ky, kx) for ky in range(self.kernel[0]) for kx in columns)

    @property
    def run(self) -> int:
        """Returns the number of values in a run."""
        return self.x[3] * (self.kernel[1] if self.row_runs else 1)

    @property
    def leftover_taps(self) -> tuple[tuple[int, int, int], ...]:
        """Returns (ky, kx, ic) of the values that don't fill groups of four, in order."""
        first, channels = self.run - self.run % self.group, self.x[3]
        return tuple(
            (ky, kx + j // channels, j % channels)
            for ky, kx in self.runs for j in range(first, self.run)
        )

    @property
    def words(self) -> int:
        """Returns the number of words in a line."""
        return len(self.runs) * self.run_words + -(-len(self.leftover_taps) // 2)

    @property
    def run_words(self) -> int:
        """Returns the number of words for the whole groups of a run."""
        return self.words_of(self.run)

    def words_of(self, count: int) -> int:
        """Returns the number of words for the whole groups of ``count`` neighbouring values."""
        return count // self.group * (2 if self.group == 4 else 1)

    def pairs(self) -> npt.NDArray[np.int64]:
        """Returns the tap in each half of each word of a line, (words, 2); -1 for halves without
        one."""
        found: list[tuple[int, int]] = []
        group = self.group
        for ky, kx in self.runs:
            first = (ky * self.kernel[1] + kx) * self.x[3]
            for k in range(first, first + self.run - self.run % group, group):
                found += [(k + i, k + i + group // 2) for i in range(group // 2)]
        rest = [(ky * self.kernel[1] + kx) * self.x[3] + ic for ky, kx, ic in self.leftover_taps]
        rest += [-1] * (len(rest) % 2)
        found += zip(rest[::2], rest[1::2], strict=True)
        return np.array(found, np.int64).reshape(-1, 2)


def windows_of(context: Context, group: int = 4) -> Windows | None:
    """Returns the windows of a node that sums over all its input channels; None for other nodes."""
    op, shape, weights = context.node.op, context.input(0).shape, context.input(1).shape
    match op:
        case FullyConnected():
            depth = weights[1]
            rows = context.input(0).elements // depth if depth else 0
            return Windows((1, 1, rows, depth), (1, 1, rows), (1, 1), group=group)
        case Conv2D() if len(shape) == 4 and weights[3] == shape[3]:
            y = context.output().shape
            return Windows(
                shape, y[:3], (weights[1], weights[2]), op.stride, op.dilation,
                (op.padding.top, op.padding.left), group=group,
            )
        case _:
            return None


class IntegerSumLayer(Struct, frozen=True, eq=False):
    """An integer layer that sums over all its input channels, with weights whose zero point is 0.
    """

    context: Context
    op: Conv2D | FullyConnected
    windows: Windows
    sums: IntegerSums

    @classmethod
    def of(cls, context: Context, values: DType, group: int) -> IntegerSumLayer | None:
        """Returns the layer of a node with inputs of type ``values`` and int8 weights; None for
        other nodes, and where there is nothing to sum. ``group``: as in :class:`Windows`."""
        op = context.node.op
        if not isinstance(op, Conv2D | FullyConnected):
            return None
        if context.input(0).dtype is not values or context.input(1).dtype is not DType.INT8:
            return None
        windows = windows_of(context, group)
        if windows is None or not windows.pixels or not windows.taps:
            return None
        sums = IntegerSums.of(context, 0, fully_connected=isinstance(op, FullyConnected))
        return None if sums.weight_zero else cls(context, op, windows, sums)

    @property
    def channels(self) -> int:
        return len(self.sums.folded)

    def begin(self) -> Lowering:
        """Returns the lowering of an empty kernel for the layer."""
        dense = isinstance(self.op, FullyConnected)
        return Lowering("fully_connected" if dense else "conv2d", self.context)


class WindowWalk:
    """Emits the indices of a window's cells, and the conditions under which they lie in the image.
    """

    def __init__(self, b: KernelBuilder, windows: Windows) -> None:
        self.b, self.windows = b, windows

    def limits(self, y0: Expr, x0: Expr, more_columns: int = 0) -> Expr | None:
        """Returns the condition that the window whose first cell is (y0, x0) lies in the image, and
        ``more_columns`` behind it, which other windows have; None where all windows do."""
        axes = self.windows.rows, self.windows.columns
        found = [
            self._within(at, number, axis.span - 1 + more)
            for number, (axis, at, more) in enumerate(
                zip(axes, (y0, x0), (0, more_columns), strict=True)
            )
            if not axis.inside
        ]
        return and_(*found) if found else None

    def in_image(self, iy: Expr, ix: Expr) -> Expr:
        """Returns the condition that a cell lies in the image."""
        return and_(self._within(iy, 0, 0), self._within(ix, 1, 0))

    def _within(self, at: Expr, axis: int, reach: int) -> Expr:
        """Returns the condition that the cells from ``at`` to ``at + reach`` lie in the image."""
        return and_(ge(at, const(0)), lt(at, const(self.windows.x[1 + axis] - reach)))

    def tap(self, first: Expr, tap: Expr, axis: int) -> Expr:
        """Returns the row (``axis`` 0) or column (1) of a tap of a window that begins at
        ``first``."""
        return add(first, mul(tap, const(self.windows.dilation[axis])))

    def cell(self, n: Expr, y0: Expr, x0: Expr, ky: Expr, kx: Expr) -> Expr:
        """Returns the index of the first channel of the cell under a tap of the window from (y0,
        x0) on."""
        return self.index(n, self.tap(y0, ky, 0), self.tap(x0, kx, 1))

    def index(self, n: Expr, iy: Expr, ix: Expr) -> Expr:
        """Returns the index of a cell's first channel."""
        return flat_index([n, iy, ix, const(0)], self.windows.x)
