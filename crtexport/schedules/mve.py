"""Kernels for processors with MVE (Cortex-M55, M85)."""

from __future__ import annotations

import functools

from crtexport.ir.ops import (
    Add,
    AveragePool2D,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool2D,
    Mul,
    Sub,
)
from crtexport.kernels.registry import Context, Lowered, Lowering
from crtexport.schedules import mve_conv, mve_depthwise, mve_elementwise, mve_float, mve_pool
from crtexport.schedules.candidates import Candidate, single
from crtexport.schedules.mve_dense import Block, Product, block_candidates, blocks, multiply_rows
from crtexport.schedules.mve_rows import Rows
from crtexport.schedules.mve_scale import Sums


def candidates(context: Context, *, floats: bool = False) -> list[Candidate]:
    """Forms of a node that keeps its operator's rules in vectors, of ``floats`` too if the
    processor has such; none where there is no such form."""
    if floats and (found := mve_float.lower(context)) is not None:
        return single("floats", found)
    op = context.node.op
    match op:
        case FullyConnected():
            return _rows(context)
        case DepthwiseConv2D():
            return single("channels", mve_depthwise.lower(context, op))
        case Conv2D():
            return _rows(context) or mve_conv.candidates(context, op)
        case Add() | Sub() | Mul():
            return single("elements", mve_elementwise.lower(context, op))
        case AveragePool2D() | MaxPool2D():
            return single("channels", mve_pool.lower(context, op, floats=floats))
        case _:
            return []


def _rows(context: Context) -> list[Candidate]:
    """Of what is rows times units without further ado."""
    rows = Rows.of(context)
    dense = isinstance(context.node.op, FullyConnected)
    sums = Sums.of(context, 0, fully_connected=dense) if rows is not None else None
    return [] if rows is None or sums is None else _products(context, sums, rows)


def _products(context: Context, sums: Sums, rows: Rows) -> list[Candidate]:
    """Rows times all units."""
    found = blocks(rows.counts[1], [context.input(1).shape[-1]], sums)
    return block_candidates(found, functools.partial(_product, context, sums, rows))


def _product(context: Context, sums: Sums, rows: Rows, shape: Block) -> Lowered:
    lowering = Lowering(rows.name, context)
    x = lowering.input(0, "input")
    units = sums.channels
    depth = context.input(1).elements // units
    product = Product(lowering, sums, [(depth, False)], shape)
    output = lowering.output()
    multiply_rows(
        lowering.b, rows, x, (units, depth), product.high,
        lambda segments, targets: product.emit(segments, output, targets),
    )
    return lowering.finish()
