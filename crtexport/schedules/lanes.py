"""What schedules of several machines know of vectors whose lanes are output channels."""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtexport.frozen import dataclass
from crtexport.kernels.build import call, f32, i32
from crtexport.kernels.intrinsics_vectors import FLOATS, INTS
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.requantize import Multiplier

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Machine(abc.ABC):
    """``lanes`` of 32 bits in a vector; ``family``: what names of its intrinsics begin with;
    ``shifts``: the least and the most places by which it shifts scaled sums to the right."""

    lanes: int
    family: ClassVar[str]
    shifts: ClassVar[tuple[int, int]]

    @property
    def ints(self) -> Scalar:
        return INTS[self.lanes]

    @property
    def reals(self) -> Scalar:
        return FLOATS[self.lanes]

    def of_ints(self, operation: str, *args: Expr) -> Expr:
        """An operation that makes 32-bit integers."""
        return call(f"{self.family}_{operation}_{self.lanes}", *args, type_=self.ints)

    def of_reals(self, operation: str, *args: Expr) -> Expr:
        """An operation that makes floats."""
        return call(f"{self.family}_{operation}_{self.lanes}", *args, type_=self.reals)

    def int_everywhere(self, value: int) -> Expr:
        return self.of_ints("dup", i32(value))

    def real_everywhere(self, value: float) -> Expr:
        return self.of_reals("fdup", f32(value))

    def plus(self, value: Expr, number: int) -> Expr:
        """Integers and one number."""
        return self.of_ints("add", value, self.int_everywhere(number)) if number else value

    def between(
        self, value: Expr, bounds: tuple[float, float],
        widest: tuple[float, float] = (-math.inf, math.inf),
    ) -> Expr:
        """Integers within ``bounds``; ``widest`` are those that no lane leaves."""
        for name, bound, most in zip(("max", "min"), bounds, widest, strict=True):
            if bound != most:
                value = self.of_ints(name, value, self.int_everywhere(int(bound)))
        return value

    def scales(self, multiplier: Multiplier) -> bool:
        """Whether vectors are shifted as far as the multiplier says."""
        least, most = self.shifts
        return all(least <= -shift <= most for shift in multiplier.shifts)

    def multiplied(self, value: Expr, multiplier: Multiplier, *, signed: bool) -> Expr:
        """Integers times the one number of ``multiplier``, which :meth:`scales`; for ``signed`` see
        :meth:`scaled`."""
        (mantissa,) = multiplier.mantissas
        (place,) = self.places(np.array(multiplier.shifts, np.int64)).tolist()
        return self.scaled(
            value, self.int_everywhere(mantissa), self.int_everywhere(place), signed=signed
        )

    @abc.abstractmethod
    def plus_product(self, total: Expr, a: Expr, b: Expr) -> Expr:
        """total + a * b, of floats."""

    @abc.abstractmethod
    def places(self, shifts: Ints) -> Ints:
        """What :meth:`scaled` takes for ``shifts``, which are negative: to the right."""

    @abc.abstractmethod
    def scaled(self, total: Expr, mantissas: Expr, places: Expr, *, signed: bool) -> Expr:
        """Sums times multipliers, both roundings as TFLite's; unless ``signed``, negative results
        may be rounded otherwise."""
