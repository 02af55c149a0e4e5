"""Sums, differences and products of tensors of one shape on MVE, four elements at once."""

from __future__ import annotations

from crtexport.ir.ops import Add, Mul, Sub
from crtexport.ir.types import DType
from crtexport.kir.builder import call, f32
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.ops.elementwise import Compute
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common import vector_elementwise
from crtexport.schedules.common.vector_machine import RequantizingVectors
from crtexport.schedules.mve.float import finished
from crtexport.schedules.mve.requantize import SUFFIXES, vector

UNROLL = 2


def lower(context: Context, op: Add | Sub | Mul) -> Lowered | None:
    """Returns a node that keeps its operator's rules; None where this is no way."""
    return vector_elementwise.lower(context, op, _Machine(), Scalar.I32X4, UNROLL, assembled=True)


class _Machine(RequantizingVectors, frozen=True):
    def of_ints(self, operation: str, *args: Expr) -> Expr:
        return vector(f"{operation}_s32", *args)

    def raised(self, value: Expr, places: int) -> Expr:
        return self.of_ints("rshl", value, self.int_everywhere(places))

    def high(self, value: Expr, mantissa: int) -> Expr:
        return self.of_ints("qrdmulh", value, self.int_everywhere(mantissa))

    def upper(self, value: Expr, factor: int) -> Expr:
        return self.of_ints("mulh", value, self.int_everywhere(factor))

    def toward(self, value: Expr) -> Expr:
        return self.of_ints("add", value, self.of_ints("sign", value))

    def rounded(self, value: Expr, places: int) -> Expr:
        return self.of_ints("rshl", value, self.int_everywhere(-places))


class MveVectorOps:
    """Computes with the results of layers: see
    :class:`crtexport.lowering.fusion.store_hooks.VectorOps`."""

    def elements(
        self, lowering: Lowering, op: Add | Sub | Mul, type_: Scalar
    ) -> Compute | None:
        """Returns how four lanes of int8 or float32 are computed."""
        if type_ is Scalar.I32X4 and lowering.context.output().dtype is DType.INT8:
            return vector_elementwise.computed(lowering, op, _Machine())
        if type_ is Scalar.F32X4 and isinstance(op, Add):
            b = lowering.b

            def plus(first: Expr, second: Expr) -> Expr:
                return finished(b, b.let("total", _float_sum(first, second)), op.activation)

            return plus
        return None

    def largest(self, type_: Scalar) -> Compute | None:
        """Returns how the largest of any lanes is computed."""
        suffix = SUFFIXES.get(type_)
        if suffix is None:
            return None
        return lambda first, second: call(f"mve_max_{suffix}", first, second, type_=type_)

    def total(self, type_: Scalar) -> Compute | None:
        """Returns how sums of words, half-words or float32 are computed."""
        if type_ is Scalar.F32X4:
            return _float_sum
        if type_ not in (Scalar.I32X4, Scalar.I16X8):
            return None
        name = f"mve_add_{SUFFIXES[type_]}"
        return lambda first, second: call(name, first, second, type_=type_)


def _float_sum(first: Expr, second: Expr) -> Expr:
    """Returns a product with 1 that is added: rounded once, so as sums are."""
    one = call("mve_dup_f32", f32(1.0), type_=Scalar.F32X4)
    return call("mve_fma_f32", first, second, one, type_=Scalar.F32X4)
