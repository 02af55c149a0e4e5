"""Operators of audio front ends that keep nothing between runs, but for transforms.

Each gives the integers of TensorFlow Lite Micro's signal library (``signal/src``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir.ops import (
    Energy,
    FftAutoScale,
    FilterBank,
    FilterBankLog,
    FilterBankSquareRoot,
    Window,
)
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    clamp,
    const,
    ge,
    gt,
    i32,
    load,
    lt,
    max_,
    min_,
    mul,
    ne,
    select,
    shl,
    shr,
    sub,
    wrap_add,
    wrap_mul,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.elementwise_maps import prepared_map
from crtexport.lowering.numerics.highest_bit import highest_bit
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers

_I16, _I32, _U32, _I64, _INDEX = Scalar.I16, Scalar.I32, Scalar.U32, Scalar.I64, Scalar.INDEX


def whole_shift(context: Context) -> str | None:
    """Bits to shift by must be from 0 to 31."""
    op = context.op(Window, FilterBankLog)
    bits = op.shift if isinstance(op, Window) else op.input_correction_bits
    return None if 0 <= bits < 32 else f"found {bits}"


@lowers(Window, whole_shift)
def window(context: Context) -> Lowered:
    """Products of two int16 shifted in 32 bits, saturated."""
    op = context.op(Window)
    lowering = Lowering("window", context)
    b, type_ = lowering.b, context.input(0)
    source, weights, output = (
        lowering.input(0, "samples"), lowering.input(1, "weights"), lowering.output()
    )
    width = type_.shape[-1]
    with b.loop("row", type_.elements // width) as row, b.loop("i", width) as i:
        at = b.let("at", add(mul(row, const(width)), i))
        product = mul(cast(load(source, at), _I32), cast(load(weights, i), _I32))
        raw = b.let("raw", shr(product, i32(op.shift)))
        b.store(output, at, cast(clamp(raw, -(1 << 15), (1 << 15) - 1), _I16))
    return lowering.finish()


@lowers(FftAutoScale)
def fft_auto_scale(context: Context) -> Lowered:
    """Largest magnitude, its spare bits, and all samples times a power of two. That -32768 has no
    magnitude in 16 bits is as in the reference: it counts until a larger sample comes."""
    lowering = Lowering("fft_auto_scale", context)
    b, count = lowering.b, context.input(0).elements
    source = lowering.input(0, "samples")
    output, bits = lowering.output(), lowering.output(1, "bits")
    largest = b.local("largest", i32(0))
    with b.loop("i", count) as i:
        value = b.let("value", cast(load(source, i), _I32))
        opposite = b.let("opposite", sub(i32(0), value))
        narrow = cast(cast(opposite, _I16), _I32)
        other = select(gt(opposite, largest), narrow, largest)
        b.assign(largest, select(gt(value, largest), value, other))
    top = highest_bit(b, cast(max_(largest, i32(1)), _U32))
    spare = sub(i32(14), top)
    scale = b.let("scale", select(gt(largest, i32(0)), max_(spare, i32(0)), i32(0)))
    b.store(bits, const(0), scale)
    factor = b.let("factor", shl(i32(1), scale))
    with b.loop("k", count) as k:
        b.store(output, k, cast(wrap_mul(cast(load(source, k), _I32), factor), _I16))
    return lowering.finish()


@lowers(Energy)
def energy(context: Context) -> Lowered:
    """Sums of two squares, of 32 bits."""
    op = context.op(Energy)
    lowering = Lowering("energy", context)
    b, bins = lowering.b, context.output().elements
    source, output = lowering.input(0, "spectrum"), lowering.output()
    for start, count in ((0, op.start), (op.end, bins - op.end)):
        if count:
            with b.loop("i", count) as i:
                b.store(output, add(i, const(start)), const(0, _U32))
    if op.end > op.start:
        with b.loop("bin", op.end - op.start) as i:
            bin_ = b.let("at", add(i, const(op.start)))
            parts = (
                b.let("part", cast(load(source, add(mul(bin_, const(2)), const(part))), _I32))
                for part in (0, 1)
            )
            real, imaginary = (cast(mul(part, part), _U32) for part in parts)
            b.store(output, bin_, wrap_add(real, imaginary))
    return lowering.finish()


def known_channels(context: Context) -> str | None:
    """Weights and tables of channels must be constants: weights from 0 on, and channels inside of
    the bins and of the weights."""
    weights, complements, bins, firsts, widths = (
        context.values(i).astype(np.int64) for i in range(1, 6)
    )
    if min(weights.min(), complements.min()) < 0:
        return "found negative weights"
    if min(bins.min(), firsts.min(), widths.min()) < 0:
        return "found negative numbers of bins or weights"
    used = widths > 0
    if ((bins + widths)[used] > context.input(0).elements).any():
        return f"found channels beyond the {context.input(0).elements} bins"
    if ((firsts + widths)[used] > len(weights)).any():
        return f"found channels beyond the {len(weights)} weights"
    return None


@lowers(FilterBank, known_channels)
def filter_bank(context: Context) -> Lowered:
    """Sums in 64 bits: at most 2 * 32767 terms of 15 and 32 bits each, fewer than 2**63 in all."""
    lowering = Lowering("filter_bank", context)
    b, bins = lowering.b, context.input(0).elements
    source, weights, complements = (
        lowering.input(i, name) for i, name in enumerate(("bins", "weights", "complements"))
    )
    tables = [
        lowering.input(i, name) for i, name in ((3, "starts"), (4, "firsts"), (5, "widths"))
    ]
    output = lowering.output()
    widest = int(context.values(5).max())
    rest = b.local("rest", const(0, _I64))
    with b.loop("c", context.output().elements + 1) as c:
        start, first, width = (
            b.let(table.name, cast(load(table, c), _INDEX)) for table in tables
        )
        total = b.local("total", rest)
        b.assign(rest, const(0, _I64))
        with b.loop("k", widest) as k, b.if_(lt(k, width)):
            place = clamp(add(start, k), 0, bins - 1)
            value = b.let("value", cast(load(source, place), _I64))
            at = b.let("at", clamp(add(first, k), 0, weights.size - 1))
            for into, factors in ((total, weights), (rest, complements)):
                b.assign(into, add(into, mul(cast(load(factors, at), _I64), value)))
        with b.if_(gt(c, const(0))):
            b.store(output, sub(c, const(1)), total)
    return lowering.finish()


@lowers(FilterBankSquareRoot)
def filter_bank_square_root(context: Context) -> Lowered:
    """Digit by digit, rounded to the nearest whole number of 32 bits; those of numbers of 32 bits
    have at most 16."""
    lowering = Lowering("filter_bank_square_root", context)
    b = lowering.b
    source, bits, output = (
        lowering.input(0, "input"), lowering.input(1, "bits"), lowering.output()
    )
    shift = b.let("shift", cast(and_(load(bits, const(0)), i32(31)), _U32))
    with b.loop("i", context.output().elements) as i:
        value = b.let("value", max_(load(source, i), const(0, _I64)))
        root = b.local("root", const(0, _U32))
        with b.if_(lt(value, const(1 << 32, _I64))):
            b.assign(root, _root(b, cast(value, _U32), 16))
        with b.else_():
            b.assign(root, cast(_root(b, value, 32), _U32))
        b.store(output, i, shr(root, shift))
    return lowering.finish()


def _root(b: KernelBuilder, value: Expr, digits: int) -> Expr:
    """Returns the root of ``value`` in its type, rounded, but of no more than ``digits`` digits."""
    type_ = value.type
    rest, root = b.local("left", value), b.local("found", const(0, type_))
    digit = b.local("digit", const(1 << (2 * digits - 2), type_))
    with b.loop("step", digits, unroll=1):
        tried = b.let("tried", add(root, digit))
        fits = b.let("fits", ge(rest, tried))
        half = b.let("half", shr(root, const(1, type_)))
        b.assign(rest, select(fits, sub(rest, tried), rest))
        b.assign(root, select(fits, add(half, digit), half))
        b.assign(digit, shr(digit, const(2, type_)))
    up = and_(gt(rest, root), ne(root, const((1 << digits) - 1, type_)))
    return add(root, select(up, const(1, type_), const(0, type_)))


_SEGMENTS = 7  # bits of the number of straight lines between two powers of two
_PLACES = 16  # binary places of logarithms
_LN2 = 45426  # in as many


@lowers(FilterBankLog, whole_shift)
def filter_bank_log(context: Context) -> Lowered:
    """log2 by straight lines from a table, then ln, scaled and rounded, up to 32767."""
    op = context.op(FilterBankLog)
    scale = const(op.output_scale & 0xFFFFFFFF, _U32)
    half = 1 << (_PLACES - 1)

    def prepare(lowering: Lowering) -> Callable[[KernelBuilder, Expr], Expr]:
        steps = np.arange((1 << _SEGMENTS) + 1) / (1 << _SEGMENTS)
        bulge = np.round((np.log2(1 + steps) - steps) * (1 << _PLACES)).astype(np.uint16)
        table = lowering.derived("bulge", Scalar.U16, bulge, "log2(1 + x) - x, 2**16 is 1")

        def log(b: KernelBuilder, value: Expr) -> Expr:
            scaled = b.let("scaled", shl(value, const(op.input_correction_bits, _U32)))
            whole = b.let("whole", highest_bit(b, scaled))
            # The highest bit at bit 31, then off, then the bits behind it as binary places.
            raised = shl(scaled, cast(sub(i32(31), whole), _U32))
            places = shr(shl(raised, const(1, _U32)), const(32 - _PLACES, _U32))
            fraction = b.let("fraction", cast(places, _I32))
            line = b.let("line", shr(fraction, i32(_PLACES - _SEGMENTS)))
            ends = (
                b.let("end", cast(load(table, cast(add(line, i32(n)), _INDEX)), _I32))
                for n in (0, 1)
            )
            begin, end = ends
            within = and_(fraction, i32((1 << (_PLACES - _SEGMENTS)) - 1))
            bent = shr(mul(sub(end, begin), within), i32(_PLACES))
            log2 = add(shl(whole, i32(_PLACES)), add(fraction, begin, bent))
            product = mul(cast(log2, _I64), const(_LN2, _I64))
            natural = cast(shr(add(product, const(half, _I64)), const(_PLACES, _I64)), _U32)
            wide = wrap_add(wrap_mul(scale, natural), const(half, _U32))
            result = b.let("result", shr(wide, const(_PLACES, _U32)))
            result = min_(result, const((1 << 15) - 1, _U32))
            return cast(select(gt(scaled, const(1, _U32)), result, const(0, _U32)), _I16)

        return log

    return prepared_map(context, "filter_bank_log", prepare)
