"""Operators that resize images."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.ops import Resample, Resize
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


@infers(Resize)
def resize(op: Resize, inputs: InputTypes) -> tuple[TensorType, ...]:
    image = inputs[0]
    if len(image.shape) != 4 or min(image.shape[1:3]) < 1:
        raise CrtExportError(f"the image must have 4 dimensions and pixels, found {image}")
    if min(op.size) < 1:
        raise CrtExportError(f"a size of {list(op.size)}; rows and columns must be at least 1")
    if op.align_corners and op.half_pixel_centers:
        raise CrtExportError("align_corners and half_pixel_centers exclude each other")
    return (TensorType(image.dtype, (image.shape[0], *op.size, image.shape[3])),)


@infers(Resample, required=2, most=None)
def resample(op: Resample, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, tables = inputs[0], inputs.all()[1:]
    axes = op.axes
    rising = axes and sorted(set(axes)) == list(axes)
    if not rising or not 0 <= axes[0] <= axes[-1] < len(data.shape):
        raise CrtExportError(f"axes {list(axes)} of {data}")
    if len(tables) not in (len(axes), 2 * len(axes)):
        raise CrtExportError(f"{len(tables)} tables for {len(axes)} axes")
    indices, weights = tables[: len(axes)], tables[len(axes) :]
    wanted = 2 if weights else 1
    for axis, table in zip(axes, indices, strict=True):
        if table.dtype not in (DType.INT16, DType.INT32) or len(table.shape) != wanted:
            raise CrtExportError(f"{table} is no table of indices")
        if 0 in table.shape or not data.shape[axis]:
            raise CrtExportError(f"a table of indices {table} for axis {axis} of {data}")
    for table, places in zip(weights, indices, strict=bool(weights)):
        if table.dtype is not DType.FLOAT32 or table.shape != places.shape:
            raise CrtExportError(f"weights {table} for indices {places}")
    sizes = {axis: table.shape[0] for axis, table in zip(axes, indices, strict=True)}
    shape = tuple(sizes.get(axis, size) for axis, size in enumerate(data.shape))
    return (TensorType(data.dtype, shape),)
