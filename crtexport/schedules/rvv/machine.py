"""Vectors of RISC-V processors: those of V, or of Zve32x and Zve32f."""

from __future__ import annotations

from typing import ClassVar

from crtexport.kir.builder import call
from crtexport.kir.intrinsics.rvv import BYTES, HALVES
from crtexport.kir.language import Expr, Scalar
from crtexport.schedules.common import vector_machine
from crtexport.schedules.common.padded_row_ring import Copies
from crtexport.support.fixedpoint import wrap32


class RvvMachine(vector_machine.VectorMachine, vector_machine.RequantizingVectors, frozen=True):
    """16 lanes are four registers of 128 bits, 32 lanes eight of them."""

    family: ClassVar[str] = "rvv"
    shifts: ClassVar[tuple[int, int]] = (1, 31)

    @property
    def halves(self) -> Scalar:
        """Returns the type of a vector of as many 16-bit integers."""
        return HALVES[self.lanes]

    @property
    def bytes(self) -> Scalar:
        """Returns the type of a vector of as many 8-bit integers."""
        return BYTES[self.lanes]

    def of_halves(self, operation: str, *args: Expr) -> Expr:
        """Returns the intrinsic of an operation whose result has 16-bit integers."""
        return call(f"rvv_{operation}_{self.lanes}", *args, type_=self.halves)

    def of_bytes(self, operation: str, *args: Expr) -> Expr:
        """Returns the intrinsic of an operation whose result has 8-bit integers."""
        return call(f"rvv_{operation}_{self.lanes}", *args, type_=self.bytes)

    @property
    def copies(self) -> Copies:
        """Returns the vectors with which padded rows are copied; as many values may be read from
        each of their cells."""
        return {
            Scalar.I8: (self.bytes, f"rvv_bytes_{self.lanes}"),
            Scalar.I16: (self.halves, f"rvv_halves_{self.lanes}"),
            Scalar.F32: (self.reals, f"rvv_fdup_{self.lanes}"),
        }

    def plus_product(self, total: Expr, a: Expr, b: Expr) -> Expr:
        return self.of_reals("fma", a, b, total)

    def places(self, shifts: vector_machine.Ints) -> vector_machine.Ints:
        return -shifts

    @property
    def places_note(self) -> str:
        return "right shift"

    def scaled(self, total: Expr, mantissas: Expr, places: Expr, *, signed: bool) -> Expr:
        # VSSRA rounds halves up; less 1 from negative numbers, they go away from zero.
        high = self.of_ints("vsmul", total, mantissas)
        return self.of_ints("vssra", self.toward(high) if signed else high, places)

    def raised(self, value: Expr, places: int) -> Expr:
        return self.of_ints("mul", value, self.int_everywhere(wrap32(1 << places)))

    def high(self, value: Expr, mantissa: int) -> Expr:
        return self.of_ints("vsmul", value, self.int_everywhere(mantissa))

    def upper(self, value: Expr, factor: int) -> Expr:
        return self.of_ints("vmulh", value, self.int_everywhere(factor))

    def toward(self, value: Expr) -> Expr:
        return self.of_ints("toward", value)

    def rounded(self, value: Expr, places: int) -> Expr:
        return self.of_ints("vssra", value, self.int_everywhere(places))
