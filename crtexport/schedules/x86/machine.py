"""Vectors of x86-64 processors."""

from __future__ import annotations

import math
from typing import ClassVar

from crtexport.ir.types import DType
from crtexport.kir.builder import call
from crtexport.kir.intrinsics.x86 import PAIRS
from crtexport.kir.language import Expr, Scalar
from crtexport.schedules.common import vector_machine
from crtexport.support.target import Target

_AVX2 = ("x86-64-v3", "x86-64-v4")


class X86Machine(vector_machine.VectorMachine, frozen=True):
    """``fma``: products are added with one rounding; ``dots``: VPDPBUSD adds four products of bytes
    at once."""

    fma: bool
    dots: bool = False
    family: ClassVar[str] = "x86"
    shifts: ClassVar[tuple[int, int]] = (2, 31)  # which a product of 32 bits can do

    @property
    def pairs(self) -> Scalar:
        return PAIRS[self.lanes]

    def spread_pair(self, word: Expr) -> Expr:
        """Returns a vector that repeats the two 16-bit integers of an i32."""
        return call(f"x86_pairs_{self.lanes}", word, type_=self.pairs)

    def plus_product(self, total: Expr, a: Expr, b: Expr) -> Expr:
        return self.of_reals("fma" if self.fma else "muladd", a, b, total)

    def between(
        self, value: Expr, bounds: tuple[float, float],
        widest: tuple[float, float] = (-math.inf, math.inf),
    ) -> Expr:
        if bounds == DType.INT8.limits:
            return self.of_ints("saturated", value)
        return super().between(value, bounds, widest)

    def places(self, shifts: vector_machine.Ints) -> vector_machine.Ints:
        return -1 - shifts if self.lanes == 8 else 1 << (32 + shifts)

    @property
    def places_note(self) -> str:
        return "right shift - 1" if self.lanes == 8 else "2**(32 - right shift)"

    def scaled(self, total: Expr, mantissas: Expr, places: Expr, *, signed: bool) -> Expr:
        high = self.of_ints("mulr31", total, mantissas)
        if signed:
            high = self.of_ints("toward", high)
        return self.of_ints("halved" if self.lanes == 8 else "mulr32", high, places)


def machine_of(target: Target) -> X86Machine:
    """Returns the widest vectors of an x86-64; those of 128 bits are always there."""
    modern = target.cpu in _AVX2
    avx2 = modern or "+avx2" in target.features
    features = set(target.features)
    dots = avx2 and ("+avxvnni" in features or {"+avx512vnni", "+avx512vl"} <= features)
    return X86Machine(8 if avx2 else 4, avx2 and (modern or "+fma" in features), dots)
