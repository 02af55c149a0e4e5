"""Kernels for RISC-V processors with vectors (V, Zve32x, Zve32f) of at least 128 bits."""

from __future__ import annotations

from crtexport.ir import ops
from crtexport.lowering.registry import Context
from crtexport.schedules.common import target_features
from crtexport.schedules.common.candidates import Candidate, single
from crtexport.schedules.rvv import dense as rvv_dense
from crtexport.schedules.rvv import depthwise as rvv_depthwise
from crtexport.schedules.rvv import elementwise as rvv_elementwise
from crtexport.schedules.rvv import pool as rvv_pool
from crtexport.schedules.rvv import reduce as rvv_reduce
from crtexport.schedules.rvv.fused_vectors import RvvVectorOps
from crtexport.support.target import Target


def candidates(context: Context, target: Target) -> list[Candidate]:
    """Returns the variants in vectors of a node that keeps its operator's rules, of floats where
    the processor has vectors of these; an empty list where there are none."""
    floats = target_features.has_rvv_floats(target)
    op = context.node.op
    match op:
        case ops.FullyConnected() | ops.Conv2D():
            return rvv_dense.candidates(context, op, floats=floats)
        case ops.DepthwiseConv2D():
            return rvv_depthwise.candidates(context, op, floats=floats)
        case ops.Add() | ops.Sub() | ops.Mul():
            return single("elements", rvv_elementwise.lower(context, op))
        case ops.AveragePool2D() | ops.MaxPool2D():
            return single("channels", rvv_pool.lower(context, op, floats=floats))
        case ops.Mean() | ops.Sum() | ops.ReduceMax() | ops.ReduceMin():
            return single("channels", rvv_reduce.lower(context, op, floats=floats))
        case _:
            return []


def vector_ops() -> RvvVectorOps:
    """Returns the operations that fused operators need on vectors of results."""
    return RvvVectorOps()
