"""What vectors an x86-64 processor has."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.kernels.build import call, f32, i32
from crtexport.kernels.intrinsics_x86 import FLOATS, INTS, PAIRS
from crtexport.kernels.ir import Expr, Scalar
from crtexport.target import Target

_AVX2 = ("x86-64-v3", "x86-64-v4")


@dataclass(frozen=True)
class Machine:
    """``lanes`` of 32 bits in a vector; ``fma``: products are added with one rounding; ``dots``:
    four products of bytes at once, by VPDPBUSD."""

    lanes: int
    fma: bool
    dots: bool = False

    @property
    def ints(self) -> Scalar:
        return INTS[self.lanes]

    @property
    def reals(self) -> Scalar:
        return FLOATS[self.lanes]

    @property
    def pairs(self) -> Scalar:
        return PAIRS[self.lanes]

    def of_ints(self, operation: str, *args: Expr) -> Expr:
        """An operation that makes 32-bit integers."""
        return call(f"x86_{operation}_{self.lanes}", *args, type_=self.ints)

    def of_reals(self, operation: str, *args: Expr) -> Expr:
        """An operation that makes floats."""
        return call(f"x86_{operation}_{self.lanes}", *args, type_=self.reals)

    def spread_pair(self, word: Expr) -> Expr:
        """Two 16-bit integers in one i32, over and over."""
        return call(f"x86_pairs_{self.lanes}", word, type_=self.pairs)

    def int_everywhere(self, value: int) -> Expr:
        return self.of_ints("dup", i32(value))

    def real_everywhere(self, value: float) -> Expr:
        return self.of_reals("fdup", f32(value))

    def plus_product(self, total: Expr, a: Expr, b: Expr) -> Expr:
        """total + a * b, of floats."""
        return self.of_reals("fma" if self.fma else "muladd", a, b, total)


def machine_of(target: Target) -> Machine | None:
    """The vectors of a target; None where it is no x86-64, which always has the smaller ones."""
    if not target.triple.startswith("x86_64"):
        return None
    modern = target.cpu in _AVX2
    avx2 = modern or "+avx2" in target.features
    features = set(target.features)
    dots = avx2 and ("+avxvnni" in features or {"+avx512vnni", "+avx512vl"} <= features)
    return Machine(8 if avx2 else 4, avx2 and (modern or "+fma" in features), dots)
