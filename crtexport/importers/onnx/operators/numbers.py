"""Arithmetic that operators share. Integers of a type without kernels are computed in a wider type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import numpy as np
from msgspec.structs import replace

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import (
    Div,
    Equal,
    Lookup,
    Maximum,
    Minimum,
    Mul,
    Op,
    Relu,
    Relu6,
    ReluN1To1,
    Select,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_WIDER = {
    DType.INT8: DType.INT32, DType.UINT8: DType.INT32, DType.INT16: DType.INT32,
    DType.UINT16: DType.INT32, DType.UINT32: DType.INT64, DType.INT32: DType.INT64,
    DType.BOOL: DType.INT32,
}
"""The next type that holds all numbers of each type."""


def work_type(dtype: DType, supported: Sequence[DType]) -> DType:
    """Returns ``dtype``, or the next wider type of those that are ``supported``. Raises
    CrtExportError where there is none."""
    found: DType | None = dtype
    while found is not None and found not in supported:
        found = _WIDER.get(found)
    if found is None:
        raise CrtExportError(
            f"{dtype.value} is not supported; supported are "
            + ", ".join(sorted(d.value for d in supported))
        )
    return found


def computed(
    node: OnnxNode, compute: Callable[..., Value], supported: Sequence[DType], *values: Value,
    result: DType | None = None,
) -> Value:
    """Returns ``compute`` of the values in a type that is ``supported``, cast to ``result``
    (default: the type that they came in)."""
    dtype = node.dtype(values[0])
    for value in values:
        if node.dtype(value) is not dtype:
            raise CrtExportError(
                f"the inputs differ in type: {dtype.value} and {node.dtype(value).value}"
            )
    work = work_type(dtype, supported)
    made = compute(*(node.cast(value, work) for value in values))
    return node.cast(made, result or dtype)


def operands(node: OnnxNode) -> tuple[Value, Value]:
    """Returns both inputs of an operator that broadcasts. Before opset 7 an ``axis`` says which one
    of the first input is the first one of the second; without it, their last ones are the same."""
    a, b = node.all()
    if node.version >= 7:
        return a, b
    node.ignore("broadcast")
    behind = len(a.shape) - len(b.shape) - node.integer("axis", len(a.shape) - len(b.shape))
    if behind < 0:
        raise CrtExportError(f"the axis is too large for {a.shape} and {b.shape}")
    return a, node.builder.reshaped(b, (*b.shape, *(1,) * behind))


def pairwise(
    node: OnnxNode, op: Op, supported: Sequence[DType], *values: Value, result: DType | None = None
) -> Value:
    """Returns an elementwise operator of the values in a type that is ``supported``."""
    return computed(
        node, lambda *wide: node.elementwise(op, *wide), supported, *values, result=result
    )


FLOAT = DType.FLOAT32
WHOLE = (DType.INT32, DType.INT64)
"""Types in which sums and products wrap as ONNX's do."""


def clamped(node: OnnxNode, x: Value, low: float | None, high: float | None) -> Value:
    """Returns min(max(x, low), high), as a clamp that kernels can fuse if there is one."""
    dtype = node.dtype(x)
    low = None if low is not None and low == -np.inf else low
    high = None if high is not None and high == np.inf else high
    if dtype is FLOAT:
        largest = float(np.finfo(np.float32).max)
        if low == 0 and (high is None or high >= largest):
            return node.unary(Relu(), x)
        if low == 0 and high == 6:
            return node.unary(Relu6(), x)
        if low == -1 and high == 1:
            return node.unary(ReluN1To1(), x)

    def clamp(y: Value) -> Value:
        for bound, op in ((low, Maximum()), (high, Minimum())):
            if bound is not None:
                y = node.elementwise(op, y, node.like(bound, y))
        return y

    return computed(node, clamp, (FLOAT, *WHOLE), x)


def clamped_bytes(
    node: OnnxNode, x: Value, low: float | None, high: float | None
) -> Value:
    """Returns min(max(x, low), high) of 8-bit integers by a table of all; with a scale, which the
    result then has too (Brevitas writes integers of fewer bits so)."""
    builder, (least, most) = node.builder, node.dtype(x).limits
    ends = least if low is None else low, most if high is None else high
    results = np.clip(np.arange(least, most + 1), *ends)
    signed, quant = builder.signed.get(x.tensor), builder.type(x.tensor).quant
    if signed is None or quant is None:
        table = node.constant(results, node.dtype(x))
        (made,) = builder.emit(Lookup(), x.tensor, table.tensor)
        if quant is not None:
            builder.scaled(made, quant)
        return replace(x, tensor=made)
    table = node.constant(results - 128, DType.INT8)
    (inner,) = builder.emit(Lookup(), signed, table.tensor)
    own = builder.type(signed).quant
    if own is not None:
        builder.scaled(inner, own)
    made = builder.quantize(inner, node.dtype(x), quant)
    builder.signed[made] = inner
    return replace(x, tensor=made)


def times(node: OnnxNode, value: Value, factor: float) -> Value:
    """Returns a value times a number."""
    if factor == 1:
        return value
    return node.elementwise(Mul(), value, node.like(factor, value))


def combined(node: OnnxNode, op: Op, values: Iterable[Value]) -> Value:
    """Returns all values, at least one, combined by an operator of two inputs."""
    return reduce(lambda a, b: node.elementwise(op, a, b), values)


def by_norm(node: OnnxNode, x: Value, norm: Value) -> Value:
    """Returns x / norm, or x if the norm is 0."""
    zero = node.elementwise(Equal(), norm, node.like(0, norm))
    return node.elementwise(Div(), x, node.elementwise(Select(), zero, node.like(1, norm), norm))
