"""Windows that slide over NHWC images: the geometry of convolutions and of pooling."""

from __future__ import annotations

import math

from msgspec import Struct

from crtexport.ir.ops import Conv2D, DepthwiseConv2D, Pool2D

Sliding = Conv2D | DepthwiseConv2D | Pool2D


class WindowAxis(Struct, frozen=True):
    """The rows or the columns of an image under a window of ``window`` taps at ``positions``.

    Tap ``t`` at position ``p`` lies at ``p * stride - before + t * dilation`` in an image of
    ``size``; where that is no pixel of the image, it lies in the padding, of which there are
    ``pad_before`` and ``pad_after`` the image.
    """

    size: int
    positions: int
    window: int
    stride: int = 1
    dilation: int = 1
    pad_before: int = 0
    pad_after: int = 0

    @property
    def span(self) -> int:
        """Returns the pixels from the first tap to the last, both included."""
        return (self.window - 1) * self.dilation + 1

    def covered(self, positions: int) -> int:
        """Returns the pixels, of the padded image, that so many neighbouring windows cover."""
        return (positions - 1) * self.stride + self.span

    @property
    def end(self) -> int:
        """Returns the pixel behind the last tap of the last window."""
        return self.covered(self.positions) - self.pad_before

    @property
    def inside(self) -> bool:
        """Returns True where every tap of every window lies in the image."""
        return self.pad_before == 0 and self.end <= self.size

    @property
    def padded(self) -> bool:
        """Returns True where the image has padding, whether or not a tap meets it."""
        return bool(self.pad_before or self.pad_after)

    @property
    def fitting(self) -> int:
        """Positions at which the window lies in the padded image; less than 1: it is too large."""
        return (self.size + self.pad_before + self.pad_after - self.span) // self.stride + 1


class WindowGeometry(Struct, frozen=True):
    """Windows of ``kernel`` taps over an image ``x`` (NHWC), one for each pixel of ``y`` (NHW, or
    NHWC). Pairs are (rows, columns)."""

    x: tuple[int, ...]
    y: tuple[int, ...]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pad_before: tuple[int, int] = (0, 0)
    pad_after: tuple[int, int] = (0, 0)

    @classmethod
    def of(
        cls, op: Sliding, x: tuple[int, ...], y: tuple[int, ...], kernel: tuple[int, int]
    ) -> WindowGeometry:
        """Returns the geometry of an operator, from the shapes of its input and output."""
        dilation = op.dilation if isinstance(op, Conv2D | DepthwiseConv2D) else (1, 1)
        padding = op.padding
        return WindowGeometry(
            x, y, kernel, op.stride, dilation, (padding.top, padding.left),
            (padding.bottom, padding.right),
        )

    def axis(self, number: int) -> WindowAxis:
        """Returns the rows (0) or the columns (1)."""
        return WindowAxis(
            self.x[1 + number], self.y[1 + number], self.kernel[number], self.stride[number],
            self.dilation[number], self.pad_before[number], self.pad_after[number],
        )

    @property
    def rows(self) -> WindowAxis:
        return self.axis(0)

    @property
    def columns(self) -> WindowAxis:
        return self.axis(1)

    @property
    def pixels(self) -> int:
        """Returns the pixels of the output, of all its images."""
        return math.prod(self.y[:3])

    @property
    def inside(self) -> bool:
        """Returns True where no window sticks out of the image."""
        return self.rows.inside and self.columns.inside

    @property
    def pointwise(self) -> bool:
        """Returns True where each pixel of the output sees the pixel of the input with its own
        number."""
        return (
            self.kernel == (1, 1) and self.stride == (1, 1) and self.pad_before == (0, 0)
            and self.x[:3] == self.y[:3]
        )
