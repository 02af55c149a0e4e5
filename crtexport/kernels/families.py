"""All lowerings: importing this module fills the registry."""

from __future__ import annotations

from crtexport.kernels import (
    compare,
    conv,
    divide,
    elementwise,
    pool,
    reduce,
    shape,
    softmax,
    state,
    unary,
)
from crtexport.kernels.registry import LOWERINGS, check, lower

FAMILIES = (compare, conv, divide, elementwise, pool, reduce, shape, softmax, state, unary)

__all__ = ["FAMILIES", "LOWERINGS", "check", "lower"]
