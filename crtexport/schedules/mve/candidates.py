"""Kernels for processors with MVE (Cortex-M55, M85)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.numerics import Numerics
from crtexport.kir.analysis.single_store import Results
from crtexport.kir.assembly.mve.machine_loop import becomes_machine_code
from crtexport.lowering.registry import Context, Lowered, Lowering, OutputTensor
from crtexport.schedules.common import target_features
from crtexport.schedules.common.candidates import Candidate, single
from crtexport.schedules.common.padded_row_ring import RingRows
from crtexport.schedules.common.row_products import lines_of
from crtexport.schedules.mve import conv as mve_conv
from crtexport.schedules.mve import depthwise as mve_depthwise
from crtexport.schedules.mve import elementwise as mve_elementwise
from crtexport.schedules.mve import float as mve_float
from crtexport.schedules.mve import pool as mve_pool
from crtexport.schedules.mve.dense import MveProducts, tile_candidates, usual_first
from crtexport.schedules.mve.requantize import Sums
from crtexport.schedules.mve.tiles import MveTile, tiles
from crtexport.support.target import Target


def candidates(context: Context, target: Target) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules in vectors, of floats too if
    the processor has such; none where there is no such variant."""
    floats = target_features.has_mve_floats(target)
    if floats and (found := mve_float.lower(context)) is not None:
        return single("floats", found)
    op = context.node.op
    if context.numerics is Numerics.ORT and not floats:
        return []  # whose scaling needs vectors of them
    match op:
        case ops.FullyConnected():
            return _rows(context)
        case ops.DepthwiseConv2D():
            return single("channels", mve_depthwise.lower(context, op))
        case ops.Conv2D():
            return _rows(context) or mve_conv.candidates(context, op)
        case ops.Add() | ops.Sub() | ops.Mul():
            return single("elements", mve_elementwise.lower(context, op))
        case ops.AveragePool2D() | ops.MaxPool2D():
            return single("channels", mve_pool.lower(context, op, floats=floats))
        case _:
            return []


def vector_ops() -> mve_elementwise.MveVectorOps:
    """Returns what computes with vectors of results."""
    return mve_elementwise.MveVectorOps()


def fused(variants: Sequence[Candidate]) -> list[Candidate]:
    """Returns the variants of a node that other parts were fused into, the usual one first. That
    is another one than without them where their registers leave too few for machine code: the first
    that gets along without, of those that compute no result twice, if there are such. Parts are
    fused to save memory, and what is computed again mustn't have overwritten its operands."""
    if becomes_machine_code(variants[0].make().kernel):
        return [*variants]
    once = [variant for variant in variants if _stores_once(variant.make())]
    others = [replace(variant, rare=True) for variant in variants if variant not in once]
    return [*usual_first(once), *others] if once else usual_first(variants)


def _stores_once(lowered: Lowered) -> bool:
    """Returns whether each result is provably stored once."""
    output = lowered.kernel.buffers[lowered.args.index(OutputTensor(0))]
    results = Results(output, output.size, 1, ordered=False)
    return results.stored_once(lowered.kernel) is lowered.kernel


def _rows(context: Context) -> list[Candidate]:
    """Returns the variants of nodes that are rows times units as they stand."""
    rows = RingRows.of(context)
    dense = isinstance(context.node.op, ops.FullyConnected)
    sums = Sums.of(context, 0, fully_connected=dense) if rows is not None else None
    return [] if rows is None or sums is None else _products(context, sums, rows)


def _products(context: Context, sums: Sums, rows: RingRows) -> list[Candidate]:
    """Returns the variants for rows times all units."""
    found = tiles(rows.counts[1], [(context.input(1).shape[-1], False)], sums, apart=False)
    return tile_candidates(found, functools.partial(_product, context, sums, rows))


def _product(context: Context, sums: Sums, rows: RingRows, shape: MveTile) -> Lowered:
    lowering = Lowering(rows.name, context)
    x = lowering.input(0, "input")
    units = sums.channels
    depth = context.input(1).elements // units
    product = MveProducts(lowering, sums, [(depth, False)], shape)
    output = lowering.output()
    with lines_of(lowering.b, rows, x, (units, depth)) as some:
        product.emit(some, rows.counts[1], output)
    return lowering.finish()
