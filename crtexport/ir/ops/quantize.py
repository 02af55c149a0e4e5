"""Changes of scale and element type."""

from __future__ import annotations

from crtexport.ir.ops.base import Elementwise, Op


class Quantize(Elementwise, frozen=True):
    """Float to a quantized integer, or a quantized integer to another scale or type."""


class Dequantize(Op, frozen=True):
    """A quantized integer (or float16) to float32."""


class Cast(Op, frozen=True):
    """The stored numbers in another element type: toward zero from floats, modulo to integers."""
