"""Images of another size."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers
from crtexport.ir.ops import ResizeBilinear, ResizeNearestNeighbor
from crtexport.ir.types import TensorType


@infers(ResizeBilinear, ResizeNearestNeighbor)
def resize(op: ResizeBilinear | ResizeNearestNeighbor, given: Given) -> tuple[TensorType, ...]:
    image = given[0]
    if len(image.shape) != 4 or min(image.shape[1:3]) < 1:
        raise CrtExportError(f"the image must have 4 dimensions and pixels, found {image}")
    if min(op.size) < 1:
        raise CrtExportError(f"a size of {list(op.size)}; rows and columns must be at least 1")
    if op.align_corners and op.half_pixel_centers:
        raise CrtExportError("align_corners and half_pixel_centers exclude each other")
    return (TensorType(image.dtype, (image.shape[0], *op.size, image.shape[3])),)
