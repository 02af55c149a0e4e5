"""Operators that are evaluated while reading the file, because their results only steer others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.importers.tflite import schema
from crtexport.importers.tflite.operators import STEERING_BYTES, SourceOperator
from crtexport.importers.tflite.schema import BuiltinOperator
from crtexport.ir.evaluate import evaluate
from crtexport.ir.graph import Node, Tensor
from crtexport.ir.infer import infer
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.ir.verify import MAX_RANK
from crtexport.support.errors import CrtExportError

Array = npt.NDArray[Any]

_WHOLE = (DType.INT32, DType.INT64)


def _shape(source: SourceOperator) -> Array:
    options = source.optional_options(schema.ShapeOptions)
    code = options.out_type if options else schema.TensorType.INT32
    kinds = {schema.TensorType.INT32: np.int32, schema.TensorType.INT64: np.int64}
    if code not in kinds:
        raise CrtExportError("a shape's numbers must be int32 or int64")
    return np.array(source.type(0).shape, kinds[code])


def _rank(source: SourceOperator) -> Array:
    return np.array(len(source.type(0).shape), np.int32)


def _range(source: SourceOperator) -> Array:
    start, limit, delta = (
        _number(source, i, what) for i, what in enumerate(("the start", "the limit", "the step"))
    )
    dtype = source.type(0).dtype
    if not delta:
        raise CrtExportError("a step of 0")
    if dtype.is_integer:
        count = max(-(-(int(limit) - int(start)) // int(delta)), 0)
    else:
        with np.errstate(over="ignore"):
            span = (np.float32(limit) - np.float32(start)) / np.float32(delta)
        count = max(int(np.ceil(min(span, np.float32(STEERING_BYTES)))), 0)
    if count * dtype.itemsize > STEERING_BYTES:
        raise CrtExportError(f"a range of {count} numbers; the most is {STEERING_BYTES} bytes")
    if dtype.is_integer:
        return (int(start) + int(delta) * np.arange(count)).astype(dtype.numpy)
    # One after the other, as the reference kernel adds them.
    step = np.float32(delta)
    values = [np.float32(start)]
    for _ in range(count):
        values.append(np.float32(values[-1] + step))
    return np.array(values[:count], np.float32)


def _number(source: SourceOperator, index: int, role: str) -> float:
    tensor = source.given(index, role)
    usual = (*_WHOLE, DType.FLOAT32)
    if tensor.type.dtype not in usual or tensor.type.elements != 1:
        raise CrtExportError(f"{role} must be one number, found {tensor.type}")
    if tensor.type.dtype is not source.type(0).dtype:
        raise CrtExportError(f"{role} is {tensor.type}, the start {source.type(0)}")
    if tensor.type.dtype in _WHOLE:
        return source.integers(index, role)[0]
    if tensor.constant is None or tensor.constant.nbytes != tensor.type.nbytes:
        raise CrtExportError(f"{role} (tensor {tensor.name!r}) is computed at run time")
    value = float(tensor.constant.array(tensor.type).reshape(-1)[0])
    if not np.isfinite(value):
        raise CrtExportError(f"{role} is {value}")
    return value


def _broadcast_args(source: SourceOperator) -> Array:
    first, second = (source.integers(i, "the shape") for i in (0, 1))
    try:
        shape = np.broadcast_shapes(first, second)
    except ValueError as error:
        raise CrtExportError(f"{list(first)} and {list(second)} can't be broadcast") from error
    return np.array(shape, source.type(0).dtype.numpy)


FOLDED: Mapping[int, Callable[[SourceOperator], Array]] = {
    BuiltinOperator.SHAPE: _shape,
    BuiltinOperator.RANK: _rank,
    BuiltinOperator.RANGE: _range,
    BuiltinOperator.BROADCAST_ARGS: _broadcast_args,
}
"""Operators that never run, by their code in the file."""


def steering(node: Node, tensor: Callable[[int], Tensor]) -> list[Array] | None:
    """Returns the outputs of a node that only computes with small constants that can be shapes or
    axes."""
    given = [None if t is None else tensor(t) for t in node.inputs]
    for known in given:
        if known is None or known.constant is None or known.type.dtype not in _WHOLE:
            return None
        if known.type.quant is not None or known.type.nbytes > STEERING_BYTES:
            return None
        if known.constant.nbytes != known.type.nbytes:
            return None
    types = tuple(known.type for known in given if known is not None)
    declared = tuple(tensor(t).type.dtype for t in node.outputs)
    try:
        results = infer(node.op, types, declared=declared)
    except CrtExportError as error:
        raise error.within(str(node)) from error.__cause__
    if any(len(result.shape) > MAX_RANK for result in results):
        return None
    return evaluate(node.op, given, declared)


def dequantized(tensor: Tensor, result: Tensor) -> Tensor | None:
    """Returns what DEQUANTIZE makes of a constant of one scale or of float16, named as its
    ``result``; None of other tensors."""
    type_ = tensor.type
    if tensor.constant is None or tensor.constant.nbytes != type_.nbytes:
        return None
    values = tensor.constant.array(type_)
    if type_.dtype.is_integer:
        if type_.quant is None or not type_.quant.per_tensor:
            return None
        scale, zero = np.float32(type_.quant.scale[0]), type_.quant.zero_point[0]
        return constant(result, (values.astype(np.int32) - zero).astype(np.float32) * scale)
    return constant(result, values.astype(np.float32))


def constant(tensor: Tensor, values: Array) -> Tensor:
    """``tensor`` with these values and their type."""
    dtype = next(d for d in DType if d.numpy == values.dtype)
    return Tensor(tensor.name, TensorType(dtype, values.shape), ConstantRef.of(values))
