"""Vectors whose lanes are output channels: what schedules of several instruction sets need of them.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.kir.builder import KernelBuilder, call, f32, i32
from crtexport.kir.intrinsics.generic_vectors import FLOATS, INTS
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.lowering.numerics.result_steps import TwoProducts

Ints = npt.NDArray[np.int64]


class IntegerVectors(Struct, frozen=True):
    """Vectors of 32-bit integers."""

    @abc.abstractmethod
    def of_ints(self, operation: str, *args: Expr) -> Expr:
        """Returns the intrinsic of an operation whose result is a vector of 32-bit integers."""

    def int_everywhere(self, value: int) -> Expr:
        return self.of_ints("dup", i32(value))

    def plus(self, value: Expr, number: int) -> Expr:
        """Returns a vector with a number added to each lane."""
        return self.of_ints("add", value, self.int_everywhere(number)) if number else value

    def between(
        self, value: Expr, bounds: tuple[float, float],
        widest: tuple[float, float] = (-math.inf, math.inf),
    ) -> Expr:
        """Returns a vector clamped to ``bounds``; ``widest``: bounds that every lane keeps anyway.
        """
        for name, bound, most in zip(("max", "min"), bounds, widest, strict=True):
            if bound != most:
                value = self.of_ints(name, value, self.int_everywhere(int(bound)))
        return value


class RequantizingVectors(IntegerVectors, frozen=True):
    """Vectors of integers with TFLite's ``MultiplyByQuantizedMultiplier``."""

    @abc.abstractmethod
    def raised(self, value: Expr, places: int) -> Expr:
        """Returns value * 2**places, which wraps."""

    @abc.abstractmethod
    def high(self, value: Expr, mantissa: int) -> Expr:
        """Returns value * mantissa / 2**31, rounded half up."""

    @abc.abstractmethod
    def upper(self, value: Expr, factor: int) -> Expr:
        """value * factor / 2**32, rounded down."""

    @abc.abstractmethod
    def toward(self, value: Expr) -> Expr:
        """Returns the value with 1 subtracted from negative lanes: :meth:`rounded` then rounds
        halves away from zero."""

    @abc.abstractmethod
    def rounded(self, value: Expr, places: int) -> Expr:
        """Returns value / 2**places, rounded half up."""

    def multiplied(
        self, b: KernelBuilder, value: Expr, multiplier: Multiplier, *, signed: bool = True
    ) -> Expr:
        """Returns integers scaled by the one multiplier of ``multiplier``. Unless ``signed``,
        negative results may be rounded differently, for results that are clamped at 0."""
        (mantissa,), (shift,) = multiplier.mantissas, multiplier.shifts
        if shift > 0:
            value = self.raised(value, shift)
        value = b.let("high", self.high(value, mantissa))
        if shift < 0:
            value = self.rounded(self.toward(value) if signed else value, -shift)
        return b.let("scaled", value)


    def by_two_products(
        self, b: KernelBuilder, value: Expr, products: TwoProducts, bounds: tuple[int, int]
    ) -> Expr:
        """Results within ``bounds`` by the constants of the first channel, whose second product
        isn't rounded: see :mod:`crtexport.lowering.numerics.result_steps`."""
        addend, first, second = (int(number) for number in products.constants[0])
        moved = self.plus(self.raised(value, products.places), addend)
        high = b.let("high", self.upper(moved, first))
        if products.shift is None:
            scaled = self.upper(high, second)
        else:  # shifts of vectors round
            scaled = self.rounded(self.plus(high, -(1 << products.shift - 1)), products.shift)
        return b.let("scaled", self.between(scaled, bounds))


class VectorMachine(IntegerVectors, frozen=True):
    """``lanes`` of 32 bits in a vector. ``family``: the prefix of its intrinsics' names.
    ``shifts``: the least and the greatest shift to the right of scaled sums."""

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
        return call(f"{self.family}_{operation}_{self.lanes}", *args, type_=self.ints)

    def of_reals(self, operation: str, *args: Expr) -> Expr:
        """Returns the intrinsic of an operation whose result is a vector of floats."""
        return call(f"{self.family}_{operation}_{self.lanes}", *args, type_=self.reals)

    def real_everywhere(self, value: float) -> Expr:
        return self.of_reals("fdup", f32(value))

    def scales(self, multiplier: Multiplier) -> bool:
        """Returns whether vectors can be shifted by the multiplier's shifts."""
        least, most = self.shifts
        return all(least <= -shift <= most for shift in multiplier.shifts)

    @abc.abstractmethod
    def plus_product(self, total: Expr, a: Expr, b: Expr) -> Expr:
        """Returns total + a * b, of floats."""

    @abc.abstractmethod
    def places(self, shifts: Ints) -> Ints:
        """Returns the shifts in the form that :meth:`scaled` takes. ``shifts`` are negative: to the
        right."""

    @property
    @abc.abstractmethod
    def places_note(self) -> str:
        """Returns the comment for generated C on the numbers that :meth:`places` returns."""

    @abc.abstractmethod
    def scaled(self, total: Expr, mantissas: Expr, places: Expr, *, signed: bool) -> Expr:
        """Returns sums times multipliers, with both of TFLite's roundings. Unless ``signed``,
        negative results may be rounded differently."""
