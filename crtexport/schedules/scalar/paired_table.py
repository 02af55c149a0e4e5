"""The order of constants of channels whose sums begin with some of them.

Blocks of channels have theirs side by side: those with which sums begin before those that scale
them. Products are added up between the loads of both, behind which a small cache before the flash
has neither.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.kir.builder import add, const, mul
from crtexport.kir.language import Expr


class PairedTable(Struct, frozen=True):
    """``channels`` with ``words`` each, in blocks of ``block`` channels; those that are left are in
    pairs, or alone. The sums of all channels begin with their first word, or with ``odd`` those of
    the second channel of each pair. ``alike``: the other words are the same for all channels, and
    come last.
    """

    channels: int
    words: int
    block: int
    odd: bool
    alike: bool

    def begins(self, offset: int) -> bool:
        """Returns whether the sum of a channel of a block begins with the channel's first word."""
        return not self.odd or offset % 2 == 1

    def arranged(self, constants: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Returns the table of ``constants``, channels x words."""
        found, first = [], 0
        for size in (self.block, 2, 1):
            while self.channels - first >= size:
                found += [constants[first + offset, word] for offset, word in self._order(size)]
                first += size
        return np.array([*found, *(constants[0, 1:] if self.alike else ())], np.int32)

    def place(self, block: Expr, offset: int, size: int, word: int) -> Expr:
        """Returns where a word lies of the channel ``offset`` behind the first one (index) of a
        block of ``size``."""
        if word and self.alike:
            return const(self.channels + word - 1)
        at = list(self._order(size)).index((offset, word))
        return add(mul(block, const(1 if self.alike else self.words)), const(at))

    def _order(self, size: int) -> Iterator[tuple[int, int]]:
        """Yields the channel and the number of each word of a block."""
        channels, words = range(size), range(1 if self.alike else self.words)
        yield from ((offset, 0) for offset in channels if self.begins(offset))
        yield from (
            (offset, word) for offset in channels for word in words
            if word or not self.begins(offset)
        )
