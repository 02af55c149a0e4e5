"""The operators of nodes that stand for several nodes, which exports make."""

from __future__ import annotations

from crtexport.ir.ops.base import Op


class Fused(Op, frozen=True):
    """Runs the node's ``parts`` as one kernel: each passes its result to the next one."""


class Cascade(Op, frozen=True):
    """Runs the node's ``parts`` row by row: of each tensor between them only the rows are kept that
    are still to be read."""

    heights: tuple[int, ...]  # rows that each part computes at once
    fed: bool = False  # rows of the input are given one after the other
    hop: int = 0  # further rows of the input for each further result; 0: there is one
    rests: bool = False  # rows above and below bands are computed at once, too
