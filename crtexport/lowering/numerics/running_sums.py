"""Sums of any number of int8 values of one scale, as TFLite Micro has them for ADD_N and CUMSUM
(``add_n.h``, ``cumsum.h``)."""

from __future__ import annotations

from crtexport.ir.types import DType
from crtexport.kir.builder import cast, i32, shl, sub
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.elementwise_maps import rescaler, stored
from crtexport.lowering.registry import Context, Lowering
from crtexport.support.fixedpoint import wrap32

_SHIFT = 20
"""The bits by which values are raised; that they are then halved, by twice their scale, is exact.
"""


def one_input_scale(context: Context) -> str | None:
    """Int8: inputs must share one scale and one zero point; the output has its own."""
    if context.output().dtype is not DType.INT8:
        return None
    quants = {context.input(i).quant for i in range(len(context.node.inputs))}
    if len(quants) > 1:
        return f"found {len(quants)} different ones"
    missing = [q for q in (*quants, context.output().quant) if q is None or not q.per_tensor]
    return "found none" if missing else None


class RunningSum:
    """Emits sums in i32, which wrap.

    As in the reference, they start with a stored 0 instead of a real 0: where the zero point isn't
    0, results are off by it.
    """

    def __init__(self, lowering: Lowering) -> None:
        context, self.b = lowering.context, lowering.b
        source, target = context.quant(context.input(0)), context.quant(context.output())
        self._zero, self._zero_out = source.zero_point[0], target.zero_point[0]
        ratio = 2.0 * source.scale[0] / ((1 << _SHIFT) * target.scale[0])
        self._rescale = rescaler(lowering, ratio, 1 << 31)

    @property
    def start(self) -> Expr:
        """Returns the initial value."""
        return i32(wrap32(-self._zero << (_SHIFT - 1)))

    def term(self, value: Expr) -> Expr:
        """Returns the term of an int8 value."""
        centred = sub(cast(value, Scalar.I32), i32(self._zero))
        return shl(self.b.let("centred", centred), i32(_SHIFT - 1))

    def result(self, total: Expr) -> Expr:
        """Returns a sum as int8."""
        scaled = self.b.let("scaled", self._rescale(total))
        return stored(self.b, scaled, self._zero_out, DType.INT8)
