"""RISC-V vectors in the kernels of fused nodes: the part of the second operator."""

from __future__ import annotations

from crtexport.ir.ops import Add, Mul, Sub
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.ops.elementwise import Compute
from crtexport.lowering.registry import Lowering
from crtexport.schedules.common.vector_elementwise import computed
from crtexport.schedules.rvv.machine import RvvMachine

_LANES = (16, 32)


class RvvVectorOps:
    """See :class:`crtexport.lowering.fusion.store_hooks.VectorOps`."""

    def elements(
        self, lowering: Lowering, op: Add | Sub | Mul, type_: Scalar
    ) -> Compute | None:
        """Supports int8 and int16, and sums of floats."""
        machine = _machine(type_)
        if machine is None:
            return None
        if type_.is_float:
            return _Reals(machine, float_range(op.activation)) if isinstance(op, Add) else None
        if not isinstance(op, Mul) and op.power_of_two_scales:
            return None
        return computed(lowering, op, machine)

    def largest(self, type_: Scalar) -> Compute | None:
        """Supports 32-bit integers and float32."""
        return _both(type_, "max")

    def total(self, type_: Scalar) -> Compute | None:
        """Supports 32-bit integers and float32."""
        return _both(type_, "add")


class _Reals:
    """Sums of floats with an activation."""

    def __init__(self, machine: RvvMachine, bounds: tuple[float, float]) -> None:
        self.machine, self.bounds = machine, bounds

    def __call__(self, first: Expr, second: Expr) -> Expr:
        value = self.machine.of_reals("fadd", first, second)
        for name, bound in zip(("fmax", "fmin"), self.bounds, strict=True):
            if abs(bound) != float("inf"):
                value = self.machine.of_reals(name, value, self.machine.real_everywhere(bound))
        return value


def _machine(type_: Scalar) -> RvvMachine | None:
    """Returns the machine whose vectors have this type; None if no machine's have."""
    if type_.is_vector and type_.lanes in _LANES and type_.lane in (Scalar.I32, Scalar.F32):
        return RvvMachine(type_.lanes)
    return None


def _both(type_: Scalar, operation: str) -> Compute | None:
    machine = _machine(type_)
    if machine is None:
        return None
    if type_.is_float:
        return lambda first, second: machine.of_reals(f"f{operation}", first, second)
    return lambda first, second: machine.of_ints(operation, first, second)
