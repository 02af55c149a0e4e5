"""Sums, differences and products of tensors of one shape on RISC-V's vectors, 32 elements at once.
"""

from __future__ import annotations

from crtexport.ir.ops import Add, Mul, Sub
from crtexport.lowering.registry import Context, Lowered
from crtexport.schedules.common import vector_elementwise
from crtexport.schedules.rvv.machine import RvvMachine

_LANES = 32


def lower(context: Context, op: Add | Sub | Mul) -> Lowered | None:
    """Returns a kernel for a node that keeps its operator's rules; None for nodes that it isn't
    for."""
    machine = RvvMachine(_LANES)
    return vector_elementwise.lower(context, op, machine, machine.ints)
