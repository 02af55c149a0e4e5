"""Kernels for RISC-V processors with vectors (V, Zve32x, Zve32f) of at least 128 bits."""

from __future__ import annotations

from crtexport.ir.ops import (
    Add,
    AveragePool2D,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool2D,
    Mean,
    Mul,
    ReduceMax,
    ReduceMin,
    Sub,
    Sum,
)
from crtexport.kernels.registry import Context
from crtexport.schedules import (
    rvv_dense,
    rvv_depthwise,
    rvv_elementwise,
    rvv_pool,
    rvv_reduce,
)
from crtexport.schedules.candidates import Candidate, single


def candidates(context: Context, *, floats: bool) -> list[Candidate]:
    """Forms of a node that keeps its operator's rules in vectors, of ``floats`` too if the
    processor has such; none where there is no such form."""
    op = context.node.op
    match op:
        case FullyConnected() | Conv2D():
            return rvv_dense.candidates(context, op, floats=floats)
        case DepthwiseConv2D():
            return rvv_depthwise.candidates(context, op, floats=floats)
        case Add() | Sub() | Mul():
            return single("elements", rvv_elementwise.lower(context, op))
        case AveragePool2D() | MaxPool2D():
            return single("channels", rvv_pool.lower(context, op, floats=floats))
        case Mean() | Sum() | ReduceMax() | ReduceMin():
            return single("channels", rvv_reduce.lower(context, op, floats=floats))
        case _:
            return []
