"""Loops of operators along the last axis."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.ir.types import DType
from crtexport.kir.builder import KernelBuilder, cast, f32, flat_index, i32, load, max_
from crtexport.kir.intervals import type_range
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.registry import Context, Lowered, Lowering


def rows_of(context: Context) -> tuple[int, int]:
    """Returns the number of rows of the first input, and their length."""
    shape = context.input(0).shape
    depth = shape[-1] if shape else 1
    return (context.input(0).elements // depth if depth else 0), depth


def rows_kernel(
    context: Context, name: str, floats: Callable[[Lowering, Buffer], None],
    integers: Callable[[Lowering, Buffer], None],
) -> Lowered:
    """Returns the kernel ``name`` of an operator with one input. ``floats`` emits the rows of
    float32 inputs, ``integers`` those of quantized ones; both get the input's buffer."""
    lowering = Lowering(name, context)
    source = lowering.input(0, "input")
    (floats if context.input(0).dtype is DType.FLOAT32 else integers)(lowering, source)
    return lowering.finish()


def row_maximum(b: KernelBuilder, source: Buffer, row: Expr, shape: tuple[int, int]) -> Var:
    """Returns i32 or f32: the largest element of a row."""
    work = Scalar.F32 if source.dtype is Scalar.F32 else Scalar.I32
    lowest: Expr = (
        f32(float("-inf")) if work is Scalar.F32 else i32(type_range(source.dtype)[0])
    )
    largest = b.local("largest", lowest)
    with b.loop("i", shape[1]) as i:
        value = b.let("value", cast(load(source, flat_index([row, i], shape)), work))
        b.assign(largest, max_(largest, value))
    return largest
