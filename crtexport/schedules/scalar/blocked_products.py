"""Layers as products of blocks: some pixels times some output channels, sums in registers."""

from __future__ import annotations

import abc

from crtexport.kir.builder import KernelBuilder, add, const, min_, mul
from crtexport.kir.language import Expr
from crtexport.schedules.common.conv_geometry import Windows
from crtexport.schedules.common.im2col_lines import Im2colGather


class BlockedProducts(abc.ABC):
    """Emits a layer block by block.

    For ``pixels_per_block`` pixels at a time, what their windows see is gathered into lines, which
    serve all output channels. How these are tiled, multiplied and finished is for schedules to say.
    """

    overlapping = False
    """True: the last block begins earlier where it would not be full; else the last pixel fills
    it."""

    def __init__(
        self, b: KernelBuilder, windows: Windows, channels: int, pixels_per_block: int
    ) -> None:
        self.b, self.windows, self.channels = b, windows, channels
        self.pixels_per_block = pixels_per_block

    @abc.abstractmethod
    def all_channels(self, pixels: list[Expr]) -> None:
        """Emits all channels of the pixels with these numbers."""

    def emit(self, gather: Im2colGather | None) -> None:
        """Emits all pixels; ``gather`` is None where windows are read where they lie."""
        b, count, block = self.b, self.windows.pixels, self.pixels_per_block
        full = count % block == 0
        with b.loop("pixels", -(-count // block)) as number:
            first = mul(number, const(block))
            if self.overlapping and not full:
                first = b.let("first", min_(first, const(count - block)))

            def pixel(line: Expr) -> Expr:
                at = add(first, line)
                return at if self.overlapping or full else min_(at, const(count - 1))

            if gather is not None:
                gather.emit(pixel)
            self.all_channels([pixel(const(i)) for i in range(block)])

    def rows(self, pixels: list[Expr]) -> list[Expr]:
        """Returns where the results of each pixel begin in the output."""
        return [
            self.b.let(f"row_p{p}", mul(pixel, const(self.channels)))
            for p, pixel in enumerate(pixels)
        ]
