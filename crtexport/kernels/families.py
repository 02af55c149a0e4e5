"""All lowerings: importing this module fills the registry."""

from __future__ import annotations

from crtexport.kernels import conv, elementwise, pool, reduce, shape, softmax, unary
from crtexport.kernels.registry import LOWERINGS, check, lower

FAMILIES = (conv, elementwise, pool, reduce, shape, softmax, unary)

__all__ = ["FAMILIES", "LOWERINGS", "check", "lower"]
