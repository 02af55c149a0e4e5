"""The operator of nodes that several nodes were fused into."""

from __future__ import annotations

from crtexport.ir.ops.base import Op


class Fused(Op, frozen=True):
    """Runs the node's ``parts`` as one kernel: each passes its result to the next one."""
