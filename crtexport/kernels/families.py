"""All lowerings: importing this module fills the registry."""

from __future__ import annotations

from crtexport.kernels import (
    activation,
    arg,
    cast,
    compare,
    conv,
    detection,
    divide,
    elementwise,
    fused,
    gather,
    log_softmax,
    lstm,
    matmul,
    normalize,
    pad,
    pool,
    prelu,
    product,
    quantize,
    reduce,
    resize,
    shape,
    softmax,
    split,
    state,
    svdf,
    transpose_conv,
    unary,
)
from crtexport.kernels.registry import LOWERINGS, check, lower

FAMILIES = (
    activation, arg, cast, compare, conv, detection, divide, elementwise, fused, gather,
    log_softmax, lstm, matmul, normalize, pad, pool, prelu, product, quantize, reduce, resize,
    shape, softmax, split, state, svdf, transpose_conv, unary,
)

__all__ = ["FAMILIES", "LOWERINGS", "check", "lower"]
