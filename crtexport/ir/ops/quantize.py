"""Changes of scale and element type."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.ops.base import Elementwise


@dataclass(frozen=True)
class Quantize(Elementwise):
    """Float to a quantized integer, or a quantized integer to another scale or type."""


@dataclass(frozen=True)
class Dequantize:
    """A quantized integer (or float16) to float32."""


@dataclass(frozen=True)
class Cast:
    """The stored numbers in another element type: toward zero from floats, modulo to integers."""
