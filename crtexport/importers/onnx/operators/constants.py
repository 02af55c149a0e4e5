"""Constants, shapes as numbers, and changes of element types."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from crtexport.importers.onnx.constants import bits_of, element_type
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import Add, BitwiseAnd, BroadcastTo, Cast, NotEqual, Reshape, Sub
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_MOST = 1 << 24
"""Elements of a constant that is made of a few numbers."""


@operator("Constant", inputs=(0, 0))
def constant(node: OnnxNode) -> Value:
    if node.has("value"):
        value = node.tensor("value")
        if value is not None:
            return value
    if node.has("value_float"):
        return node.constant(node.real("value_float"), DType.FLOAT32)
    if node.has("value_floats"):
        return node.constant(node.reals("value_floats"), DType.FLOAT32)
    if node.has("value_int"):
        return node.constant(node.integer("value_int"), DType.INT64)
    if node.has("value_ints"):
        return node.constant(node.numbers("value_ints"), DType.INT64)
    if node.has("sparse_value"):
        return node.sparse("sparse_value")
    raise CrtExportError("a constant without a value of numbers")


@operator("ConstantOfShape")
def constant_of_shape(node: OnnxNode) -> Value:
    value = node.tensor("value")
    cell = value if value is not None else node.constant(0.0, DType.FLOAT32)
    if cell.elements != 1:
        raise CrtExportError(f"the value must be one element, found {cell.shape}")
    shape = node.integers(0, "the shape")
    if any(size < 0 for size in shape):
        raise CrtExportError(f"{list(shape)} is no shape")
    return node.emit(BroadcastTo(shape), node.builder.reshape(cell.tensor, ()))


@operator("Shape")
def shape(node: OnnxNode) -> Value:
    sizes = node.input(0).shape
    start, end = node.integer("start", 0), node.integer("end", len(sizes))
    return node.constant(sizes[slice(start, end)], DType.INT64)


@operator("Size")
def size(node: OnnxNode) -> Value:
    return node.constant(node.input(0).elements, DType.INT64)


@operator("Optional", "OptionalGetElement", oldest=15)
def optional(node: OnnxNode) -> Value:
    """Returns True for every tensor: files without sequences and optionals have no missing ones."""
    node.ignore("type")
    return node.input(0)


@operator("OptionalHasElement", inputs=(0, 1), oldest=15)
def optional_has_element(node: OnnxNode) -> Value:
    return node.constant(node.optional(0) is not None, DType.BOOL)


@operator("Range", inputs=(3, 3))
def range_(node: OnnxNode) -> Value:
    dtype = node.dtype(node.input(0))
    start, end, step = (node.number(i, "the range") for i in range(3))
    count = max(int(np.ceil((end - start) / step)), 0) if step else 0
    if not step or count > _MOST:
        raise CrtExportError(f"a range from {start:g} to {end:g} by {step:g}")
    return node.constant(start + np.arange(count) * step, dtype)


@operator("Cast", follows=True)
def cast(node: OnnxNode) -> Value:
    node.ignore("saturate", "round_mode")
    code = node.integer("to")
    return converted(node, node.input(0), element_type(code), bits_of(code))


@operator("CastLike", inputs=(2, 2), follows=True)
def cast_like(node: OnnxNode) -> Value:
    node.ignore("saturate", "round_mode")
    like = node.input(1)
    return converted(node, node.input(0), node.dtype(like), node.builder.bits.get(like.tensor))


def converted(node: OnnxNode, x: Value, dtype: DType, bits: int | None = None) -> Value:
    """Returns the value cast to another element type; to bool, whether it isn't 0. Integers with
    fewer ``bits`` than a byte keep only these bits."""
    known = node.builder.bits.get(x.tensor)
    if bits is not None and (known, node.dtype(x)) != (bits, dtype):
        return _of_bits(node, x, dtype, bits)
    if node.dtype(x) is dtype and known == bits:
        return x
    if node.dtype(x) is dtype:
        (same,) = node.builder.emit(Reshape(node.type(x.tensor).shape), x.tensor)
        node.builder.narrow(same, None)
        return replace(x, tensor=same)
    if dtype is DType.FLOAT32 and x.tensor in node.builder.floats:
        return replace(x, tensor=node.builder.floats[x.tensor])
    if dtype is DType.BOOL and not node.builder.is_constant(x):
        return node.elementwise(NotEqual(), x, node.like(0, x))
    return node.unary(Cast(), x, dtypes=(dtype,))


def _of_bits(node: OnnxNode, x: Value, dtype: DType, bits: int) -> Value:
    whole = node.cast(x, DType.INT32)
    sign = node.like(1 << bits - 1 if dtype.limits[0] else 0, whole)
    left = node.elementwise(
        BitwiseAnd(), node.elementwise(Add(), whole, sign), node.like((1 << bits) - 1, whole)
    )
    made = node.cast(node.elementwise(Sub(), left, sign), dtype)
    node.builder.narrow(made.tensor, bits)
    return made


@operator("Expand", inputs=(2, 2))
def expand(node: OnnxNode) -> Value:
    x = node.input(0)
    try:
        shape = np.broadcast_shapes(x.shape, node.integers(1, "the shape"))
    except ValueError:
        raise CrtExportError(f"{x.shape} doesn't broadcast to the shape") from None
    if shape == x.shape:
        return x
    return node.emit(BroadcastTo(shape), node.builder.arranged(x))


@operator("EyeLike")
def eye_like(node: OnnxNode) -> Value:
    x = node.input(0)
    if len(x.shape) != 2 or x.elements > _MOST:
        raise CrtExportError(f"{x.shape} is no matrix of up to {_MOST} elements")
    dtype = element_type(node.integer("dtype")) if node.has("dtype") else node.dtype(x)
    return node.constant(np.eye(*x.shape, node.integer("k", 0)), dtype)
