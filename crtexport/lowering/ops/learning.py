"""SquaredDistance."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from crtexport.ir.ops import SquaredDistance
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    f32,
    flat_index,
    load,
    mul,
    sub,
)
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

Array = npt.NDArray[Any]


@lowers(SquaredDistance, same_types(DType.FLOAT32))
def squared_distance(context: Context) -> Lowered:
    """Sums of squared differences."""
    lowering = Lowering("squared_distance", context)
    b = lowering.b
    (rows, width), (centers, _) = context.input(0).shape, context.input(1).shape
    source, others = lowering.input(0, "input"), lowering.input(1, "centers")
    output = lowering.output()
    with b.loop("row", rows) as row, b.loop("j", centers) as j:
        total = b.local("total", f32(0.0))
        with b.loop("i", width) as i:
            a = load(source, flat_index([row, i], (rows, width)))
            z = load(others, flat_index([j, i], (centers, width)))
            difference = b.let("difference", sub(a, z))
            b.assign(total, add(total, mul(difference, difference)))
        b.store(output, flat_index([row, j], (rows, centers)), total)
    return lowering.finish()
