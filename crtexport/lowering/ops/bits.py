"""Bits of whole numbers: and, or, exclusive or, shifts, and other types for the same bits."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.ir.ops import Bitcast, BitwiseAnd, BitwiseOr, BitwiseXor, ShiftLeft, ShiftRight
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    and_,
    call,
    cast,
    clamp,
    const,
    load,
    lt,
    or_,
    select,
    shl,
    shr,
    xor,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.elementwise_maps import element_map
from crtexport.lowering.ops.elementwise import Compute, binary
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

WHOLE = same_types(
    DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32, DType.UINT32, DType.INT64
)
_UNSIGNED = (DType.UINT8, DType.UINT16, DType.UINT32)


def _work(dtype: DType) -> Scalar:
    """Returns the type that numbers are computed in: of 32 or 64 bits."""
    if dtype is DType.INT64:
        return Scalar.I64
    return Scalar.U32 if dtype in _UNSIGNED else Scalar.I32


def _bitwise(context: Context, name: str, function: Callable[[Expr, Expr], Expr]) -> Lowered:
    def prepare(lowering: Lowering) -> Compute:
        dtype = lowering.context.input(0).dtype
        work, stored = _work(dtype), SCALAR_OF[dtype]
        return lambda a, c: cast(
            lowering.b.let("bits", function(cast(a, work), cast(c, work))), stored
        )

    return binary(context, name, prepare)


@lowers(BitwiseAnd, WHOLE)
def bitwise_and(context: Context) -> Lowered:
    """Bits of both."""
    return _bitwise(context, "bitwise_and", and_)


@lowers(BitwiseOr, WHOLE)
def bitwise_or(context: Context) -> Lowered:
    """Bits of either."""
    return _bitwise(context, "bitwise_or", or_)


@lowers(BitwiseXor, WHOLE)
def bitwise_xor(context: Context) -> Lowered:
    """Bits of one alone."""
    return _bitwise(context, "bitwise_xor", xor)


def _shift(context: Context, name: str, *, left: bool) -> Lowered:
    """Emits a shift by a non-negative number; a shift by the width of the type or more leaves no
    bits."""

    def prepare(lowering: Lowering) -> Compute:
        b, dtype = lowering.b, lowering.context.input(0).dtype
        work, stored, width = _work(dtype), SCALAR_OF[dtype], 8 * dtype.itemsize

        def shifted(a: Expr, c: Expr) -> Expr:
            value, by = b.let("given", cast(a, work)), b.let("by", cast(c, work))
            inside = b.let("inside", clamp(by, 0, width - 1))
            moved = b.let("moved", (shl if left else shr)(value, inside))
            zero = const(0, work)
            gone = zero if left or dtype in _UNSIGNED else select(
                lt(value, zero), const(-1, work), zero
            )
            return cast(select(lt(by, const(width, work)), moved, b.let("gone", gone)), stored)

        return shifted

    return binary(context, name, prepare)


@lowers(ShiftLeft, WHOLE)
def shift_left(context: Context) -> Lowered:
    """Bits moved up; negative counts are 0, those of the width and above leave 0."""
    return _shift(context, "shift_left", left=True)


@lowers(ShiftRight, WHOLE)
def shift_right(context: Context) -> Lowered:
    """Bits moved down; negative counts are 0, those of the width and above leave 0, or -1 of
    negative numbers."""
    return _shift(context, "shift_right", left=False)


def same_size(context: Context) -> str | None:
    """Input and output must be of elements of one size: of numbers or bool."""
    source, target = context.input(0).dtype, context.output().dtype
    if source.itemsize == target.itemsize and {source, target} <= {*SCALAR_OF}:
        return None
    return f"found {source.value} as {target.value}"


@lowers(Bitcast, same_size)
def bitcast(context: Context) -> Lowered:
    """The same bits."""
    source, target = SCALAR_OF[context.input(0).dtype], SCALAR_OF[context.output().dtype]
    word = {Scalar.F16: Scalar.I16, Scalar.F64: Scalar.I64}
    if not word.keys().isdisjoint((source, target)):
        whole = word.get(source, word.get(target))
        lowering = Lowering("bitcast", context)
        given, made = lowering.input(0, "input", whole), lowering.output(dtype=whole)
        with lowering.b.loop("i", context.output().elements) as i:
            lowering.b.store(made, i, load(given, i))
        return lowering.finish()

    def function(b: KernelBuilder, value: Expr) -> Expr:
        del b
        if source is Scalar.F32 and target is not Scalar.F32:
            return cast(call("bits_from_f32", value, type_=Scalar.I32), target)
        if target is Scalar.F32 and source is not Scalar.F32:
            return call("f32_from_bits", cast(value, Scalar.I32), type_=Scalar.F32)
        return cast(value, target)

    return element_map(context, "bitcast", function)
