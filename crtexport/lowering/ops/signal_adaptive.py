"""Operators of audio front ends that go by what came before: noise, gains, overlapping frames.

Each gives the integers of TensorFlow Lite Micro's signal library (``signal/src``).
"""

from __future__ import annotations

import math

from crtexport.ir.ops import FilterBankSpectralSubtraction, OverlapAdd, Pcan
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    clamp,
    const,
    flat_index,
    ge,
    gt,
    i32,
    le,
    load,
    lt,
    max_,
    min_,
    mul,
    select,
    shl,
    shr,
    sub,
    wrap_add,
    wrap_mul,
    wrap_sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.highest_bit import highest_bit
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers

_I32, _U32, _I64, _INDEX = Scalar.I32, Scalar.U32, Scalar.I64, Scalar.INDEX


def shift_of_products(context: Context) -> str | None:
    """Bits that products lose must be from 0 to 32, and those that numbers gain from 0 to 31."""
    op = context.op(FilterBankSpectralSubtraction, Pcan)
    if isinstance(op, Pcan):
        lost, gained = op.snr_shift, 0
    else:
        lost, gained = op.spectral_subtraction_bits, op.smoothing_bits
    return None if 0 <= lost <= 32 and 0 <= gained < 32 else f"found {lost} and {gained}"


def _word(value: int) -> Expr:
    """Returns an attribute as the 32-bit number that the library reads it as."""
    return const(value & 0xFFFFFFFF, _U32)


def _product(a: Expr, c: Expr) -> Expr:
    """The lower 64 bits, which have the same 32 above any shift of up to 32, signed or not."""
    return wrap_mul(cast(a, _I64), cast(c, _I64))


def _shifted(product: Expr, bits: int) -> Expr:
    return cast(shr(product, const(bits, _I64)), _U32)


@lowers(FilterBankSpectralSubtraction, shift_of_products)
def spectral_subtraction(context: Context) -> Lowered:
    """Averages and differences of 32 bits, products of 64."""
    op = context.op(FilterBankSpectralSubtraction)
    lowering = Lowering("spectral_subtraction", context)
    b = lowering.b
    source, before = lowering.input(0, "input"), lowering.input(1, "before")
    output, noise = lowering.output(), lowering.output(1, "noise")
    weights = (
        (op.smoothing, op.alternate_smoothing),
        (op.one_minus_smoothing, op.alternate_one_minus_smoothing),
    )
    scale, bits = const(op.smoothing_bits, _U32), op.spectral_subtraction_bits
    with b.loop("i", context.output().elements) as i:
        odd = gt(and_(cast(i, _I32), i32(1)), i32(0))
        own, former = (
            b.let("weight", select(odd, _word(other), _word(usual))) for usual, other in weights
        )
        value = b.let("value", load(source, i))
        scaled = b.let("scaled", shl(value, scale))
        average = wrap_add(_product(scaled, own), _product(load(before, i), former))
        estimate = b.let("estimate", _shifted(average, bits))
        within = b.let("within", min_(estimate, scaled))
        least = b.let("least", _shifted(_product(value, _word(op.min_signal_remaining)), bits))
        b.store(output, i, max_(shr(sub(scaled, within), scale), least))
        b.store(noise, i, within if op.clamping else estimate)
    return lowering.finish()


_SNR_BITS, _OUTPUT_BITS = 12, 6
"""Binary places of the ratio of signal and noise, and of the result."""


@lowers(Pcan, shift_of_products)
def pcan(context: Context) -> Lowered:
    """A gain from a table, the ratio of signal and noise, and its soft threshold: x * x / 4 below
    2, else x - 1."""
    op = context.op(Pcan)
    lowering = Lowering("pcan", context)
    b = lowering.b
    source, noise, table = (
        lowering.input(i, name) for i, name in enumerate(("input", "noise", "gains"))
    )
    output = lowering.output()
    with b.loop("i", context.output().elements) as i:
        gain = _gain(b, table, b.let("noise_level", load(noise, i)))
        ratio = b.let("ratio", _shifted(_product(load(source, i), cast(gain, _U32)), op.snr_shift))
        small = shr(wrap_mul(ratio, ratio), const(2 + 2 * _SNR_BITS - _OUTPUT_BITS, _U32))
        places = shr(ratio, const(_SNR_BITS - _OUTPUT_BITS, _U32))
        large = wrap_sub(places, _word(1 << _OUTPUT_BITS))
        b.store(output, i, select(lt(ratio, _word(2 << _SNR_BITS)), small, large))
    return lowering.finish()


def _gain(b: KernelBuilder, table: Buffer, x: Expr) -> Expr:
    """Returns an element of the table for each x up to 2; beyond, a parabola for each power of two,
    whose three coefficients are in the table: as i32."""
    bits = b.let("octave", max_(highest_bit(b, x), i32(1)))  # of 3 at least
    first = b.let("first", cast(sub(mul(bits, i32(4)), i32(2)), _INDEX))
    # The 10 bits behind the highest one.
    left, right = (clamp(count, 0, 31) for count in (sub(i32(10), bits), sub(bits, i32(10))))
    moved = shr(shl(x, cast(left, _U32)), cast(right, _U32))
    fraction = b.let("fraction", cast(and_(moved, _word(0x3FF)), _I32))
    c0, c1, c2 = (
        b.let("c", cast(load(table, add(first, const(n))), _I32)) for n in range(3)
    )
    slope = add(shr(mul(c2, fraction), i32(5)), shl(c1, i32(5)))
    parabola = shr(wrap_add(wrap_mul(slope, fraction), i32(1 << 14)), i32(15))
    curved = cast(cast(add(parabola, c0), Scalar.I16), _I32)
    known = cast(load(table, cast(min_(x, _word(2)), _INDEX)), _I32)
    return b.let("gain", select(le(x, _word(2)), known, curved))


@lowers(OverlapAdd)
def overlap_add(context: Context) -> Lowered:
    """Each sample is a sum of what is left of former frames and of one frame after the other."""
    op = context.op(OverlapAdd)
    lowering = Lowering("overlap_add", context)
    b, type_ = lowering.b, context.input(0)
    *outer, count, size = type_.shape
    kept, rows = size - op.step, math.prod(outer)
    frames, before = lowering.input(0, "frames"), lowering.input(1, "before")
    output, after = lowering.output(), lowering.output(1, "after")
    done = count * op.step
    real = type_.dtype.is_float
    work = Scalar.F32 if real else _I32
    with b.loop("row", rows) as row:
        for target, start, extent in ((output, 0, done), (after, done, kept)):
            if not extent:
                continue
            with b.loop("i", extent) as i:
                t = b.let("t", add(i, const(start)))
                total = b.local("total", const(0, work))
                if kept:
                    with b.if_(lt(t, const(kept))):
                        old = flat_index([row, clamp(t, 0, kept - 1)], (rows, kept))
                        b.assign(total, cast(load(before, old), work))
                with b.loop("frame", count) as frame:
                    at = b.let("at", sub(t, mul(frame, const(op.step))))
                    with b.if_(and_(ge(at, const(0)), lt(at, const(size)))):
                        place = flat_index(
                            [row, frame, clamp(at, 0, size - 1)], (rows, count, size)
                        )
                        value = add(total, cast(load(frames, place), work))
                        b.assign(total, value if real else clamp(value, -(1 << 15), (1 << 15) - 1))
                to = flat_index([row, i], (rows, extent))
                b.store(target, to, cast(total, SCALAR_OF[type_.dtype]))
    return lowering.finish()
