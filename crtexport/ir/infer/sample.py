"""Operators that read images at computed places."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.ops import Sample
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


@infers(Sample, required=2)
def sample(_op: Sample, inputs: InputTypes) -> tuple[TensorType, ...]:
    image, places = inputs[0], inputs[1]
    sizes = image.shape[1:-1]
    if not sizes or not all(0 < size < 1 << 15 for size in sizes):
        raise CrtExportError(f"{image} is no image")
    if places.dtype is not DType.FLOAT32 or len(places.shape) != 3 or (
        places.shape[0] != image.shape[0] or places.shape[2] != len(sizes)
    ):
        raise CrtExportError(f"places {places} in {image}")
    return (TensorType(image.dtype, (*places.shape[:2], image.shape[-1])),)
