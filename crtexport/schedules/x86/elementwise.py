"""Sums, differences and products of quantized tensors of one shape on x86-64, in whole vectors."""

from __future__ import annotations

from crtexport.ir.ops import Add, Mul, Sub
from crtexport.lowering.registry import Context, Lowered
from crtexport.schedules.common import vector_elementwise
from crtexport.schedules.x86.machine import X86Machine


def lower(context: Context, machine: X86Machine) -> Lowered | None:
    """Returns a kernel for a node that keeps its operator's rules; None for nodes that it isn't
    for."""
    op = context.node.op
    if not isinstance(op, Add | Sub | Mul):
        return None
    return vector_elementwise.lower(context, op, machine, machine.ints)
