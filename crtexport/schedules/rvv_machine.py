"""What vectors a RISC-V processor has: those of V, or of Zve32x and Zve32f."""

from __future__ import annotations

from typing import ClassVar

from crtexport.fixedpoint import wrap32
from crtexport.kernels.build import call
from crtexport.kernels.intrinsics_rvv import BYTES, HALVES
from crtexport.kernels.ir import Expr, Scalar
from crtexport.schedules import lanes
from crtexport.schedules.mve_rows import Copies


class Machine(lanes.Machine, lanes.Elements, frozen=True):
    """16 lanes are four registers of 128 bits, 32 lanes eight of them."""

    family: ClassVar[str] = "rvv"
    shifts: ClassVar[tuple[int, int]] = (1, 31)

    @property
    def halves(self) -> Scalar:
        """As many 16-bit integers."""
        return HALVES[self.lanes]

    @property
    def bytes(self) -> Scalar:
        """As many 8-bit integers."""
        return BYTES[self.lanes]

    def of_halves(self, operation: str, *args: Expr) -> Expr:
        """An operation that makes 16-bit integers."""
        return call(f"rvv_{operation}_{self.lanes}", *args, type_=self.halves)

    def of_bytes(self, operation: str, *args: Expr) -> Expr:
        """An operation that makes 8-bit integers."""
        return call(f"rvv_{operation}_{self.lanes}", *args, type_=self.bytes)

    @property
    def copies(self) -> Copies:
        """What padded rows are copied with; as many values may be read from each of their cells."""
        return {
            Scalar.I8: (self.bytes, f"rvv_bytes_{self.lanes}"),
            Scalar.I16: (self.halves, f"rvv_halves_{self.lanes}"),
            Scalar.F32: (self.reals, f"rvv_fdup_{self.lanes}"),
        }

    def plus_product(self, total: Expr, a: Expr, b: Expr) -> Expr:
        return self.of_reals("fma", a, b, total)

    def places(self, shifts: lanes.Ints) -> lanes.Ints:
        return -shifts

    def scaled(self, total: Expr, mantissas: Expr, places: Expr, *, signed: bool) -> Expr:
        # VSSRA rounds halves up; less 1 from negative numbers, they go away from zero.
        high = self.of_ints("vsmul", total, mantissas)
        return self.of_ints("vssra", self.toward(high) if signed else high, places)

    def raised(self, value: Expr, places: int) -> Expr:
        return self.of_ints("mul", value, self.int_everywhere(wrap32(1 << places)))

    def high(self, value: Expr, mantissa: int) -> Expr:
        return self.of_ints("vsmul", value, self.int_everywhere(mantissa))

    def toward(self, value: Expr) -> Expr:
        return self.of_ints("toward", value)

    def rounded(self, value: Expr, places: int) -> Expr:
        return self.of_ints("vssra", value, self.int_everywhere(places))
