"""Tiles of Winograd's F(2x2, 3x3): their parts, how many there are at a time, and weights for them.

A tile of 2x2 pixels sees 4x4 cells. Cells and taps are transformed into 16 parts each; 16 products
for each pair of channels, instead of 36, give the sums of the four pixels. Taps are transformed
while exporting, with twice the usual matrix for rows and for columns, so that they are integers:
sums are four times as large, modulo 2**32, which is exact as long as four times a sum fits 32 bits.
Parts of cells are at most 4 * 128, those of taps 9 * 128, so that both fit 16 bits.

The matrices: A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.lowering.weight_packing import Array, Packing
from crtexport.schedules.common.conv_geometry import Windows

TAPS, SIDE = 3, 2
CELLS = SIDE + TAPS - 1
"""Rows and columns of the cells that a tile sees, and of their parts."""
PARTS = CELLS * CELLS
SHIFT = 2
"""Sums are 2**2 times those of the convolution."""
_TAPS = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int32)
"""Twice the factors of taps: parts x taps."""
MOST = 4 << 10
"""Bytes of the parts of cells of some tiles, where one block of tiles doesn't need more."""


class WinogradBlock(Struct, frozen=True):
    """``tiles`` x ``channels``, whose sums are in registers."""

    tiles: int
    channels: int

    @property
    def name(self) -> str:
        """Returns the name among the candidates of a node."""
        return f"winograd {self.tiles}x{self.channels}"


def channel_pairs(depth: int) -> npt.NDArray[np.int64]:
    """Returns the input channel in each half of each word of a cell, (words, 2); -1 where it is
    there already. Words are made of four neighbouring channels, 0 and 2, 1 and 3; the last four
    begin earlier where there aren't as many."""
    found = []
    for first in range(0, depth, 4):
        begin = min(first, depth - 4)
        four = [one if one >= first else -1 for one in range(begin, begin + 4)]
        found += [(four[0], four[2]), (four[1], four[3])]
    return np.array(found, np.int64)


class WinogradWords(Packing, frozen=True):
    """Packs weights (channels x taps) as words of the parts for two input channels: blocks of
    ``channels_per_block`` channels, part by part, word by word of a cell, channel by channel."""

    depth: int
    channels_per_block: int

    @property
    def block(self) -> int:
        return self.channels_per_block

    def nbytes(self, rows: int, columns: int) -> int:
        del columns
        return rows * PARTS * len(channel_pairs(self.depth)) * 4

    def __call__(self, weights: Array) -> Array:
        taps = weights.reshape(-1, TAPS, TAPS, self.depth).astype(np.int32)
        parts = np.einsum("py,qx,cyxd->cpqd", _TAPS, _TAPS, taps).astype(np.int16)
        padded = np.zeros((*parts.shape[:3], self.depth + 1), np.int16)
        padded[..., :-1] = parts
        words = np.ascontiguousarray(padded[..., channel_pairs(self.depth)]).view("<i4")
        blocks = words.reshape(-1, self.channels_per_block, PARTS, words.shape[-2])
        return np.ascontiguousarray(blocks.transpose(0, 2, 3, 1)).reshape(-1)


class Sizes(Struct, frozen=True):
    """``words`` of a cell, ``columns`` of cells that two rows of pixels see, and the ``tiles`` of
    these rows whose parts are there at a time; ``computed`` are all, of which some are computed
    twice where the last ones begin earlier."""

    words: int
    columns: int
    tiles: int
    computed: int

    @staticmethod
    def of(windows: Windows, block: WinogradBlock) -> Sizes:
        """Returns the sizes with which the fewest tiles are computed; of these the most at a time.
        """
        words, wide = len(channel_pairs(windows.x[3])), windows.y[2]
        most = max(MOST // (PARTS * words * 4), block.tiles)
        tiles, computed = min(
            ((n, -(-wide // (SIDE * n)) * n)
             for n in range(block.tiles, min(most, wide // SIDE) + 1, block.tiles)),
            key=lambda one: (one[1], -one[0]),
        )
        return Sizes(words, wide + TAPS - 1, tiles, computed)

    @property
    def row(self) -> int:
        """Words of a row of parts of columns."""
        return self.columns * self.words

    @property
    def part(self) -> int:
        """Words of one of the parts of all tiles."""
        return self.tiles * self.words

    def scratch(self, block: WinogradBlock) -> int:
        """Returns the bytes of all parts and of their sums."""
        return 4 * (CELLS * self.row + PARTS * (self.part + self.tiles * block.channels))
