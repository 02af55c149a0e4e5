"""Changes of scale and element type."""

from __future__ import annotations

from crtexport.ir.ops.base import Elementwise, Op


class Quantize(Elementwise, frozen=True):
    """Float to a quantized integer, or a quantized integer to another scale or type."""


class Dequantize(Op, frozen=True):
    """A quantized integer (or float16) to float32."""


class Lookup(Elementwise, frozen=True):
    """The entry of a table for each element: the second input has one for each value of the first
    one's 8-bit type, from the lowest on."""


class Cast(Op, frozen=True):
    """The stored numbers in another element type: toward zero from floats, modulo to integers."""
