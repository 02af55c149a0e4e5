"""Vectors of x86-64 processors."""

from __future__ import annotations

import math
from typing import ClassVar

from msgspec.structs import replace

from crtexport.ir.types import DType
from crtexport.kir.builder import call, i32
from crtexport.kir.intrinsics.x86 import PAIRS
from crtexport.kir.language import Expr, Scalar
from crtexport.schedules.common import vector_machine
from crtexport.support.target import Target

_AVX512 = frozenset({"+avx512f", "+avx512bw", "+avx512dq", "+avx512vl"})


class X86Machine(
    vector_machine.VectorMachine, vector_machine.RequantizingVectors, frozen=True
):
    """``fma``: products are added with one rounding; ``dots``: VPDPBUSD adds four products of bytes
    at once; ``registers``: how many vectors there are room for."""

    fma: bool
    dots: bool = False
    registers: int = 16
    family: ClassVar[str] = "x86"
    shifts: ClassVar[tuple[int, int]] = (2, 31)  # which a product of 32 bits can do

    @property
    def nbytes(self) -> int:
        """Returns the bytes of a vector; weights that are aligned to as many don't make loads meet
        two lines of the cache."""
        return self.lanes * 4

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
        return -1 - shifts if self.lanes > 4 else 1 << (32 + shifts)

    @property
    def places_note(self) -> str:
        return "right shift - 1" if self.lanes > 4 else "2**(32 - right shift)"

    def scaled(self, total: Expr, mantissas: Expr, places: Expr, *, signed: bool) -> Expr:
        high = self.of_ints("mulr31", total, mantissas)
        if signed:
            high = self.toward(high)
        return self.of_ints("halved" if self.lanes > 4 else "mulr32", high, places)

    def raised(self, value: Expr, places: int) -> Expr:
        return self.of_ints("raised", value, i32(places))

    def high(self, value: Expr, mantissa: int) -> Expr:
        return self.of_ints("mulr31", value, self.int_everywhere(mantissa))

    def upper(self, value: Expr, factor: int) -> Expr:
        return self.of_ints("mulh32", value, self.int_everywhere(factor))

    def toward(self, value: Expr) -> Expr:
        return self.of_ints("toward", value)

    def rounded(self, value: Expr, places: int) -> Expr:
        return self.of_ints("rounded", value, i32(places - 1))

    def fitting(self, channels: int) -> X86Machine:
        """Returns the vectors for so many channels: half as wide where 16 lanes would be half
        empty, as AVX-512's processors have those, too."""
        return replace(self, lanes=8) if self.lanes == 16 and channels <= 8 else self


def machine_of(target: Target) -> X86Machine:
    """Returns the widest vectors of an x86-64; those of 128 bits are always there."""
    features = set(target.features)
    if target.cpu == "x86-64-v4" or features >= _AVX512:
        return X86Machine(16, fma=True, dots="+avx512vnni" in features, registers=32)
    modern = target.cpu == "x86-64-v3"
    if not modern and "+avx2" not in features:
        return X86Machine(4, fma=False)
    dots = "+avxvnni" in features or {"+avx512vnni", "+avx512vl"} <= features
    return X86Machine(8, modern or "+fma" in features, dots)
