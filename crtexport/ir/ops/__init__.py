"""The canonical operators: one frozen record each, attributes and one sentence, nothing else.

Layouts: activations NHWC, convolution weights OHWI, depthwise weights 1HWC, fully connected
weights (units, depth). Tensors that an importer found constant and that only steer an operator
(axes, shapes, paddings) are attributes here, never inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

from crtexport.ir.ops.activation import *
from crtexport.ir.ops.arithmetic import *
from crtexport.ir.ops.base import *
from crtexport.ir.ops.base import Op
from crtexport.ir.ops.bits import *
from crtexport.ir.ops.compare import *
from crtexport.ir.ops.control import *
from crtexport.ir.ops.detection import *
from crtexport.ir.ops.external import *
from crtexport.ir.ops.fused import *
from crtexport.ir.ops.fused import Cascade, Fused
from crtexport.ir.ops.gather import *
from crtexport.ir.ops.learning import *
from crtexport.ir.ops.pool import *
from crtexport.ir.ops.pool import AverageOfSums, ChannelSums
from crtexport.ir.ops.quantize import *
from crtexport.ir.ops.recurrent import *
from crtexport.ir.ops.reduce import *
from crtexport.ir.ops.resize import *
from crtexport.ir.ops.sample import *
from crtexport.ir.ops.shape import *
from crtexport.ir.ops.signal import *
from crtexport.ir.ops.state import *
from crtexport.ir.ops.unary import *
from crtexport.ir.ops.weighted import *


def _kinds(kind: type[Op]) -> Iterator[type[Op]]:
    for narrower in kind.__subclasses__():
        if narrower.__module__ != Op.__module__:  # which has the marks of operators
            yield narrower
        yield from _kinds(narrower)


INTERNAL = Fused, Cascade, ChannelSums, AverageOfSums
"""Operators that only exports make, of others."""

OPERATORS = tuple(sorted(_kinds(Op), key=lambda kind: kind.__name__))
"""Every operator: all that the modules here define, by name."""
